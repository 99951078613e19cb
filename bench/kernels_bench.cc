// Kernels on one core: time per packet, with packets and value rows together in L2, L3 or DRAM.
//
// GB/s counts the payload, row_GB/s the accumulators that it fills (twice as many bytes for 16-bit
// floats). memcpy of as many payload bytes is the yardstick. Packets and rows are visited in the
// order of their addresses, as a stream's are; "_shuffled" visits them at random instead.
//
// The checks of whole frames against damage and forgery are beside them, for bursts of 32: the
// CRC32C, and the tag by SipHash with the payload hashed alone and several at a time
// (wire/siphash.h).

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "aggregator/kernels.h"
#include "wire/frame.h"

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
          size_t misalignment, bool shuffled)
      : payload_stride_(payload_bytes + 64), row_bytes_(row_bytes), result_bytes_(result_bytes) {
    const size_t bytes_each = payload_stride_ + row_bytes_ + result_bytes_;
    order_.resize(std::max<size_t>(1, place.bytes / bytes_each));
    std::iota(order_.begin(), order_.end(), 0u);
    if (shuffled) std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
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

void report(benchmark::State& state, const char* counter, size_t bytes) {
  const auto total = static_cast<double>(bytes) * static_cast<double>(state.iterations());
  state.counters[counter] = benchmark::Counter(total / 1e9, benchmark::Counter::kIsRate);
}

struct Variant {
  Op op = Op::kSum;
  size_t misalignment = 0;
  bool shuffled = false;
};

void bench_step(benchmark::State& state, const Step& step, const Place& place,
                const Variant& variant) {
  const auto payload_bytes = static_cast<size_t>(state.range(0));
  const size_t count = payload_bytes / wire_bytes(step.dtype);
  const size_t row_bytes = count * wire_bytes(accumulator_of(step.dtype));
  const size_t result_bytes = step.run == run_add ? 0 : payload_bytes;
  Working working(place, payload_bytes, row_bytes, result_bytes, variant.misalignment,
                  variant.shuffled);
  const Kernels& k = kernels(step.dtype, variant.op);
  for (auto _ : state) {
    step.run(k, working.row(), working.payload(), working.result(), count);
    working.next();
  }
  report(state, "GB/s", payload_bytes);
  report(state, "row_GB/s", row_bytes);
}

void bench_memcpy(benchmark::State& state, const Place& place) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Working working(place, bytes, bytes, 0, 0, false);
  for (auto _ : state) {
    std::memcpy(working.row(), working.payload(), bytes);
    benchmark::ClobberMemory();
    working.next();
  }
  report(state, "GB/s", bytes);
}

constexpr size_t kBurst = 32;

/// Frames where they lie when they come from a port; the header is that of the payload.
class Frames {
 public:
  Frames(const Place& place, size_t payload_bytes)
      : working_(place, payload_bytes, wire::kInaHeaderBytes, 0, 0, false), bytes_(payload_bytes) {}
  wire::Frame next() {
    wire::Frame frame;
    frame.payload = working_.payload() + wire::kInaHeaderBytes;
    frame.payload_bytes = static_cast<uint32_t>(bytes_ - wire::kInaHeaderBytes);
    working_.next();
    return frame;
  }

 private:
  Working working_;
  size_t bytes_;
};

void bench_crc(benchmark::State& state, Frames& frames) {
  for (auto _ : state)
    for (size_t i = 0; i < kBurst; ++i) benchmark::DoNotOptimize(wire::crc_matches(frames.next()));
}

constexpr wire::TagKeys kKeys = {{1, 2}, {3, 4}};

void bench_tag(benchmark::State& state, Frames& frames) {
  for (auto _ : state)
    for (size_t i = 0; i < kBurst; ++i) {
      const wire::Frame frame = frames.next();
      const auto seal = wire::make_seal(kKeys, {frame.payload, frame.payload_bytes});
      benchmark::DoNotOptimize(wire::tag_matches(frame, seal));
    }
}

void bench_tag_burst(benchmark::State& state, Frames& frames) {
  std::array<wire::Frame, kBurst> burst;
  std::array<wire::SipInput, kBurst> payloads;
  std::array<uint64_t, kBurst> hashes{};
  for (auto _ : state) {
    for (size_t i = 0; i < kBurst; ++i) {
      burst[i] = frames.next();
      payloads[i] = {kKeys.payload, burst[i].payload};
    }
    wire::siphash_many(payloads, burst[0].payload_bytes, hashes);
    for (size_t i = 0; i < kBurst; ++i)
      benchmark::DoNotOptimize(wire::tag_matches(burst[i], {kKeys.frame, hashes[i]}));
  }
}

using FrameBench = void (*)(benchmark::State&, Frames&);

void bench_frames(benchmark::State& state, FrameBench run, const Place& place) {
  const auto payload_bytes = static_cast<size_t>(state.range(0));
  Frames frames(place, payload_bytes + wire::kInaHeaderBytes);
  run(state, frames);
  report(state, "GB/s", kBurst * payload_bytes);
  state.counters["s_per_packet"] =
      benchmark::Counter(kBurst * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("payload_bytes")->Arg(256)->Arg(1024)->Arg(4096)->Arg(8192);
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
  const auto register_step = [](const Step& step, const std::string& suffix, const Place& place,
                                const Variant& variant) {
    benchmark::RegisterBenchmark((step.name + suffix + "/" + place.name).c_str(), bench_step, step,
                                 place, variant)
        ->Apply(sizes);
  };
  const std::pair<const char*, FrameBench> of_frames[] = {
      {"crc32c", bench_crc}, {"tag", bench_tag}, {"tag_burst", bench_tag_burst}};
  for (const Place& place : kPlaces) {
    for (const auto& [name, run] : of_frames)
      benchmark::RegisterBenchmark((std::string(name) + "/" + place.name).c_str(), bench_frames,
                                   run, place)
          ->Apply(sizes);
    benchmark::RegisterBenchmark((std::string("memcpy/") + place.name).c_str(), bench_memcpy, place)
        ->Apply(sizes);
    for (const Step& step : steps) register_step(step, "", place, {});
    register_step(steps[0], "_shuffled", place, {.shuffled = true});
  }
  // 50: where a payload starts within a cache line behind Ethernet, IPv4, UDP and our header.
  register_step(steps[0], "_unaligned", kPlaces[0], {.misalignment = 50});
  register_step(steps[2], "_unaligned", kPlaces[0], {.misalignment = 50});
  register_step(steps[0], "_max", kPlaces[0], {.op = Op::kMax});
  register_step(steps[4], "_avg", kPlaces[0], {.op = Op::kAvg});
}

}  // namespace
}  // namespace ina::aggregator

int main(int argc, char** argv) {
  benchmark::AddCustomContext("instruction_set", ina::aggregator::kernel_target());
  benchmark::AddCustomContext("siphash_instruction_set", ina::wire::siphash_target());
  ina::aggregator::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
