// The differences between two configurations, key by key, and which of them a running switch can
// take over.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "switchd/config/config.h"

namespace ina::config {

/// One key with another value; or a port or tenant that came or went.
struct Change {
  std::string key;     ///< "aggregator.policy", "ports.eth0.mtu", "tenants.vision"
  std::string before;  ///< as in the file; empty: it was not there
  std::string after;   ///< as in the file; empty: it is not there any more
  /// The change holds from now on in a running switch. Otherwise a restarted switch reads it.
  bool in_place = false;
  bool operator==(const Change&) const = default;

  /// "aggregator.policy: static -> esa"
  std::string to_string() const;
};

/// In the order of the keys, then ports and tenants by their order in the files. Ports in another
/// order are a change of "ports".
std::vector<Change> changes(const Config& before, const Config& after);

/// Keys that change in place, by their full names; tenants besides.
std::span<const std::string_view> keys_in_place();

}  // namespace ina::config
