#include "control/metrics/snapshot.h"

#include "common/json_schema.h"

namespace ina::metrics {

std::optional<std::string> Snapshot::text() {
  using Json = nlohmann::json;
  const std::lock_guard lock(mutex_);
  const Nanos began = clock_();
  if (began < fresh_until_) return text_;
  admin::Answer answer = queue_.ask(question_, kAnswerNs);
  const Nanos now = clock_();
  fresh_until_ = now + (answer ? fresh_for(now - began) : kFreshNs);
  text_.reset();
  if (!answer) return text_;
  (*answer)["schema"] = kJsonSchema;
  // Names come from workers: they may be no UTF-8, or mislead whoever reads the answer as text.
  text_ = answer->dump(-1, ' ', true, Json::error_handler_t::replace);
  return text_;
}

}  // namespace ina::metrics
