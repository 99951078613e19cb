#include "plugins/torch/job.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <ina/ina.hpp>

namespace ina::plugin {

namespace {

/// Jobs that are joined.
class Registry {
 public:
  void add(std::weak_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
    std::erase_if(jobs_, [](const auto& other) { return other.expired(); });
    jobs_.push_back(std::move(job));
  }
  std::vector<std::shared_ptr<Job>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Job>> found;
    for (const auto& job : jobs_)
      if (auto alive = job.lock()) found.push_back(std::move(alive));
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Job>> jobs_;
};

Registry& registry() {
  static auto* const all = new Registry;  // outlives all static objects that use it
  return *all;
}

int64_t count_us(milliseconds time) {
  return std::max<int64_t>(1, time.count() * 1000);
}

}  // namespace

void Job::join() {
  const std::lock_guard joining(joining_mutex_);
  {
    const std::shared_lock lock(mutex_);
    if (left_) refuse_after_leaving();
    if (context_) return;
  }
  ina_config config;
  ina_config_init(&config);
  config.url = options_.url.c_str();
  config.job = options_.name.c_str();
  config.rank = options_.rank;
  config.world_size = options_.size;
  config.timeout_us = options_.timeout.count() * 1000;
  ina_context* context = nullptr;
  if (const int status = ina_init(&config, &context); status != INA_OK)
    throw Exception(status, ina_last_error(nullptr));
  {
    const std::lock_guard lock(mutex_);
    if (!left_) context_ = std::exchange(context, nullptr);
  }
  if (context) {
    ina_finalize(context, 1);
    refuse_after_leaving();
  }
  registry().add(weak_from_this());
}

std::shared_ptr<Job> Job::split(int colour, int key) {
  join();
  const std::shared_lock lock(mutex_);
  if (!context_) refuse_after_leaving();
  ina_context* context = nullptr;
  if (const int status = ina_split(context_, colour, key, &context); status != INA_OK)
    throw Exception(status, ina_last_error(context_));
  if (!context) return nullptr;
  JobOptions options = options_;
  options.rank = ina_rank(context);
  options.size = ina_world_size(context);
  auto group = std::make_shared<Job>(std::move(options));
  group->context_ = context;
  registry().add(group);
  return group;
}

void Job::start(const std::function<int(ina_context*, ina_request**)>& begin, ina_callback callback,
                void* user) {
  join();
  const std::shared_lock lock(mutex_);
  if (!context_) refuse_after_leaving();
  ina_request* request = nullptr;
  int status = begin(context_, &request);
  if (status == INA_OK) status = ina_request_set_callback(request, callback, user);
  if (status != INA_OK) throw Exception(status, ina_last_error(context_));
}

void Job::register_memory(int memfd, void* memory, size_t bytes) {
  join();
  const std::shared_lock lock(mutex_);
  if (!context_) refuse_after_leaving();
  if (const int status = ina_register(context_, memfd, memory, bytes); status != INA_OK)
    throw Exception(status, ina_last_error(context_));
}

void* Job::alloc_result(size_t bytes) {
  join();
  const std::shared_lock lock(mutex_);
  if (!context_) refuse_after_leaving();
  void* memory = nullptr;
  if (const int status = ina_alloc_result(context_, bytes, &memory); status != INA_OK)
    throw Exception(status, ina_last_error(context_));
  return memory;
}

bool Job::free_memory(void* memory) {
  const std::shared_lock lock(mutex_);
  return !context_ || ina_free(context_, memory) == INA_OK;
}

void Job::set_hints(const ina_hints& hints) {
  join();
  const std::shared_lock lock(mutex_);
  if (!context_) refuse_after_leaving();
  if (const int status = ina_set_hints(context_, &hints); status != INA_OK)
    throw Exception(status, ina_last_error(context_));
}

ina_stats Job::stats() const {
  ina_stats stats{};
  stats.struct_size = sizeof stats;
  const std::shared_lock lock(mutex_);
  if (!context_) return stats;
  if (const int status = ina_get_stats(context_, &stats); status != INA_OK)
    throw Exception(status, ina_last_error(context_));
  return stats;
}

void Job::give_up() {
  const std::shared_lock lock(mutex_);
  // A blocking operation that runs out of time ends the job, and none can overtake those that hang.
  if (context_) ina_barrier(context_, 1);
}

void Job::leave(milliseconds timeout) {
  ina_context* context = nullptr;
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
    context = std::exchange(context_, nullptr);
  }
  if (context) ina_finalize(context, count_us(timeout));
}

std::string Job::last_error() const {
  const std::shared_lock lock(mutex_);
  return context_ ? ina_last_error(context_) : "the process group has left the job";
}

void Job::refuse_after_leaving() const {
  throw Exception(INA_ERR_INVALID, "the process group has left job '" + options_.name + "'");
}

void leave_all(milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto jobs = registry().all();
  // Each waits for the other ranks of a job. No circle of ranks that wait, as all leave in the same
  // order: those of pairs by their names, because they were joined in any order.
  const auto others =
      std::ranges::stable_partition(jobs, [](const auto& job) { return job->options().pair; });
  std::ranges::sort(jobs.begin(), others.begin(), {},
                    [](const auto& job) { return job->options().name; });
  for (const auto& job : jobs)
    job->leave(
        std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()));
}

}  // namespace ina::plugin
