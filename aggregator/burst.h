// A burst of packets: the fragments of all packets are looked up first, then each packet is
// decided, contributions to the same fragment together.
#pragma once

#include <array>
#include <bit>
#include <span>
#include <vector>

#include "aggregator/burst_groups.h"
#include "aggregator/contributions.h"
#include "aggregator/fallback_messages.h"
#include "aggregator/parking.h"
#include "aggregator/results.h"
#include "aggregator/shard.h"
#include "aggregator/slot_allocation.h"

namespace ina::aggregator {

class Burst {
 public:
  /// The parts that decide packets. All must outlive it.
  struct Parts {
    Results& results;
    Contributions& contributions;
    Parking& parking;
    SlotAllocation& allocation;
    FallbackMessages& messages;
  };
  Burst(Shard& shard, const Parts& parts);

  /// Aggregator::on_burst().
  void decide(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts);
  /// Aggregator::for_each_noted().
  template <class Visit>
  void for_each_noted(Visit&& visit) const {
    for (size_t word = 0; word < noted_words_; ++word)
      for (uint64_t left = noted_[word]; left != 0; left &= left - 1)
        visit(64 * word + static_cast<size_t>(std::countr_zero(left)));
  }

 private:
  void look_up(std::span<const RxPacket> packets);
  template <uint32_t kWays>
  void look_up_in_sets(std::span<const RxPacket> packets);
  template <class Policy>
  void decide_singly(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts);
  template <class Policy>
  void decide_groups(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts);
  template <class Policy>
  void decide_group(const BurstGroups::Group& group, const Followers& followers,
                    const RxPacket& first, const Lookup& lookup, Nanos now,
                    std::span<Verdict> verdicts);
  template <class Policy>
  void decide_one(size_t index, const RxPacket& packet, const Lookup& lookup, Nanos now,
                  Verdict& verdict);
  template <class Policy>
  void on_packet(const RxPacket& packet, const Lookup& lookup, Nanos now, Verdict& verdict);
  static void tell_stale(const ShardJob& job, const RxPacket& packet, Verdict& verdict);
  void gather(const BurstGroups::Group& group, std::span<const RxPacket> packets,
              std::span<Verdict> verdicts, const std::byte** payloads, Followers& followers) const;
  /// To be called with each verdict of a burst that may ask for more than to be counted.
  void note(size_t index, const Verdict& verdict) {
    if (verdict.fate == Verdict::Fate::kForwarded) ++shard_.counters.forwarded;
    const bool quiet = verdict.fate == Verdict::Fate::kAbsorbed && verdict.emissions == 0;
    if (!quiet) noted_[index / 64] |= uint64_t{1} << index % 64;
  }

  Shard& shard_;
  Parts parts_;
  uint32_t prefetch_bytes_;      ///< of a row
  std::vector<Lookup> lookups_;  ///< of the groups
  /// for_each_noted(): a bit for each packet of the burst.
  std::array<uint64_t, BurstGroups::kMaxBurst / 64> noted_{};
  size_t noted_words_ = 0;
  BurstGroups groups_;  ///< of the burst at hand
};

}  // namespace ina::aggregator
