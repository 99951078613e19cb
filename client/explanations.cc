#include "client/explanations.h"

#include "common/clock.h"
#include "membership/control_text.h"

namespace ina::client {

std::string Explanations::explain() {
  if (std::string away = away_text(); !away.empty()) return away;
  auto state = callers_.lock();
  explanation_.clear();
  if (!connection_.send(channel_, request::Explain{})) return membership::kNoAnswer;
  if (callers_.await(state, membership::kExplainNs, [&] { return !explanation_.empty(); }))
    return explanation_ + trouble_text(explanation_);
  state.unlock();
  const std::string failure = callers_.failure_text();
  return failure.empty() ? membership::kNoAnswer : failure;
}

std::string Explanations::away_text() const {
  return progress_.presence().away_text(settings_.url, now_ns());
}

std::string Explanations::give_up(const std::string& text) {
  const auto state = callers_.lock();
  giving_up_ = true;
  return trouble_text(text);  // for the other ranks, too
}

void Explanations::end_by_switch(Error error) {
  bool giving_up = false;
  {
    const auto state = callers_.lock();
    giving_up = giving_up_;
    if (error.status == INA_ERR_ABORTED || error.status == INA_ERR_TIMEOUT)
      error.text += trouble_text(error.text);
  }
  progress_.end(giving_up && error.status == INA_ERR_ABORTED ? INA_ERR_TIMEOUT : error.status,
                error.text);
}

void Explanations::on_explain(const answer::Explain& explain) {
  callers_.tell([&] { explanation_ = explain.text; });
}

void Explanations::on_dropped(const answer::Dropped& dropped) {
  callers_.tell([&] { dropped_text_ = dropped.text; });
}

/// Under the lock of Callers. Text about this worker's lost frames that `said` does not contain
/// yet.
std::string Explanations::trouble_text(const std::string& said) const {
  std::string text;
  if (!dropped_text_.empty() && said.find("the switch dropped") == std::string::npos)
    text = "; " + dropped_text_;
  const std::string own = attachment_.frames() ? attachment_.frames()->trouble() : "";
  if (!own.empty() && said.find(own) == std::string::npos) text += "; " + own;
  return text;
}

}  // namespace ina::client
