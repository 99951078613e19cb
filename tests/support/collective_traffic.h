// The bytes that each collective moves for one rank: counted by the library, beside the table of
// docs/collectives.md. For tests that assert it over any transport.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "ina/ina.hpp"

namespace ina::test {

/// Bytes of a message without payload on an Ethernet port: Ethernet, IPv4, UDP and INA headers. The
/// shm port takes less.
inline constexpr uint64_t kBareMessageBytes = 14 + 20 + 8 + 72;

/// Payload of one rank, one way.
struct Payload {
  uint64_t bytes = 0;
  uint64_t packets = 0;
  bool operator==(const Payload&) const = default;
  Payload& operator+=(const Payload& other) {
    bytes += other.bytes;
    packets += other.packets;
    return *this;
  }
  friend std::ostream& operator<<(std::ostream& out, const Payload& payload) {
    return out << payload.bytes << " bytes in " << payload.packets << " packets";
  }
};

struct Traffic {
  std::string collective;
  uint64_t fragments = 0;  ///< of the whole operation
  Payload up_wanted, down_wanted;
  Payload up, down;
  uint64_t packets = 0;  ///< of all kinds, both ways

  Traffic& operator+=(const Traffic& other) {
    up += other.up;
    down += other.down;
    packets += other.packets;
    return *this;
  }
  uint64_t payload_bytes() const { return up.bytes + down.bytes; }
  uint64_t payload_packets() const { return up.packets + down.packets; }
  /// Marks, results for others, closing fragments and all other packets without payload.
  uint64_t bare_packets() const { return packets - payload_packets(); }
  /// At the very most, however little of them is joined: for each fragment, and for the one that
  /// closes the operation, a mark of this rank and a result for another.
  uint64_t most_bare_packets() const { return 2 * (fragments + 1); }
  double overhead() const {
    return static_cast<double>(bare_packets() * kBareMessageBytes) /
           static_cast<double>(payload_bytes());
  }
  std::string text() const {
    const auto payload = [](const Payload& p) {
      return std::to_string(p.bytes) + " bytes in " + std::to_string(p.packets);
    };
    return collective + ": up " + payload(up) + " (" + payload(up_wanted) + " wanted), down " +
           payload(down) + " (" + payload(down_wanted) + " wanted), " +
           std::to_string(bare_packets()) + " packets without payload";
  }
};

/// Runs every collective once, one after the other, and counts. All ranks call it alike.
class TrafficCount {
 public:
  /// `block_bytes`: of each rank, a multiple of `slot_bytes`.
  TrafficCount(Context& context, uint64_t block_bytes, uint32_t slot_bytes)
      : context_(context), slot_bytes_(slot_bytes), block_(block_bytes / sizeof(int32_t)) {}

  std::vector<Traffic> run() {
    const int world = context_.world_size(), rank = context_.rank();
    const auto ranks = static_cast<uint64_t>(world);
    const bool root = rank == world / 2;
    const std::vector<int32_t> send((ranks + 1) * block_, rank);
    std::vector<int32_t> recv(send.size());
    const std::span<const int32_t> most(send), all = most.first(ranks * block_),
                                               share = all.first(block_);
    const std::span<int32_t> most_got(recv), got = most_got.first(all.size()),
                                             got_share = got.first(block_);
    const auto once = [&](bool takes_part) { return takes_part ? uint64_t{1} : 0; };
    const int at = world / 2;

    count("all-reduce", ranks, ranks, ranks, [&] { context_.allreduce<int32_t>(all, got); });
    count("reduce", ranks, ranks, root ? ranks : 0,
          [&] { context_.reduce<int32_t>(all, got, at); });
    count("reduce-scatter", ranks, ranks, 1,
          [&] { context_.reduce_scatter<int32_t>(all, got_share); });
    count("broadcast", ranks, root ? ranks : 0, ranks,
          [&] { context_.broadcast<int32_t>(got, at); });
    count("all-gather", ranks, 1, ranks, [&] { context_.all_gather<int32_t>(share, got); });
    // A rank's block for itself stays where it is.
    count("gather", ranks, once(!root), root ? ranks - 1 : 0,
          [&] { context_.gather<int32_t>(share, got, at); });
    count("scatter", ranks, root ? ranks - 1 : 0, once(!root),
          [&] { context_.scatter<int32_t>(all, got_share, at); });
    count("all-to-all", ranks * ranks, ranks - 1, ranks - 1,
          [&] { context_.all_to_all<int32_t>(all, got); });
    std::vector<int> around(ranks), pair(ranks, INA_NOBODY);
    for (int r = 0; r < world; ++r) around[static_cast<size_t>(r)] = (r + 1) % world;
    pair[0] = 1;
    pair[1] = 0;
    count("permute", ranks, 1, 1, [&] { context_.permute<int32_t>(share, got_share, around); });
    count("permute of two", ranks, once(rank < 2), once(rank < 2),
          [&] { context_.permute<int32_t>(share, got_share, pair); });
    count("barrier", 0, 0, 0, [&] { context_.barrier(); });
    count_uneven(most, most_got);
    return std::move(counted_);
  }

 private:
  /// Calls with counts of each rank's own: none, one or two blocks. Where a rank knows its own
  /// alone, the ranks first tell each other theirs.
  void count_uneven(std::span<const int32_t> send, std::span<int32_t> recv) {
    const int world = context_.world_size(), at = world / 2;
    const auto ranks = static_cast<uint64_t>(world), me = static_cast<uint64_t>(context_.rank());
    const bool root = context_.rank() == at;
    const auto blocks_of = [](uint64_t r) { return r % 3; };
    std::vector<size_t> counts, pair_counts;
    uint64_t total = 0, of_pairs = 0, of_mine = 0;
    for (uint64_t r = 0; r < ranks; ++r) {
      counts.push_back(blocks_of(r) * block_);
      pair_counts.push_back(blocks_of(me + r) * block_);  // the same both ways
      total += blocks_of(r);
      of_mine += blocks_of(me + r);
      for (uint64_t other = 0; other < ranks; ++other) of_pairs += blocks_of(r + other);
    }
    const uint64_t mine = blocks_of(me);
    const std::span<const int32_t> all = send.first(total * block_),
                                   share = send.first(mine * block_);
    const std::span<int32_t> got = recv.first(all.size()), got_share = recv.first(share.size());
    count("reduce-scatter, uneven", total, total, mine,
          [&] { context_.reduce_scatter<int32_t>(all, got_share, counts); });
    count("all-gather, uneven", total, mine, total,
          [&] { context_.all_gather<int32_t>(share, got, counts); });
    count("gather, uneven", total, root ? 0 : mine, root ? total - mine : 0,
          [&] { context_.gather<int32_t>(share, got, at, counts); });
    count("scatter, uneven", total, root ? total - mine : 0, root ? 0 : mine,
          [&] { context_.scatter<int32_t>(all, got_share, at, counts); });
    const uint64_t others = of_mine - blocks_of(2 * me);
    constexpr uint64_t kPairBytes = 16, kSendReceiveBytes = 32;  // that a rank tells the others
    count(
        "all-to-all, uneven", of_pairs, others, others,
        [&] {
          context_.all_to_all<int32_t>(send.first(of_mine * block_), pair_counts,
                                       recv.first(of_mine * block_), pair_counts);
        },
        kPairBytes * ranks);
    count(
        "send and receive", ranks, 1, 1,
        [&] {
          context_.send_receive<int32_t>(send.first(block_), (context_.rank() + 1) % world,
                                         recv.first(block_), (context_.rank() + world - 1) % world);
        },
        kSendReceiveBytes);
  }

  /// `told_bytes`: that each rank first tells all others, in a fragment of its own.
  template <class Run>
  void count(const char* collective, uint64_t blocks, uint64_t blocks_up, uint64_t blocks_down,
             Run&& run, uint64_t told_bytes = 0) {
    context_.barrier();
    const ina_stats before = context_.stats();
    run();
    context_.barrier();  // all messages that others owe to this rank have come by then
    const ina_stats after = context_.stats();
    const uint64_t fragments = block_ * sizeof(int32_t) / slot_bytes_;
    const auto wanted = [&](uint64_t count) {
      return Payload{count * block_ * sizeof(int32_t), count * fragments};
    };
    Traffic& traffic = counted_.emplace_back();
    traffic.collective = collective;
    traffic.fragments = blocks * fragments;
    traffic.up_wanted = wanted(blocks_up);
    traffic.down_wanted = wanted(blocks_down);
    if (told_bytes != 0) {
      const auto ranks = static_cast<uint64_t>(context_.world_size());
      traffic.fragments += ranks;
      traffic.up_wanted += {told_bytes, 1};
      traffic.down_wanted += {ranks * told_bytes, ranks};
    }
    traffic.up = {after.bytes_sent - before.bytes_sent,
                  after.payload_packets_sent - before.payload_packets_sent};
    traffic.down = {after.bytes_received - before.bytes_received,
                    after.payload_packets_received - before.payload_packets_received};
    traffic.packets = after.packets_sent + after.packets_received - before.packets_sent -
                      before.packets_received - kBarrierPackets;
  }

  static constexpr uint64_t kBarrierPackets = 2;

  Context& context_;
  const uint32_t slot_bytes_;
  const uint64_t block_;  ///< elements of each rank
  std::vector<Traffic> counted_;
};

}  // namespace ina::test
