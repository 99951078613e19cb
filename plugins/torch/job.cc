#include "plugins/torch/job.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <regex>
#include <thread>
#include <utility>
#include <vector>

#include <ina/ina.hpp>

#include "plugins/torch/continuations.h"
#include "plugins/torch/operation.h"

namespace ina::plugin {

namespace {

/// Jobs that are joined. A forked process has none of its parent's.
class Registry {
 public:
  void add(std::weak_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
    if (process_.exchange(::getpid()) != ::getpid()) jobs_.clear();
    std::erase_if(jobs_, [](const auto& other) { return other.expired(); });
    jobs_.push_back(std::move(job));
  }
  bool of_this_process() const { return process_ == ::getpid(); }
  std::vector<std::shared_ptr<Job>> all() {
    std::vector<std::shared_ptr<Job>> found;
    if (!of_this_process()) return found;
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs_)
      if (auto alive = job.lock()) found.push_back(std::move(alive));
    return found;
  }

 private:
  std::mutex mutex_;
  std::atomic<int> process_ = 0;
  std::vector<std::weak_ptr<Job>> jobs_;
};

Registry& registry() {
  static auto* const all = new Registry;  // outlives all static objects that use it
  return *all;
}

/// PyTorch's default time-out.
constexpr std::chrono::minutes kForContinuations{30};

/// An interpreter takes about so long for its end.
constexpr milliseconds kForFirstCause{300};

/// The text of the last error.
std::string text_of(const ina_context* context) {
  // Nobody called the barrier of give_up().
  static const std::regex own("waited 1e-06 s for operation [0-9]+ \\(barrier\\)");
  return std::regex_replace(ina_last_error(context), own,
                            "an operation has not ended within the timeout of its process group");
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
    throw Exception(status, text_of(context_));
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
  if (status != INA_OK) throw Exception(status, text_of(context_));
}

void Job::began(std::weak_ptr<Operation> operation) {
  const std::lock_guard lock(running_mutex_);
  if (running_.size() >= prune_at_) {
    std::erase_if(running_, [](const auto& other) {
      const auto alive = other.lock();
      return !alive || alive->done();
    });
    prune_at_ = std::max<size_t>(64, 2 * running_.size());
  }
  running_.push_back(std::move(operation));
}

std::vector<std::shared_ptr<Operation>> Job::running() const {
  std::vector<std::shared_ptr<Operation>> found;
  if (!registry().of_this_process()) return found;  // they run in the parent
  const std::lock_guard lock(running_mutex_);
  for (const auto& operation : running_)
    if (auto alive = operation.lock(); alive && !alive->done()) found.push_back(std::move(alive));
  return found;
}

void Job::register_memory(int memfd, void* memory, size_t bytes) {
  join();
  const std::shared_lock lock(mutex_);
  if (!context_) refuse_after_leaving();
  if (const int status = ina_register(context_, memfd, memory, bytes); status != INA_OK)
    throw Exception(status, text_of(context_));
}

void* Job::alloc_result(size_t bytes) {
  join();
  const std::shared_lock lock(mutex_);
  if (!context_) refuse_after_leaving();
  void* memory = nullptr;
  if (const int status = ina_alloc_result(context_, bytes, &memory); status != INA_OK)
    throw Exception(status, text_of(context_));
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
    throw Exception(status, text_of(context_));
}

ina_stats Job::stats() const {
  ina_stats stats{};
  stats.struct_size = sizeof stats;
  const std::shared_lock lock(mutex_);
  if (!context_) return stats;
  if (const int status = ina_get_stats(context_, &stats); status != INA_OK)
    throw Exception(status, text_of(context_));
  return stats;
}

void Job::await_first_cause(void (*check)()) {
  Clock::time_point none{};
  lost_.compare_exchange_strong(none, Clock::now());
  while (Clock::now() < lost_.load() + kForFirstCause) {
    if (check) check();
    std::this_thread::sleep_for(milliseconds(20));
  }
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
  return context_ ? text_of(context_) : "the process group has left the job";
}

void Job::refuse_after_leaving() const {
  throw Exception(INA_ERR_INVALID, "the process group has left job '" + options_.name + "'");
}

namespace {

/// The jobs in an order that is the same on all ranks: those of pairs, which were joined in any
/// order, by their names.
std::vector<std::shared_ptr<Job>> jobs_in_order() {
  auto jobs = registry().all();
  const auto others =
      std::ranges::stable_partition(jobs, [](const auto& job) { return job->options().pair; });
  std::ranges::sort(jobs.begin(), others.begin(), {},
                    [](const auto& job) { return job->options().name; });
  return jobs;
}

}  // namespace

void wait_for_all(milliseconds limit, void (*check)()) {
  const auto end = Clock::now() + limit;
  for (const bool again : {true, false}) {
    for (const auto& job : jobs_in_order()) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      wait_for_running(*job, job->options().pair ? std::make_optional(left) : std::nullopt, check);
    }
    // They may start others.
    if (again) Continuations::await_all_of_process(Clock::now() + kForContinuations, check);
  }
}

namespace {

std::atomic<milliseconds> exit_timeout{milliseconds(0)};

}  // namespace

void leave_at_exit(milliseconds timeout) {
  exit_timeout = timeout;
}

void leave_all_at_exit() {
  const auto deadline = Clock::now() + exit_timeout.load();
  // Each waits for the other ranks of a job. So there is no circle of ranks that wait.
  for (const auto& job : jobs_in_order())
    job->leave(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

}  // namespace ina::plugin
