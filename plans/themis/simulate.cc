#include "plans/themis/simulate.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "plans/themis/cost.h"

namespace ina::themis {
namespace {

constexpr Picos kNever = std::numeric_limits<Picos>::max();

/// From `stage` on, without waiting.
Picos remaining_ps(const Chunk& chunk, uint32_t stage) {
  Picos sum = 0;
  for (size_t i = stage; i < chunk.stages.size(); ++i)
    sum += std::max(chunk.stages[i].tx_ps, chunk.stages[i].rx_ps) + chunk.stages[i].latency_ps;
  return sum;
}

}  // namespace

Simulator::Simulator(const Topology& topology, const std::vector<Request>& requests)
    : requests_(requests) {
  links_.reserve(topology.dimensions.size());
  for (const Dimension& dimension : topology.dimensions)
    links_.push_back({.window = Window(topology.window, ring_ps(dimension))});
}

Picos Simulator::end_ps(const std::vector<Chunk>& chunks, Discipline discipline) {
  discipline_ = discipline;
  simulate(chunks);
  return end_ps_;
}

Timeline Simulator::run(const std::vector<Chunk>& chunks, Discipline discipline) {
  Timeline timeline;
  timeline_ = &timeline;
  end_ps(chunks, discipline);
  timeline_ = nullptr;
  return timeline;
}

Result<Timeline> Simulator::keep_order(const std::vector<Chunk>& chunks,
                                       const std::vector<std::vector<OperationId>>& order) {
  if (order.size() != links_.size())
    return fail(INA_ERR_INVALID, "the plan has the order of " + std::to_string(order.size()) +
                                     " dimensions, and its topology has " +
                                     std::to_string(links_.size()));
  Timeline timeline;
  timeline_ = &timeline;
  order_ = &order;
  simulate(chunks);
  timeline_ = nullptr;
  order_ = nullptr;
  for (size_t d = 0; d < links_.size(); ++d)
    if (links_[d].begun < order[d].size()) {
      const OperationId& id = order[d][links_[d].begun];
      return fail(INA_ERR_INVALID, "the plan's order cannot be kept: in dimension " +
                                       std::to_string(d + 1) + " stage " +
                                       std::to_string(id.stage) + " of chunk " +
                                       std::to_string(id.chunk) + " never comes");
    }
  if (!all_done())
    return fail(INA_ERR_INVALID, "the plan's order does not have all operations of its chunks");
  return timeline;
}

bool Simulator::all_done() const {
  size_t stages = 0, begun = 0;
  for (const Chunk& chunk : *chunks_) stages += chunk.stages.size();
  for (const Link& link : links_) begun += link.begun;
  return stages == begun;
}

void Simulator::simulate(const std::vector<Chunk>& chunks) {
  chunks_ = &chunks;
  now_ps_ = -1;
  end_ps_ = 0;
  events_.clear();
  for (Link& link : links_) {
    link.tx_free_ps = link.rx_free_ps = 0;
    link.waiting.clear();
    link.begun = 0;
    link.window.clear();
  }
  if (timeline_) {
    timeline_->dimensions.assign(links_.size(), {});
    timeline_->request_end_ps.assign(requests_.size(), 0);
  }
  for (uint32_t i = 0; i < chunks.size(); ++i)
    push({.at_ps = requests_[chunks[i].request].issue_ps, .chunk = i});
  while (advance()) {
    // All that comes at one time comes together: nothing depends on the heap's order.
    while (!events_.empty() && events_.front().at_ps == now_ps_) {
      std::ranges::pop_heap(events_, std::ranges::greater{}, &Event::at_ps);
      const Event event = events_.back();
      events_.pop_back();
      arrive(event);
    }
    for (size_t d = 0; d < links_.size(); ++d)
      if (!links_[d].waiting.empty()) begin_what_can(static_cast<uint8_t>(d));
  }
  if (timeline_) timeline_->end_ps = end_ps_;
}

bool Simulator::advance() {
  Picos next_ps = events_.empty() ? kNever : events_.front().at_ps;
  for (const Link& link : links_)
    if (!link.waiting.empty() && link.tx_free_ps > now_ps_)
      next_ps = std::min(next_ps, link.tx_free_ps);
  if (next_ps == kNever) return false;
  now_ps_ = next_ps;
  return true;
}

void Simulator::push(const Event& event) {
  events_.push_back(event);
  std::ranges::push_heap(events_, std::ranges::greater{}, &Event::at_ps);
}

void Simulator::arrive(const Event& event) {
  const Chunk& chunk = (*chunks_)[event.chunk];
  const PendingStage own{key_of(event), event.chunk, event.stage, event.at_ps};
  std::vector<PendingStage>& waiting = links_[chunk.stages[event.stage].dimension].waiting;
  const auto before = [](const PendingStage& a, const PendingStage& b) {
    return std::tie(a.key, a.ready_ps, a.chunk) < std::tie(b.key, b.ready_ps, b.chunk);
  };
  waiting.insert(std::ranges::upper_bound(waiting, own, before), own);
}

int64_t Simulator::key_of(const Event& event) const {
  const Chunk& chunk = (*chunks_)[event.chunk];
  const Stage& stage = chunk.stages[event.stage];
  switch (discipline_) {
    case Discipline::kFifo:
      return event.at_ps;
    case Discipline::kSmallestFirst:
      return static_cast<int64_t>(std::max(stage.tx_bytes, stage.rx_bytes));
    case Discipline::kLongestRemaining:
      return -remaining_ps(chunk, event.stage);
  }
  return 0;
}

/// Index of the operation that is next in the order; the number of waiting ones if none is.
size_t Simulator::next_of_order(const Link& link, uint8_t dimension) const {
  const std::vector<OperationId>& order = (*order_)[dimension];
  if (link.begun == order.size()) return link.waiting.size();
  const auto next =
      std::ranges::find(link.waiting, order[link.begun], [](const PendingStage& waiting) {
        return OperationId{waiting.chunk, waiting.stage};
      });
  return static_cast<size_t>(next - link.waiting.begin());
}

/// The first in line, unless one behind it keeps a direction busy that the first one leaves idle.
/// Nothing overtakes what keeps both directions busy alike.
size_t Simulator::next_of(const Link& link) const {
  const Stage& first = stage_of(link.waiting.front());
  if (first.tx_ps == first.rx_ps) return 0;
  const bool first_sends = first.tx_ps > first.rx_ps;
  for (size_t i = 1; i < link.waiting.size(); ++i) {
    const Stage& other = stage_of(link.waiting[i]);
    if (other.tx_ps == other.rx_ps) return 0;
    if ((other.tx_ps > other.rx_ps) == first_sends) continue;
    const Picos sending_ps = first_sends ? first.tx_ps : other.tx_ps;
    const bool runs_dry = link.rx_free_ps < now_ps_ + sending_ps;
    return runs_dry == first_sends ? i : 0;
  }
  return 0;
}

void Simulator::begin_what_can(uint8_t dimension) {
  Link& link = links_[dimension];
  while (!link.waiting.empty() && link.tx_free_ps <= now_ps_) {
    const size_t next = order_ ? next_of_order(link, dimension) : next_of(link);
    if (next == link.waiting.size()) return;
    const PendingStage waiting = link.waiting[next];
    link.waiting.erase(link.waiting.begin() + static_cast<ptrdiff_t>(next));
    begin(dimension, waiting);
  }
}

void Simulator::begin(uint8_t dimension, const PendingStage& waiting) {
  Link& link = links_[dimension];
  const Stage& stage = stage_of(waiting);
  Operation operation{.id = {waiting.chunk, waiting.stage}, .ready_ps = waiting.ready_ps};
  const Window::Sending sending = link.window.send(stage, now_ps_);
  operation.tx_start_ps = sending.start_ps;
  operation.tx_end_ps = link.tx_free_ps = sending.start_ps + stage.tx_ps + sending.stalled_ps;
  operation.rx_start_ps = std::max(sending.start_ps + stage.first_ps, link.rx_free_ps);
  operation.rx_end_ps = link.rx_free_ps = operation.rx_start_ps + stage.rx_ps + sending.stalled_ps;
  operation.end_ps =
      std::max(operation.tx_end_ps + stage.first_ps, operation.rx_end_ps) + stage.latency_ps;
  link.window.sent(stage, operation);
  ++link.begun;
  const Chunk& chunk = (*chunks_)[waiting.chunk];
  end_no_sooner(chunk.request, operation.end_ps + stage.close_ps);
  if (waiting.stage + 1 < chunk.stages.size())
    push({.at_ps = operation.end_ps, .chunk = waiting.chunk, .stage = waiting.stage + 1});
  if (timeline_) timeline_->dimensions[dimension].push_back(operation);
}

void Simulator::end_no_sooner(uint32_t request, Picos at_ps) {
  end_ps_ = std::max(end_ps_, at_ps);
  if (!timeline_) return;
  Picos& request_end = timeline_->request_end_ps[request];
  request_end = std::max(request_end, at_ps);
}

Result<Timeline> replay(const Plan& plan) {
  return Simulator(plan.topology, plan.requests).keep_order(plan.chunks, plan.order);
}

std::vector<std::vector<OperationId>> order_of(const Timeline& timeline) {
  std::vector<std::vector<OperationId>> order;
  for (const std::vector<Operation>& operations : timeline.dimensions) {
    order.emplace_back();
    for (const Operation& operation : operations) order.back().push_back(operation.id);
  }
  return order;
}

}  // namespace ina::themis
