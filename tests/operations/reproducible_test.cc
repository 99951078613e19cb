// The reproducible collective over a made-up switch that completes operations in any order that a
// real one could.
#include "operations/reproducible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ina::client {
namespace {

// One rank's operations. They are sent in order of submission, as far as none is held.
class FakeQueue final : public Channel {
 public:
  struct Entry {
    Operation operation;
    bool held = true;
    bool skipped = false;
    bool reduced = false;
    bool completed = false;
    bool released = false;
  };

  Operation* submit_held(const OperationSpec& spec, Nanos) override {
    entries_.emplace_back();
    Operation& operation = entries_.back().operation;
    operation.spec = spec;
    operation.number = static_cast<uint32_t>(entries_.size() - 1);
    return &operation;
  }
  void let_go(Operation* operation, const std::byte* send, std::byte* recv, uint64_t elements,
              std::shared_ptr<const scheduler::BlockTable>) override {
    Entry& entry = of(operation);
    EXPECT_TRUE(entry.held);
    entry.held = false;
    operation->spec.send = send;
    operation->spec.recv = recv;
    operation->spec.elements = elements;
  }
  void skip(Operation* operation) override {
    let_go(operation, nullptr, nullptr, 0, nullptr);
    of(operation).skipped = true;
  }
  void forget(Operation* operation) override {
    EXPECT_FALSE(of(operation).released);
    of(operation).released = true;
  }

  Entry& of(const Operation* operation) { return entries_[operation->number]; }
  std::deque<Entry>& entries() { return entries_; }
  // Operations that may be on their way: all before the first held one.
  size_t sendable() const {
    size_t count = 0;
    while (count < entries_.size() && !entries_[count].held) ++count;
    return count;
  }

 private:
  std::deque<Entry> entries_;
};

// A job of some ranks and the switch between them. Which operation gets its result next, on which
// rank, and the order of the additions are random.
class FakeJob {
 public:
  // Enough for two tensors of many chunks.
  static constexpr size_t kScratchBytes = size_t{5} << 20;

  FakeJob(uint32_t workers, uint32_t seed) : random_(seed) {
    for (uint32_t rank = 0; rank < workers; ++rank) {
      queues_.push_back(std::make_unique<FakeQueue>());
      executors_.push_back(
          std::make_unique<Executor>(std::vector<Channel*>{queues_.back().get()}, kScratchBytes));
      ranks_.push_back(std::make_unique<Reproducible>(*executors_.back(),
                                                      Reproducible::Job{.workers = workers}));
    }
  }
  Reproducible& rank(size_t rank) { return *ranks_[rank]; }
  Executor& executor(size_t rank) { return *executors_[rank]; }
  FakeQueue& queue(size_t rank) { return *queues_[rank]; }
  size_t workers() const { return ranks_.size(); }
  bool mismatch() const { return mismatch_; }

  // One step of the switch or of a rank. False if nothing can happen any more.
  bool step() {
    std::vector<std::pair<size_t, size_t>> ready;  // {rank, operation}; rank = workers(): to reduce
    size_t sendable = SIZE_MAX;
    for (const auto& queue : queues_) sendable = std::min(sendable, queue->sendable());
    for (size_t i = 0; i < sendable; ++i) {
      if (queues_[0]->entries()[i].skipped) continue;
      if (!queues_[0]->entries()[i].reduced) ready.emplace_back(workers(), i);
      for (size_t rank = 0; rank < workers(); ++rank) {
        const FakeQueue::Entry& entry = queues_[rank]->entries()[i];
        if (entry.reduced && !entry.completed) ready.emplace_back(rank, i);
      }
    }
    if (ready.empty()) return false;
    const auto [rank, operation] = ready[random_() % ready.size()];
    if (rank == workers()) {
      reduce(operation);
    } else {
      FakeQueue::Entry& entry = queues_[rank]->entries()[operation];
      entry.completed = true;
      entry.operation.spec.listener->completed(entry.operation);
    }
    return true;
  }
  void run() {
    while (step()) {
    }
  }

 private:
  template <class T>
  void reduce_as(size_t index, Op op) {
    const size_t count = queues_[0]->entries()[index].operation.spec.elements;
    std::vector<T> result(count);
    std::vector<size_t> order(workers());
    for (size_t rank = 0; rank < workers(); ++rank) order[rank] = rank;
    std::shuffle(order.begin(), order.end(), random_);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto* from =
          reinterpret_cast<const T*>(queues_[order[i]]->entries()[index].operation.spec.send);
      for (size_t j = 0; j < count; ++j) {
        if (i == 0)
          result[j] = from[j];
        else if (op == Op::kMax)
          result[j] = std::max(result[j], from[j]);
        else if (op == Op::kBor)
          result[j] = static_cast<T>(result[j] | from[j]);
        else
          ASSERT_FALSE(__builtin_add_overflow(result[j], from[j], &result[j]));
      }
    }
    for (auto& queue : queues_)
      std::copy(result.begin(), result.end(),
                reinterpret_cast<T*>(queue->entries()[index].operation.spec.recv));
  }
  void reduce(size_t index) {
    const OperationSpec& spec = queues_[0]->entries()[index].operation.spec;
    for (auto& queue : queues_) {
      FakeQueue::Entry& entry = queue->entries()[index];
      const OperationSpec& other = entry.operation.spec;
      if (other.elements != spec.elements || other.dtype != spec.dtype || other.op != spec.op ||
          entry.skipped)
        mismatch_ = true;
      entry.reduced = true;
    }
    if (mismatch_) return;
    if (spec.dtype == DType::kInt8)
      reduce_as<int8_t>(index, spec.op);
    else
      reduce_as<int32_t>(index, spec.op);
  }

  std::mt19937 random_;
  std::vector<std::unique_ptr<FakeQueue>> queues_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<Reproducible>> ranks_;
  bool mismatch_ = false;
};

OperationSpec spec_of(const void* send, void* recv, size_t count, DType dtype, Op op) {
  return {.send = static_cast<const std::byte*>(send),
          .recv = static_cast<std::byte*>(recv),
          .elements = count,
          .dtype = dtype,
          .op = op};
}

using Tensors = std::vector<std::vector<float>>;

// Starts the operation on all ranks, runs it, and returns the results, which must agree.
std::vector<float> all_reduce(const Tensors& inputs, Op op, uint32_t seed, bool in_place = false,
                              uint64_t* overflows = nullptr) {
  FakeJob job(static_cast<uint32_t>(inputs.size()), seed);
  Tensors results = inputs;
  if (!in_place)
    for (auto& result : results) std::fill(result.begin(), result.end(), -1.0f);
  std::vector<Operation*> operations;
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    operations.push_back(job.rank(rank).start(
        spec_of(in_place ? results[rank].data() : inputs[rank].data(), results[rank].data(),
                inputs[rank].size(), DType::kFloat32, op),
        0));
  job.run();
  EXPECT_FALSE(job.mismatch());
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    EXPECT_TRUE(operations[rank]->done.load());
    EXPECT_EQ(operations[rank]->complete, operations[rank]->fragments);
    EXPECT_EQ(
        0, std::memcmp(results[rank].data(), results[0].data(), results[0].size() * sizeof(float)))
        << "rank " << rank << " got another result";
    EXPECT_TRUE(job.executor(rank).release(operations[rank]));
    for (const auto& entry : job.queue(rank).entries()) EXPECT_TRUE(entry.released);
    EXPECT_EQ(job.executor(rank).counters().schedules, 1);
    if (overflows) *overflows = job.rank(rank).overflows();
  }
  return results[0];
}

// Values of similar size, so that their sum in fixed point is exact.
Tensors similar_values(size_t workers, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Tensors tensors(workers, std::vector<float>(count));
  for (auto& tensor : tensors)
    for (float& value : tensor)
      value = std::ldexp(static_cast<float>(random() % (1 << 22)) - (1 << 21), -20);
  return tensors;
}

// Values of all sizes, whose float sum depends on the order.
Tensors wild_values(size_t workers, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Tensors tensors(workers, std::vector<float>(count));
  for (auto& tensor : tensors)
    for (float& value : tensor)
      value = std::bit_cast<float>(
          static_cast<uint32_t>((random() & 0x807FFFFF) | (100 + random() % 50) << 23));
  return tensors;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr size_t kManyChunks = 5 * Reproducible::kMaxChunkElements + 77;

TEST(Reproducible, SumsAnyCount) {
  for (const size_t workers : {1, 2, 5, 64, 100})
    for (const size_t count : {size_t{1}, size_t{255}, size_t{257}, size_t{5000}, kManyChunks}) {
      if (workers >= 64 && count > 5000) continue;
      const Tensors inputs = similar_values(workers, count, 1);
      for (const Op op : {Op::kSum, Op::kAvg}) {
        const std::vector<float> result = all_reduce(inputs, op, 2);
        for (size_t i = 0; i < count; ++i) {
          double sum = 0;
          for (const auto& input : inputs) sum += input[i];
          if (op == Op::kAvg) sum /= static_cast<double>(workers);
          ASSERT_EQ(result[i], static_cast<float>(sum)) << "element " << i << " of " << count;
        }
      }
    }
}

TEST(Reproducible, OrderDoesNotMatter) {
  const Tensors inputs = wild_values(3, kManyChunks + 77, 5);
  const std::vector<float> result = all_reduce(inputs, Op::kSum, 0);
  for (uint32_t seed = 1; seed < 20; ++seed)
    ASSERT_TRUE(same_bits(all_reduce(inputs, Op::kSum, seed), result)) << "seed " << seed;
  Tensors swapped = inputs;
  std::swap(swapped[0], swapped[2]);
  EXPECT_TRUE(same_bits(all_reduce(swapped, Op::kSum, 1), result));
}

TEST(Reproducible, InPlace) {
  const Tensors inputs = wild_values(3, kManyChunks, 6);
  EXPECT_TRUE(same_bits(all_reduce(inputs, Op::kAvg, 1, true), all_reduce(inputs, Op::kAvg, 2)));
}

TEST(Reproducible, SpecialValuesPropagate) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Tensors inputs = similar_values(3, kManyChunks, 9);
  const size_t last = kManyChunks - 1;
  inputs[0][3] = kInf;
  inputs[1][4] = -kInf;
  inputs[2][5] = kNan;
  inputs[0][6] = kInf;
  inputs[2][6] = -kInf;
  inputs[1][70'000] = kInf;
  inputs[1][last] = kNan;
  inputs[0][last] = kInf;
  uint64_t overflows = 0;
  const std::vector<float> result = all_reduce(inputs, Op::kSum, 4, false, &overflows);
  EXPECT_EQ(overflows, 0);
  for (size_t i = 0; i <= last; ++i) {
    const double sum = double{inputs[0][i]} + inputs[1][i] + inputs[2][i];
    if (std::isnan(sum))
      ASSERT_EQ(std::bit_cast<uint32_t>(result[i]), 0x7FC00000) << i;
    else
      ASSERT_EQ(result[i], static_cast<float>(sum)) << i;
  }
}

/// More of them than a byte counts.
TEST(Reproducible, SpecialValuesOfManyRanksPropagate) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Tensors inputs(300, std::vector<float>(3, 1.0f));
  for (auto& input : inputs) {
    input[0] = kInf;
    input[1] = -kInf;
  }
  const std::vector<float> result = all_reduce(inputs, Op::kSum, 4);
  EXPECT_EQ(result, (std::vector<float>{kInf, -kInf, 300.0f}));
}

/// The largest mantissa of float32 is rounded up, and so is the sum of as many as fit.
TEST(Reproducible, SumsOfManyRanksDoNotOverflow) {
  constexpr float kLargest = 0x1.fffffep10f;
  const Tensors inputs(256, std::vector<float>{kLargest, -kLargest});
  const std::vector<float> result = all_reduce(inputs, Op::kSum, 4);
  EXPECT_NEAR(result[0], 256 * kLargest, 1e-6 * 256 * kLargest);
  EXPECT_EQ(result[1], -result[0]);
}

TEST(Reproducible, OverflowIsReported) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const float sign : {1.0f, -1.0f}) {
    Tensors inputs(2, std::vector<float>(300, 1.0f));
    inputs[0][299] = inputs[1][299] = sign * kMax;
    uint64_t overflows = 0;
    const std::vector<float> sum = all_reduce(inputs, Op::kSum, 1, false, &overflows);
    EXPECT_EQ(overflows, 1);
    EXPECT_EQ(sum[299], sign * std::numeric_limits<float>::infinity());
    EXPECT_EQ(sum[298], 0.0f) << "a block that has 2^127 has no room for 1";
    EXPECT_EQ(sum[0], 2.0f);
    const std::vector<float> average = all_reduce(inputs, Op::kAvg, 1, false, &overflows);
    EXPECT_EQ(overflows, 0);
    EXPECT_EQ(average[299], sign * kMax);
  }
  // The finite companions of a NaN are no sum of their own.
  Tensors inputs(3, std::vector<float>(1, kMax));
  inputs[2][0] = std::numeric_limits<float>::quiet_NaN();
  uint64_t overflows = 0;
  EXPECT_TRUE(std::isnan(all_reduce(inputs, Op::kSum, 1, false, &overflows)[0]));
  EXPECT_EQ(overflows, 0);
}

TEST(Reproducible, ZerosArePositiveAndDenormalsExact) {
  Tensors inputs(2, {-0.0f, 0.0f, 1.0f, 0x1p-149f});
  inputs[1] = {-0.0f, -0.0f, -1.0f, 0x1p-149f};
  std::vector<float> result = all_reduce(inputs, Op::kSum, 1);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(result[i]), 0u) << i;
  inputs = Tensors(3, {0x1p-149f, 0x1.8p-127f});
  result = all_reduce(inputs, Op::kSum, 1);
  EXPECT_EQ(result[0], 3 * 0x1p-149f);
  EXPECT_EQ(result[1], 3 * 0x1.8p-127f);
}

TEST(Reproducible, SixteenBitFloats) {
  const std::pair<DType, uint16_t> ones[] = {{DType::kBFloat16, 0x3F80}, {DType::kFloat16, 0x3C00}};
  for (const auto& [dtype, one] : ones) {
    FakeJob job(4, 3);
    std::vector<std::vector<uint16_t>> tensors(4, std::vector<uint16_t>(1000, one));
    tensors[1][7] = static_cast<uint16_t>(one | 0x8000);
    for (size_t rank = 0; rank < 4; ++rank)
      job.rank(rank).start(
          spec_of(tensors[rank].data(), tensors[rank].data(), 1000, dtype, Op::kSum), 0);
    job.run();
    const auto twice = static_cast<uint16_t>(one + (dtype == DType::kBFloat16 ? 0x80 : 0x400));
    const auto four_times = static_cast<uint16_t>(twice + (twice - one));
    for (const auto& tensor : tensors) {
      EXPECT_EQ(tensor[7], twice);
      EXPECT_EQ(tensor[8], four_times);
      EXPECT_EQ(tensor[999], four_times);
    }
  }
}

TEST(Reproducible, ManyAtOnceWithinBoundedMemory) {
  FakeJob job(2, 8);
  constexpr size_t kOperations = 7;
  std::vector<Tensors> tensors;
  std::vector<std::vector<Operation*>> operations(2);
  for (size_t i = 0; i < kOperations; ++i)
    tensors.push_back(similar_values(2, i % 2 == 0 ? kManyChunks : 300, i));
  const std::vector<Tensors> inputs = tensors;
  for (size_t i = 0; i < kOperations; ++i)
    for (size_t rank = 0; rank < 2; ++rank) {
      std::vector<float>& tensor = tensors[i][rank];
      operations[rank].push_back(job.rank(rank).start(
          spec_of(tensor.data(), tensor.data(), tensor.size(), DType::kFloat32, Op::kSum), 0));
      for (int steps = 0; steps < 5; ++steps) job.step();
    }
  // No two operations that may be under way share a buffer.
  do {
    for (size_t rank = 0; rank < 2; ++rank) {
      std::vector<const std::byte*> buffers;
      for (const auto& entry : job.queue(rank).entries())
        if (!entry.held && !entry.completed && !entry.skipped)
          buffers.push_back(entry.operation.spec.recv);
      std::sort(buffers.begin(), buffers.end());
      ASSERT_EQ(std::adjacent_find(buffers.begin(), buffers.end()), buffers.end());
      ASSERT_LE(buffers.size(), 2 * 3 * Reproducible::kSlots);
    }
  } while (job.step());
  for (size_t rank = 0; rank < 2; ++rank)
    for (size_t i = 0; i < kOperations; ++i) {
      ASSERT_TRUE(operations[rank][i]->done.load());
      for (size_t j = 0; j < inputs[i][0].size(); ++j)
        ASSERT_EQ(tensors[i][rank][j], inputs[i][0][j] + inputs[i][1][j]) << i << " " << j;
      EXPECT_TRUE(job.executor(rank).release(operations[rank][i]));
      EXPECT_FALSE(job.executor(rank).release(operations[rank][i]));
    }
}

TEST(Reproducible, DisagreementIsNoticed) {
  std::vector<float> data(1000);
  struct Ask {
    size_t count;
    DType dtype;
    Op op;
  };
  const Ask asks[] = {{999, DType::kBFloat16, Op::kSum}, {999, DType::kBFloat16, Op::kAvg},
                      {999, DType::kFloat16, Op::kSum},  {999, DType::kFloat16, Op::kAvg},
                      {999, DType::kFloat32, Op::kSum},  {999, DType::kFloat32, Op::kAvg},
                      {1000, DType::kFloat32, Op::kAvg}};
  for (size_t a = 0; a < std::size(asks); ++a)
    for (size_t b = 0; b < std::size(asks); ++b) {
      FakeJob job(2, 1);
      job.rank(0).start(spec_of(data.data(), data.data(), asks[a].count, asks[a].dtype, asks[a].op),
                        0);
      job.rank(1).start(spec_of(data.data(), data.data(), asks[b].count, asks[b].dtype, asks[b].op),
                        0);
      job.run();
      EXPECT_EQ(job.mismatch(), a != b) << a << " " << b;
    }
}

TEST(Reproducible, GivenUpEndsEverything) {
  FakeJob job(2, 1);
  std::vector<std::vector<float>> tensors(2, std::vector<float>(kManyChunks, 1.0f));
  std::vector<Operation*> operations;
  for (size_t rank = 0; rank < 2; ++rank)
    operations.push_back(job.rank(rank).start(
        spec_of(tensors[rank].data(), tensors[rank].data(), kManyChunks, DType::kFloat32, Op::kSum),
        0));
  for (int steps = 0; steps < 10; ++steps) job.step();
  EXPECT_TRUE(job.executor(0).release(operations[0]));
  for (const auto& entry : job.queue(0).entries()) EXPECT_TRUE(entry.released);
  tensors[0].clear();
  tensors[0].shrink_to_fit();
  job.run();  // what still comes is for nobody
}

TEST(Reproducible, ChunksSuitTheTensor) {
  EXPECT_EQ(Reproducible::chunk_elements(1), Reproducible::kMinChunkElements);
  EXPECT_EQ(Reproducible::chunk_elements(1 << 17), 1 << 15);
  EXPECT_EQ(Reproducible::chunk_elements((1 << 17) + 1), (1 << 15) + kBlockElements);
  EXPECT_EQ(Reproducible::chunk_elements(uint64_t{1} << 40), Reproducible::kMaxChunkElements);
}

TEST(Reproducible, HandlesSumsOfSomeFloats) {
  float value = 0;
  for (const DType dtype : kAllDTypes)
    for (const Op op : kAllOps)
      EXPECT_EQ(
          Reproducible::handles(spec_of(&value, &value, 1, dtype, op)),
          (op == Op::kSum || op == Op::kAvg) &&
              (dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16));
  OperationSpec barrier;
  barrier.collective = Collective::kBarrier;
  EXPECT_FALSE(Reproducible::handles(barrier));
}

}  // namespace
}  // namespace ina::client
