// The contributions of a burst that are to the same fragment, found before any packet is decided.
#pragma once

#include <array>
#include <span>

#include "aggregator/packet.h"
#include "wire/same_fields.h"

namespace ina::aggregator {

/// Divides a burst into groups: contributions to the same fragment of the same job whose
/// signatures, epochs and sizes are equal. A packet that goes with no other is a group of one. Each
/// packet is compared with two others at most, so where many fragments are in a burst, a group may
/// fall into several.
class BurstGroups {
 public:
  static constexpr size_t kMaxBurst = 512;

  struct alignas(8) Group {
    uint16_t first = 0;  ///< packet of the burst
    uint16_t last = 0;
    uint16_t size = 1;
  };

  /// Every packet of the burst is in one group.
  void divide(std::span<const RxPacket> packets) {
    packets_ = packets;
    uint32_t count = 0;
    const RxPacket* leader = &kNobody;  // a packet of the last group, if others may join it
    Group* group = nullptr;
    for (uint32_t at = 0; at < packets.size(); ++at) {
      const RxPacket& packet = packets[at];
      // Most follow the rest of their group at once.
      if (belong_together(*leader, packet)) {
        append(*group, at);
        continue;
      }
      const bool alone = !may_be_grouped(packet.message);
      leader = alone ? &kNobody : &packet;
      group = alone ? nullptr : find(packet, count);
      if (group) {
        append(*group, at);
        continue;
      }
      group = &groups_[count++];
      *group = {static_cast<uint16_t>(at), static_cast<uint16_t>(at), 1};
    }
    count_ = count;
  }

  /// True if there is a group of more than one.
  bool any() const { return count_ != packets_.size(); }
  /// In the order of their first packets.
  std::span<const Group> all() const { return std::span(groups_).first(count_); }
  /// The packets of a group but the first; `visit(index, packet)`.
  template <class Visit>
  [[gnu::always_inline]] void for_each_follower(const Group& group, Visit&& visit) const {
    uint32_t at = group.first;
    for (uint32_t left = group.size - 1u; left != 0; --left) {
      at = next_[at];
      visit(at, packets_[at]);
    }
  }

 private:
  static constexpr uint32_t kPlaceBits = 9;
  static constexpr RxPacket kNobody{};  ///< goes with no contribution

  void append(Group& group, uint32_t at) {
    next_[group.last] = static_cast<uint16_t>(at);
    group.last = static_cast<uint16_t>(at);
    ++group.size;
  }
  /// The group that a packet joins, among `count`. nullptr: it begins the next one.
  Group* find(const RxPacket& packet, uint32_t count) {
    // An entry left by an earlier burst does no harm: all packets of a fragment use the same place,
    // so the first of them has already written to it.
    uint16_t& place = group_at_[place_of(packet)];
    if (place < count && belong_together(packets_[groups_[place].first], packet))
      return &groups_[place];
    place = static_cast<uint16_t>(count);
    return nullptr;
  }

  /// A moved fragment has one payload, and nothing to be added.
  static bool may_be_grouped(const wire::Message& message) {
    return message.type == wire::Type::kGrad && !is_moved(message.collective) && !message.bare();
  }
  /// Fragments that follow each other are far apart.
  static uint32_t place_of(const RxPacket& packet) {
    return (packet.message.seq + packet.job * 0x85ebca6bu) * 0x9e3779b1u >> (32 - kPlaceBits);
  }
  /// `first` may be grouped.
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
    common.receiver = 0x1fff;
    common.target = wire::kMaxTargetUnits;
    return common;
  }();

  std::span<const RxPacket> packets_;
  uint32_t count_ = 0;
  std::array<Group, kMaxBurst> groups_{};
  std::array<uint16_t, kMaxBurst> next_{};  ///< by packet: the one behind it in its group
  std::array<uint16_t, 1 << kPlaceBits> group_at_{};
};

}  // namespace ina::aggregator
