#include "plans/redistribution/execution.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "plans/collectives.h"
#include "wire/fingerprint.h"

namespace ina::redistribution {

using scheduler::Block;
using scheduler::BlockTable;
using scheduler::Buffer;
using scheduler::Compute;
using scheduler::Copy;
using scheduler::Operate;

namespace {

Shape piece_shape(const Plan& plan) {
  Shape shape = plan.problem().shape;
  shape[plan.pieces().dimension] /= plan.pieces().count;
  return shape;
}

/// A transfer from one rank to another one.
struct Flow {
  Transfer transfer;
  uint32_t receiver = 0;
};

std::vector<Flow> flows_of(const StepTransfers& transfers, uint32_t ranks) {
  std::vector<Flow> flows;
  for (uint32_t receiver = 0; receiver < ranks; ++receiver)
    for (Transfer& transfer : transfers.to(receiver))
      flows.push_back({std::move(transfer), receiver});
  // As in an all-to-all: all ranks send to the next one, then all to the one after that.
  const auto distance = [ranks](const Flow& flow) {
    return (flow.receiver + ranks - flow.transfer.source) % ranks;
  };
  std::ranges::stable_sort(
      flows, {}, [&](const Flow& flow) { return std::pair(distance(flow), flow.transfer.source); });
  return flows;
}

/// The cells that a rank sends, or those that it receives.
Rearrangement cells(const std::vector<Flow>& flows, uint32_t rank, bool sends,
                    const StepTransfers& transfers, size_t element_bytes) {
  Rearrangement::Boxes boxes(sends ? transfers.before() : transfers.after());
  for (const Flow& flow : flows)
    if (rank == (sends ? flow.transfer.source : flow.receiver))
      boxes.add(sends ? flow.transfer.from : flow.transfer.to, flow.transfer.extent);
  return {std::move(boxes), element_bytes};
}

uint16_t role(uint32_t rank) {
  return static_cast<uint16_t>(1 + rank);
}

}  // namespace

// Bytes are moved, for elements of any type.
Execution::StepWork::StepWork(const Plan& plan, const Step& step, const Shape& shape,
                              const Job& job, uint64_t number)
    : transfers(plan.problem().mesh, step, shape),
      slices(step.operation == Operation::kDynamicSlice),
      pack(Rearrangement::Boxes(transfers.before()), 1),
      unpack(Rearrangement::Boxes(transfers.after()), 1) {
  if (slices) return;
  const uint32_t ranks = plan.problem().mesh.ranks(), rank = value(job.rank);
  const uint64_t width = plan.problem().element_bytes;
  const std::vector<Flow> flows = flows_of(transfers, ranks);
  pack = cells(flows, rank, true, transfers, width);
  unpack = cells(flows, rank, false, transfers, width);
  // Where all want the same, the switch copies it: each sends its tile once, to all.
  const bool to_all = step.operation == Operation::kAllGather && step.group == ranks;
  collective = to_all                                     ? Collective::kAllGather
               : step.operation == Operation::kAllPermute ? Collective::kPermute
                                                          : Collective::kAllToAll;
  std::vector<Block> moved;
  for (const auto& [transfer, receiver] : flows) {
    const bool mine = transfer.source == rank;
    Block block{.elements = elements_of(transfer.extent) * width,
                .send_offset = mine ? pack.offset_of(transfer.from) : 0,
                .receive_offset = receiver == rank ? unpack.offset_of(transfer.to) : 0,
                .source = role(transfer.source),
                .receiver = role(receiver)};
    if (transfer.source == receiver) {
      if (mine && !to_all) own.push_back({block.send_offset, block.receive_offset, block.elements});
    } else if (!to_all) {
      moved.push_back(block);
    }
    if (to_all && receiver == rank) {
      block.receiver = 0;
      moved.push_back(block);
    }
  }
  if (to_all) std::ranges::sort(moved, {}, &Block::source);
  if (moved.empty()) return;
  const uint64_t hash = wire::add_to_hash(wire::add_to_hash(wire::kHashStart, plan.hash()), number);
  blocks = std::make_shared<const BlockTable>(scheduler::interleaved_blocks(
      moved, elements_per_fragment(collective, DType::kUInt8, job.slot_bytes),
      wire::blocks_fingerprint(collective, Rank{}, hash)));
}

Execution::Execution(std::shared_ptr<const Plan> plan, const Job& job)
    : plan_(std::move(plan)), job_(job) {
  const Problem& problem = plan_->problem();
  const Shape shape = piece_shape(*plan_);
  for (const Step& step : plan_->steps())
    steps_.push_back(std::make_unique<const StepWork>(*plan_, step, shape, job_, steps_.size()));
  const auto pieces_of = [&](const Layout& layout) {
    return std::make_unique<const Rearrangement>(Rearrangement::into_pieces(
        tile_shape(problem.mesh, layout, problem.shape), plan_->pieces(), problem.element_bytes));
  };
  source_pieces_ = pieces_of(problem.from);
  target_pieces_ = pieces_of(problem.to);
  agree();
  if (!steps_.empty()) run_pieces();
  schedule_ = std::make_shared<const scheduler::Schedule>(std::move(made_));
}

/// Before the first byte of the array moves.
void Execution::agree() {
  const uint32_t ranks = plan_->problem().mesh.ranks();
  const auto hashes = std::make_shared<const BlockTable>(scheduler::sizes_blocks(
      ranks, 1, wire::kHashesOfPlans,
      elements_per_fragment(Collective::kAllGather, DType::kInt64, job_.slot_bytes)));
  made_.set_scratch_bytes(ranks * sizeof(uint64_t));
  add_after(Compute{kTell});
  add_after(Operate{.collective = Collective::kAllGather,
                    .dtype = DType::kInt64,
                    .elements = hashes->elements(),
                    .send = {Buffer::Place::kScratch, hash_offset()},
                    .receive = {Buffer::Place::kScratch},
                    .blocks = hashes});
  add_after(Compute{kAgree});
}

/// One piece after the other, the last one first, because the first ones lie before it.
void Execution::run_pieces() {
  const Problem& problem = plan_->problem();
  const uint64_t count = plan_->pieces().count, peak = plan_->peak_bytes();
  const Span source{0, problem.source_elements() * problem.element_bytes};
  const Span target{peak - problem.target_elements() * problem.element_bytes,
                    problem.target_elements() * problem.element_bytes};
  if (!source_pieces_->is_identity())
    add({Work::Kind::kPack,
         source_pieces_.get(),
         nullptr,
         source,
         source,
         {source.end(), peak - source.end()}});
  const uint64_t source_bytes = source.bytes / count, target_bytes = target.bytes / count;
  Span at;
  for (uint64_t done = 0; done < count; ++done) {
    const uint64_t begin = (count - 1 - done) * source_bytes;
    const Span free{begin, peak - done * target_bytes - begin};
    at = {begin, source_bytes};
    for (const auto& step : steps_) at = run_step(*step, at, free);
    if (count == 1) break;
    const Span to{free.end() - target_bytes, target_bytes};
    if (!(at == to)) add({Work::Kind::kMove, nullptr, nullptr, at, to, {}});
  }
  const Span end{0, target.bytes};
  if (count == 1) {
    if (!(at == end)) add({Work::Kind::kMove, nullptr, nullptr, at, end, {}});
    return;
  }
  at = target;
  if (!target_pieces_->is_identity() && target.offset >= end.end()) {
    add({Work::Kind::kUnpack, target_pieces_.get(), nullptr, target, end, {}});
    return;
  }
  if (!target_pieces_->is_identity())
    add({Work::Kind::kUnpack, target_pieces_.get(), nullptr, target, target, {0, target.offset}});
  if (!(target == end)) add({Work::Kind::kMove, nullptr, nullptr, target, end, {}});
}

namespace {

/// `bytes` at the other end of the free part than a tile is, which lies at one of its ends.
template <class Span>
Span opposite(Span at, Span free, uint64_t bytes) {
  return at.offset == free.offset ? Span{free.end() - bytes, bytes} : Span{free.offset, bytes};
}

}  // namespace

/// Takes a tile at one end of the free part through a step; returns where the new tile is, at the
/// one end or the other.
Execution::Span Execution::run_step(const StepWork& step, Span at, Span free) {
  const uint64_t width = plan_->problem().element_bytes;
  const uint64_t bytes = elements_of(step.transfers.after()) * width;
  if (step.slices) {
    const Span to = opposite(at, free, bytes);
    add({Work::Kind::kSlice, nullptr, &step, at, to, {}});
    return to;
  }
  at = rearrange(Work::Kind::kPack, step.pack, at, free);
  const Span to = opposite(at, free, bytes);
  operate(step, at, to);
  return rearrange(Work::Kind::kUnpack, step.unpack, to, free);
}

/// Out of place where there is room for it.
Execution::Span Execution::rearrange(Work::Kind kind, const Rearrangement& order, Span at,
                                     Span free) {
  if (order.is_identity()) return at;
  Span to = at;
  Span room = opposite(at, free, free.bytes - at.bytes);
  if (room.bytes >= at.bytes) {
    to = opposite(at, free, at.bytes);
    room = {};
  }
  add({kind, &order, nullptr, at, to, room});
  return to;
}

void Execution::operate(const StepWork& step, Span from, Span to) {
  std::vector<Stage> stages;
  for (const Own& own : step.own)
    stages.push_back(made_.add(Copy{{Buffer::Place::kReceive, from.offset + own.from},
                                    {Buffer::Place::kReceive, to.offset + own.to},
                                    own.bytes},
                               last_));
  if (step.blocks)
    stages.push_back(made_.add(Operate{.collective = step.collective,
                                       .dtype = DType::kUInt8,
                                       .elements = step.blocks->elements(),
                                       .send = {Buffer::Place::kReceive, from.offset},
                                       .receive = {Buffer::Place::kReceive, to.offset},
                                       .blocks = step.blocks},
                               last_));
  if (!stages.empty()) last_ = std::move(stages);
}

void Execution::add(const Work& work) {
  add_after(Compute{kWork, work_.size()});
  work_.push_back(work);
}

void Execution::add_after(const scheduler::Schedule::Work& work) {
  const Stage stage = made_.add(work, last_);
  last_ = {stage};
}

void Execution::work(uint64_t argument, std::byte* buffer) const {
  const Work& work = work_[argument];
  std::byte* const from = buffer + work.from.offset;
  std::byte* const to = buffer + work.to.offset;
  const std::span<std::byte> room(buffer + work.room.offset, work.room.bytes);
  const bool in_place = from == to;
  switch (work.kind) {
    case Work::Kind::kPack:
      in_place ? work.order->pack(to, room) : work.order->pack(from, to);
      break;
    case Work::Kind::kUnpack:
      in_place ? work.order->unpack(to, room) : work.order->unpack(from, to);
      break;
    case Work::Kind::kSlice: {
      const StepTransfers& transfers = work.step->transfers;
      const Transfer transfer = transfers.to(value(job_.rank)).front();
      copy_box(from, {transfers.before(), transfer.from}, to, {transfers.after(), transfer.to},
               transfer.extent, plan_->problem().element_bytes);
      break;
    }
    case Work::Kind::kMove:
      std::memmove(to, from, work.to.bytes);
  }
}

}  // namespace ina::redistribution
