#include "client/calibration.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "client/collective_call.h"
#include "common/clock.h"

namespace ina::client {

namespace {

using Element = int32_t;

// Of whole vectors. Large enough for rates, small enough for slow links.
constexpr size_t kSmallerElements = (size_t{256} << 10) / sizeof(Element);
constexpr size_t kLargerElements = (size_t{1} << 20) / sizeof(Element);
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

/// The median time of what `start` starts. All ranks have the same number of rounds.
Result<int64_t> median_ns(Context& context, int rounds, const Start& start) {
  std::vector<int64_t> times;
  for (int round = 0; round < kWarmUps + rounds; ++round) {
    const Nanos begin = now_ns();
    if (auto fine = run(context, start); !fine) return tl::unexpected(fine.error());
    if (round >= kWarmUps) times.push_back(now_ns() - begin);
  }
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
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

/// Of each number that of the rank that has the largest.
Result<void> take_slowest(Context& context, std::span<int64_t* const> numbers) {
  std::vector<int64_t> own, most(numbers.size());
  for (const int64_t* number : numbers) own.push_back(*number);
  if (auto fine = run(context, [&] { return all_reduce(context, own, most); }); !fine) return fine;
  for (size_t i = 0; i < numbers.size(); ++i) *numbers[i] = most[i];
  return {};
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
  /// Of a vector that has a block for each rank.
  Result<int64_t> blocks_ns(Collective collective, size_t elements, int rounds) {
    CollectiveCall call = call_of(collective);
    const size_t block = std::max<size_t>(elements / ranks_, 1);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      call.counts[rank] = block;
      call.displacements[rank] = rank * block;
      if (collective != Collective::kAllToAll) continue;
      call.receive_counts[rank] = block;
      call.receive_displacements[rank] = rank * block;
    }
    return median_ns(context_, rounds, [&] { return context_.start(call); });
  }
  /// Each rank sends to the next one.
  Result<int64_t> ring_ns(size_t elements, int rounds) {
    CollectiveCall call = call_of(Collective::kPermute);
    call.counts[0] = elements;
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      call.destinations[rank] = static_cast<int32_t>((rank + 1) % ranks_);
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

/// The first error of measurements one after the other.
class Measurements {
 public:
  template <class Measure>
  void take(int64_t& into, Measure&& measure) {
    if (!error_.text.empty()) return;
    if (const Result<int64_t> ns = measure())
      into = *ns;
    else
      error_ = ns.error();
    numbers_.push_back(&into);
  }
  Result<void> agree(Context& context) {
    if (!error_.text.empty()) return tl::unexpected(error_);
    return take_slowest(context, numbers_);
  }

 private:
  Error error_{INA_OK, ""};
  std::vector<int64_t*> numbers_;
};

}  // namespace

Result<themis::DimensionTimes> measure_dimension(Context& group, Context& all) {
  Probe probe(group);
  themis::DimensionTimes times;
  times.smaller_bytes = kSmallerElements * sizeof(Element);
  times.larger_bytes = kLargerElements * sizeof(Element);
  Measurements measurements;
  measurements.take(times.least_ns, [&] { return probe.all_reduce_ns(1, kShortRounds); });
  const auto both = [&](themis::DimensionTimes::Pair& pair, auto&& measure) {
    measurements.take(pair.smaller_ns, [&] { return measure(kSmallerElements); });
    measurements.take(pair.larger_ns, [&] { return measure(kLargerElements); });
  };
  both(times.all_reduce,
       [&](size_t elements) { return probe.all_reduce_ns(elements, kLongRounds); });
  both(times.reduce_scatter, [&](size_t elements) {
    return probe.blocks_ns(Collective::kReduceScatter, elements, kLongRounds);
  });
  both(times.all_gather, [&](size_t elements) {
    return probe.blocks_ns(Collective::kAllGather, elements, kLongRounds);
  });
  if (auto agreed = measurements.agree(all); !agreed) return tl::unexpected(agreed.error());
  return times;
}

Result<redistribution::CostModel> measure_costs(Context& context) {
  const uint32_t ranks = context.settings().world_size;
  Probe probe(context);
  int64_t one_ns = 0, all_ns = 0, smaller_ns = 0, larger_ns = 0;
  Measurements measurements;
  measurements.take(one_ns, [&] { return probe.ring_ns(1, kShortRounds); });
  measurements.take(all_ns,
                    [&] { return probe.blocks_ns(Collective::kAllToAll, 1, kShortRounds); });
  measurements.take(smaller_ns, [&] { return probe.ring_ns(kSmallerElements, kLongRounds); });
  measurements.take(larger_ns, [&] { return probe.ring_ns(kLargerElements, kLongRounds); });
  if (auto agreed = measurements.agree(context); !agreed) return tl::unexpected(agreed.error());
  // A ring has one message of each rank, and an all-to-all ranks - 1 of them.
  redistribution::CostModel costs;
  const double per_message =
      ranks > 2 ? static_cast<double>(all_ns - one_ns) / static_cast<double>(ranks - 2) : 0;
  costs.message_us = std::max(per_message, 0.0) / kNanosPerUs;
  costs.operation_us = std::max(static_cast<double>(one_ns) / kNanosPerUs - costs.message_us, 0.0);
  const bool grows = larger_ns > smaller_ns;
  const double bytes =
      static_cast<double>(kLargerElements - (grows ? kSmallerElements : 0)) * sizeof(Element);
  costs.bytes_per_us =
      bytes * kNanosPerUs /
      static_cast<double>(std::max<int64_t>(larger_ns - (grows ? smaller_ns : 0), 1));
  return costs;
}

}  // namespace ina::client
