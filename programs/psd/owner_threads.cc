#include "programs/psd/owner_threads.h"

#include <algorithm>

namespace ina::psd {

OwnerThreads::OwnerThreads(IdleMode mode, size_t cores)
    : mode_(mode), cores_(std::max<size_t>(1, cores / 2)) {
  for (auto& core : cores_) core = std::make_shared<FairMutex>();
}

void OwnerThreads::add(JobServer& job) {
  loop_for(job).add(job);
}

/// A thread ends with its last job.
void OwnerThreads::remove(JobServer& job) {
  const auto loop = std::ranges::find_if(loops_, [&](const auto& one) { return one->serves(job); });
  if ((*loop)->jobs() == 1)
    loops_.erase(loop);
  else
    (*loop)->remove(job);
}

/// The one with the fewest jobs, if there is a thread for each core.
ServingLoop& OwnerThreads::loop_for(const JobServer& job) {
  if (!job.shm() || loops_.size() < cores_.size()) return new_loop();
  const auto jobs = [](const auto& loop) {
    return loop->is_full() ? ServingLoop::kMostJobs : loop->jobs();
  };
  ServingLoop& least = **std::ranges::min_element(loops_, {}, jobs);
  return least.is_full() ? new_loop() : least;
}

/// On the core that has the fewest threads.
ServingLoop& OwnerThreads::new_loop() {
  const auto threads = [&](const auto& core) {
    return std::ranges::count(loops_, core.get(), [](const auto& loop) { return loop->core(); });
  };
  const auto& core = *std::ranges::min_element(cores_, {}, threads);
  return *loops_.emplace_back(std::make_unique<ServingLoop>(mode_, core));
}

ServedJob::ServedJob(std::unique_ptr<JobServer> server, std::shared_ptr<OwnerThreads> threads)
    : threads_(std::move(threads)), server_(std::move(server)) {
  threads_->add(*server_);
}

}  // namespace ina::psd
