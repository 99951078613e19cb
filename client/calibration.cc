#include "client/calibration.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "client/collective_call.h"
#include "common/clock.h"
#include "plans/redistribution/rearrangement.h"

namespace ina::client {

namespace {

using Element = int32_t;

// Sizes of whole vectors: large enough for rates, small enough for slow links.
constexpr size_t kSmallerElements = (size_t{256} << 10) / sizeof(Element);
constexpr size_t kLargerElements = (size_t{1} << 20) / sizeof(Element);
// A tile that is ordered in memory: larger than a core's cache, in short rows.
constexpr size_t kCopiedElements = (size_t{4} << 20) / sizeof(Element);
constexpr size_t kCutRowElements = 32;
constexpr int kPasses = 4;
constexpr int kWarmUps = 2;
constexpr int kShortRounds = 25;
constexpr int kLongRounds = 5;
constexpr double kNanosPerUs = 1e3;

using Start = std::function<Result<Operation*>()>;

Result<void> run(Context& context, const Start& start) {
  const auto started = start();
  if (!started) return tl::unexpected(started.error());
  if (const int status = context.wait(*started, 0, true).status; status != INA_OK)
    return fail(static_cast<ina_status>(status), context.last_error());
  return {};
}

int64_t median(std::vector<int64_t>& times_ns) {
  const auto middle = times_ns.begin() + static_cast<ptrdiff_t>(times_ns.size() / 2);
  std::ranges::nth_element(times_ns, middle);
  return *middle;
}

/// The median time of the operations that `start` starts. All ranks have the same number of rounds.
Result<int64_t> median_ns(Context& context, int rounds, const Start& start) {
  std::vector<int64_t> times_ns;
  for (int round = 0; round < kWarmUps + rounds; ++round) {
    const Nanos begin = now_ns();
    if (auto fine = run(context, start); !fine) return tl::unexpected(fine.error());
    if (round >= kWarmUps) times_ns.push_back(now_ns() - begin);
  }
  return median(times_ns);
}

Result<Operation*> all_reduce(Context& context, std::span<const int64_t> send,
                              std::span<int64_t> recv) {
  OperationSpec spec;
  spec.send = reinterpret_cast<const std::byte*>(send.data());
  spec.recv = reinterpret_cast<std::byte*>(recv.data());
  spec.elements = send.size();
  spec.dtype = DType::kInt64;
  spec.op = Op::kMax;
  return context.start(spec);
}

/// Replaces each number by the largest of any rank.
Result<void> take_slowest(Context& context, std::vector<int64_t>& numbers) {
  const std::vector<int64_t> own = numbers;
  return run(context, [&] { return all_reduce(context, own, numbers); });
}

using Measure = std::function<Result<int64_t>()>;

/// Each is measured in a few passes. Of a pass the slowest rank's times count, and of the passes
/// the least. The first ones pay for memory that is touched for the first time, and for ranks that
/// are still at their start. All ranks get the same.
Result<std::vector<int64_t>> measure_all(Context& all, const std::vector<Measure>& measures) {
  std::vector<int64_t> least_ns(measures.size(), std::numeric_limits<int64_t>::max());
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<int64_t> times_ns;
    for (const Measure& measure : measures) {
      const Result<int64_t> ns = measure();
      if (!ns) return tl::unexpected(ns.error());
      times_ns.push_back(*ns);
    }
    if (auto fine = take_slowest(all, times_ns); !fine) return tl::unexpected(fine.error());
    for (size_t i = 0; i < times_ns.size(); ++i) least_ns[i] = std::min(least_ns[i], times_ns[i]);
  }
  return least_ns;
}

/// Collectives of vectors of up to kLargerElements, within one context.
class Probe {
 public:
  explicit Probe(Context& context)
      : context_(context),
        ranks_(context.settings().world_size),
        send_(kLargerElements + ranks_, 1),
        recv_(kLargerElements + ranks_, 0) {}

  Result<int64_t> all_reduce_ns(size_t elements, int rounds) {
    return median_ns(context_, rounds, [this, elements] {
      OperationSpec spec;
      spec.send = reinterpret_cast<const std::byte*>(send_.data());
      spec.recv = reinterpret_cast<std::byte*>(recv_.data());
      spec.elements = elements;
      spec.dtype = DType::kInt32;
      return context_.start(spec);
    });
  }
  /// Times a collective of a vector that has a block for each rank.
  Result<int64_t> blocks_ns(Collective collective, size_t elements, int rounds) {
    CollectiveCall call = call_of(collective);
    call.set_even(ranks_, std::max<size_t>(elements / ranks_, 1));
    return median_ns(context_, rounds, [&] { return context_.start(call); });
  }
  /// Brings a tile's rows into two cells and back, on all ranks at once.
  Result<int64_t> copies_ns() {
    const redistribution::Shape tile{kCopiedElements / (2 * kCutRowElements), 2, kCutRowElements};
    redistribution::Rearrangement::Boxes boxes(tile);
    boxes.add({0, 1, 0}, {tile[0], 1, kCutRowElements});
    const redistribution::Rearrangement order(std::move(boxes), sizeof(Element));
    std::vector<Element> row_major(kCopiedElements), cells(kCopiedElements);
    std::vector<int64_t> times_ns;
    for (int round = 0; round < kWarmUps + kLongRounds; ++round) {
      if (const auto together = all_reduce_ns(1, 1); !together) return together;
      const Nanos begin = now_ns();
      order.pack(std::as_bytes(std::span(row_major)).data(),
                 std::as_writable_bytes(std::span(cells)).data());
      order.unpack(std::as_bytes(std::span(cells)).data(),
                   std::as_writable_bytes(std::span(row_major)).data());
      if (round >= kWarmUps) times_ns.push_back(now_ns() - begin);
    }
    return median(times_ns);
  }
  /// Each rank sends to the next one.
  Result<int64_t> ring_ns(size_t elements, int rounds) {
    CollectiveCall call = call_of(Collective::kPermute);
    call.counts.resize(ranks_);
    std::ranges::fill(call.counts, elements);
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      call.destinations.push_back(static_cast<int32_t>((rank + 1) % ranks_));
    return median_ns(context_, rounds, [&] { return context_.start(call); });
  }

 private:
  CollectiveCall call_of(Collective collective) {
    CollectiveCall call;
    call.function = "calibration";
    call.collective = collective;
    call.send = send_.data();
    call.recv = recv_.data();
    call.dtype_number = static_cast<int>(DType::kInt32);
    call.op_number = static_cast<int>(INA_SUM);
    return call;
  }

  Context& context_;
  const uint32_t ranks_;
  std::vector<Element> send_, recv_;
};

}  // namespace

Result<themis::DimensionTimes> measure_dimension(Context& group, Context& all) {
  Probe probe(group);
  std::vector<Measure> measures{[&] { return probe.all_reduce_ns(1, kShortRounds); }};
  const auto add = [&](auto&& measure) {
    for (const size_t elements : {kSmallerElements, kLargerElements})
      measures.emplace_back([=] { return measure(elements); });
  };
  add([&](size_t elements) { return probe.all_reduce_ns(elements, kLongRounds); });
  add([&](size_t elements) {
    return probe.blocks_ns(Collective::kReduceScatter, elements, kLongRounds);
  });
  add([&](size_t elements) {
    return probe.blocks_ns(Collective::kAllGather, elements, kLongRounds);
  });
  const auto measured_ns = measure_all(all, measures);
  if (!measured_ns) return tl::unexpected(measured_ns.error());
  const auto pair = [&](size_t at) {
    return themis::DimensionTimes::Pair{(*measured_ns)[at], (*measured_ns)[at + 1]};
  };
  themis::DimensionTimes times;
  times.smaller_bytes = kSmallerElements * sizeof(Element);
  times.larger_bytes = kLargerElements * sizeof(Element);
  times.least_ns = measured_ns->front();
  times.all_reduce = pair(1);
  times.reduce_scatter = pair(3);
  times.all_gather = pair(5);
  return times;
}

Result<redistribution::CostModel> measure_costs(Context& context) {
  const uint32_t ranks = context.settings().world_size;
  Probe probe(context);
  const auto measured_ns =
      measure_all(context, {[&] { return probe.ring_ns(1, kShortRounds); },
                            [&] { return probe.blocks_ns(Collective::kAllToAll, 1, kShortRounds); },
                            [&] { return probe.ring_ns(kLargerElements, kLongRounds); },
                            [&] { return probe.copies_ns(); }});
  if (!measured_ns) return tl::unexpected(measured_ns.error());
  const int64_t one_ns = (*measured_ns)[0], all_ns = (*measured_ns)[1];
  const int64_t larger_ns = (*measured_ns)[2], copies_ns = (*measured_ns)[3];
  // A ring has one message of each rank, and an all-to-all ranks - 1 of them.
  redistribution::CostModel costs;
  const double per_message =
      ranks > 2 ? static_cast<double>(all_ns - one_ns) / static_cast<double>(ranks - 2) : 0;
  costs.message_us = std::max(per_message, 0.0) / kNanosPerUs;
  costs.operation_us = std::max(static_cast<double>(one_ns) / kNanosPerUs - costs.message_us, 0.0);
  const auto rate = [](double elements, int64_t ns) {
    return elements * sizeof(Element) * kNanosPerUs / static_cast<double>(std::max<int64_t>(ns, 1));
  };
  costs.bytes_per_us = rate(kLargerElements, larger_ns - one_ns);
  costs.copied_bytes_per_us = rate(2.0 * kCopiedElements, copies_ns);  // there and back
  return costs;
}

}  // namespace ina::client
