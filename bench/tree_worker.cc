// One rank of a job whose ranks are at several switches, for `./dev bench trees`.
//   tree_worker URL JOB RANK WORLD COLLECTIVE BYTES ROUNDS
// Every result is checked. Prints {"us": median of the rounds, "correct": true}; COLLECTIVE
// "reproducible": {"bits": a hash of a sum whose addends round}. Errors go to standard output, too,
// and the exit status is 1.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/collective.h"
#include "bench/perf/pattern.h"
#include "bench/worker_arguments.h"

namespace {

using ina::perf::Call;
using ina::perf::Collective;
using ina::perf::Segment;

void check(int status, const ina_context* context) {
  if (status < 0)
    throw std::runtime_error(std::string(ina_status_name(status)) + ": " + ina_last_error(context));
}

Collective collective_of(std::string_view name) {
  for (const Collective collective : ina::perf::kAllCollectives)
    if (ina::perf::name(collective) == name) return collective;
  throw std::runtime_error("there is no such collective");
}

/// One operation after the other, each of them checked; the median of their times.
double measure(ina_context* context, Collective collective, uint64_t bytes, int rounds) {
  const int rank = ina_rank(context), world = ina_world_size(context);
  const uint64_t whole = ina::perf::whole_elements(collective, bytes, sizeof(float), world);
  const Call call{
      .collective = collective, .whole = whole, .dtype = INA_FLOAT32, .op = INA_SUM, .root = 0};
  const ina::perf::Shape shape = ina::perf::shape_of(collective, whole, rank, world, 0);
  std::vector<std::byte> send(shape.send * sizeof(float)), recv(shape.recv * sizeof(float));
  ina::perf::fill(send, ina::perf::input_block(INA_FLOAT32, INA_SUM, rank, world, 0));
  const auto sum = ina::perf::expected_block(INA_FLOAT32, INA_SUM, world, 0);
  std::vector<double> times_us;
  for (int round = 0; round < rounds; ++round) {
    std::ranges::fill(recv, std::byte{0xee});
    check(ina_barrier(context, 0), context);
    const auto began = std::chrono::steady_clock::now();
    check(ina::perf::call(context, call, send.data(), recv.data()), context);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    times_us.push_back(took.count());
    for (const Segment& segment : shape.segments) {
      const auto block =
          segment.source == Segment::kResult
              ? sum
              : ina::perf::input_block(INA_FLOAT32, INA_SUM, segment.source, world, 0);
      const auto got =
          std::span(recv).subspan(segment.to * sizeof(float), segment.count * sizeof(float));
      if (ina::perf::find_difference(got, block, segment.from * sizeof(float)))
        throw std::runtime_error("a result is wrong");
    }
  }
  std::ranges::sort(times_us);
  return times_us[times_us.size() / 2];
}

uint64_t bits_of_sum(ina_context* context, uint64_t bytes) {
  std::vector<float> data(bytes / sizeof(float));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = 1.0F / static_cast<float>(3 + ina_rank(context) * 7 + static_cast<int>(i % 101));
  check(ina_allreduce(context, data.data(), data.data(), data.size(), INA_FLOAT32, INA_SUM, 0),
        context);
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const std::byte byte : std::as_bytes(std::span(data)))
    hash = (hash ^ static_cast<uint64_t>(byte)) * 1099511628211u;
  return hash;
}

void run(char** argv) {
  ina_config config = ina::config_of(argv);
  config.timeout_us = 120'000'000;
  const std::string_view what = argv[5];
  const uint64_t bytes = std::strtoull(argv[6], nullptr, 10);
  if (what == "reproducible") config.numeric = INA_NUMERIC_REPRODUCIBLE;
  ina_context* context = nullptr;
  check(ina_init(&config, &context), nullptr);
  if (what == "reproducible")
    std::printf("{\"bits\": \"%016llx\"}\n",
                static_cast<unsigned long long>(bits_of_sum(context, bytes)));
  else
    std::printf("{\"us\": %.3f, \"correct\": true}\n",
                measure(context, collective_of(what), bytes, std::atoi(argv[7])));
  check(ina_finalize(context, 0), nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  try {
    run(argv);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
