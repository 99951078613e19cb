#include "plugins/python/binding/context.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <ina/ina.hpp>

namespace ina::python {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kDefaultTimeoutS = 30, kBetweenSignalsS = 0.1;

int64_t count_us(double seconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e6));
}

/// As ina_config.timeout_us has it.
double timeout_or_default(double seconds) {
  if (seconds > 0) return seconds;
  const char* text = std::getenv("INA_TIMEOUT_US");
  const double microseconds = text ? std::atof(text) : 0;
  return microseconds > 0 ? microseconds * 1e-6 : kDefaultTimeoutS;
}

/// Memory of operations that were dropped while they ran. The library's thread, which learns of
/// their ends, must not wait for the GIL: Python's main thread gives the memory back when it comes
/// by.
class Leftovers {
 public:
  static Leftovers& all() {
    static auto* const leftovers = new Leftovers;
    return *leftovers;
  }
  /// Any thread.
  void take(std::vector<Array> arrays) {
    {
      const std::lock_guard lock(mutex_);
      arrays_.push_back(std::move(arrays));
    }
    Py_AddPendingCall(&Leftovers::release,
                      nullptr);  // where the queue is full, the next one does it
  }

 private:
  static int release(void*) {
    std::vector<std::vector<Array>> arrays;
    {
      const std::lock_guard lock(all().mutex_);
      arrays.swap(all().arrays_);
    }
    return 0;
  }

  std::mutex mutex_;
  std::vector<std::vector<Array>> arrays_;
};

/// Shows results that were written where Python does not see them. The status of the operation.
int deliver(const std::vector<Array>& arrays, int status, std::string& text) {
  if (status != INA_OK || std::ranges::all_of(arrays, &Array::deliver)) return status;
  text = "no memory for a result buffer that the switch, which has started again, has left";
  return INA_ERR_NO_MEMORY;
}

/// The library's thread: an operation has ended.
void ended(void* user, int status) {
  const std::unique_ptr<std::shared_ptr<Outcome>> owner(
      static_cast<std::shared_ptr<Outcome>*>(user));
  Outcome& outcome = **owner;
  std::string text = outcome.joined.text_of(status);
  status = deliver(outcome.arrays, status, text);
  {
    const std::lock_guard lock(outcome.mutex);
    outcome.status = status;
    outcome.text = std::move(text);
    outcome.done = true;
    if (outcome.orphaned) Leftovers::all().take(std::exchange(outcome.arrays, {}));
  }
  outcome.changed.notify_all();
  outcome.joined.wake();  // after `done`: a woken thread looks once
}

}  // namespace

// ---- Joined

Joined::~Joined() {
  closing_ = true;
  if (context_) {
    const auto kept = results_->keep_all();
    const py::gil_scoped_release no_gil;
    ina_finalize(context_, 0);
  }
  if (completion_fd_ >= 0) ::close(completion_fd_);
}

int Joined::call(const std::function<int(ina_context*)>& function) {
  return call_all({this}, [&](const auto& contexts) { return function(contexts.front()); });
}

int Joined::call_all(const std::vector<Joined*>& all,
                     const std::function<int(const std::vector<ina_context*>&)>& function) {
  const py::gil_scoped_release no_gil;
  std::vector<std::shared_lock<std::shared_mutex>> locks;
  std::vector<ina_context*> contexts;
  for (Joined* joined : all) {
    locks.emplace_back(joined->mutex_);
    if (!joined->context_) throw Exception(INA_ERR_INVALID, "the context is closed");
    contexts.push_back(joined->context_);
  }
  const int status = function(contexts);
  if (status < 0) throw Exception(status, ina_last_error(contexts.front()));
  return status;
}

void Joined::close(double timeout_s) {
  std::vector<std::shared_ptr<Result>> kept;  // whose ends need the GIL and the lock
  const py::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  ina_context* context = std::exchange(context_, nullptr);
  if (!context) return;
  closing_ = true;
  kept = results_->keep_all();
  if (const int status = ina_finalize(context, timeout_s > 0 ? count_us(timeout_s) : 0); status < 0)
    throw Exception(status, ina_last_error(nullptr));
}

bool Joined::closed() const {
  const py::gil_scoped_release no_gil;
  const std::shared_lock lock(mutex_);
  return context_ == nullptr;
}

int Joined::free_memory(void* memory) {
  const std::shared_lock lock(mutex_);
  return context_ ? ina_free(context_, memory) : INA_OK;
}

int Joined::completion_fd() {
  if (completion_fd_ < 0) {
    const int made = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (made < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    completion_fd_ = made;
  }
  return completion_fd_;
}

void Joined::wake() {
  if (completion_fd_ >= 0) ::eventfd_write(completion_fd_, 1);
}

std::string Joined::text_of(int status) const {
  if (status >= 0) return {};
  return closing_ ? "the context was closed" : ina_last_error(told_by_);
}

// ---- Request

Request::~Request() {
  std::vector<Array> arrays;  // given back after the lock
  const std::lock_guard lock(outcome_->mutex);
  outcome_->orphaned = true;
  if (outcome_->done) arrays.swap(outcome_->arrays);
}

bool Request::test() {
  std::vector<Array> arrays;
  const std::lock_guard lock(outcome_->mutex);
  if (!outcome_->done) return false;
  arrays.swap(outcome_->arrays);
  if (outcome_->status < 0) throw Exception(outcome_->status, outcome_->text);
  return true;
}

bool Request::done_within(double seconds) {
  const py::gil_scoped_release no_gil;
  std::unique_lock lock(outcome_->mutex);
  return outcome_->changed.wait_for(lock, std::chrono::duration<double>(std::max(0., seconds)),
                                    [&] { return outcome_->done; });
}

bool Request::wait(double timeout_s) {
  const auto end = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    const double left_s = std::chrono::duration<double>(end - Clock::now()).count();
    if (done_within(std::min(left_s, kBetweenSignalsS))) return test();
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (left_s <= kBetweenSignalsS) return false;
  }
}

void Request::finish(std::optional<double> timeout_s) {
  const double limit_s = timeout_s.value_or(joined_->timeout_s());
  if (!wait(limit_s)) expire(limit_s);
}

void Request::expire(double limit_s) {
  // A blocking operation that runs out of time ends the job, and none can overtake this one.
  try {
    joined_->call([](ina_context* context) { return ina_barrier(context, 1); });
  } catch (const Exception& error) {
    throw Exception(error.status(),
                    "the timeout of " + std::to_string(limit_s) + " s has passed: " + error.what());
  }
}

// ---- Context

Context Context::join(const std::string& url, const std::string& job, int rank, int world_size,
                      double timeout_s, bool reproducible, uint64_t window_bytes,
                      const std::string& idle) {
  ina_config config;
  ina_config_init(&config);
  if (!url.empty()) config.url = url.c_str();
  if (!job.empty()) config.job = job.c_str();
  config.rank = rank;
  config.world_size = world_size;
  config.timeout_us = timeout_s > 0 ? count_us(timeout_s) : 0;
  config.window_bytes = window_bytes;
  if (reproducible) config.numeric = INA_NUMERIC_REPRODUCIBLE;
  constexpr const char* kIdles[] = {"auto", "spin", "yield", "backoff", "interrupt"};
  const auto* found = std::find(std::begin(kIdles), std::end(kIdles), idle);
  if (found == std::end(kIdles))
    throw py::value_error("idle is '" + idle + "', not auto, spin, yield, backoff or interrupt");
  config.idle = static_cast<ina_idle>(found - std::begin(kIdles));

  ina_context* context = nullptr;
  const py::gil_scoped_release no_gil;
  if (const int status = ina_init(&config, &context); status != INA_OK)
    throw Exception(status, ina_last_error(nullptr));
  return Context(std::make_shared<Joined>(context, timeout_or_default(timeout_s)));
}

std::optional<Context> Context::split(int colour, int key) const {
  ina_context* group = nullptr;
  joined_->call([&](ina_context* context) { return ina_split(context, colour, key, &group); });
  if (!group) return std::nullopt;
  return of_group(group);
}

Context Context::create_group(const std::vector<int>& ranks, uint64_t tag) const {
  ina_context* group = nullptr;
  joined_->call([&](ina_context* context) {
    return ina_create_group(context, ranks.data(), ranks.size(), tag, &group);
  });
  return of_group(group);
}

Context Context::of_group(ina_context* group) const {
  auto joined = std::make_shared<Joined>(group, joined_->timeout_s());
  joined_->results()->add_group(joined->results());
  return Context(std::move(joined));
}

std::unique_ptr<Request> Context::start(const Begin& begin, std::vector<Array> arrays) const {
  auto outcome = std::make_shared<Outcome>(*joined_);
  outcome->arrays = std::move(arrays);
  auto owner = std::make_unique<std::shared_ptr<Outcome>>(outcome);
  joined_->call([&](ina_context* context) {
    ina_request* request = nullptr;
    const int status = begin(context, &request);
    return status == INA_OK ? ina_request_set_callback(request, &ended, owner.get()) : status;
  });
  [[maybe_unused]] const auto* given = owner.release();
  return std::make_unique<Request>(joined_, std::move(outcome));
}

}  // namespace ina::python
