#include "plans/themis/execution.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "plans/collectives.h"
#include "wire/fingerprint.h"

namespace ina::themis {

using scheduler::Block;
using scheduler::BlockTable;
using scheduler::Buffer;
using scheduler::Compute;
using scheduler::Operate;

namespace {

constexpr uint64_t kAlignmentBytes = 64;
// Parts of the scratch memory that stages of an all-to-all use in turns: what one sends from is
// needed for longer than the next one takes.
constexpr uint64_t kStripParts = 3;

uint16_t role(uint64_t rank) {
  return static_cast<uint16_t>(1 + rank);
}

ina::Collective carried_out_as(Phase phase) {
  switch (phase) {
    case Phase::kReduceScatter:
      return ina::Collective::kReduceScatter;
    case Phase::kAllGather:
      return ina::Collective::kAllGather;
    case Phase::kAllToAll:
      return ina::Collective::kAllToAll;
    default:
      return ina::Collective::kAllReduce;
  }
}

bool has_blocks(Collective collective) {
  return collective != Collective::kAllReduce;
}

}  // namespace

std::vector<uint32_t> coordinates_of(const Topology& topology, uint32_t rank) {
  std::vector<uint32_t> coordinates;
  for (const Dimension& dimension : topology.dimensions) {
    coordinates.push_back(rank % dimension.size);
    rank /= dimension.size;
  }
  return coordinates;
}

Result<std::unique_ptr<const Execution>> Execution::make(std::shared_ptr<const Plan> plan,
                                                         Job job) {
  std::unique_ptr<Execution> made(new Execution(std::move(plan), std::move(job)));
  if (auto fine = made->check(); !fine) return tl::unexpected(fine.error());
  const auto sequence = made->sequence();
  if (!sequence) return tl::unexpected(sequence.error());
  made->agree();
  made->place_chunks();
  for (const OperationId& id : *sequence) made->add(id);
  made->made_.set_scratch_bytes(made->scratch_bytes_);
  made->chunks_ = {};
  made->schedule_ = std::make_shared<const scheduler::Schedule>(std::move(made->made_));
  return std::unique_ptr<const Execution>(std::move(made));
}

Execution::Execution(std::shared_ptr<const Plan> plan, Job job)
    : plan_(std::move(plan)),
      job_(std::move(job)),
      hash_(hash_of(*plan_)),
      ranks_(static_cast<uint32_t>(plan_->topology.participants())),
      coordinates_(coordinates_of(plan_->topology, job_.rank)) {}

// ---- what can be carried out

Result<void> Execution::check() const {
  const auto invalid = [](std::string text) {
    return fail(INA_ERR_INVALID, "this plan cannot be carried out: " + std::move(text));
  };
  if (plan_->requests.empty() || plan_->requests.size() != job_.elements.size())
    return invalid("it has " + std::to_string(plan_->requests.size()) + " collectives, of " +
                   std::to_string(job_.elements.size()) + " the elements are known");
  if (ranks_ > kMaxRanks)
    return invalid("it has " + std::to_string(ranks_) + " ranks, of which a job has " +
                   std::to_string(kMaxRanks) + " at most");
  for (const themis::Chunk& chunk : plan_->chunks)
    if (chunk.request >= plan_->requests.size())
      return invalid("a chunk is of none of its collectives");
  for (uint32_t request = 0; request < plan_->requests.size(); ++request)
    if (auto fine = check(request); !fine) return invalid(fine.error().text);
  return {};
}

Result<void> Execution::check(uint32_t request) const {
  const uint64_t all_bytes = plan_->requests[request].bytes;
  const bool blocks = has_blocks(collective_of(request));
  const uint64_t granule = width(request) * (blocks ? ranks_ : 1);
  if (all_bytes % granule != 0)
    return fail(INA_ERR_INVALID,
                std::to_string(all_bytes) + " bytes are no multiple of " + std::to_string(granule));
  uint64_t bytes = 0;
  for (const themis::Chunk& chunk : plan_->chunks) {
    if (chunk.request != request) continue;
    if (chunk.bytes % (uint64_t{ranks_} * width(request)) != 0)
      return fail(INA_ERR_INVALID, "a chunk is not of whole shares");
    bytes += chunk.bytes;
  }
  if (blocks ? bytes != all_bytes : bytes < all_bytes)
    return fail(INA_ERR_INVALID, "its chunks have " + std::to_string(bytes) + " bytes of " +
                                     std::to_string(all_bytes));
  return {};
}

/// All operations, such that those of a chunk and those of a dimension have their order.
Result<std::vector<OperationId>> Execution::sequence() const {
  std::vector<size_t> begun(plan_->order.size(), 0);
  std::vector<uint32_t> stages(plan_->chunks.size(), 0);
  size_t left = 0;
  for (const themis::Chunk& chunk : plan_->chunks) left += chunk.stages.size();
  std::vector<OperationId> sequence;
  for (bool any = true; std::exchange(any, false);)
    for (size_t dimension = 0; dimension < plan_->order.size(); ++dimension) {
      const auto& order = plan_->order[dimension];
      for (; begun[dimension] < order.size(); ++begun[dimension]) {
        const OperationId& id = order[begun[dimension]];
        if (id.chunk >= stages.size() || id.stage != stages[id.chunk] ||
            id.stage >= stages_of(id) ||
            plan_->chunks[id.chunk].stages[id.stage].dimension != dimension)
          break;
        ++stages[id.chunk];
        sequence.push_back(id);
        any = true;
      }
    }
  if (sequence.size() != left)
    return fail(INA_ERR_INVALID,
                "this plan cannot be carried out: its order is not one of all its operations, or "
                "has them wait for each other in a circle");
  return sequence;
}

// ---- the schedule

/// Before the first byte moves.
void Execution::agree() {
  const auto hashes = std::make_shared<const BlockTable>(
      scheduler::sizes_blocks(ranks_, 1, wire::kHashesOfPlans,
                              elements_per_fragment(ina::Collective::kAllGather, DType::kInt64,
                                                    job_.slot_bytes[channel_of_all()])));
  scratch_bytes_ = ranks_ * sizeof(uint64_t);
  const Stage told = made_.add(Compute{kTell});
  const Stage gathered = made_.add(Operate{.channel = channel_of_all(),
                                           .collective = ina::Collective::kAllGather,
                                           .dtype = DType::kInt64,
                                           .elements = hashes->elements(),
                                           .send = {Buffer::Place::kScratch, hash_offset()},
                                           .receive = {Buffer::Place::kScratch},
                                           .blocks = hashes},
                                   {told});
  agreed_ = made_.add(Compute{kAgree}, {gathered});
}

void Execution::place_chunks() {
  std::vector<uint64_t> first(plan_->requests.size(), 0);
  for (const themis::Chunk& planned : plan_->chunks) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.request = planned.request;
    chunk.first = first[chunk.request];
    chunk.length = planned.bytes / width(chunk.request) /
                   (has_blocks(collective_of(chunk.request)) ? uint64_t{ranks_} : 1);
    first[chunk.request] += chunk.length;
    chunk.last = {agreed_};
    place(planned, chunk);
  }
}

/// Which part of it is held after each stage, and where.
void Execution::place(const themis::Chunk& planned, Chunk& chunk) {
  const Collective collective = collective_of(chunk.request);
  const size_t stages = planned.stages.size();
  chunk.begins.assign(stages, 0);
  chunk.held.assign(stages, 0);
  for (const themis::Stage& stage : planned.stages) chunk.digits.push_back(stage.dimension);
  uint64_t begin = 0, held = chunk.length;
  uint64_t scratch = 0;
  if (collective == Collective::kAllReduce) begin = chunk.first;
  if (collective == Collective::kReduceScatter) held *= ranks_;
  if (collective == Collective::kAllGather) {
    // From the end: it holds all, and the dimension of the last stage is the slowest digit.
    std::ranges::reverse(chunk.digits);
    held *= ranks_;
    for (size_t stage = stages; stage-- > 0;) {
      chunk.begins[stage] = begin;
      chunk.held[stage] = held;
      const uint32_t dimension = planned.stages[stage].dimension;
      held /= size_of(dimension);
      begin += coordinates_[dimension] * held;
    }
    if (stages > 1) scratch = chunk.held[stages - 2];
  }
  if (collective == Collective::kAllReduce || collective == Collective::kReduceScatter) {
    std::vector<std::pair<uint64_t, uint64_t>> before;  // the way back of an all-reduce
    for (size_t stage = 0; stage < stages; ++stage) {
      const themis::Stage& one = planned.stages[stage];
      if (one.phase == Phase::kReduceScatter) {
        before.emplace_back(begin, held);
        held /= size_of(one.dimension);
        begin += coordinates_[one.dimension] * held;
      } else if (one.phase == Phase::kAllGather) {
        std::tie(begin, held) = before.back();
        before.pop_back();
      }
      chunk.begins[stage] = begin;
      chunk.held[stage] = held;
    }
    if (collective == Collective::kReduceScatter && stages > 1) scratch = chunk.held[0];
  }
  if (collective == Collective::kAllToAll)
    scratch = chunk.length * ranks_ * std::min<uint64_t>(stages - 1, kStripParts);
  chunk.scratch = (scratch_bytes_ + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  if (scratch != 0) scratch_bytes_ = chunk.scratch + scratch * width(chunk.request);
  chunk.scratch /= width(chunk.request);
}

void Execution::add(const OperationId& id) {
  Chunk& chunk = chunks_[id.chunk];
  const themis::Stage& stage = plan_->chunks[id.chunk].stages[id.stage];
  switch (collective_of(chunk.request)) {
    case Collective::kAllReduce: {
      // A reduce-scatter works on the part held before it.
      const bool shrinks = stage.phase == Phase::kReduceScatter;
      const uint64_t held = chunk.held[id.stage] * (shrinks ? size_of(stage.dimension) : 1);
      const uint64_t begin = chunk.begins[id.stage] -
                             (shrinks ? coordinates_[stage.dimension] * chunk.held[id.stage] : 0);
      return add_all_reduce_stage(id, begin, held, chunk);
    }
    case Collective::kReduceScatter:
      return add_reduce_scatter(id, chunk);
    case Collective::kAllGather:
      return add_all_gather(id, chunk);
    default:
      return add_all_to_all(id, chunk);
  }
}

/// One stage of [begin, begin + held) of the padded vector, in place but for the first.
void Execution::add_all_reduce_stage(const OperationId& id, uint64_t begin, uint64_t held,
                                     Chunk& chunk) {
  const themis::Stage& stage = plan_->chunks[id.chunk].stages[id.stage];
  const uint64_t whole = elements(chunk.request);
  const auto cut = [&](uint64_t first, uint64_t count) {
    return std::min(first + count, whole) - std::min(first, whole);
  };
  const Buffer::Place from = id.stage == 0 ? Buffer::Place::kSend : Buffer::Place::kReceive;
  const uint32_t parts = size_of(stage.dimension);
  const uint64_t part = held / parts;
  const uint64_t own = begin + coordinates_[stage.dimension] * part;
  std::vector<Block> blocks;
  switch (stage.phase) {
    case Phase::kReduceScatter:
      for (uint64_t i = 0; i < parts; ++i)
        blocks.push_back({.elements = cut(begin + i * part, part),
                          .send_offset = i * part,
                          .receiver = role(i)});
      return operate(id, std::move(blocks), at(from, begin, chunk),
                     at(Buffer::Place::kReceive, own, chunk), chunk);
    case Phase::kAllGather:
      for (uint64_t i = 0; i < parts; ++i)
        blocks.push_back({.elements = cut(begin + i * part, part),
                          .receive_offset = i * part,
                          .source = role(i)});
      return operate(id, std::move(blocks), at(from, own, chunk),
                     at(Buffer::Place::kReceive, begin, chunk), chunk);
    default:
      blocks.push_back({.elements = cut(begin, held)});
      return operate(id, std::move(blocks), at(from, begin, chunk),
                     at(Buffer::Place::kReceive, begin, chunk), chunk);
  }
}

/// The first stage sends strips of the caller's blocks, the last one gives this rank's strip.
void Execution::add_reduce_scatter(const OperationId& id, Chunk& chunk) {
  const uint32_t parts = size_of(plan_->chunks[id.chunk].stages[id.stage].dimension);
  const uint64_t part = chunk.held[id.stage], block = elements(chunk.request) / ranks_;
  const bool is_first = id.stage == 0, is_last = id.stage + 1 == stages_of(id);
  std::vector<Block> blocks;
  for (uint64_t i = 0; i < parts; ++i) {
    const uint64_t strips = is_first ? part / chunk.length : 1;
    for (uint64_t strip = 0; strip < strips; ++strip)
      blocks.push_back(
          {.elements = part / strips,
           .send_offset = is_first ? rank_of(i * strips + strip, chunk) * block : i * part,
           .receive_offset = strip * chunk.length,
           .receiver = role(i)});
  }
  // In the scratch memory lies what was held after the first stage.
  const auto scratch_at = [&](uint64_t begin) {
    return at(Buffer::Place::kScratch, chunk.scratch + begin - chunk.begins[0], chunk);
  };
  operate(id, std::move(blocks),
          is_first ? at(Buffer::Place::kSend, chunk.first, chunk)
                   : scratch_at(chunk.begins[id.stage - 1]),
          is_last ? at(Buffer::Place::kReceive, chunk.first, chunk)
                  : scratch_at(chunk.begins[id.stage]),
          chunk);
}

/// The mirror image: the first stage sends this rank's strip, the last one gives those of all.
void Execution::add_all_gather(const OperationId& id, Chunk& chunk) {
  const size_t stages = stages_of(id);
  const uint32_t parts = size_of(plan_->chunks[id.chunk].stages[id.stage].dimension);
  const uint64_t part = chunk.held[id.stage] / parts, block = elements(chunk.request) / ranks_;
  const bool is_first = id.stage == 0, is_last = id.stage + 1 == stages;
  std::vector<Block> blocks;
  for (uint64_t i = 0; i < parts; ++i) {
    const uint64_t strips = is_last ? part / chunk.length : 1;
    for (uint64_t strip = 0; strip < strips; ++strip)
      blocks.push_back(
          {.elements = part / strips,
           .send_offset = strip * chunk.length,
           .receive_offset = is_last ? rank_of(i * strips + strip, chunk) * block : i * part,
           .source = role(i)});
  }
  const auto scratch_at = [&](uint64_t begin) {
    return at(Buffer::Place::kScratch, chunk.scratch + begin - chunk.begins[stages - 2], chunk);
  };
  operate(id, std::move(blocks),
          is_first ? at(Buffer::Place::kSend, chunk.first, chunk)
                   : scratch_at(chunk.begins[id.stage - 1]),
          is_last ? at(Buffer::Place::kReceive, chunk.first, chunk)
                  : scratch_at(chunk.begins[id.stage]),
          chunk);
}

/// Strips are numbered by rank throughout. A stage turns the digit of its dimension from that of
/// the strip's receiver into that of its sender.
void Execution::add_all_to_all(const OperationId& id, Chunk& chunk) {
  const uint32_t dimension = plan_->chunks[id.chunk].stages[id.stage].dimension;
  const uint32_t parts = size_of(dimension);
  const uint64_t step = step_of(dimension);
  const Strips from = strips_before(id.stage, chunk), to = strips_before(id.stage + 1, chunk);
  // In each turn every rank sends some strips to one and receives some from one. Turns are short,
  // because the window is that of all ranks together.
  const uint64_t strips = ranks_ / parts, in_turn = strips_in_turn(id, chunk.length, strips);
  std::vector<Block> blocks;
  for (uint64_t turn = 1; turn < parts; ++turn)
    for (uint64_t first = 0; first < strips; first += in_turn)
      for (uint64_t source = 0; source < parts; ++source)
        for (uint64_t other = first; other < std::min(first + in_turn, strips); ++other) {
          const uint64_t receiver = (source + turn) % parts;
          const uint64_t others = other / step * step * parts + other % step;
          blocks.push_back({.elements = chunk.length,
                            .send_offset = (others + receiver * step) * from.stride,
                            .receive_offset = (others + source * step) * to.stride,
                            .source = role(source),
                            .receiver = role(receiver)});
        }
  // Its part of the scratch memory is one that an earlier stage sent from.
  if (to.place == Buffer::Place::kScratch && id.stage >= kStripParts)
    chunk.last.push_back(chunk.moves[id.stage + 1 - kStripParts]);
  const Stage kept = made_.add(Compute{kKeep, kept_.size()}, chunk.last, chunk.received);
  kept_.push_back({from, to, chunk.length, dimension, chunk.request});
  operate(id, std::move(blocks), at(from.place, from.first, chunk), at(to.place, to.first, chunk),
          chunk);
  chunk.moves.insert(chunk.moves.end(), chunk.received.begin(), chunk.received.end());
  chunk.last.push_back(kept);
}

/// The number of strips in one turn of an all-to-all. `strips`: those that go to one rank.
uint64_t Execution::strips_in_turn(const OperationId& id, uint64_t elements,
                                   uint64_t strips) const {
  const themis::Chunk& chunk = plan_->chunks[id.chunk];
  const uint32_t per_fragment =
      elements_per_fragment(ina::Collective::kAllToAll, job_.elements[chunk.request].dtype,
                            job_.slot_bytes[chunk.stages[id.stage].dimension]);
  return scheduler::pieces_in_turn(strips, (elements + per_fragment - 1) / per_fragment);
}

/// Ranks of a channel have the same elements, so they leave out the same operations.
void Execution::operate(const OperationId& id, std::vector<Block> blocks, Buffer from, Buffer to,
                        Chunk& chunk) {
  const themis::Stage& stage = plan_->chunks[id.chunk].stages[id.stage];
  const ina::Collective collective = carried_out_as(stage.phase);
  uint64_t elements = 0;
  for (const Block& block : blocks) elements += block.elements;
  if (elements == 0) return;
  const Elements& of = job_.elements[chunk.request];
  Operate operation{.channel = stage.dimension,
                    .collective = collective,
                    .dtype = of.dtype,
                    .op = is_moved(collective) ? Op::kSum : of.op,
                    .elements = elements,
                    .send = from,
                    .receive = to};
  if (collective != ina::Collective::kAllReduce) {
    const uint32_t per_fragment =
        elements_per_fragment(collective, of.dtype, job_.slot_bytes[stage.dimension]);
    const uint64_t hash = wire::add_to_hash(
        wire::add_to_hash(wire::add_to_hash(wire::kHashStart, hash_), id.chunk), id.stage);
    const uint16_t fingerprint = wire::blocks_fingerprint(collective, Rank{}, hash);
    operation.blocks = std::make_shared<const BlockTable>(
        is_moved(collective) ? scheduler::interleaved_blocks(blocks, per_fragment, fingerprint)
                             : BlockTable(blocks, per_fragment, fingerprint));
  }
  add(operation, chunk);
}

/// A stage needs what the one before it gives this rank, and no end: it writes to other places than
/// those that were sent from. The all-gathers of an all-reduce alone come back there, part by part.
/// A part comes from the only rank that needed what was there: that rank has its sum by then.
void Execution::add(const Operate& operation, Chunk& chunk) {
  const Stage stage = made_.add(operation, chunk.last, chunk.received);
  chunk.last.clear();
  chunk.received.clear();
  (has_closing(operation.collective) ? chunk.received : chunk.last).push_back(stage);
}

// ---- places

Buffer Execution::at(Buffer::Place place, uint64_t element, const Chunk& chunk) const {
  return {place, element * width(chunk.request), chunk.request};
}

/// The rank that a strip of the scratch memory belongs to.
uint32_t Execution::rank_of(uint64_t strip, const Chunk& chunk) const {
  uint64_t rank = 0;
  for (auto dimension = chunk.digits.rbegin(); dimension != chunk.digits.rend(); ++dimension) {
    rank += strip % size_of(*dimension) * step_of(*dimension);
    strip /= size_of(*dimension);
  }
  return static_cast<uint32_t>(rank);
}

/// Between ranks that differ by one in a dimension.
uint64_t Execution::step_of(uint32_t dimension) const {
  uint64_t step = 1;
  for (uint32_t before = 0; before < dimension; ++before) step *= size_of(before);
  return step;
}

/// The strips of an all-to-all before a stage.
Execution::Strips Execution::strips_before(uint32_t stage, const Chunk& chunk) const {
  const uint64_t block = elements(chunk.request) / ranks_;
  if (stage == 0) return {Buffer::Place::kSend, chunk.first, block};
  if (stage == chunk.digits.size()) return {Buffer::Place::kReceive, chunk.first, block};
  return {Buffer::Place::kScratch,
          chunk.scratch + (stage - 1) % kStripParts * chunk.length * ranks_, chunk.length};
}

void Execution::keep(uint64_t argument, const scheduler::BufferPair& pair,
                     std::byte* scratch) const {
  const Kept& kept = kept_[argument];
  const uint64_t width = this->width(kept.request);
  const std::byte* const from = kept.from.place == Buffer::Place::kSend ? pair.send : scratch;
  std::byte* const to = kept.to.place == Buffer::Place::kReceive ? pair.recv : scratch;
  for (uint64_t strip = 0; strip < ranks_; ++strip)
    if (strip / step_of(kept.dimension) % size_of(kept.dimension) == coordinates_[kept.dimension])
      std::memcpy(to + (kept.to.first + strip * kept.to.stride) * width,
                  from + (kept.from.first + strip * kept.from.stride) * width,
                  kept.elements * width);
}

}  // namespace ina::themis
