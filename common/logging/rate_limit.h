// The limit on records that one source may cause in the log. Knows no clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "wire/types.h"

namespace ina::logging {

/// A token bucket for each source (a user, an address) and event, and one for all sources
/// together. The table is bounded: sources for which it has no room share a bucket.
class RateLimit {
 public:
  struct Limits {
    uint32_t burst = 20;             ///< records of one source and event at once
    Nanos every_ns = 1'000'000'000;  ///< one more each time this has passed
    uint32_t burst_of_all = 400;     ///< of all sources together, likewise
    Nanos every_of_all_ns = 20'000'000;
    size_t sources = 256;  ///< entries of the table
  };
  /// Records that were left out.
  struct Omitted {
    std::string source;
    std::string event;
    uint64_t records = 0;
  };

  RateLimit() : RateLimit(Limits{}) {}
  explicit RateLimit(const Limits& limits) : limits_(limits), all_{limits.burst_of_all, 0, 0} {}

  /// True if a record may be written now. One that may not is counted.
  bool admit(std::string_view source, std::string_view event, Nanos now);
  /// The records left out since the last call, at most one entry a source and event.
  std::vector<Omitted> take_omitted();
  /// Forgets sources that have been silent for so long that they may have a whole burst again.
  void forget_silent(Nanos now);
  size_t size() const { return buckets_.size(); }

  static constexpr std::string_view kOthers = "others";

 private:
  struct Bucket {
    uint32_t tokens;
    Nanos filled;  ///< until then tokens have been added
    uint64_t omitted = 0;
  };
  static bool take(Bucket& bucket, uint32_t burst, Nanos every_ns, Nanos now);

  Limits limits_;
  Bucket all_;
  std::map<std::pair<std::string, std::string>, Bucket> buckets_;
};

}  // namespace ina::logging
