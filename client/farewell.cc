#include "client/farewell.h"

#include "common/clock.h"
#include "membership/control_text.h"

namespace ina::client {

std::string Farewell::drain(Nanos deadline) {
  {
    const auto lock = progress_.lock();
    if (callers_.failed() != INA_OK) return {};
    operations_.submit_collected(now_ns());
    progress_.count();
  }
  for (;;) {
    progress_.drain(deadline);
    progress_.run_all_callbacks();  // which may start more
    const auto lock = progress_.lock();
    if (callers_.failed() != INA_OK) return {};
    if (link_.engine().running() == 0) {
      if (!progress_.has_callbacks()) return {};
    } else if (now_ns() >= deadline) {
      return std::to_string(link_.engine().running()) +
             " operations running, the oldest: " + describe(*link_.engine().oldest());
    }
  }
}

void Farewell::say() {
  leaving_ = true;
  send();
}

void Farewell::send() {
  const request::Leave leave{link_.engine().operations_submitted()};  // no call follows
  // Or it could reach the next switch, which refuses it while the job gathers.
  const auto state = callers_.lock();
  if (!progress_.is_away() && connection_.send_leave(channel_, leave)) ever_said_ = true;
}

bool Farewell::await_others(Nanos deadline) {
  return callers_.await(deadline - now_ns(), [&] { return left_; });
}

/// To the switch the closed connection is that of a lost worker.
int Farewell::leave_early(const std::string& running, Nanos waited_ns) {
  const std::string text = "left with " + running + ", for which it waited " +
                           membership::seconds(waited_ns) + "; " + explanations_.explain();
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  connection_.send(channel_, request::Abort{text, settings_.rank});
  return callers_.set_error(INA_ERR_TIMEOUT, text);
}

std::string Farewell::leave_with_job(Nanos deadline) {
  if (!progress_.is_live()) return {};
  if (std::string running = drain(deadline); !running.empty()) return running;
  if (callers_.failed() != INA_OK) return {};
  say();
  return {};
}

void Farewell::on_left() {
  callers_.tell([&] { left_ = true; });
}

}  // namespace ina::client
