// Finds the ports of the switch that are part of a loop, and keeps them out of the forwarding until
// the loop is gone.
//
// Two signs show a loop. A probe of the switch's own (loop_probe.h) comes back: of the port that
// sent it and the port that got it, the one with the higher number is blocked. Where probes do not
// pass, addresses show it: one that appears at another port again and again, faster than a host
// could be moved. Then the port is blocked at which it appears, and never the port where it was
// known before.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "io/bridge/mac_table.h"
#include "wire/counter_field.h"

namespace ina::bridge {

enum class LoopSign : uint8_t { kNone, kProbe, kMoves };

/// A port that is blocked.
struct PortBlock {
  LoopSign sign = LoopSign::kNone;  ///< kNone: it is not
  PortIndex other = 0;              ///< kProbe: the other end; kMoves: where the address was known
  Nanos since = 0;
  uint64_t times = 0;
};

inline constexpr CounterField<PortBlock> kPortBlockFields[] = {
    {&PortBlock::times,
     {"blocked_times", "times", "Times that the port was blocked, because it was part of a loop."}},
};

/// Used by one thread. Allocates never.
class LoopGuard {
 public:
  static constexpr Nanos kFirstHoldNs = 3'000'000'000;
  static constexpr Nanos kLongestHoldNs = 60'000'000'000;
  /// A port that was open for so long begins with kFirstHoldNs again.
  static constexpr Nanos kCalmNs = 60'000'000'000;
  /// Moves of one address to one port, each so soon after another move of it.
  static constexpr uint32_t kMostMoves = 8;
  static constexpr Nanos kQuietNs = 3'000'000'000;
  /// How long the port is remembered where an address was before it moved. A host that takes
  /// another's address must not get the other's port blocked.
  static constexpr Nanos kHomeNs = 60'000'000'000;
  /// A frame that was seen at another port so recently has come by a loop.
  static constexpr Nanos kEchoNs = 100'000'000;

  explicit LoopGuard(uint64_t seed) : seed_(seed) {}

  bool is_blocked(PortIndex port) const { return (blocked_ >> port & 1) != 0; }
  /// As bits.
  uint64_t blocked() const { return blocked_; }
  const PortBlock& block_of(PortIndex port) const { return ports_[port].block; }

  /// A probe came back. True: this has blocked a port that was open.
  bool probe_returned(PortIndex sender, PortIndex receiver, Nanos now) {
    return block(std::max(sender, receiver), LoopSign::kProbe, std::min(sender, receiver), now);
  }
  /// An address appeared at `to` that was last seen at `from`. True: this has blocked `to`.
  bool address_moved(uint64_t station, PortIndex from, PortIndex to, Nanos now);
  /// At a blocked port there is still a sign of a loop.
  void echo_seen(PortIndex port, Nanos now) { ports_[port].last_sign = now; }

  /// Opens the ports whose loop is gone; to be called often.
  void tick(Nanos now);

 private:
  struct Port {
    PortBlock block;
    Nanos last_sign = 0;
    Nanos hold = 0;    ///< without a sign, until it is opened
    Nanos opened = 0;  ///< the last time
  };
  /// An address that moves.
  struct Mover {
    uint64_t station = 0;
    PortIndex home = 0;  ///< where it was before its first move
    Nanos last = 0;
    std::array<uint8_t, kMaxPorts> moves_to{};
  };
  static constexpr size_t kMovers = 64;

  /// True: it was open.
  bool block(PortIndex port, LoopSign sign, PortIndex other, Nanos now);

  uint64_t seed_;
  uint64_t blocked_ = 0;
  std::array<Port, kMaxPorts> ports_{};
  std::array<Mover, kMovers> movers_{};
};

}  // namespace ina::bridge
