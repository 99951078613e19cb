// The contributions of a burst that are to the same fragment, found before any packet is decided.
#pragma once

#include <array>
#include <span>

#include "aggregator/packet.h"
#include "wire/same_fields.h"

namespace ina::aggregator {

/// Divides a burst into groups: contributions to the same fragment of the same job whose
/// signatures, epochs and sizes are equal. A packet that goes with no other is a group of one. Each
/// packet is compared with one other at most, so where many fragments are in a burst, a group may
/// fall into several.
class BurstGroups {
 public:
  static constexpr size_t kMaxBurst = 512;

  void begin() { any_ = false; }

  /// Where the first packet of the group of packets[at] is: `at`, if it is that itself. Either this
  /// or stand_alone() is to be called for each packet of a burst, in order.
  uint32_t join(std::span<const RxPacket> packets, uint32_t at) {
    const RxPacket& packet = packets[at];
    // An entry left by an earlier burst does no harm: all packets of a fragment use the same place,
    // so the first of them has already written to it.
    uint16_t& place = first_[place_of(packet)];
    const uint32_t first = place;
    if (first < at && belong_together(packets[first], packet)) {
      begin_links(at);
      Link& group = links_[first];
      links_[group.last].next = static_cast<uint16_t>(at);
      links_[at].size = 0;
      group.last = static_cast<uint16_t>(at);
      ++group.size;
      return first;
    }
    place = static_cast<uint16_t>(at);
    stand_alone(at);
    return at;
  }
  void stand_alone(uint32_t at) {
    if (any_) links_[at] = {.next = 0, .last = static_cast<uint16_t>(at)};
  }

  /// Whether there is a group of more than one.
  bool any() const { return any_; }
  // The following only if there is.

  /// Packets of the group that begins at `at`; 0: none does.
  uint32_t size_of(uint32_t at) const { return links_[at].size; }
  /// The packets of a burst of `count`, each group in one piece where its first packet is.
  std::span<const uint16_t> order(size_t count) {
    size_t used = 0;
    for (size_t first = 0; first < count; ++first) {
      uint32_t at = static_cast<uint32_t>(first);
      for (uint32_t left = links_[first].size; left != 0; --left, at = links_[at].next)
        order_[used++] = static_cast<uint16_t>(at);
    }
    return std::span(order_).first(used);
  }

 private:
  struct Link {
    uint16_t next = 0;
    uint16_t last = 0;  ///< end of the group that begins here
    uint16_t size = 1;
  };
  static constexpr uint32_t kPlaceBits = 9;

  /// Links are there from the first group of a burst on: most bursts may have none.
  void begin_links(uint32_t at) {
    if (any_) return;
    any_ = true;
    for (uint32_t before = 0; before < at; ++before) stand_alone(before);
  }

  /// Fragments that follow each other are far apart.
  static uint32_t place_of(const RxPacket& packet) {
    return (packet.message.seq + packet.job * 0x85ebca6bu) * 0x9e3779b1u >> (32 - kPlaceBits);
  }
  static bool belong_together(const RxPacket& first, const RxPacket& second) {
    return first.message.seq == second.message.seq && first.job == second.job &&
           wire::same_fields(first.message, second.message, kCommon);
  }
  /// Ones in the fields that contributions of a group have in common.
  static constexpr auto kCommon = [] {
    wire::Message common;
    common.operation_elements = UINT64_MAX;
    common.operation = UINT32_MAX;
    common.epoch = UINT32_MAX;
    common.seq = UINT32_MAX;
    common.elements = UINT16_MAX;
    common.flags = wire::kFlagBare;
    common.type = wire::Type{0xff};
    common.dtype = DType{0xff};
    common.op = Op{0xff};
    common.collective = Collective{0xff};
    common.receiver = 0xff;
    common.target = wire::kMaxTargetUnits;
    return common;
  }();

  std::array<uint16_t, 1 << kPlaceBits> first_{};
  std::array<Link, kMaxBurst> links_{};
  std::array<uint16_t, kMaxBurst> order_{};
  bool any_ = false;
};

}  // namespace ina::aggregator
