#include "common/logging/rate_limit.h"

#include <algorithm>
#include <utility>

namespace ina::logging {

namespace {

/// How long of a source and an event is kept: neither is foreign text of any length.
constexpr size_t kMaxKeyBytes = 64;

}  // namespace

bool RateLimit::take(Bucket& bucket, uint32_t burst, Nanos every_ns, Nanos now) {
  if (bucket.filled == 0) bucket.filled = now;
  const Nanos more = std::max<Nanos>(0, now - bucket.filled) / every_ns;
  bucket.tokens = static_cast<uint32_t>(std::min<Nanos>(burst, bucket.tokens + more));
  bucket.filled += more * every_ns;
  if (bucket.tokens == 0) return false;
  --bucket.tokens;
  return true;
}

bool RateLimit::admit(std::string_view source, std::string_view event, Nanos now) {
  std::pair key(std::string(source.substr(0, kMaxKeyBytes)),
                std::string(event.substr(0, kMaxKeyBytes)));
  auto found = buckets_.find(key);
  if (found == buckets_.end()) {
    if (buckets_.size() >= limits_.sources) forget_silent(now);
    // One place is left for those who find none.
    if (buckets_.size() + 1 >= limits_.sources) key = {std::string(kOthers), ""};
    found = buckets_.try_emplace(std::move(key), Bucket{limits_.burst, now}).first;
  }
  Bucket& bucket = found->second;
  // Its own first: a record that this source may not write takes nothing from the others.
  if (take(bucket, limits_.burst, limits_.every_ns, now) &&
      take(all_, limits_.burst_of_all, limits_.every_of_all_ns, now))
    return true;
  ++bucket.omitted;
  return false;
}

std::vector<RateLimit::Omitted> RateLimit::take_omitted() {
  std::vector<Omitted> list;
  for (auto& [key, bucket] : buckets_)
    if (const uint64_t records = std::exchange(bucket.omitted, 0); records != 0)
      list.push_back({key.first, key.second, records});
  return list;
}

void RateLimit::forget_silent(Nanos now) {
  std::erase_if(buckets_, [&](const auto& entry) {
    const Bucket& bucket = entry.second;
    return bucket.omitted == 0 &&
           now - bucket.filled >= Nanos{limits_.burst - bucket.tokens} * limits_.every_ns;
  });
}

}  // namespace ina::logging
