// Context: collectives other than all-reduce and barrier.
#include <cstring>

#include "client/context.h"
#include "common/clock.h"

namespace ina::client {

namespace {

/// What a rank has for itself and nobody else sends.
void copy_own(const CollectiveCall& call, const CallRegions& regions) {
  if (!regions.copies_own) return;
  const CallRegions::Region& from = regions.send[regions.own_send];
  const CallRegions::Region& to = regions.recv[regions.own_receive];
  const size_t width = wire_bytes(call.dtype);
  const auto* source = static_cast<const std::byte*>(call.send) + from.offset * width;
  auto* target = static_cast<std::byte*>(call.recv) + to.offset * width;
  if (from.count != 0 && source != target) std::memcpy(target, source, from.count * width);
}

}  // namespace

Result<Operation*> Context::start(CollectiveCall& call) {
  const uint32_t workers = settings_.world_size;
  const auto rank = static_cast<uint32_t>(settings_.rank);
  if (auto fine = check(call, workers, rank); !fine) return tl::unexpected(fine.error());
  OperationSpec spec;
  spec.send = static_cast<const std::byte*>(call.send);
  spec.recv = static_cast<std::byte*>(call.recv);
  spec.dtype = call.dtype;
  spec.op = call.op;
  spec.collective = call.collective;
  if (!call.counted) {
    spec.blocks = call_tables_.table_for(call, workers, engine_->config().slot_bytes);
    spec.elements = spec.blocks->elements();
  }
  auto operation = start(std::move(spec), &call);
  if (operation) copy_own(call, CallRegions(call, workers, rank));
  return operation;
}

/// Under mutex_.
Operation* Context::submit_counted(const OperationSpec& spec, const CollectiveCall& call,
                                   Nanos now) {
  if (!counted_)
    counted_.emplace(executor(), engine_->config().rank, settings_.world_size,
                     engine_->config().slot_bytes);
  const size_t workers = spec.collective == Collective::kAllToAll ? settings_.world_size : 1;
  OwnCounts counts;
  counts.send = {call.counts.data(), workers};
  counts.receive = {call.receive_counts.data(), workers};
  counts.send_displacements = {call.displacements.data(), workers};
  counts.receive_displacements = {call.receive_displacements.data(), workers};
  counts.destination = call.destination;
  counts.source = call.source;
  return counted_->start(spec, counts, now);
}

/// Under mutex_. What the ranks found when they told each other counts or plans; empty: they agree.
const std::string& Context::disagreement() const {
  static const std::string none;
  if (counted_ && !counted_->disagreement().empty()) return counted_->disagreement();
  return redistributions_ ? redistributions_->disagreement() : none;
}

/// Under mutex_. All ranks have found the same; the switch tells it to those that wait.
void Context::report_disagreement() {
  mismatch_reported_ = send_control(request::Mismatch{disagreement()});
}

}  // namespace ina::client
