#include "sim/plan_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "operations/plan_hashes.h"

namespace ina::sim {

using themis::Collective;
using themis::Execution;

namespace {

// As that of the client's hierarchies.
constexpr size_t kScratchBytes = size_t{64} << 20;

/// Each rank's value of an element, so that the sum is known: base + rank * slope.
uint32_t base_of(uint32_t round, uint64_t element) {
  return static_cast<uint32_t>(element) * 2654435761u + round * 40503u;
}
uint32_t slope_of(uint64_t element) {
  return static_cast<uint32_t>(element) | 1;
}
int32_t value_of(uint32_t round, uint32_t rank, uint64_t element) {
  return static_cast<int32_t>(base_of(round, element) + rank * slope_of(element));
}
int32_t sum_of(uint32_t round, uint32_t ranks, uint64_t element) {
  return static_cast<int32_t>(ranks * base_of(round, element) +
                              ranks * (ranks - 1) / 2 * slope_of(element));
}

}  // namespace

/// The rank's end of a link.
class PlanRank::Port final : public Endpoint {
 public:
  Port(PlanRank& owner, const PlanChannel& channel)
      : owner_(owner),
        host_(owner.fabric_.add_host_at(channel.switch_host, *this, channel.link)),
        nic_(owner.fabric_, host_, channel.engine, channel.job, channel.job_key,
             channel.switch_host) {}

  uint32_t host() const { return host_; }
  Nic& nic() { return nic_; }

  void arrived() override {
    nic_.receive();
    nic_.pump();
    owner_.received();
  }
  void on_timer(uint64_t argument) override {
    if (nic_.on_timer(argument)) nic_.pump();
  }

 private:
  PlanRank& owner_;
  const uint32_t host_;
  Nic nic_;
};

PlanRank::PlanRank(Fabric& fabric, std::shared_ptr<const themis::Plan> plan, uint32_t rank,
                   const std::vector<PlanChannel>& channels, PlanListener& listener)
    : fabric_(fabric),
      rank_(rank),
      ranks_(static_cast<uint32_t>(plan->topology.participants())),
      listener_(listener) {
  const themis::Request& request = plan->requests.front();
  block_ = request.bytes / sizeof(int32_t) / ranks_;
  send_.resize(request.collective == Collective::kAllGather ? block_ : block_ * ranks_);
  recv_.resize(request.collective == Collective::kReduceScatter ? block_ : block_ * ranks_);
  themis::Job job{.rank = rank, .slot_bytes = {}, .elements = {{DType::kInt32, Op::kSum}}};
  std::vector<client::Channel*> groups;
  for (const PlanChannel& channel : channels) {
    job.slot_bytes.push_back(channel.engine.slot_bytes);
    ports_.push_back(std::make_unique<Port>(*this, channel));
    groups_.push_back(std::make_unique<client::EngineChannel>(ports_.back()->nic().engine()));
    groups.push_back(groups_.back().get());
  }
  auto execution = Execution::make(std::move(plan), std::move(job));
  if (!execution) throw std::invalid_argument(execution.error().text);
  execution_ = std::move(*execution);
  executor_ = std::make_unique<client::Executor>(groups, kScratchBytes);
}

PlanRank::~PlanRank() = default;

uint32_t PlanRank::host(size_t channel) const {
  return ports_[channel]->host();
}

const client::Engine& PlanRank::engine(size_t channel) const {
  return ports_[channel]->nic().engine();
}

// ---- a round

void PlanRank::start(uint32_t round) {
  round_ = round;
  for (uint64_t i = 0; i < send_.size(); ++i) send_[i] = value_of(round, rank_, i);
  std::fill(recv_.begin(), recv_.end(), -1);
  client::OperationSpec spec;
  spec.send = reinterpret_cast<const std::byte*>(send_.data());
  spec.recv = reinterpret_cast<std::byte*>(recv_.data());
  spec.elements = std::max(send_.size(), recv_.size());
  spec.dtype = DType::kInt32;
  operation_ = executor_->start(execution_->schedule(), spec, this, client::Executor::Handle::kKept,
                                fabric_.now());
  told_ = told();
  pump_all();
}

uint64_t PlanRank::told() const {
  return executor_->counters().operations + executor_->counters().receipts;
}

void PlanRank::run(const scheduler::Compute& compute, const client::Executor::Frame& frame) {
  switch (compute.kernel) {
    case Execution::kTell: {
      const uint64_t hash = execution_->hash();
      std::memcpy(frame.scratch() + execution_->hash_offset(), &hash, sizeof(hash));
      break;
    }
    case Execution::kAgree:
      agree(frame.scratch());
      break;
    default:
      execution_->keep(compute.argument, frame.buffers(0), frame.scratch());
  }
}

void PlanRank::agree(const std::byte* hashes) {
  const std::string problem = client::disagreement_text(hashes, ranks_, "the plan");
  if (problem.empty()) return listener_.agreed();
  listener_.violated(problem);
  executor_->stop();
}

/// An operation that ended, or received all, in one dimension may have let go some in others.
void PlanRank::received() {
  if (!operation_ || told() == told_) return;
  told_ = told();
  pump_all();
  if (!operation_->done.load(std::memory_order_relaxed)) return;
  executor_->release(operation_);
  operation_ = nullptr;
  check();
  listener_.finished();
}

void PlanRank::pump_all() {
  for (const auto& port : ports_) port->nic().pump();
}

// ---- results

void PlanRank::check() {
  for (uint64_t i = 0; i < recv_.size(); ++i) {
    if (recv_[i] == expected(i)) continue;
    return listener_.violated(fmt::format("round {} rank {} element {}: {} instead of {}", round_,
                                          rank_, i, recv_[i], expected(i)));
  }
  elements_checked_ += recv_.size();
}

int32_t PlanRank::expected(uint64_t element) const {
  const auto from = static_cast<uint32_t>(element / block_);
  switch (execution_->plan().requests.front().collective) {
    case Collective::kAllReduce:
      return sum_of(round_, ranks_, element);
    case Collective::kReduceScatter:
      return sum_of(round_, ranks_, rank_ * block_ + element);
    case Collective::kAllGather:
      return value_of(round_, from, element % block_);
    default:
      return value_of(round_, from, rank_ * block_ + element % block_);
  }
}

}  // namespace ina::sim
