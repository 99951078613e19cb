// Kernels on one core: time per packet, with packets and value rows in L2, L3 or DRAM.
//
// GB/s counts bytes of the row that a packet fills ("row_bytes"), once, so that data types compare:
// a packet of 16-bit floats has half as many bytes as its row. memcpy moves as many payload bytes.
// Packets and rows are visited in a fixed shuffled order, as hashing does with slots.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "aggregator/kernels.h"

namespace ina::aggregator {
namespace {

struct Place {
  const char* name;
  size_t bytes;  // of packets and rows together
};
// Sizes that fit, or do not, the usual 1 MiB L2 and 32 MiB L3.
constexpr Place kPlaces[] = {{"L2", 512 << 10}, {"L3", 8 << 20}, {"DRAM", 256 << 20}};

struct Step {
  const char* name;
  DType dtype;
  void (*run)(const Kernels&, std::byte* row, const std::byte* payload, std::byte* result,
              size_t count);
};

void run_add(const Kernels& k, std::byte* row, const std::byte* payload, std::byte*, size_t count) {
  k.add(row, payload, count);
}
void run_finish(const Kernels& k, std::byte* row, const std::byte*, std::byte* result,
                size_t count) {
  k.finish(result, row, count, 1);
}
void run_add_finish(const Kernels& k, std::byte* row, const std::byte* payload, std::byte* result,
                    size_t count) {
  k.add_finish(result, row, payload, count, 1);
}

// Memory for as many packets as fit, each of `row_bytes` accumulators.
class Working {
 public:
  Working(const Place& place, size_t payload_bytes, size_t row_bytes, size_t result_bytes,
          size_t misalignment)
      : payload_stride_(payload_bytes + 64), row_bytes_(row_bytes), result_bytes_(result_bytes) {
    const size_t bytes_each = payload_stride_ + row_bytes_ + result_bytes_;
    order_.resize(std::max<size_t>(1, place.bytes / bytes_each));
    std::iota(order_.begin(), order_.end(), 0u);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
    memory_ = std::make_unique<std::byte[]>(order_.size() * bytes_each + 64);
    payloads_ = memory_.get() + 64 - reinterpret_cast<uintptr_t>(memory_.get()) % 64;
    rows_ = payloads_ + order_.size() * payload_stride_;
    results_ = rows_ + order_.size() * row_bytes_;
    payloads_ += misalignment;
  }
  const std::byte* payload() const { return payloads_ + order_[at_] * payload_stride_; }
  std::byte* row() const { return rows_ + order_[at_] * row_bytes_; }
  std::byte* result() const { return results_ + order_[at_] * result_bytes_; }
  void next() {
    if (++at_ == order_.size()) at_ = 0;
  }

 private:
  size_t payload_stride_, row_bytes_, result_bytes_;
  std::vector<uint32_t> order_;
  size_t at_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* payloads_;
  std::byte* rows_;
  std::byte* results_;
};

void report(benchmark::State& state, size_t bytes) {
  using benchmark::Counter;
  const auto total = static_cast<double>(bytes) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = Counter(total / 1e9, Counter::kIsRate);
}

void bench_step(benchmark::State& state, const Step& step, const Place& place, size_t misalignment,
                Op op) {
  const auto row_bytes = static_cast<size_t>(state.range(0));
  const size_t count = row_bytes / wire_bytes(accumulator_of(step.dtype));
  const size_t payload_bytes = count * wire_bytes(step.dtype);
  const size_t result_bytes = step.run == run_add ? 0 : payload_bytes;
  Working working(place, payload_bytes, row_bytes, result_bytes, misalignment);
  const Kernels& k = kernels(step.dtype, op);
  for (auto _ : state) {
    step.run(k, working.row(), working.payload(), working.result(), count);
    working.next();
  }
  report(state, row_bytes);
}

void bench_memcpy(benchmark::State& state, const Place& place) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Working working(place, bytes, bytes, 0, 0);
  for (auto _ : state) {
    std::memcpy(working.row(), working.payload(), bytes);
    benchmark::ClobberMemory();
    working.next();
  }
  report(state, bytes);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("row_bytes")->Arg(256)->Arg(1024)->Arg(4096)->Arg(8192);
}

void register_all() {
  const Step steps[] = {
      {"add_float32", DType::kFloat32, run_add},
      {"add_int32", DType::kInt32, run_add},
      {"add_bfloat16", DType::kBFloat16, run_add},
      {"add_float16", DType::kFloat16, run_add},
      {"finish_float32", DType::kFloat32, run_finish},
      {"finish_bfloat16", DType::kBFloat16, run_finish},
      {"finish_float16", DType::kFloat16, run_finish},
      {"add_finish_float32", DType::kFloat32, run_add_finish},
      {"add_finish_bfloat16", DType::kBFloat16, run_add_finish},
      {"add_finish_float16", DType::kFloat16, run_add_finish},
  };
  const auto name = [](const std::string& what, const Place& place) {
    return what + "/" + place.name;
  };
  for (const Place& place : kPlaces) {
    benchmark::RegisterBenchmark(name("memcpy", place).c_str(), bench_memcpy, place)->Apply(sizes);
    for (const Step& step : steps)
      benchmark::RegisterBenchmark(name(step.name, place).c_str(), bench_step, step, place, 0,
                                   Op::kSum)
          ->Apply(sizes);
  }
  // 50: where a payload starts within a cache line behind Ethernet, IPv4, UDP and our header.
  for (const Step& step : {steps[0], steps[2]})
    benchmark::RegisterBenchmark(name(std::string(step.name) + "_unaligned", kPlaces[0]).c_str(),
                                 bench_step, step, kPlaces[0], 50, Op::kSum)
        ->Apply(sizes);
  benchmark::RegisterBenchmark(name("max_float32", kPlaces[0]).c_str(), bench_step, steps[0],
                               kPlaces[0], 0, Op::kMax)
      ->Apply(sizes);
  benchmark::RegisterBenchmark(name("finish_avg_float32", kPlaces[0]).c_str(), bench_step, steps[4],
                               kPlaces[0], 0, Op::kAvg)
      ->Apply(sizes);
}

}  // namespace
}  // namespace ina::aggregator

int main(int argc, char** argv) {
  benchmark::AddCustomContext("instruction_set", ina::aggregator::kernel_target());
  ina::aggregator::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
