#include "io/ethdev/poll_gate.h"

#include <rte_alarm.h>
#include <rte_interrupts.h>
#include <rte_log.h>
#include <sched.h>

#include <mutex>
#include <vector>

#include "common/clock.h"

namespace ina::io {
namespace {

struct alignas(64) Place {
  std::atomic<uint32_t> inside{0};
  bool taken = false;
};

/// Never destroyed: DPDK's interrupt thread outlives everything else.
struct Places {
  std::mutex mutex;
  std::vector<Place*> all;
};

Places& places() {
  static auto* const instance = new Places;
  return *instance;
}

std::atomic<int> memif_log_type{-1};

/// A poller leaves within microseconds of running. Longer than this it can stay inside only if it
/// waits for the log stream, which the caller holds.
constexpr Nanos kMaxWaitNs = 1'000'000'000;

}  // namespace

std::atomic<bool> PollGate::closed_{false};

PollGate::PollGate() {
  Places& from = places();
  const std::lock_guard lock(from.mutex);
  for (Place* place : from.all) {
    if (place->taken) continue;
    place->taken = true;
    inside_ = &place->inside;
    return;
  }
  auto* const place = new Place;
  place->taken = true;
  from.all.push_back(place);
  inside_ = &place->inside;
}

PollGate::~PollGate() {
  Places& to = places();
  const std::lock_guard lock(to.mutex);
  for (Place* place : to.all)
    if (&place->inside == inside_) place->taken = false;
}

void PollGate::install() {
  const int type = rte_log_register("pmd.net.memif");
  if (type < 0) return;
  rte_log_set_level(static_cast<uint32_t>(type), RTE_LOG_DEBUG);
  memif_log_type = type;
}

void PollGate::on_driver_log(int log_type) {
  if (log_type != memif_log_type.load(std::memory_order_relaxed) || !rte_thread_is_intr()) return;
  closed_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // A poller that takes its place later finds the gate closed.
  const std::vector<Place*> pollers = [] {
    const std::lock_guard lock(places().mutex);
    return places().all;
  }();
  const Nanos deadline = now_ns() + kMaxWaitNs;
  for (const Place* place : pollers)
    while (place->inside.load(std::memory_order_acquire) != 0 && now_ns() < deadline)
      ::sched_yield();
  const auto open = [](void*) { closed_.store(false, std::memory_order_release); };
  if (rte_eal_alarm_set(1, open, nullptr) != 0) open(nullptr);
}

}  // namespace ina::io
