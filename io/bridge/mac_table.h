// The port at which each MAC address was last seen, separately for each VLAN. Fixed memory,
// set-associative.
//
// An address may lie in the eight entries of one set, so that each look-up reads two cache lines. A
// full set refuses newcomers and evicts nothing: made-up addresses must not drive out hosts that
// are there. For the same reason no port gets more than half of the table. The hash is seeded, so
// that nobody can choose addresses that meet in one set.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "io/bridge/mac_counters.h"
#include "wire/frame.h"
#include "wire/types.h"

namespace ina::bridge {

/// Index of a port of the switch among those that are bridged.
using PortIndex = uint8_t;
inline constexpr uint32_t kMaxPorts = 64;
/// Number of a VLAN; 0: frames without a tag, or with one that gives a priority only.
using VlanId = uint16_t;
inline constexpr uint32_t kVlans = 4096;

/// Where an address was seen last.
struct Sighting {
  PortIndex port = 0;
  Nanos seen = 0;
};

/// Used by one thread. Allocates in the constructor only.
class MacTable {
 public:
  /// Rounds `entries` up to a power of two, at least one set.
  MacTable(uint32_t entries, Nanos ageing_ns, uint64_t seed);

  /// Remembers that `mac` is at `port` in `vlan`. Group addresses, the zero address and the
  /// switch's own are not learned. Returns the port where it was before, if that is another one.
  std::optional<PortIndex> learn(const wire::MacAddress& mac, VlanId vlan, PortIndex port,
                                 Nanos now);

  /// Where `mac` is; nothing if it is not known, or not any more.
  std::optional<PortIndex> find(const wire::MacAddress& mac, VlanId vlan, Nanos now) const;
  std::optional<Sighting> last_sighting(const wire::MacAddress& mac, VlanId vlan, Nanos now) const;
  /// VLAN and MAC address in one number.
  static uint64_t station_of(const wire::MacAddress& mac, VlanId vlan);

  /// Removes what was learned at `port`.
  void forget(PortIndex port);
  void forget_all();

  /// Removes what has expired from some of the sets, and goes on there the next time.
  void sweep(Nanos now);
  /// Calls of sweep() until all sets were swept.
  uint32_t sweeps() const {
    return static_cast<uint32_t>((entries_.size() + kSweepEntries - 1) / kSweepEntries);
  }

  /// Entries that were learned and neither forgotten nor swept since.
  uint32_t size() const { return size_; }
  uint32_t capacity() const { return static_cast<uint32_t>(entries_.size()); }
  const MacTableCounters& counters() const { return counters_; }
  const PortAddresses& at(PortIndex port) const { return at_[port]; }

 private:
  static constexpr size_t kWays = 8;
  static constexpr size_t kSweepEntries = 16 * kWays;

  struct Entry {
    uint64_t station = 0;  ///< 0: free
    uint64_t port : 6 = 0;
    uint64_t seen : 58 = 0;  ///< ns; enough for nine years
  };
  static_assert(sizeof(Entry) == 16 && kMaxPorts <= 1 << 6);

  size_t set_of(uint64_t station) const;
  bool expired(const Entry& entry, Nanos now) const {
    return now - static_cast<Nanos>(entry.seen) >= ageing_ns_;
  }
  void remove(Entry& entry);

  std::vector<Entry> entries_;
  std::array<uint32_t, kMaxPorts> at_port_{};  ///< entries by port
  uint32_t size_ = 0;
  size_t swept_ = 0;  ///< beginning of the next sweep
  Nanos ageing_ns_;
  uint64_t seed_;
  MacTableCounters counters_;
  std::array<PortAddresses, kMaxPorts> at_{};
};

/// True for the address of a group: multicast or broadcast.
inline bool is_group(const wire::MacAddress& mac) {
  return (mac[0] & 1) != 0;
}

/// Its 48 bits as a number, in the order of the wire.
inline uint64_t to_number(const wire::MacAddress& mac) {
  uint64_t number = 0;
  for (const uint8_t byte : mac) number = number << 8 | byte;
  return number;
}

}  // namespace ina::bridge
