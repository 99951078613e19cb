#include "io/bridge/loop_guard.h"

#include <bit>

#include "io/bridge/mix.h"

namespace ina::bridge {

bool LoopGuard::address_moved(uint64_t station, PortIndex from, PortIndex to, Nanos now) {
  Mover& mover = movers_[mix(station ^ seed_) % kMovers];
  const bool fresh = mover.station != 0 && now - mover.last < kQuietNs;
  if (mover.station != station) {
    // One that moves now keeps its place: its count must not begin anew for each other address.
    if (fresh) return false;
    mover = {.station = station, .home = from};
  } else if (!fresh) {
    mover = {.station = station, .home = now - mover.last < kHomeNs ? mover.home : from};
  }
  mover.last = now;
  if (to == mover.home || ++mover.moves_to[to] < kMostMoves) return false;
  mover.moves_to = {};
  return block(to, LoopSign::kMoves, mover.home, now);
}

bool LoopGuard::block(PortIndex at, LoopSign sign, PortIndex other, Nanos now) {
  Port& port = ports_[at];
  port.last_sign = now;
  if (is_blocked(at)) {
    if (sign == LoopSign::kProbe && port.block.sign == LoopSign::kMoves) {
      port.block.sign = sign;
      port.block.other = other;
    }
    return false;
  }
  const bool calm = port.opened == 0 || now - port.opened >= kCalmNs;
  port.hold = calm ? kFirstHoldNs : std::min(2 * port.hold, kLongestHoldNs);
  port.block = {.sign = sign, .other = other, .since = now, .times = port.block.times + 1};
  blocked_ |= uint64_t{1} << at;
  return true;
}

void LoopGuard::tick(Nanos now) {
  for (uint64_t left = blocked_; left != 0; left &= left - 1) {
    const auto at = static_cast<PortIndex>(std::countr_zero(left));
    Port& port = ports_[at];
    // Two switches that have both blocked an end of the same loop must not open at the same time.
    const auto jitter = static_cast<Nanos>(mix(seed_ + port.block.times * kMaxPorts + at) %
                                           static_cast<uint64_t>(port.hold / 4));
    if (now - port.last_sign < port.hold + jitter) continue;
    port.opened = now;
    port.block.sign = LoopSign::kNone;
    blocked_ &= ~(uint64_t{1} << at);
  }
}

}  // namespace ina::bridge
