#include "membership/splits.h"

#include <utility>

namespace ina::membership {

std::optional<Splits::Answer> Splits::ask(int32_t colour, int32_t key, Nanos timeout_ns) {
  auto state = callers_.lock();
  asked_ = request::Split{.colour = colour, .key = key, .number = answered_ + 1};
  answer_.reset();
  // Otherwise it is sent once the switch is back.
  sent_ = !presence_.is_away();
  if (sent_) connection_.send(channel_, *asked_);
  callers_.await(state, timeout_ns, [&] { return answer_.has_value(); });
  asked_.reset();
  return std::exchange(answer_, std::nullopt);
}

void Splits::on_split(const answer::Split& split, uint64_t losses) {
  Answer answer{{split.status, split.text}, split.group, losses};
  callers_.tell([&] {
    ++answered_;
    if (asked_) answer_.emplace(std::move(answer));
  });
}

/// If the old switch had answered this split for any worker, its groups are gone for all; otherwise
/// it is asked again.
void Splits::ask_again(uint64_t furthest) {
  std::optional<request::Split> again;
  {
    const auto state = callers_.lock();
    if (furthest > answered_) {
      answered_ = static_cast<uint32_t>(furthest);
      if (asked_ && !answer_)
        answer_ = Answer{
            .error = {INA_ERR_SWITCH_LOST, "the switch was restarted while it split the job"}};
    } else if (asked_ && !answer_ && !sent_) {
      sent_ = true;
      again = asked_;
    }
  }
  if (again) connection_.send(channel_, *again);
  callers_.wake();
}

}  // namespace ina::membership
