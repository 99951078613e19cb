#include "plugins/torch/monitored_barrier.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace ina::plugin {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kShortestPause{1}, kLongestPause{50};
using Bytes = std::vector<uint8_t>;
constexpr uint8_t kPassed = 'y', kFailed = 'n';

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "Rank " : "Ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

/// Asks now and then: a store that waits lets no other thread ask.
bool await_key(c10d::Store& store, const std::string& key, Clock::time_point end, void (*check)()) {
  for (milliseconds pause = kShortestPause;; pause = std::min(2 * pause, kLongestPause)) {
    if (store.check({key})) return true;
    if (Clock::now() >= end) return false;
    if (check) check();
    std::this_thread::sleep_for(pause);
  }
}

MonitoredBarrier::MonitoredBarrier(c10d::Store& store, uint64_t number, int rank, int size)
    : store_(store), number_(number), rank_(rank), size_(size) {}

std::string MonitoredBarrier::key(const std::string& what) const {
  return "ina/monitored_barrier/" + std::to_string(number_) + "/" + what;
}

void MonitoredBarrier::lead(milliseconds timeout, bool wait_all_ranks, void (*check)()) {
  const auto end = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank)
    if (!await_key(store_, key(std::to_string(rank)), end, check)) missing.push_back(rank);
  store_.set(key("passed"), Bytes{missing.empty() ? kPassed : kFailed});
  if (missing.empty()) return;
  if (timeout <= milliseconds(0))
    throw std::runtime_error("[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms");
  throw std::runtime_error("[Rank 0]: " + list_of(missing) +
                           " failed to pass monitoredBarrier in " +
                           std::to_string(timeout.count()) + " ms");
}

void MonitoredBarrier::follow(milliseconds timeout, void (*check)()) {
  const std::string rank = std::to_string(rank_);
  store_.set(key(rank), Bytes{kPassed});
  // Nothing of rank 0 within that time is as good as its error: it waits for others as long.
  if (await_key(store_, key("passed"), Clock::now() + timeout, check) &&
      store_.get(key("passed")) == Bytes{kPassed})
    return;
  throw std::runtime_error("[Rank " + rank + "]: Rank " + rank +
                           " successfully reached monitoredBarrier, but received errors while "
                           "waiting for send/recv from "
                           "rank 0. Please check rank 0 logs for faulty rank.");
}

void MonitoredBarrier::pass(milliseconds timeout, bool wait_all_ranks, void (*check)()) {
  if (rank_ == 0)
    lead(timeout, wait_all_ranks, check);
  else
    follow(timeout, check);
}

}  // namespace ina::plugin
