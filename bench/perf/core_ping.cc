#include "bench/perf/core_ping.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace ina::perf {
namespace {

using Clock = std::chrono::steady_clock;

struct Line {
  alignas(64) std::atomic<uint32_t> ping{0};
  alignas(64) std::atomic<uint32_t> pong{0};
};

constexpr uint32_t kStop = ~0u;
constexpr uint32_t kBatch = 20;  // round trips a sample: the clock's own cost disappears
constexpr auto kLimit = std::chrono::milliseconds(50);

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

void answer(Line& line, int cpu) {
  pin(cpu);
  for (uint32_t last = 0; last != kStop;) {
    const uint32_t seen = line.ping.load(std::memory_order_acquire);
    if (seen != last) line.pong.store(last = seen, std::memory_order_release);
  }
}

void measure(Line& line, int cpu, std::vector<int64_t>& samples_ns) {
  pin(cpu);
  const auto deadline = Clock::now() + kLimit;
  uint32_t turn = 0;
  bool in_time = true;
  while (in_time && samples_ns.size() < 100) {
    const auto start = Clock::now();
    for (uint32_t i = 0; i < kBatch && in_time; ++i) {
      line.ping.store(++turn, std::memory_order_release);
      // Another process on the other core can hold an answer up for milliseconds.
      for (uint32_t spins = 1; line.pong.load(std::memory_order_acquire) != turn && in_time;
           ++spins)
        in_time = spins % 1024 != 0 || Clock::now() < deadline;
    }
    if (in_time) samples_ns.push_back((Clock::now() - start).count() / kBatch);
  }
  line.ping.store(kStop, std::memory_order_release);
}

}  // namespace

int64_t core_round_trip_ns() {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) return 0;
  Line line;
  std::vector<int64_t> samples_ns;
  // Both in threads of their own: the caller's affinity stays as it is.
  std::thread responder(answer, std::ref(line), cpus[1]);
  std::thread initiator(measure, std::ref(line), cpus[0], std::ref(samples_ns));
  initiator.join();
  responder.join();
  if (samples_ns.empty()) return 0;
  std::ranges::nth_element(samples_ns, samples_ns.begin() + std::ssize(samples_ns) / 2);
  return samples_ns[samples_ns.size() / 2];
}

}  // namespace ina::perf
