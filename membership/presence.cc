#include "membership/presence.h"

#include "membership/control_text.h"

namespace ina::membership {

std::string Presence::away_text(const std::string& url, Nanos now) const {
  const auto state = callers_.lock();
  if (!is_away()) return "";
  if (!others_missing_.empty())
    return "the switch at " + url + " was restarted and waits for " + others_missing_ +
           " to come back";
  return "the switch at " + url + " has been gone for " + seconds(now - away_since_);
}

}  // namespace ina::membership
