// Every collective whose ranks may have different counts, with counts that differ, that are zero at
// some ranks, at all but one, and at all, beside a naive model: the source of each element of a
// rank's result. All of the result buffer is compared, with the gaps between its blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/pattern.h"
#include "ina/ina.h"

namespace ina::test {

/// All ranks of a job make the same calls. Throws std::runtime_error, which says what was wrong.
class UnevenGrid {
 public:
  explicit UnevenGrid(ina_context* context)
      : context_(context),
        rank_(static_cast<size_t>(ina_rank(context))),
        world_(static_cast<size_t>(ina_world_size(context))) {}

  /// Everything that is offered, with blocks of about each of these numbers of elements. The root,
  /// where blocks lie, and which of them are empty differs from call to call.
  void run(const std::vector<uint64_t>& bases) {
    for (const Kind kind : kKinds)
      for (const ina_dtype dtype : perf::kAllDtypes)
        for (const ina_op op : perf::kAllOps) {
          if (!perf::is_offered(dtype, op)) continue;
          for (const uint64_t base : bases)
            for (const Pattern pattern : {kAllDiffer, kSomeEmpty, kOneAlone}) {
              once(kind, dtype, op, base, pattern);
              if (has_in_place(kind)) once(kind, dtype, op, base, pattern, /*in_place=*/true);
            }
          once(kind, dtype, op, 0, kAllEmpty);
          if (kind != kReduceScatter) break;  // what adds nothing has no operation
        }
  }

  /// Each collective with blocks of about so many float32 together, and all of it at one rank.
  void run_large(uint64_t elements) {
    for (const Kind kind : kKinds)
      for (const Pattern pattern : {kAllDiffer, kOneAlone}) {
        // One rank's blocks of an all-to-all go to all ranks.
        const uint64_t sources = pattern == kOneAlone ? 1 : world_;
        const uint64_t blocks = kind == kAllToAll ? sources * world_ : sources;
        once(kind, INA_FLOAT32, INA_SUM, elements / blocks, pattern);
      }
  }

  /// Operations so far.
  uint32_t done() const { return number_; }

 private:
  enum Kind : uint8_t {
    kReduceScatter,
    kAllGather,
    kGather,
    kScatter,
    kAllToAll,
    kSendReceive,
    kPermute,
  };
  static constexpr Kind kKinds[] = {kReduceScatter, kAllGather,   kGather, kScatter,
                                    kAllToAll,      kSendReceive, kPermute};
  static constexpr std::array<std::string_view, 7> kNames = {
      "reduce-scatter", "all-gather-v", "gather-v", "scatter-v",
      "all-to-all-v",   "send-receive", "permute"};
  enum Pattern : uint8_t { kAllDiffer, kSomeEmpty, kOneAlone, kAllEmpty };
  static constexpr std::array<std::string_view, 4> kPatternNames = {"all differ", "some are empty",
                                                                    "one alone", "all empty"};
  using Counts = std::vector<size_t>;
  using Bytes = std::vector<std::byte>;

  /// The call of the ranks, and the places of this rank's blocks: by rank, in elements.
  struct Call {
    Kind kind{};
    ina_dtype dtype{};
    ina_op op{};
    Pattern pattern{};
    uint64_t base = 0;
    size_t root = 0;
    bool in_place = false;
    bool spread = false;  ///< blocks lie apart, the last one first
    Counts counts{};      ///< of the ranks' blocks; of an all-to-all by row, sender after sender
    Counts places{};      ///< of blocks in the buffer that has one for each rank
    size_t end = 0;       ///< of that buffer
  };
  static constexpr size_t kGuardElements = 8;
  /// A prime, after which inputs repeat: no fragment looks like its neighbours.
  static constexpr size_t kPatternElements = 1021;
  static constexpr std::byte kGuard{0x5a};

  static bool has_in_place(Kind kind) { return kind <= kScatter; }

  void once(Kind kind, ina_dtype dtype, ina_op op, uint64_t base, Pattern pattern,
            bool in_place = false) {
    Call call{.kind = kind,
              .dtype = dtype,
              .op = op,
              .pattern = pattern,
              .base = base,
              .root = number_ % world_,
              .in_place = in_place,
              .spread = kind != kReduceScatter && number_ % 2 == 1};
    width_ = ina_dtype_size(dtype);
    if (kind == kAllToAll) {
      for (size_t from = 0; from < world_; ++from)
        for (size_t to = 0; to < world_; ++to) call.counts.push_back(count_of(call, from, to));
    } else {
      for (size_t r = 0; r < world_; ++r) call.counts.push_back(count_of(call, r, 0));
      lay_out(call.counts, call.spread, call.places, call.end);
    }
    switch (kind) {
      case kReduceScatter:
        reduce_scatter(call);
        break;
      case kAllGather:
      case kGather:
        gather(call);
        break;
      case kScatter:
        scatter(call);
        break;
      case kAllToAll:
        all_to_all(call);
        break;
      case kSendReceive:
        send_receive(call);
        break;
      case kPermute:
        permute(call);
        break;
    }
    ++number_;
  }

  /// Elements of an all-to-all's block from `from` to `to`, or of another's block of rank `from`.
  size_t count_of(const Call& call, size_t from, size_t to) const {
    const size_t ragged = call.base + from + 2 * to;
    const bool is_chosen = (from + to) % 3 == number_ % 3;
    switch (call.pattern) {
      case kAllDiffer:
        return ragged;
      case kSomeEmpty:
        return is_chosen ? 0 : ragged;
      case kOneAlone:
        return from == (number_ + 1) % world_ ? ragged : 0;
      default:
        return 0;
    }
  }

  /// Without gaps one after the other; otherwise with gaps of an element, and from the end on.
  static void lay_out(const Counts& counts, bool spread, Counts& places, size_t& end) {
    places.resize(counts.size());
    end = spread ? 1 : 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const size_t block = spread ? counts.size() - 1 - i : i;
      places[block] = end;
      end += counts[block] + (spread ? 1 : 0);
    }
  }
  static const size_t* places_of(const Call& call) {
    return call.spread ? call.places.data() : nullptr;
  }
  size_t own_count(const Call& call) const { return call.counts[rank_]; }
  /// First element of a rank's block in a vector that has all of them without gaps.
  static size_t first_of(const Counts& counts, size_t rank) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(rank),
                           size_t{0});
  }
  static size_t total(const Counts& counts) { return first_of(counts, counts.size()); }

  // ---- buffers

  Bytes fresh(size_t elements) const { return Bytes((elements + kGuardElements) * width_, kGuard); }
  std::byte* at(Bytes& bytes, size_t element) const { return bytes.data() + element * width_; }
  /// Puts `count` elements of a pattern, from its element `first` on, to an element of `bytes`.
  void put(Bytes& bytes, size_t to, const Bytes& pattern, size_t first, size_t count) const {
    for (size_t byte = 0; byte < count * width_; ++byte)
      bytes[to * width_ + byte] = pattern[(first * width_ + byte) % pattern.size()];
  }
  /// A rank's whole input, or its beginning. Differs from operation to operation.
  Bytes input_of(const Call& call, size_t rank) const {
    return perf::input_block(call.dtype, call.op, static_cast<int>(rank), static_cast<int>(world_),
                             number_, pattern_elements(call));
  }
  Bytes sum_of(const Call& call) const {
    return perf::expected_block(call.dtype, call.op, static_cast<int>(world_), number_,
                                pattern_elements(call));
  }
  static size_t pattern_elements(const Call& call) {
    return std::clamp<size_t>(total(call.counts), 1, kPatternElements);
  }

  // ---- the collectives: this rank's input, the call, and its right result

  void reduce_scatter(const Call& call) {
    const size_t own = first_of(call.counts, rank_), whole = total(call.counts);
    Bytes send = fresh(whole);
    put(send, 0, input_of(call, rank_), 0, whole);
    Bytes expected = call.in_place ? send : fresh(own_count(call));
    put(expected, call.in_place ? own : 0, sum_of(call), own, own_count(call));
    Bytes recv = fresh(own_count(call));
    const Bytes before = send;
    check(call,
          ina_reduce_scatter(context_, send.data(), call.in_place ? at(send, own) : recv.data(),
                             call.counts.data(), call.dtype, call.op, 0));
    if (!call.in_place) expect(call, send, before, "the send buffer changed");
    expect(call, call.in_place ? send : recv, expected, "wrong result");
  }

  /// An all-gather, or a gather at the root.
  void gather(const Call& call) {
    const bool to_all = call.kind == kAllGather, receives = to_all || rank_ == call.root;
    Bytes send = fresh(own_count(call));
    put(send, 0, input_of(call, rank_), 0, own_count(call));
    const Bytes before = send;
    Bytes recv = fresh(receives ? call.end : 0);
    Bytes expected = recv;
    if (receives)
      for (size_t r = 0; r < world_; ++r)
        put(expected, call.places[r], input_of(call, r), 0, call.counts[r]);
    const bool in_place = call.in_place && receives;
    if (in_place) put(recv, call.places[rank_], input_of(call, rank_), 0, own_count(call));
    const void* const from = in_place ? at(recv, call.places[rank_]) : send.data();
    const int root = static_cast<int>(call.root);
    check(call, to_all ? ina_all_gatherv(context_, from, recv.data(), call.counts.data(),
                                         places_of(call), call.dtype, 0)
                       : ina_gatherv(context_, from, receives ? recv.data() : nullptr,
                                     call.counts.data(), places_of(call), call.dtype, root, 0));
    expect(call, send, before, "the send buffer changed");
    expect(call, recv, expected, "wrong result");
  }

  /// The root's input has the blocks of all ranks without gaps, and its buffer at their places.
  void scatter(const Call& call) {
    const bool is_root = rank_ == call.root;
    const Bytes whole = input_of(call, call.root);
    Bytes send = fresh(is_root ? call.end : 0);
    if (is_root)
      for (size_t r = 0; r < world_; ++r)
        put(send, call.places[r], whole, first_of(call.counts, r), call.counts[r]);
    const Bytes before = send;
    const bool in_place = call.in_place && is_root;
    Bytes recv = fresh(own_count(call));
    Bytes expected = recv;
    if (!in_place) put(expected, 0, whole, first_of(call.counts, rank_), own_count(call));
    check(call,
          ina_scatterv(context_, is_root ? send.data() : nullptr,
                       in_place ? at(send, call.places[rank_]) : recv.data(), call.counts.data(),
                       places_of(call), call.dtype, static_cast<int>(call.root), 0));
    expect(call, send, before, "the send buffer changed");
    expect(call, recv, expected, "wrong result");
  }

  void all_to_all(const Call& call) {
    const auto row_of = [&](size_t sender) {
      const auto first = call.counts.begin() + static_cast<ptrdiff_t>(sender * world_);
      return Counts(first, first + static_cast<ptrdiff_t>(world_));
    };
    const Counts to = row_of(rank_);
    Counts from(world_), send_places, recv_places;
    for (size_t r = 0; r < world_; ++r) from[r] = call.counts[r * world_ + rank_];
    size_t send_end = 0, recv_end = 0;
    lay_out(to, call.spread, send_places, send_end);
    lay_out(from, call.spread, recv_places, recv_end);
    Bytes send = fresh(send_end), recv = fresh(recv_end), expected = recv;
    const Bytes own = input_of(call, rank_);
    for (size_t r = 0; r < world_; ++r) {
      put(send, send_places[r], own, first_of(to, r), to[r]);
      put(expected, recv_places[r], input_of(call, r), first_of(row_of(r), rank_), from[r]);
    }
    const Bytes before = send;
    check(call, ina_all_to_allv(context_, send.data(), recv.data(), to.data(),
                                call.spread ? send_places.data() : nullptr, from.data(),
                                call.spread ? recv_places.data() : nullptr, call.dtype, 0));
    expect(call, send, before, "the send buffer changed");
    expect(call, recv, expected, "wrong result");
  }

  /// Each rank's block to the next one. Of empty ones every second has no partners.
  void send_receive(const Call& call) {
    const size_t next = (rank_ + 1) % world_, source = (rank_ + world_ - 1) % world_;
    const auto partner = [&](size_t sender, size_t other) {
      const bool is_none = world_ == 1 || (call.counts[sender] == 0 && number_ % 2 == 0);
      return is_none ? INA_NOBODY : static_cast<int>(other);
    };
    const int to = partner(rank_, next), from = partner(source, source);
    const size_t received = from == INA_NOBODY ? 0 : call.counts[source];
    Bytes send = fresh(own_count(call)), recv = fresh(received), expected = recv;
    put(send, 0, input_of(call, rank_), 0, own_count(call));
    put(expected, 0, input_of(call, source), 0, received);
    const Bytes before = send;
    check(call, ina_send_receive(context_, send.data(), recv.data(),
                                 to == INA_NOBODY ? 0 : own_count(call), to, received, from,
                                 call.dtype, 0));
    expect(call, send, before, "the send buffer changed");
    expect(call, recv, expected, "wrong result");
  }

  /// Each rank sends one count to the next one; ranks whose block would be empty send to nobody.
  void permute(const Call& call) {
    std::vector<int> destinations;
    for (size_t r = 0; r < world_; ++r)
      destinations.push_back(call.counts[r] == 0 ? INA_NOBODY : static_cast<int>((r + 1) % world_));
    const size_t source = (rank_ + world_ - 1) % world_, count = call.base;
    Bytes send = fresh(count), recv = fresh(count), expected = recv;
    put(send, 0, input_of(call, rank_), 0, count);
    if (destinations[source] != INA_NOBODY) put(expected, 0, input_of(call, source), 0, count);
    const Bytes before = send;
    check(call, ina_permute(context_, send.data(), recv.data(), count, call.dtype,
                            destinations.data(), 0));
    expect(call, send, before, "the send buffer changed");
    expect(call, recv, expected, "wrong result");
  }

  // ---- what went wrong

  void check(const Call& call, int status) const {
    if (status != INA_OK)
      fail(call, std::string(ina_status_name(status)) + " " + ina_last_error(context_));
  }
  void expect(const Call& call, const Bytes& got, const Bytes& expected,
              const std::string& what) const {
    if (got == expected) return;
    const auto [at, _] = std::ranges::mismatch(got, expected);
    fail(call, what + " at byte " + std::to_string(at - got.begin()));
  }
  [[noreturn]] void fail(const Call& call, const std::string& what) const {
    throw std::runtime_error(
        "rank " + std::to_string(rank_) + " of " + std::to_string(world_) + ", operation " +
        std::to_string(number_) + ", " + std::string(kNames[call.kind]) + " of " +
        std::string(perf::name(call.dtype)) + ", " + std::string(perf::name(call.op)) +
        ", blocks of about " + std::to_string(call.base) + ", " +
        std::string(kPatternNames[call.pattern]) + (call.in_place ? ", in place" : "") + ", root " +
        std::to_string(call.root) + ": " + what);
  }

  ina_context* const context_;
  const size_t rank_;
  const size_t world_;
  size_t width_ = 0;  ///< bytes of an element
  uint32_t number_ = 0;
};

}  // namespace ina::test
