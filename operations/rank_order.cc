#include "operations/rank_order.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "aggregator/kernels.h"
#include "plans/collectives.h"
#include "wire/fingerprint.h"

namespace ina::client {

using scheduler::Block;
using scheduler::BlockTable;
using scheduler::Buffer;
using scheduler::Compute;
using scheduler::Operate;
using scheduler::Schedule;

namespace {

constexpr uint16_t role(uint64_t rank) {
  return static_cast<uint16_t>(1 + rank);
}
constexpr uint64_t round_up(uint64_t number, uint64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

/// Tells operations apart that move as many bytes.
uint64_t hash_of(const OperationSpec& spec) {
  uint64_t hash = wire::kHashStart;
  for (const uint64_t one : {static_cast<uint64_t>(spec.op), static_cast<uint64_t>(spec.collective),
                             spec.elements, spec.blocks ? uint64_t{spec.blocks->fingerprint()} : 0})
    hash = wire::add_to_hash(hash, one);
  return hash;
}

bool is_infinite(DType dtype, uint16_t bits) {
  return (bits & 0x7fff) == (dtype == DType::kBFloat16 ? 0x7f80 : 0x7c00);
}

}  // namespace

/// Which elements are whose, and how they are cut into chunks: the same on all ranks.
class RankOrder::Shares {
 public:
  Shares(const OperationSpec& spec, const Job& job)
      : workers_(job.workers),
        width_(wire_bytes(spec.dtype)),
        per_fragment_(elements_per_fragment(Collective::kAllToAll, spec.dtype, job.slot_bytes)),
        chunk_bytes_(job.chunk_bytes * (job.workers > kMaxWorkers ? kManyRanksFactor : 1)),
        is_small_(spec.elements <= per_fragment_ &&
                  spec.elements * width_ * workers_ <= chunk_bytes_),
        elements_(spec.elements),
        receive_offset_(spec.blocks ? spec.blocks->blocks().front().receive_offset : 0),
        scattered_(spec.collective == Collective::kReduceScatter ? spec.blocks.get() : nullptr) {
    uint64_t largest = even_share();
    if (scattered_) {
      largest = 0;
      for (const Block& block : scattered_->blocks()) largest = std::max(largest, block.elements);
    }
    part_elements_ = elements_of_part(largest);
    chunks_ = (largest + part_elements_ - 1) / part_elements_;
    row_bytes_ = round_up((is_small_ ? spec.elements : part_elements_) * width_, 64);
  }

  uint32_t workers() const { return workers_; }
  uint64_t width() const { return width_; }
  uint32_t per_fragment() const { return per_fragment_; }
  bool is_small() const { return is_small_; }
  uint64_t chunks() const { return is_small_ ? 1 : chunks_; }
  uint64_t row_bytes() const { return row_bytes_; }
  /// Scratch memory of a chunk: a row for each rank.
  uint64_t slot_bytes() const { return workers_ * row_bytes_; }
  /// A rank's share of the whole tensor. A reduce-scatter's is searched for.
  Share whole(uint64_t rank) const {
    if (!scattered_) {
      const uint64_t first = std::min(elements_, rank * even_share());
      return {first, std::min(even_share(), elements_ - first), receive_offset_ + first};
    }
    const auto found = std::ranges::find(scattered_->blocks(), role(rank),
                                         [](const Block& b) { return b.receiver; });
    return found == scattered_->blocks().end() ? Share() : share_of(*found);
  }
  std::vector<Share> wholes() const {
    std::vector<Share> shares(workers_);
    if (scattered_)
      for (const Block& block : scattered_->blocks()) shares[block.receiver - 1u] = share_of(block);
    else
      for (uint64_t rank = 0; rank < workers_; ++rank) shares[rank] = whole(rank);
    return shares;
  }
  /// The part of a share that belongs to a chunk.
  Share part(const Share& share, uint64_t chunk) const {
    const uint64_t before = std::min(share.elements, first_of(chunk));
    return {share.first + before, std::min(part_elements_, share.elements - before),
            share.receive_offset + before};
  }
  /// The first element of a chunk's part, within its share.
  uint64_t first_of(uint64_t chunk) const { return chunk * part_elements_; }

 private:
  /// Of the first ranks, where the tensor is not scattered.
  uint64_t even_share() const { return (elements_ + workers_ - 1) / workers_; }
  static Share share_of(const Block& block) {
    return {block.send_offset, block.elements, block.receive_offset};
  }
  /// Whole fragments where memory allows that; and so small that there are chunks to overlap.
  uint64_t elements_of_part(uint64_t largest) const {
    const uint64_t most = std::max<uint64_t>(1, chunk_bytes_ / workers_ / width_);
    if (most < per_fragment_) return most;
    return std::min(
        most / per_fragment_ * per_fragment_,
        round_up(std::max<uint64_t>(1, (largest + kSlots - 1) / kSlots), per_fragment_));
  }

  const uint64_t workers_;
  const uint64_t width_;
  const uint32_t per_fragment_;
  const uint64_t chunk_bytes_;
  const bool is_small_;
  const uint64_t elements_;
  const uint64_t receive_offset_;      ///< of the first share
  const BlockTable* const scattered_;  ///< the shares of a reduce-scatter
  uint64_t part_elements_ = 0;
  uint64_t chunks_ = 0;
  uint64_t row_bytes_ = 0;
};

/// Adds the stages of one tensor.
class RankOrder::Planner {
 public:
  Planner(const OperationSpec& spec, const Job& job)
      : spec_(spec),
        rank_(value(job.rank)),
        shares_(spec, job),
        wholes_(shares_.wholes()),
        hash_(hash_of(spec)) {
    if (spec.collective == Collective::kReduce) receiver_ = spec.blocks->blocks().front().receiver;
  }

  Schedule plan() {
    const uint64_t chunks = shares_.chunks();
    schedule_.set_scratch_bytes(std::min(chunks, kSlots) * shares_.slot_bytes());
    if (shares_.is_small()) {
      plan_small();
      return std::move(schedule_);
    }
    constexpr uint64_t kAhead = 2;
    for (uint64_t chunk = 0; chunk < std::min(chunks, kAhead); ++chunk) add_exchange(chunk);
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
      if (chunk + kAhead < chunks) add_exchange(chunk + kAhead);
      add_reduction(chunk);
    }
    return std::move(schedule_);
  }

 private:
  void plan_small() {
    std::vector<Block> blocks;
    for (uint64_t rank = 0; rank < shares_.workers(); ++rank)
      if (role(rank) != receiver_)
        blocks.push_back({.elements = spec_.elements,
                          .receive_offset = rank * (shares_.row_bytes() / shares_.width()),
                          .source = role(rank),
                          .receiver = receiver_});
    const Schedule::Stage told =
        schedule_.add(move(gathering(), table(gathering(), blocks), {Buffer::Place::kSend}, {}));
    schedule_.add(Compute{kReduceAll}, {told});
  }

  Share part(uint64_t rank, uint64_t chunk) const { return shares_.part(wholes_[rank], chunk); }
  uint64_t slot_of(uint64_t chunk) const { return chunk % kSlots * shares_.slot_bytes(); }

  void add_exchange(uint64_t chunk) {
    if (!exchange_ || !is_like_before(chunk)) exchange_ = exchange_of(chunk);
    std::vector<Schedule::Stage> after;
    if (chunk >= kSlots) after.push_back(done_[chunk - kSlots]);
    exchanges_.push_back(
        schedule_.add(move(Collective::kAllToAll, exchange_,
                           {Buffer::Place::kSend, shares_.first_of(chunk) * shares_.width()},
                           {Buffer::Place::kScratch, slot_of(chunk)}),
                      after));
  }

  void add_reduction(uint64_t chunk) {
    const Schedule::Stage reduced = schedule_.add(Compute{kReducePart, chunk}, {exchanges_[chunk]});
    done_.push_back(reduced);
    if (spec_.collective == Collective::kReduceScatter) return;
    if (!gather_ || !is_like_before(chunk)) gather_ = gather_of(chunk);
    done_.back() =
        schedule_.add(move(gathering(), gather_,
                           {Buffer::Place::kScratch, slot_of(chunk) + rank_ * shares_.row_bytes()},
                           {Buffer::Place::kReceive, shares_.first_of(chunk) * shares_.width()}),
                      {reduced});
    if (shares_.width() == sizeof(uint16_t)) schedule_.add(Compute{kCheck, chunk}, {done_.back()});
  }

  /// Tables do not depend on where in its share a part lies.
  bool is_like_before(uint64_t chunk) const {
    for (uint64_t rank = 0; rank < shares_.workers(); ++rank)
      if (part(rank, chunk).elements != part(rank, chunk - 1).elements) return false;
    return true;
  }

  std::shared_ptr<const BlockTable> exchange_of(uint64_t chunk) const {
    const uint64_t workers = shares_.workers();
    std::vector<Block> blocks;
    // In each step every rank sends to one and receives from one.
    for (uint64_t step = 1; step < workers; ++step)
      for (uint64_t source = 0; source < workers; ++source) {
        const uint64_t owner = (source + step) % workers;
        blocks.push_back({.elements = part(owner, chunk).elements,
                          .send_offset = wholes_[owner].first,
                          .receive_offset = source * (shares_.row_bytes() / shares_.width()),
                          .source = role(source),
                          .receiver = role(owner)});
      }
    return table(Collective::kAllToAll, blocks);
  }

  std::shared_ptr<const BlockTable> gather_of(uint64_t chunk) const {
    std::vector<Block> blocks;
    for (uint64_t rank = 0; rank < shares_.workers(); ++rank)
      if (role(rank) != receiver_)
        blocks.push_back({.elements = part(rank, chunk).elements,
                          .receive_offset = wholes_[rank].receive_offset,
                          .source = role(rank),
                          .receiver = receiver_});
    return table(gathering(), blocks);
  }

  Collective gathering() const {
    return receiver_ == 0 ? Collective::kAllGather : Collective::kGather;
  }
  std::shared_ptr<const BlockTable> table(Collective collective,
                                          const std::vector<Block>& blocks) const {
    const Rank root{static_cast<uint16_t>(receiver_ == 0 ? 0 : receiver_ - 1)};
    return std::make_shared<const BlockTable>(scheduler::interleaved_blocks(
        blocks, shares_.per_fragment(), wire::blocks_fingerprint(collective, root, hash_)));
  }
  Operate move(Collective collective, std::shared_ptr<const BlockTable> blocks, Buffer send,
               Buffer receive) const {
    return {.collective = collective,
            .dtype = spec_.dtype,
            .elements = blocks->elements(),
            .send = send,
            .receive = receive,
            .blocks = std::move(blocks)};
  }

  const OperationSpec& spec_;
  const uint64_t rank_;
  const Shares shares_;
  const std::vector<Share> wholes_;  ///< by rank
  const uint64_t hash_;
  uint16_t receiver_ = 0;                                ///< of the result: 0, or 1 + the root
  std::shared_ptr<const BlockTable> exchange_, gather_;  ///< of the chunk before
  std::vector<Schedule::Stage> exchanges_;               ///< by chunk
  std::vector<Schedule::Stage> done_;  ///< by chunk: the last that needs its scratch memory
  Schedule schedule_;
};

RankOrder::RankOrder(Executor& executor, const Job& job)
    : executor_(executor), job_(job), payloads_(job.workers) {}

bool RankOrder::handles(const OperationSpec& spec, uint32_t workers) {
  if (workers <= 2 || spec.collective == Collective::kBarrier || is_moved(spec.collective) ||
      !is_float(spec.dtype))
    return false;
  return spec.op == Op::kProduct ||
         (spec.dtype == DType::kFloat64 && (spec.op == Op::kSum || spec.op == Op::kAvg));
}

Operation* RankOrder::start(const OperationSpec& spec, Nanos now) {
  return executor_.start(schedule_for(spec), spec, this, Executor::Handle::kKept, now);
}

std::shared_ptr<const Schedule> RankOrder::schedule_for(const OperationSpec& spec) {
  auto plan = std::ranges::find_if(plans_, [&](const Plan& one) {
    return one.elements == spec.elements && one.dtype == spec.dtype && one.op == spec.op &&
           one.collective == spec.collective && one.blocks == spec.blocks;
  });
  if (plan == plans_.end()) {
    auto schedule = std::make_shared<const Schedule>(Planner(spec, job_).plan());
    if (plans_.size() == kMostPlans) plans_.pop_back();
    plans_.push_front(
        {spec.elements, spec.dtype, spec.op, spec.collective, spec.blocks, std::move(schedule)});
    plan = plans_.begin();
  }
  plans_.splice(plans_.begin(), plans_, plan);
  return plan->schedule;
}

// ---- kernels

void RankOrder::run(const Compute& compute, const Executor::Frame& frame) {
  const Shares shares(frame.spec(), job_);
  if (compute.kernel == kReduceAll) return reduce_all(frame, shares);
  if (compute.kernel == kReducePart) return reduce_part(frame, shares, compute.argument);
  const OperationSpec& spec = frame.spec();
  if (spec.collective == Collective::kReduce &&
      spec.blocks->blocks().front().receiver != role(value(job_.rank)))
    return;
  for (uint64_t rank = 0; rank < job_.workers; ++rank) {
    const Share part = shares.part(shares.whole(rank), compute.argument);
    check(spec.dtype, spec.recv + part.receive_offset * shares.width(), part.elements);
  }
}

/// Reduces a tensor that this rank has all contributions to, if the rank is a receiver.
void RankOrder::reduce_all(const Executor::Frame& frame, const Shares& shares) {
  const OperationSpec& spec = frame.spec();
  const uint64_t rank = value(job_.rank);
  Share mine{0, spec.elements, 0};
  if (spec.collective == Collective::kReduceScatter) mine = shares.whole(rank);
  if (spec.collective == Collective::kReduce) {
    const Block& block = spec.blocks->blocks().front();
    if (block.receiver != role(rank)) return;
    mine.receive_offset = block.receive_offset;
  }
  if (mine.elements == 0) return;
  const uint64_t width = shares.width();
  std::byte* const rows = frame.scratch() + mine.first * width;
  std::byte* const result = rows + rank * shares.row_bytes();
  reduce(frame, mine.first, mine.elements, rows, shares.row_bytes(), result);
  std::byte* const to = spec.recv + mine.receive_offset * width;
  std::memcpy(to, result, mine.elements * width);
  check(spec.dtype, to, mine.elements);
}

void RankOrder::reduce_part(const Executor::Frame& frame, const Shares& shares, uint64_t chunk) {
  const OperationSpec& spec = frame.spec();
  const uint64_t rank = value(job_.rank);
  const Share part = shares.part(shares.whole(rank), chunk);
  if (part.elements == 0) return;
  std::byte* const rows = frame.scratch() + chunk % kSlots * shares.slot_bytes();
  std::byte* const result = rows + rank * shares.row_bytes();
  reduce(frame, part.first, part.elements, rows, shares.row_bytes(), result);
  const bool is_receiver = spec.collective == Collective::kReduceScatter ||
                           (spec.collective == Collective::kReduce &&
                            spec.blocks->blocks().front().receiver == role(rank));
  if (!is_receiver) return;
  std::byte* const to = spec.recv + part.receive_offset * shares.width();
  std::memcpy(to, result, part.elements * shares.width());
  if (spec.collective == Collective::kReduceScatter) check(spec.dtype, to, part.elements);
}

/// `count` elements from the tensor's `first` on. `rows`: the others' contributions, at the ranks'
/// multiples of `row_bytes`. `result`: not the caller's `send`, which may be its `recv`.
void RankOrder::reduce(const Executor::Frame& frame, uint64_t first, uint64_t count,
                       std::byte* rows, uint64_t row_bytes, std::byte* result) {
  const OperationSpec& spec = frame.spec();
  for (uint64_t rank = 0; rank < job_.workers; ++rank)
    payloads_[rank] = rank == value(job_.rank) ? spec.send + first * wire_bytes(spec.dtype)
                                               : rows + rank * row_bytes;
  const uint32_t divisor = spec.op == Op::kAvg ? job_.workers : 1;
  aggregator::kernels(spec.dtype, spec.op)
      .finish_all(result, nullptr, payloads_.data(), job_.workers, count, divisor);
}

void RankOrder::check(DType dtype, const std::byte* results, uint64_t count) {
  if (wire_bytes(dtype) != sizeof(uint16_t)) return;
  const auto* const bits = reinterpret_cast<const uint16_t*>(results);
  if (std::any_of(bits, bits + count, [&](uint16_t one) { return is_infinite(dtype, one); }))
    ++overflows_;
}

}  // namespace ina::client
