#include "client/hierarchy.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "client/calibration.h"
#include "common/clock.h"
#include "membership/control_text.h"

namespace ina::client {

namespace {

// Between looks at several channels of which none has anything.
constexpr Nanos kMostPauseNs = 200'000;

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
      operations_(topology_, contexts_, rank_, ranks_) {}

Hierarchy::~Hierarchy() {
  if (left_) return;
  for (const auto& context : contexts_) context->close();
}

// ---- the start

Result<Operation*> Hierarchy::start(std::string_view function,
                                    std::span<const HierarchicalCall> calls,
                                    const HierarchicalOptions& options) {
  if (has_failed()) return failure_.error();
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
  auto started = operations_.start(key, pairs);
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

// ---- going on

/// True: something was done.
bool Hierarchy::drive() {
  bool busy = false;
  for (const auto& context : contexts_)
    if (!context->failed()) busy |= context->drive_briefly();
  if (!operations_.take_in()) return busy;
  if (operations_.has_callbacks()) all().kick();  // they are the background thread's to call
  return true;
}

WaitEnd Hierarchy::wait(Operation* operation, Nanos timeout_ns, bool give_up) {
  if (timeout_ns <= 0) timeout_ns = all().settings().timeout_ns;
  const auto is_done = [&] { return operation->done.load(std::memory_order_acquire); };
  const bool done = drive_until(is_done, now_ns() + timeout_ns);
  if (!done && !has_failed()) return timed_out(operation, timeout_ns, give_up);
  operations_.release(operation);
  return {done ? static_cast<int>(INA_OK) : failure_.status(), true};
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
  const int status = done ? static_cast<int>(INA_OK) : failure_.status();
  operations_.release(operation);
  return status;
}

WaitEnd Hierarchy::timed_out(Operation* operation, Nanos waited_ns, bool give_up) {
  std::string text = "waited " + membership::seconds(waited_ns) + " for the hierarchical " +
                     operations_.describe(operation);
  // Those that others wait for first: the hashes come before all else.
  for (size_t i = contexts_.size(); i-- > 0;)
    if (const std::string oldest = contexts_[i]->explain_oldest(); !oldest.empty()) {
      text += "; " + channel_name(i) + oldest;
      break;
    }
  if (give_up) {
    end(INA_ERR_TIMEOUT, text);
    operations_.release(operation);
    return {failure_.status(), true};
  }
  failure_.note(text);
  return {INA_ERR_TIMEOUT, false};
}

// ---- nobody waits

void Hierarchy::call_back(Operation* operation, void (*call)(void*, int), void* argument) {
  operations_.add_callback({operation, call, argument});
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
  if (!operations_.any()) return;
  operations_.take_in();
  const bool failed = has_failed();
  for (const auto& callback : operations_.take_due_callbacks(failed))
    callback.call(callback.argument,
                  callback.operation ? static_cast<int>(INA_OK) : failure_.status());
}

Result<themis::Topology> Hierarchy::calibrate() {
  if (has_failed()) return failure_.error();
  if (operations_.any()) return fail(INA_ERR_INVALID, "collectives of the hierarchy are under way");
  themis::Topology measured = topology_;
  for (size_t i = 0; i < measured.dimensions.size(); ++i) {
    const auto times = measure_dimension(*contexts_[i], all());
    if (!times) {
      end(times.error().status, channel_name(i) + times.error().text);
      return failure_.error();
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
  if (failure_.status() != INA_OK) return true;
  if (const std::string text = operations_.disagreement(); !text.empty()) {
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
  if (failure_.status() != INA_OK) return;
  operations_.stop();
  all().give_up(status, text, mismatch);
  for (const auto& context : contexts_) context->give_up(status, text);
  failure_.set(status, text);
}

int Hierarchy::leave(Nanos timeout_ns) {
  if (timeout_ns <= 0) timeout_ns = all().settings().timeout_ns;
  const Nanos deadline = now_ns() + timeout_ns;
  drive_until([this] { return !operations_.is_busy(); }, deadline);
  for (const auto& context : contexts_) context->session()->remove(*this);
  if (operations_.is_busy() && !has_failed())
    end(INA_ERR_ABORTED, "it left the hierarchy before its operations were complete");
  int status = failure_.status();
  for (const auto& context : contexts_) {
    const int left = context->leave(std::max<Nanos>(deadline - now_ns(), 1));
    if (status == INA_OK && left != INA_OK) {
      status = left;
      failure_.note(context->last_error());
    }
  }
  left_ = true;
  for (const auto& context : contexts_) context->close();
  operations_.stop();
  for (const auto& callback : operations_.take_due_callbacks(true))
    callback.call(callback.argument, callback.operation ? static_cast<int>(INA_OK)
                                     : failure_.status() != INA_OK
                                         ? failure_.status()
                                         : static_cast<int>(INA_ERR_ABORTED));
  return status;
}

}  // namespace ina::client
