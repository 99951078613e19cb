#include "client/collective_call.h"

#include <algorithm>

#include "client/abi.h"
#include "wire/fingerprint.h"

namespace ina::client {

namespace {

using Region = CallRegions::Region;

constexpr uint64_t kMostElements = wire::kMaxBlocksElements;

bool is_sum(Collective c) {
  return !is_moved(c);
}

/// A region of each rank.
void add_all(ByRank<Region>& regions, const CollectiveCall::Numbers& displacements,
             const CollectiveCall::Numbers& counts, uint32_t workers) {
  Region* const added = regions.grow(workers);
  for (uint32_t rank = 0; rank < workers; ++rank) added[rank] = {displacements[rank], counts[rank]};
}

bool has_shares(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kAllGather ||
         c == Collective::kGather || c == Collective::kScatter;
}

}  // namespace

void CollectiveCall::set_even(uint32_t workers, uint64_t count) {
  const auto fill = [&](Numbers& all_counts, Numbers& places) {
    std::fill_n(all_counts.grow(workers), workers, count);
    places.grow(workers);
    scheduler::pack(all_counts, places);
  };
  fill(counts, displacements);
  if (collective == Collective::kAllToAll) fill(receive_counts, receive_displacements);
}

// ---- regions

CallRegions::CallRegions(const CollectiveCall& call, uint32_t workers, uint32_t rank) {
  const bool root = rank == static_cast<uint32_t>(call.root);
  switch (call.collective) {
    case Collective::kReduce:
      add_send(0, call.counts[0]);
      if (root) add_receive(0, call.counts[0]);
      return;
    case Collective::kBroadcast:
      if (root) add_send(0, call.counts[0]);
      add_receive(0, call.counts[0]);
      return;
    case Collective::kAllToAll:
      add_all_pairs(call, workers, rank);
      return;
    case Collective::kPermute:
      add_pair(call.destination, call.counts[0], call.source,
               call.counted ? call.receive_counts[0] : call.counts[0], rank);
      return;
    default:
      add_shares(call, workers, rank);
  }
}

void CallRegions::add_shares(const CollectiveCall& call, uint32_t workers, uint32_t rank) {
  const bool root = rank == static_cast<uint32_t>(call.root);
  const bool sends_all = call.collective == Collective::kReduceScatter ||
                         (call.collective == Collective::kScatter && root);
  const bool receives_all =
      call.collective == Collective::kAllGather || (call.collective == Collective::kGather && root);
  if (sends_all || receives_all)
    add_all(sends_all ? send : recv, call.displacements, call.counts, workers);
  if (!sends_all && call.collective != Collective::kScatter) add_send(0, call.counts[rank]);
  if (!receives_all && call.collective != Collective::kGather) add_receive(0, call.counts[rank]);
  own_send = sends_all ? rank : 0;
  own_receive = receives_all ? rank : 0;
  copies_own =
      root && (call.collective == Collective::kGather || call.collective == Collective::kScatter);
}

void CallRegions::add_all_pairs(const CollectiveCall& call, uint32_t workers, uint32_t rank) {
  add_all(send, call.displacements, call.counts, workers);
  add_all(recv, call.receive_displacements, call.receive_counts, workers);
  own_send = own_receive = rank;
  copies_own = true;
}

void CallRegions::add_pair(int32_t destination, uint64_t sent, int32_t source, uint64_t received,
                           uint32_t rank) {
  if (destination != scheduler::kNobody) add_send(0, sent);
  if (source != scheduler::kNobody) add_receive(0, received);
  has_own = copies_own = destination == static_cast<int32_t>(rank);
}

// ---- arguments

namespace {

/// Looks at one argument after the other.
class Checker {
 public:
  Checker(CollectiveCall& call, uint32_t workers, uint32_t rank)
      : call_(call), workers_(workers), rank_(rank) {}

  Result<void> check() {
    for (const auto step : {&Checker::types, &Checker::peers, &Checker::sizes}) {
      if (auto fine = (this->*step)(); !fine) return fine;
    }
    return memory();
  }

 private:
  tl::unexpected<Error> invalid(const std::string& text) const {
    return fail(INA_ERR_INVALID, std::string(call_.function) + ": " + text);
  }
  std::string job_text() const { return "a rank of this job of " + std::to_string(workers_); }
  bool is_rank(int64_t number) const { return number >= 0 && number < int64_t{workers_}; }

  Result<void> types() {
    const auto dtype = dtype_of(call_.dtype_number);
    if (!dtype) return invalid("dtype " + std::to_string(call_.dtype_number) + " is no ina_dtype");
    call_.dtype = *dtype;
    if (!is_sum(call_.collective)) return {};
    const auto op = op_of(call_.op_number);
    if (!op) return invalid("op " + std::to_string(call_.op_number) + " is no ina_op");
    call_.op = *op;
    if (!is_valid(*dtype, *op))
      return invalid(std::string(name(*op)) + " of " + std::string(name(*dtype)) +
                     " is not defined: " +
                     (*op == Op::kAvg ? "use sum and divide, or a float type"
                                      : "bitwise operations are for integers and bool"));
    return {};
  }

  Result<void> peers() {
    if (wire::has_root(call_.collective) && !is_rank(call_.root))
      return invalid("root " + std::to_string(call_.root) + " is not " + job_text());
    if (call_.collective != Collective::kPermute) return {};
    return call_.counted ? own_peers() : all_peers();
  }
  Result<void> own_peers() {
    const auto complaint = [&](const char* argument, int32_t peer) {
      return std::string(argument) + " " + std::to_string(peer) + " is neither " + job_text() +
             " nor INA_NOBODY";
    };
    if (call_.destination != scheduler::kNobody && !is_rank(call_.destination))
      return invalid(complaint("destination", call_.destination));
    if (call_.source != scheduler::kNobody && !is_rank(call_.source))
      return invalid(complaint("source", call_.source));
    const auto self = static_cast<int32_t>(rank_);
    if ((call_.destination == self) != (call_.source == self))
      return invalid("rank " + std::to_string(rank_) +
                     " is its own destination or source, but not both: destination " +
                     std::to_string(call_.destination) + ", source " +
                     std::to_string(call_.source));
    if (call_.destination == self && call_.counts[0] != call_.receive_counts[0])
      return invalid("this rank sends itself send_count " + std::to_string(call_.counts[0]) +
                     " elements and receives recv_count " +
                     std::to_string(call_.receive_counts[0]));
    return {};
  }
  Result<void> all_peers() {
    ByRank<int32_t> sources(workers_);
    std::ranges::fill(sources, scheduler::kNobody);
    for (uint32_t rank = 0; rank < workers_; ++rank) {
      const int32_t destination = call_.destinations[rank];
      if (destination == scheduler::kNobody) continue;
      const std::string argument =
          "destinations[" + std::to_string(rank) + "] is " + std::to_string(destination);
      if (!is_rank(destination))
        return invalid(argument + ", which is neither " + job_text() + " nor INA_NOBODY");
      int32_t& source = sources[static_cast<size_t>(destination)];
      if (source != scheduler::kNobody)
        return invalid(argument + ", and so is destinations[" + std::to_string(source) +
                       "]: a rank receives from one at most");
      source = static_cast<int32_t>(rank);
    }
    call_.destination = call_.destinations[rank_];
    call_.source = sources[rank_];
    return {};
  }

  Result<void> sizes() {
    if (auto fine = counts(call_.counts, "count"); !fine) return fine;
    if (auto fine = counts(call_.receive_counts, "recv_count"); !fine) return fine;
    if (auto fine = places(call_.displacements, "displacement"); !fine) return fine;
    if (auto fine = places(call_.receive_displacements, "recv_displacement"); !fine) return fine;
    if (call_.counted && call_.collective == Collective::kAllToAll &&
        call_.counts[rank_] != call_.receive_counts[rank_])
      return invalid("this rank sends itself send_counts[" + std::to_string(rank_) + "] = " +
                     std::to_string(call_.counts[rank_]) + " elements and receives recv_counts[" +
                     std::to_string(rank_) + "] = " + std::to_string(call_.receive_counts[rank_]));
    return {};
  }
  Result<void> counts(const CollectiveCall::Numbers& numbers, const char* argument) const {
    uint64_t total = 0;
    const bool matrix = call_.collective == Collective::kAllToAll && !call_.counted;
    for (size_t rank = 0; rank < numbers.size(); ++rank) {
      const uint64_t most = (matrix ? kMostElements / workers_ : kMostElements) - total;
      if (numbers[rank] > most)
        return invalid(std::string(argument) + " " + std::to_string(numbers[rank]) + " of rank " +
                       std::to_string(rank) + " is too large: all ranks' together are at most " +
                       std::to_string(kMostElements));
      total += numbers[rank];
    }
    return {};
  }
  Result<void> places(const CollectiveCall::Numbers& numbers, const char* argument) const {
    for (size_t rank = 0; rank < numbers.size(); ++rank)
      if (numbers[rank] > kMostElements)
        return invalid(std::string(argument) + " " + std::to_string(numbers[rank]) + " of rank " +
                       std::to_string(rank) + " exceeds the address space");
    return {};
  }

  Result<void> memory() const {
    const CallRegions regions(call_, workers_, rank_);
    const auto any = [](const ByRank<Region>& of) {
      return std::ranges::any_of(of, [](const Region& region) { return region.count != 0; });
    };
    if (!call_.send && any(regions.send)) return invalid("send is NULL");
    if (!call_.recv && any(regions.recv)) return invalid("recv is NULL");
    const Order order = order_of(regions.recv);
    if (auto fine = received_apart(regions, order); !fine) return fine;
    return sent_apart(regions, order);
  }
  /// Indices of regions that have elements, by the place where they begin.
  using Order = ByRank<uint32_t>;
  static Order order_of(const ByRank<Region>& regions) {
    uint32_t used = 0;
    for (const Region& region : regions) used += region.count != 0 ? 1 : 0;
    Order order;
    uint32_t* next = order.grow(used);
    for (uint32_t at = 0; at < regions.size(); ++at)
      if (regions[at].count != 0) *next++ = at;
    const auto offset = [&](uint32_t at) { return regions[at].offset; };
    // Mostly they lie in the order of their ranks.
    if (!std::ranges::is_sorted(order, {}, offset)) std::ranges::sort(order, {}, offset);
    return order;
  }
  /// Two blocks must not be received to the same place.
  Result<void> received_apart(const CallRegions& regions, const Order& order) const {
    for (size_t at = 1; at < order.size(); ++at) {
      const Region& before = regions.recv[order[at - 1]];
      if (before.offset + before.count > regions.recv[order[at]].offset)
        return invalid("the blocks of ranks " + std::to_string(order[at - 1]) + " and " +
                       std::to_string(order[at]) + " overlap in recv");
    }
    return {};
  }
  /// Sent data may have to be sent again after results have arrived. `order`: of the received
  /// regions, which lie apart; so each that is sent meets few of them.
  Result<void> sent_apart(const CallRegions& regions, const Order& order) const {
    const uint64_t width = wire_bytes(call_.dtype);
    const auto start = [&](const void* buffer, const Region& region) {
      return reinterpret_cast<uintptr_t>(buffer) + region.offset * width;
    };
    const auto end_of_received = [&](uint32_t to) {
      return start(call_.recv, regions.recv[to]) + regions.recv[to].count * width;
    };
    uintptr_t first = UINTPTR_MAX, last = 0;
    for (const Region& sent : regions.send) {
      if (sent.count == 0) continue;
      first = std::min(first, start(call_.send, sent));
      last = std::max(last, start(call_.send, sent) + sent.count * width);
    }
    // Mostly they lie apart as a whole.
    if (order.empty() || last <= start(call_.recv, regions.recv[order[0]]) ||
        first >= end_of_received(order[order.size() - 1]))
      return {};
    for (size_t from = 0; from < regions.send.size(); ++from) {
      const Region& sent = regions.send[from];
      if (sent.count == 0) continue;
      const uintptr_t a = start(call_.send, sent);
      for (const uint32_t* to = std::ranges::upper_bound(order, a, {}, end_of_received);
           to != order.end(); ++to) {
        const uintptr_t b = start(call_.recv, regions.recv[*to]);
        if (a + sent.count * width <= b) break;
        if (may_be_same(regions, from, *to) && a == b) continue;
        return invalid(overlap_text());
      }
    }
    return {};
  }
  static bool may_be_same(const CallRegions& regions, size_t from, size_t to) {
    return regions.has_own && from == regions.own_send && to == regions.own_receive;
  }
  std::string overlap_text() const {
    switch (call_.collective) {
      case Collective::kReduce:
      case Collective::kBroadcast:
        return "send and recv overlap without being the same buffer";
      case Collective::kReduceScatter:
      case Collective::kScatter:
        return "recv overlaps with send; in place, recv is this rank's own block in send";
      case Collective::kAllGather:
      case Collective::kGather:
        return "send overlaps with recv; in place, send is this rank's own block in recv";
      default:
        return "send and recv overlap; what is received must not overwrite what may have to be "
               "sent again";
    }
  }

  CollectiveCall& call_;
  const uint32_t workers_;
  const uint32_t rank_;
};

}  // namespace

Result<void> check(CollectiveCall& call, uint32_t workers, uint32_t rank) {
  return Checker(call, workers, rank).check();
}

// ---- tables

namespace {

scheduler::BlockTable make_table(const CollectiveCall& call, uint32_t workers,
                                 uint32_t per_fragment) {
  const std::span<const uint64_t> counts(call.counts);
  const std::span<const uint64_t> displacements(call.displacements);
  const Rank root{static_cast<uint16_t>(call.root)};
  switch (call.collective) {
    case Collective::kReduce:
      return scheduler::reduce_blocks(root, counts[0], per_fragment);
    case Collective::kBroadcast:
      return scheduler::broadcast_blocks(root, counts[0], per_fragment);
    case Collective::kReduceScatter:
      return scheduler::reduce_scatter_blocks(counts, per_fragment);
    case Collective::kAllGather:
      return scheduler::all_gather_blocks(counts, displacements, per_fragment);
    case Collective::kGather:
      return scheduler::gather_blocks(root, counts, displacements, per_fragment);
    case Collective::kScatter:
      return scheduler::scatter_blocks(root, counts, displacements, per_fragment);
    case Collective::kAllToAll: {
      const std::vector<uint64_t> all(size_t{workers} * workers, counts[0]);
      return scheduler::all_to_all_blocks(all, displacements, call.receive_displacements,
                                          per_fragment);
    }
    default:
      return scheduler::permute_blocks(call.destinations, counts, per_fragment);
  }
}

}  // namespace

std::shared_ptr<const scheduler::BlockTable> CallTables::table_for(const CollectiveCall& call,
                                                                   uint32_t workers,
                                                                   uint32_t slot_bytes) {
  const uint32_t per_fragment = elements_per_fragment(call.collective, call.dtype, slot_bytes);
  const std::lock_guard lock(mutex_);
  key_.assign(
      {static_cast<uint64_t>(call.collective), per_fragment, static_cast<uint64_t>(call.root)});
  const auto add = [&](const auto& numbers) {
    key_.insert(key_.end(), numbers.begin(), numbers.end());
  };
  add(call.counts);
  if (has_shares(call.collective)) add(call.displacements);
  if (call.collective == Collective::kPermute) add(call.destinations);
  return tables_.find_or_make(key_, [&] { return make_table(call, workers, per_fragment); });
}

}  // namespace ina::client
