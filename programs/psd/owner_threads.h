// The threads that serve the jobs of one owner. They work on half of the cores at once, so that
// many jobs of one owner leave the others' their cores.
#pragma once

#include <memory>
#include <vector>

#include "programs/psd/serving_loop.h"

namespace ina::psd {

class OwnerThreads {
 public:
  /// `cores`: of the process.
  OwnerThreads(IdleMode mode, size_t cores);

  /// The job must stay until it is removed. Throws if there is no thread for it, or no memory.
  void add(JobServer& job);
  void remove(JobServer& job);

 private:
  ServingLoop& loop_for(const JobServer& job);
  ServingLoop& new_loop();

  const IdleMode mode_;
  std::vector<std::shared_ptr<FairMutex>> cores_;
  std::vector<std::unique_ptr<ServingLoop>> loops_;
};

/// A job that is served until this is destroyed.
class ServedJob {
 public:
  ServedJob(std::unique_ptr<JobServer> server, std::shared_ptr<OwnerThreads> threads);
  ~ServedJob() { threads_->remove(*server_); }
  ServedJob(const ServedJob&) = delete;
  ServedJob& operator=(const ServedJob&) = delete;

  const JobServer& server() const { return *server_; }

 private:
  const std::shared_ptr<OwnerThreads> threads_;
  const std::unique_ptr<JobServer> server_;
};

}  // namespace ina::psd
