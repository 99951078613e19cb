#include "client/hierarchy.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "client/calibration.h"
#include "client/context_channel.h"
#include "common/clock.h"
#include "membership/control_text.h"
#include "operations/plan_hashes.h"

namespace ina::client {

namespace {

// Between looks at several channels of which none has anything.
constexpr Nanos kMostPauseNs = 200'000;
// Scratch memory of all plans that are under way; one that needs more has the more.
constexpr size_t kScratchBytes = size_t{64} << 20;

}  // namespace

/// While it lives, this thread drives the contexts, and not the background threads.
class Hierarchy::Driving {
 public:
  explicit Driving(Hierarchy& hierarchy) : hierarchy_(hierarchy) {
    for (const auto& context : hierarchy.contexts_) context->add_driver();
  }
  ~Driving() {
    for (const auto& context : hierarchy_.contexts_) context->remove_driver();
    for (const auto& context : hierarchy_.contexts_) context->kick_if_running();
  }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;

 private:
  Hierarchy& hierarchy_;
};

Hierarchy::Hierarchy(const std::shared_ptr<Context>& context, themis::Topology topology,
                     std::vector<std::shared_ptr<Context>> contexts)
    : topology_(themis::carried_by_switches(std::move(topology))),
      contexts_(std::move(contexts)),
      rank_(context->settings().rank),
      ranks_(context->settings().world_size),
      plans_(topology_, contexts_, rank_, [this](const std::byte* hashes) { agree(hashes); }) {
  std::vector<Channel*> channels;
  for (const auto& one : contexts_) {
    channels_.push_back(std::make_unique<ContextChannel>(*one, inbox_));
    channels.push_back(channels_.back().get());
  }
  executor_ = std::make_unique<Executor>(channels, kScratchBytes);
}

Hierarchy::~Hierarchy() {
  if (left_) return;
  for (const auto& context : contexts_) context->close();
}

// ---- the start

Result<Operation*> Hierarchy::start(std::string_view function,
                                    std::span<const HierarchicalCall> calls,
                                    const HierarchicalOptions& options) {
  if (has_failed()) {
    const std::lock_guard lock(text_mutex_);
    return fail(static_cast<ina_status>(failed_.load()), failure_text_);
  }
  const auto invalid = [&](const std::string& text) {
    return fail(INA_ERR_INVALID, std::string(function) + ": " + text);
  };
  if (options.chunks == 0 || options.chunks > themis::kMostChunks)
    return invalid("chunks is " + std::to_string(options.chunks) + ", not 1 to " +
                   std::to_string(themis::kMostChunks));
  if (calls.empty() || calls.size() > themis::kMostRequests)
    return invalid(std::to_string(calls.size()) + " collectives, not 1 to " +
                   std::to_string(themis::kMostRequests));
  PlanKey key{{}, {}, options.scheduler, options.chunks};
  std::vector<scheduler::BufferPair> pairs;
  for (const HierarchicalCall& call : calls) {
    if (auto fine = add_to(key, call); !fine) return tl::unexpected(fine.error());
    pairs.push_back({static_cast<const std::byte*>(call.send), static_cast<std::byte*>(call.recv)});
  }
  // A request without elements is planned only if no request has any.
  for (size_t i = key.requests.size(); i-- > 0 && key.requests.size() > 1;) {
    if (key.requests[i].bytes != 0) continue;
    const auto at = static_cast<ptrdiff_t>(i);
    key.requests.erase(key.requests.begin() + at);
    key.elements.erase(key.elements.begin() + at);
    pairs.erase(pairs.begin() + at);
  }
  auto started = start(key, pairs);
  if (!started)
    return fail(started.error().status, std::string(function) + ": " + started.error().text);
  return started;
}

Result<void> Hierarchy::add_to(PlanKey& key, const HierarchicalCall& call) const {
  const auto types = check(call, ranks_, rank_, all().settings().reproducible);
  if (!types) return tl::unexpected(types.error());
  const uint64_t width = wire_bytes(types->dtype);
  const bool has_blocks = call.collective != themis::Collective::kAllReduce;
  const bool gets_all = has_blocks && call.collective != themis::Collective::kReduceScatter;
  const std::span recv(static_cast<const std::byte*>(call.recv),
                       call.count * width * (gets_all ? ranks_ : 1));
  if (auto fine = all().check_writable(recv, call.function, "recv"); !fine) return fine;
  key.requests.push_back({.collective = call.collective,
                          .bytes = call.count * width * (has_blocks ? ranks_ : 1),
                          .element_bytes = static_cast<uint32_t>(width)});
  key.elements.push_back({types->dtype, types->op});
  return {};
}

Result<Operation*> Hierarchy::start(const PlanKey& key,
                                    std::span<const scheduler::BufferPair> pairs) {
  const std::lock_guard lock(mutex_);
  const auto plan = plans_.get(key);
  if (!plan) return tl::unexpected(plan.error());
  const auto& schedule = (*plan)->execution->schedule();
  running_.reserve(running_.size() + 1);
  inbox_.reserve(operations_ + schedule->size());
  OperationSpec spec;
  spec.elements = key.requests.front().bytes / key.requests.front().element_bytes;
  spec.dtype = key.elements.front().dtype;
  spec.op = key.elements.front().op;
  spec.collective = flat(key.requests.front().collective);
  Operation* const operation =
      executor_->start(schedule, spec, plan->get(), Executor::Handle::kKept, now_ns(), pairs);
  running_.push_back({operation, *plan});
  operations_ += schedule->size();
  under_way_.fetch_add(1);
  return operation;
}

/// Under mutex_.
void Hierarchy::agree(const std::byte* hashes) {
  disagreement_ = disagreement_text(hashes, ranks_, "the hierarchical collective");
  if (disagreement_.empty()) return;
  disagree_ = true;
  executor_->stop();
}

// ---- going on

/// True: something was done.
bool Hierarchy::drive() {
  bool busy = false;
  for (const auto& context : contexts_)
    if (!context->failed()) busy |= context->drive_briefly();
  if (!take_in()) return busy;
  if (has_callbacks_.load()) all().kick();  // they are the background thread's to call
  return true;
}

bool Hierarchy::take_in() {
  if (!inbox_.has_mail()) return false;
  const std::lock_guard lock(mutex_);
  inbox_.deliver();
  return true;
}

/// Under mutex_.
void Hierarchy::release(Operation* operation) {
  const auto found = std::ranges::find(running_, operation, &Running::operation);
  operations_ -= found->plan->execution->schedule()->size();
  executor_->release(operation);
  running_.erase(found);
  under_way_.fetch_sub(1);
}

WaitEnd Hierarchy::wait(Operation* operation, Nanos timeout_ns, bool give_up) {
  if (timeout_ns <= 0) timeout_ns = all().settings().timeout_ns;
  const auto is_done = [&] { return operation->done.load(std::memory_order_acquire); };
  const bool done = drive_until(is_done, now_ns() + timeout_ns);
  if (!done && !has_failed()) return timed_out(operation, timeout_ns, give_up);
  const std::lock_guard lock(mutex_);
  release(operation);
  return {done ? static_cast<int>(INA_OK) : failed_.load(), true};
}

/// False: the hierarchy has failed, or the time has passed.
template <class Done>
bool Hierarchy::drive_until(const Done& done, Nanos deadline) {
  const Driving driving(*this);
  IdleStrategy idle(all().settings().idle);
  for (;;) {
    const bool busy = drive();
    if (done()) return true;
    if (has_failed()) return false;
    if (busy) {
      idle.reset();
      continue;
    }
    const Nanos now = now_ns();
    if (now >= deadline) return false;
    if (idle.idle(now) == IdleStrategy::Step::kSleep)
      std::this_thread::sleep_for(std::chrono::nanoseconds(
          std::min({idle.sleep_ns(), kMostPauseNs, std::max<Nanos>(deadline - now, 1)})));
  }
}

int Hierarchy::test(Operation* operation) {
  drive();
  const bool done = operation->done.load(std::memory_order_acquire);
  if (!done && !has_failed()) return INA_IN_PROGRESS;
  const int status = done ? static_cast<int>(INA_OK) : failed_.load();
  const std::lock_guard lock(mutex_);
  release(operation);
  return status;
}

WaitEnd Hierarchy::timed_out(Operation* operation, Nanos waited_ns, bool give_up) {
  std::string text = "waited " + membership::seconds(waited_ns) + " for the hierarchical ";
  {
    const std::lock_guard lock(mutex_);
    const OperationSpec& spec = operation->spec;
    const auto running = std::ranges::find(running_, operation, &Running::operation);
    if (const size_t all = running->plan->key.requests.size(); all > 1)
      text += "group of " + std::to_string(all) + ", the first a ";
    text += std::string(name(spec.collective)) + " of " + std::to_string(spec.elements) + " " +
            std::string(name(spec.dtype)) + ": " + std::to_string(operation->complete) + " of " +
            std::to_string(operation->fragments) + " stages complete";
  }
  // Those that others wait for first: the hashes come before all else.
  for (size_t i = contexts_.size(); i-- > 0;)
    if (const std::string oldest = contexts_[i]->explain_oldest(); !oldest.empty()) {
      text += "; " + channel_name(i) + oldest;
      break;
    }
  if (give_up) {
    end(INA_ERR_TIMEOUT, text);
    const int status = failed_.load();
    const std::lock_guard lock(mutex_);
    release(operation);
    return {status, true};
  }
  const std::lock_guard lock(text_mutex_);
  last_error_ = text;
  return {INA_ERR_TIMEOUT, false};
}

// ---- nobody waits

void Hierarchy::call_back(Operation* operation, void (*call)(void*, int), void* argument) {
  {
    const std::lock_guard lock(mutex_);
    callbacks_.push_back({operation, call, argument});
    has_callbacks_ = true;
  }
  kick();
  for (const auto& context : contexts_) context->kick();
  // A session that was left has no background thread any more.
  if (all().session()->stopping()) follow();
}

void Hierarchy::kick() {
  for (const auto& context : contexts_) context->kick_if_running();
}

/// A background thread.
void Hierarchy::follow() {
  if (under_way_.load() == 0) return;
  take_in();
  const bool failed = has_failed();
  for (const Callback& callback : due_callbacks(failed))
    callback.call(callback.argument,
                  callback.operation ? static_cast<int>(INA_OK) : failed_.load());
}

/// Callbacks whose operations have ended, which are released; there is none of failed operations.
std::vector<Hierarchy::Callback> Hierarchy::due_callbacks(bool failed) {
  const std::lock_guard lock(mutex_);
  std::vector<Callback> due;
  std::erase_if(callbacks_, [&](const Callback& callback) {
    const bool done = callback.operation->done.load(std::memory_order_acquire);
    if (!done && !failed) return false;
    due.push_back(callback);
    release(callback.operation);
    if (!done) due.back().operation = nullptr;
    return true;
  });
  has_callbacks_ = !callbacks_.empty();
  return due;
}

Result<themis::Topology> Hierarchy::calibrate() {
  if (has_failed()) {
    const std::lock_guard lock(text_mutex_);
    return fail(static_cast<ina_status>(failed_.load()), failure_text_);
  }
  if (under_way_.load() != 0)
    return fail(INA_ERR_INVALID, "collectives of the hierarchy are under way");
  themis::Topology measured = topology_;
  for (size_t i = 0; i < measured.dimensions.size(); ++i) {
    const auto times = measure_dimension(*contexts_[i], all());
    if (!times) {
      end(times.error().status, channel_name(i) + times.error().text);
      return fail(static_cast<ina_status>(failed_.load()), last_error());
    }
    measured.dimensions[i] = themis::calibrated(measured.dimensions[i], *times);
  }
  return measured;
}

// ---- the end

std::string Hierarchy::channel_name(size_t channel) const {
  if (channel == topology_.dimensions.size()) return {};
  return "dimension " + std::to_string(channel) + " ('" + topology_.dimensions[channel].name +
         "'): ";
}

/// Looks whether a channel has, too.
bool Hierarchy::has_failed() {
  if (failed_.load() != INA_OK) return true;
  if (disagree_.load()) {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      text = disagreement_;
    }
    end(INA_ERR_MISMATCH, text, true);
    return true;
  }
  for (size_t i = contexts_.size(); i-- > 0;) {
    if (contexts_[i]->failed() == INA_OK) continue;
    // A rank that gives up says so to all ranks first: those of a dimension may hear it here later.
    const size_t first = all().failed() != INA_OK ? contexts_.size() - 1 : i;
    end(contexts_[first]->failed(), channel_name(first) + contexts_[first]->last_failure());
    return true;
  }
  return false;
}

/// Once it returns, nothing touches memory of callers any more.
void Hierarchy::end(int status, const std::string& text, bool mismatch) {
  const std::lock_guard ending(ending_mutex_);
  if (failed_.load() != INA_OK) return;
  {
    const std::lock_guard lock(mutex_);
    executor_->stop();
  }
  all().give_up(status, text, mismatch);
  for (const auto& context : contexts_) context->give_up(status, text);
  {
    const std::lock_guard lock(text_mutex_);
    failure_text_ = text;
  }
  failed_ = status;
}

std::string Hierarchy::last_error() const {
  const std::lock_guard lock(text_mutex_);
  return failed_.load() != INA_OK ? failure_text_ : last_error_;
}

bool Hierarchy::is_busy() {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(running_, [](const Running& running) {
    return !running.operation->done.load(std::memory_order_acquire);
  });
}

int Hierarchy::leave(Nanos timeout_ns) {
  if (timeout_ns <= 0) timeout_ns = all().settings().timeout_ns;
  const Nanos deadline = now_ns() + timeout_ns;
  drive_until([this] { return !is_busy(); }, deadline);
  for (const auto& context : contexts_) context->session()->remove(*this);
  if (is_busy() && !has_failed())
    end(INA_ERR_ABORTED, "it left the hierarchy before its operations were complete");
  int status = failed_.load();
  for (const auto& context : contexts_) {
    const int left = context->leave(std::max<Nanos>(deadline - now_ns(), 1));
    if (status == INA_OK && left != INA_OK) {
      status = left;
      const std::lock_guard lock(text_mutex_);
      last_error_ = context->last_error();
    }
  }
  left_ = true;
  for (const auto& context : contexts_) context->close();
  {
    const std::lock_guard lock(mutex_);
    executor_->stop();
  }
  for (const Callback& callback : due_callbacks(true))
    callback.call(callback.argument, callback.operation ? static_cast<int>(INA_OK)
                                     : failed_.load() != INA_OK
                                         ? failed_.load()
                                         : static_cast<int>(INA_ERR_ABORTED));
  return status;
}

}  // namespace ina::client
