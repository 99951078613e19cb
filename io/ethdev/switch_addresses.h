// The addresses of the switch at a port, and the one of them that a frame is for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "io/bridge/bridge.h"
#include "io/ethdev/buffer_budget.h"
#include "io/ethdev/neighbour.h"
#include "wire/frame.h"

namespace ina::io {

/// An address of the switch, and the VLAN in which it has it; 0: without a tag.
struct SwitchAddress {
  uint32_t ip = 0;  ///< host byte order
  uint16_t vlan = 0;
  friend bool operator==(const SwitchAddress&, const SwitchAddress&) = default;
};

/// The frame behind the tag, as if the addresses stood right before that.
inline std::span<const std::byte> behind_tag(std::span<const std::byte> tagged) {
  return tagged.subspan(kVlanTagBytes);
}

class SwitchAddresses {
 public:
  /// `own`: the port's. `others`: those of other ports, which are answered here too.
  SwitchAddresses(const SwitchAddress& own, std::vector<SwitchAddress> others)
      : own_(own), others_(std::move(others)) {}

  const SwitchAddress& own() const { return own_; }

  /// By the VLAN and the IP address that `frame` is sent to, with any MAC address; nullptr: none of
  /// them. The bridge drops frames that have only the switch's MAC address. A frame too short to
  /// have addresses is for the own one.
  const SwitchAddress* addressed_by(std::span<const std::byte> frame) const {
    if (frame.size() < wire::kEthernetBytes) return &own_;
    const uint16_t vlan = bridge::vlan_of(frame);
    const SwitchAddress to{addressed_ip(vlan == 0 ? frame : behind_tag(frame)), vlan};
    if (to == own_) [[likely]]
      return &own_;
    if (to.ip == 0) return nullptr;
    const auto found = std::ranges::find(others_, to);
    return found == others_.end() ? nullptr : &*found;
  }

 private:
  SwitchAddress own_;
  std::vector<SwitchAddress> others_;
};

}  // namespace ina::io
