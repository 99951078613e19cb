// Context: operations that are part of a Schedule over several contexts (hierarchy.h).
#include "client/context.h"
#include "common/clock.h"

namespace ina::client {

Operation* Context::submit_held(const OperationSpec& spec, Nanos now) {
  const auto lock = lock_engine();
  transport_->set_idle(false);
  Operation* const operation = engine_->submit(spec, now);
  running_.store(engine_->running(), std::memory_order_relaxed);
  return operation;
}

void Context::let_go(Operation* operation, const std::byte* send, std::byte* recv,
                     uint64_t elements, std::shared_ptr<const scheduler::BlockTable> blocks) {
  const auto lock = lock_engine();
  if (callers_.failed() != INA_OK) return;
  EngineChannel(*engine_).let_go(operation, send, recv, elements, std::move(blocks));
}

void Context::forget(Operation* operation) {
  const auto lock = lock_engine();
  engine_->release(operation);
}

void Context::give_up(int status, const std::string& text, bool mismatch) {
  if (callers_.failed() == INA_OK)
    send_control(mismatch ? request::Message(request::Mismatch{text}) : request::Abort{text});
  end(status, text);
  // Whoever drives has seen it once the lock was free.
  const auto lock = lock_engine();
  running_ = 0;
  called_ = false;
}

std::string Context::explain_oldest() {
  std::string what;
  {
    const auto lock = lock_engine();
    const Operation* const oldest = engine_->oldest();
    if (!oldest || oldest->spec.held) return {};
    what = describe(*oldest);
  }
  return what + "; " + explain();
}

void Context::replace_transport(
    const std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>& made) {
  const auto lock = lock_engine();
  const std::lock_guard transport(transport_mutex_);
  transport_ = made(std::move(transport_));
}

}  // namespace ina::client
