// Context: operations that are part of a Schedule over several contexts (hierarchy.h).
#include "client/context.h"
#include "common/clock.h"

namespace ina::client {

Operation* Context::submit_held(const OperationSpec& spec, Nanos now) {
  const auto lock = progress_.lock();
  link_.set_busy();
  Operation* const operation = link_.engine().submit(spec, now);
  progress_.count();
  return operation;
}

void Context::let_go(Operation* operation, const std::byte* send, std::byte* recv,
                     uint64_t elements, std::shared_ptr<const scheduler::BlockTable> blocks) {
  const auto lock = progress_.lock();
  if (callers_.failed() != INA_OK) return;
  EngineChannel(link_.engine()).let_go(operation, send, recv, elements, std::move(blocks));
}

void Context::forget(Operation* operation) {
  const auto lock = progress_.lock();
  link_.engine().release(operation);
}

void Context::give_up(int status, const std::string& text, bool mismatch) {
  if (callers_.failed() == INA_OK)
    send_control(mismatch ? request::Message(request::Mismatch{text}) : request::Abort{text});
  progress_.end(status, text);
  // Once this thread has the lock, the driving thread has seen the end.
  const auto lock = progress_.lock();
  progress_.forget();
}

std::string Context::explain_oldest() {
  std::string what;
  {
    const auto lock = progress_.lock();
    const Operation* const oldest = link_.engine().oldest();
    if (!oldest || oldest->spec.held) return {};
    what = describe(*oldest);
  }
  return what + "; " + explain();
}

void Context::replace_transport(const Link::Made& made) {
  const auto lock = progress_.lock();
  link_.replace(made);
}

}  // namespace ina::client
