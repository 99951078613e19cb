// Every collective by each data type and operation, of any size, beside a naive model: the elements
// of other ranks' input that a rank gets (bench/perf/collective.h), and their values
// (bench/perf/pattern.h).
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/perf/collective.h"
#include "bench/perf/pattern.h"
#include "ina/ina.h"
#include "tests/support/read_only_memory.h"

namespace ina::test {

/// All ranks of a job make the same calls. Throws std::runtime_error, which says what was wrong.
class CollectiveGrid {
 public:
  explicit CollectiveGrid(ina_context* context)
      : context_(context), rank_(ina_rank(context)), world_(ina_world_size(context)) {}

  /// Everything that is offered, with each of these numbers of elements: of the whole vector, or of
  /// each rank's block. The root is another one each time.
  void run(const std::vector<uint64_t>& counts) {
    run_by_type([&](ina_dtype) { return counts; });
  }
  /// run(), with the numbers of elements that `counts_of(dtype)` returns.
  template <class CountsOf>
  void run_by_type(const CountsOf& counts_of) {
    for (const perf::Collective collective : perf::kAllCollectives)
      for (const ina_dtype dtype : perf::kAllDtypes)
        for (const ina_op op : perf::kAllOps) {
          if (!perf::is_offered(dtype, op)) continue;
          for (const uint64_t count : counts_of(dtype)) {
            once(collective, dtype, op, whole_of(collective, count));
            if (has_in_place(collective))
              once(collective, dtype, op, whole_of(collective, count), /*in_place=*/true);
          }
          if (!perf::is_sum(collective)) break;  // what adds nothing has no operation
        }
  }

  /// `whole`: elements of the whole vector, a multiple of the ranks where each has a block.
  void once(perf::Collective collective, ina_dtype dtype, ina_op op, uint64_t whole,
            bool in_place = false) {
    const int root = static_cast<int>(number_ % static_cast<uint32_t>(world_));
    const perf::Call call{
        .collective = collective, .whole = whole, .dtype = dtype, .op = op, .root = root};
    const perf::Shape shape = perf::shape_of(collective, whole, rank_, world_, root);
    if (in_place)
      within_one_buffer(call, shape);
    else
      between_two_buffers(call, shape);
    ++number_;
  }

  /// Many of several kinds in flight, waited for in the other order.
  void many_at_once() {
    constexpr size_t kAtOnce = 40;
    std::vector<std::vector<std::byte>> sums(kAtOnce), gathered(kAtOnce);
    std::vector<ina_request*> requests(2 * kAtOnce);
    const auto call_of = [&](size_t i) {
      return perf::Call{.whole = i * 61, .dtype = INA_FLOAT32, .op = INA_SUM};
    };
    for (size_t i = 0; i < kAtOnce; ++i) {
      sums[i].resize(call_of(i).whole * sizeof(float));
      perf::fill(sums[i], input_of(call_of(i), rank_));
      gathered[i].resize(static_cast<size_t>(world_) * sums[i].size());
    }
    const auto own = sums;
    for (size_t i = 0; i < kAtOnce; ++i) {
      const size_t count = call_of(i).whole;
      check(ina_allreduce_async(context_, sums[i].data(), sums[i].data(), count, INA_FLOAT32,
                                INA_SUM, &requests[2 * i]));
      check(ina_all_gather_async(context_, own[i].data(), gathered[i].data(), count, INA_FLOAT32,
                                 &requests[2 * i + 1]));
    }
    for (size_t i = requests.size(); i-- > 0;) check(ina_wait(requests[i], 0));
    for (size_t i = 0; i < kAtOnce; ++i) {
      const perf::Call call = call_of(i);
      if (perf::find_difference(
              sums[i], expected_of(call, {.count = call.whole, .source = perf::Segment::kResult})))
        fail(call, "wrong result of many at once");
      for (int source = 0; source < world_; ++source)
        if (perf::find_difference(
                std::span(gathered[i])
                    .subspan(static_cast<size_t>(source) * own[i].size(), own[i].size()),
                input_of(call, source)))
          fail(call, "wrong all-gather of many at once");
    }
    ++number_;
  }

  /// Operations so far.
  uint32_t done() const { return number_; }

 private:
  static constexpr size_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0x5a};

  /// At all ranks, or at the root alone (docs/collectives.md).
  static bool has_in_place(perf::Collective collective) {
    return collective != perf::Collective::kAllToAll && collective != perf::Collective::kPermute &&
           collective != perf::Collective::kSendReceive && collective != perf::Collective::kBarrier;
  }

  /// The root has its result in place already.
  static bool is_only_sent(perf::Collective collective) {
    return collective == perf::Collective::kBroadcast || collective == perf::Collective::kScatter;
  }

  void between_two_buffers(const perf::Call& call, const perf::Shape& shape) {
    const size_t width = ina_dtype_size(call.dtype);
    send_.resize(shape.send * width);
    perf::fill(send_, input_of(call, rank_));
    recv_.assign(shape.recv * width + kGuardBytes, kGuard);
    carry_out(call, ReadOnlyMemory(send_).data(), recv_.data());
    expect_result(call, shape, recv_);
    // Bytes outside the result stay as they were: all of them where this rank gets none.
    const size_t results = shape.segments.empty() ? 0 : shape.recv * width;
    if (!std::ranges::all_of(std::span(recv_).subspan(results),
                             [](std::byte byte) { return byte == kGuard; }))
      fail(call, "written beyond the result");
  }

  /// The input lies within the result, or the result within the input: at this rank's own block
  /// where ranks have blocks.
  void within_one_buffer(const perf::Call& call, const perf::Shape& shape) {
    const size_t width = ina_dtype_size(call.dtype);
    const size_t send_bytes = shape.send * width, recv_bytes = shape.recv * width;
    const bool both = send_bytes != 0 && recv_bytes != 0;
    const size_t own = both && perf::has_blocks(call.collective)
                           ? static_cast<size_t>(rank_) * std::min(send_bytes, recv_bytes)
                           : 0;
    const size_t send_at = send_bytes < recv_bytes ? own : 0;
    const size_t recv_at = send_bytes < recv_bytes ? 0 : own;
    recv_.assign(std::max(send_bytes, recv_bytes) + kGuardBytes, kGuard);
    const std::span<std::byte> all(recv_);
    perf::fill(all.subspan(send_at, send_bytes), input_of(call, rank_));
    send_ = recv_;
    if (rank_ == call.root && is_only_sent(call.collective)) {
      const ReadOnlyMemory sent(recv_);
      carry_out(call, sent.data() + send_at, sent.data() + recv_at);
    } else {
      carry_out(call, all.data() + send_at, all.data() + recv_at);
    }
    expect_result(call, shape, all.subspan(recv_at));
    // All else is as it was.
    const size_t results = shape.segments.empty() ? 0 : recv_bytes;
    std::ranges::copy(all.subspan(recv_at, results),
                      send_.begin() + static_cast<ptrdiff_t>(recv_at));
    if (send_ != recv_) fail(call, "written beyond the result, in place");
  }

  void carry_out(const perf::Call& call, const void* send, void* recv) const {
    const int status = perf::call(context_, call, send, recv);
    if (status != INA_OK)
      fail(call, std::string(ina_status_name(status)) + " " + ina_last_error(context_));
  }

  void expect_result(const perf::Call& call, const perf::Shape& shape,
                     std::span<const std::byte> got) const {
    const size_t width = ina_dtype_size(call.dtype);
    for (const perf::Segment& segment : shape.segments) {
      const auto part = got.subspan(segment.to * width, segment.count * width);
      if (perf::find_difference(part, expected_of(call, segment), segment.from * width))
        fail(call, "wrong result");
    }
  }

  uint64_t whole_of(perf::Collective collective, uint64_t count) const {
    return perf::has_blocks(collective) ? count * static_cast<uint64_t>(world_) : count;
  }

  static size_t elements_up_to(uint64_t end) {
    return std::clamp<size_t>(end, 1, perf::kPatternElements);
  }
  /// Differs from operation to operation, so that no old result passes.
  std::vector<std::byte> input_of(const perf::Call& call, int rank) const {
    return perf::input_block(call.dtype, call.op, rank, world_, number_,
                             elements_up_to(call.whole));
  }
  std::vector<std::byte> expected_of(const perf::Call& call, const perf::Segment& segment) const {
    if (segment.source != perf::Segment::kResult) return input_of(call, segment.source);
    return perf::expected_block(call.dtype, call.op, world_, number_, elements_up_to(call.whole));
  }

  void check(int status) const {
    if (status != INA_OK)
      throw std::runtime_error(std::string(ina_status_name(status)) + " " +
                               ina_last_error(context_));
  }
  [[noreturn]] void fail(const perf::Call& call, const std::string& what) const {
    throw std::runtime_error(
        "rank " + std::to_string(rank_) + " of " + std::to_string(world_) + ", " +
        std::string(perf::name(call.collective)) + " of " + std::to_string(call.whole) + " " +
        std::string(perf::name(call.dtype)) + ", " + std::string(perf::name(call.op)) + ", root " +
        std::to_string(call.root) + ": " + what);
  }

  ina_context* const context_;
  const int rank_;
  const int world_;
  uint32_t number_ = 0;
  std::vector<std::byte> send_, recv_;
};

}  // namespace ina::test
