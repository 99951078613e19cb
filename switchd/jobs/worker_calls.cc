#include "switchd/jobs/worker_calls.h"

#include "control/messages.h"

namespace ina::switchd {

namespace {

// A worker is called so often at once, and so often in the long run. It stays awake for a while
// when it is called, so more are of no use to it; each costs the processes that share a core with
// the conductor.
constexpr Nanos kCallNs = 10'000'000;
constexpr Nanos kMostCallsNs = 64 * kCallNs;
// With more on its way to a worker, calls wait. A unix socket takes some 200 KiB.
constexpr int kMostUnreadBytes = 64 * 1024;
constexpr Nanos kUnreadAgainNs = 10'000'000;

}  // namespace

void WorkerCalls::call(Nanos now) {
  again_ = 0;
  for (Job& job : jobs_) {
    for (Job::Worker& member : job.members) {
      const ShmWay* const shm = member.way.shm();
      if (!member.client || !shm || !shm->session->call_wanted.load(std::memory_order_acquire))
        continue;
      // Calls of many groups over one connection must not fill it: it would be closed then.
      const bool crowded = member.client->line().connection.unread() > kMostUnreadBytes;
      if (const Nanos later = crowded ? kUnreadAgainNs : member.calls.at(now) - kMostCallsNs;
          later > 0) {
        again_ = next(now + later);
        continue;
      }
      member.calls.add(kCallNs, now);
      shm->session->call_wanted.exchange(false, std::memory_order_acq_rel);
      connections_.send(*member.client, control::answer::Wake{});
    }
  }
}

}  // namespace ina::switchd
