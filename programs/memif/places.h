// The places of the bridge's control connections, by the switch's own rules
// (switchd/connections.h): no user takes them from the others. Knows no sockets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace ina::memif {

struct Place {
  uint64_t user = 0;     ///< control::PeerCredentials::key()
  bool working = false;  ///< a worker has it
};

/// How many of `most` a user may have who could not stop the bridge.
constexpr size_t places_per_user(size_t most) {
  return most / 2;
}

inline size_t places_of(std::span<const Place> places, uint64_t user) {
  return static_cast<size_t>(std::ranges::count(places, user, &Place::user));
}

/// Which of `places`, oldest first, is given up for a newcomer: the oldest without a worker, of the
/// user who has most of these. Nothing: none, because the newcomer would then have as many.
inline std::optional<size_t> place_to_give_up(std::span<const Place> places, uint64_t newcomer) {
  std::map<uint64_t, size_t> idle;
  for (const Place& place : places) idle[place.user] += place.working ? 0 : 1;
  const size_t own = idle[newcomer];
  const auto greediest =
      std::ranges::max_element(idle, {}, [](const auto& entry) { return entry.second; });
  if (greediest->second <= own + 1) return std::nullopt;
  const auto oldest = std::ranges::find_if(
      places, [&](const Place& place) { return place.user == greediest->first && !place.working; });
  return static_cast<size_t>(oldest - places.begin());
}

}  // namespace ina::memif
