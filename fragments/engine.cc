#include "fragments/engine.h"

#include <algorithm>
#include <utility>

namespace ina::client {

namespace {

/// True if splits count. Over a network they cost bandwidth of links, but for those that meet in
/// the switch's own memory.
bool counts_splits(const EngineConfig& config) {
  return config.aggregator_window && !config.fixed_slots &&
         !(config.lossy_link && config.home == Home::kSpill);
}

/// True if what waits in queues or slots may be in others' way, and nobody is to run ahead.
bool is_capped(const EngineConfig& config) {
  return config.window_cap && config.lossy_link && counts_splits(config) && config.in_switch == 0;
}

/// What workers send ahead of each other meets on the link of a fallback server. Few workers may
/// send a whole window.
uint32_t ahead_of(const EngineConfig& config) {
  constexpr uint32_t kAhead = 32;
  if (!config.lossy_link || config.home != Home::kDedicated) return 0;
  const uint32_t share = Windows::share_of(kAhead, config.workers);
  return share < kAhead ? share : config.window;
}

}  // namespace

Engine::Engine(const EngineConfig& config)
    : config_(config),
      ring_(2 * size_t{config.window}),
      questions_(2 * size_t{config.window}),
      kept_(2 * size_t{config.window}, config.slot_bytes),
      timeouts_(config.rto_min_ns, config.rto_max_ns),
      windows_(
          {.most =
               config.in_switch == 0 ? config.window : std::min(config.window, config.in_switch),
           .workers = config.lossy_link ? config.workers : 1,
           .first = config.lossy_link
                        ? Windows::share_of(Windows::kFirstOnLossyLink, config.workers)
                        : config.first_window,
           .congestion = config.congestion_window,
           .aggregators = counts_splits(config),
           .first_aggregators = config.lossy_link
                                    ? Windows::share_of(Windows::kFirstAggregators, config.workers)
                                    : 0,
           .capped = is_capped(config),
           .paced = config.lossy_link,
           .ahead = ahead_of(config),
           .distances = config.lossy_link}) {
  if (config.park_room != 0) {
    parker_.emplace(config.workers, config.window, config.slot_bytes, config.park_room);
    parked_out_ = aggregator::FixedQueue<Seq>(config.park_room);
  }
  overdue_.reserve(kMaxOverdue);
  to_close_.reserve(config.window);
  prepared_new_.reserve(2 * kBurst);
  received_.reserve(config.window);
  finished_.reserve(config.window);
  if (config.home == Home::kWorkers) {
    aggregator::FallbackConfig fallback;
    fallback.workers = config.workers;
    fallback.window = config.window;
    fallback.slot_bytes = config.slot_bytes;
    fallback.lanes = config.lanes;
    fallback.shards = config.workers;
    fallback.shard = value(config.rank);
    fallback.epoch = config.epoch;
    fallback.bind_at_once = config.fixed_slots;
    fallback_.emplace(fallback);
  }
}

/// Many at once: how many groups of small operations are under way at a time is chance, and a
/// program that has run for a while shall not allocate.
void Engine::more_operations() {
  constexpr size_t kBlock = 32;
  storage_.push_back(std::make_unique<Operation[]>(kBlock));
  spare_.reserve(storage_.size() * kBlock);
  for (size_t i = 0; i < kBlock; ++i) spare_.push_back(&storage_.back()[i]);
}

Operation* Engine::submit(const OperationSpec& spec, Nanos now) {
  if (spare_.empty()) more_operations();
  Operation* operation = spare_.back();
  spare_.pop_back();
  priority_.started(now, running_.size());
  operation->spec = spec;
  operation->number = operations_submitted_++;
  operation->cut(config_.slot_bytes, config_.rank);
  operation->sent = 0;
  operation->complete = 0;
  operation->started = now;
  operation->priority = std::min(priority_.priority(now), config_.priority_max);
  counters_.priority = operation->priority;
  operation->placed = false;
  operation->done.store(false, std::memory_order_relaxed);
  running_.push_back(operation);
  to_send_.push_back(operation);
  return operation;
}

void Engine::release_hold(Operation* operation, const std::byte* send, uint64_t elements,
                          bool skip) {
  operation->spec.held = false;
  operation->spec.send = send;
  operation->spec.elements = elements;
  operation->cut(config_.slot_bytes, config_.rank);
  if (!skip) return;
  operation->fragments = 0;
  std::erase(to_send_, operation);
  finished_.push_back(operation);
}

void Engine::release(Operation* operation) {
  operation->spec.blocks = nullptr;
  spare_.push_back(operation);
}

bool Engine::held_up_by_window() const {
  if (to_send_.empty() || to_send_.front()->spec.held) return false;
  const Operation& operation = *to_send_.front();
  const Seq end = low_ + config_.window;
  if (next_ >= end) return true;
  if (operation.placed && operation.spec.blocks &&
      (marks_from(operation, next_, end) != 0 || next_ + 1 == operation.end()))
    return false;
  return in_flight_ >= window_for(operation);
}

/// Its buffers are the user's again.
void Engine::forget_bare_results(const Operation& operation) {
  const uint64_t kept = ring_.size();
  const Seq end = operation.end();
  const uint64_t count = std::min(operation.fragments, kept);
  for (Seq seq = end - count; seq < end; ++seq)
    if (fragment(seq).operation == &operation) fragment(seq).operation = nullptr;
}

void Engine::finish_operations(Nanos now) {
  const Seq low = low_;
  while (low_ < next_ && fragment(low_).state == State::kDone) ++low_;
  if (config_.lossy_link && low_ != low && low_ < next_) probe_oldest(now);
  if (low_ == next_) next_deadline_ = kNever;
  for (Operation* operation : received_)
    if (operation->spec.listener) operation->spec.listener->received(*operation);
  received_.clear();
  // A listener may complete further operations.
  for (size_t i = 0; i < finished_.size(); ++i) {
    Operation* operation = finished_[i];
    std::erase(running_, operation);
    if (operation->closes) forget_bare_results(*operation);
    priority_.finished(now, running_.size());
    ++counters_.operations;
    if (operation->spec.listener) operation->spec.listener->completed(*operation);
    operation->done.store(true, std::memory_order_release);
  }
  finished_.clear();
}

void Engine::set_epoch(uint32_t epoch, Nanos now) {
  if (epoch <= config_.epoch) return;
  config_.epoch = epoch;
  if (fallback_) fallback_->set_epoch(epoch);
  // The switch has forgotten what was sent before: ask soon, and with new patience.
  for (Seq seq = low_; seq < next_; ++seq) {
    Fragment& fragment = this->fragment(seq);
    fragment.timeouts = 0;
    if (fragment.state != State::kSent) continue;
    fragment.deadline = std::min(fragment.deadline, now + timeouts_.after(0));
    next_deadline_ = std::min(next_deadline_, fragment.deadline);
  }
}

void Engine::rejoin(const EngineConfig& told, Nanos now) {
  play_by(told);
  rejoin(told.epoch, now);
}

void Engine::play_by(const EngineConfig& told) {
  config_.fixed_slots = told.fixed_slots;
  config_.priority_max = told.priority_max;
  config_.congestion_window = told.congestion_window;
  config_.aggregator_window = told.aggregator_window;
  config_.rto_min_ns = told.rto_min_ns;
  config_.rto_max_ns = told.rto_max_ns;
  timeouts_.use(config_.rto_min_ns, config_.rto_max_ns);
  windows_.use(config_.congestion_window, counts_splits(config_), is_capped(config_));
  if (fallback_) fallback_->set_bind_at_once(config_.fixed_slots);
}

void Engine::rejoin(uint32_t epoch, Nanos now) {
  if (config_.results_stay) keep_all_results();
  if (fallback_) fallback_->forget_targets();
  for (Operation* operation : running_) operation->spec.target = 0;
  for (Fragment& fragment : ring_) fragment.target = 0;
  set_epoch(epoch, now);
}

}  // namespace ina::client
