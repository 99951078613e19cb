#include "io/ethdev/interrupt_thread.h"

#include <rte_alarm.h>

#include <chrono>
#include <semaphore>

namespace ina::io {
namespace {

constexpr std::chrono::seconds kPatience{5};

struct Job {
  void (*work)(void*);
  void* argument;
  std::binary_semaphore done{0};
};

void run(void* of) {
  auto* const job = static_cast<Job*>(of);
  job->work(job->argument);
  job->done.release();
}

}  // namespace

void run_in_interrupt_thread(void (*work)(void*), void* argument) {
  Job job{work, argument};
  if (rte_eal_alarm_set(1, run, &job) == 0) {
    if (job.done.try_acquire_for(kPatience)) return;
    // Cancelling waits for a callback that has begun, which then has done the work.
    rte_eal_alarm_cancel(run, &job);
    if (job.done.try_acquire()) return;
  }
  work(argument);
}

}  // namespace ina::io
