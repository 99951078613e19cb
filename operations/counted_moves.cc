#include "operations/counted_moves.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "wire/fingerprint.h"

namespace ina::client {

using scheduler::BlockTable;
using scheduler::Buffer;
using scheduler::Compute;
using scheduler::kNobody;
using scheduler::Operate;
using scheduler::Schedule;

namespace {

/// The numbers that a rank tells of a send and receive, 64 bits each.
enum SendReceive : uint32_t { kDestination, kSendCount, kSource, kReceiveCount, kSendReceiveWords };

std::string rank_text(uint64_t rank) {
  return "rank " + std::to_string(rank);
}
std::string elements_text(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " element" : " elements");
}
/// The peer as a text: "nobody", "rank 3".
std::string peer_text(int64_t peer) {
  return peer == kNobody ? "nobody" : rank_text(static_cast<uint64_t>(peer));
}

/// The numbers that the ranks told, a row for each rank.
class Told {
 public:
  Told(const std::byte* rows, uint32_t workers, uint64_t words)
      : rows_(reinterpret_cast<const uint64_t*>(rows)), workers_(workers), words_(words) {}
  uint64_t at(uint64_t rank, uint64_t word) const { return rows_[rank * words_ + word]; }
  int64_t peer(uint64_t rank, uint64_t word) const { return static_cast<int64_t>(at(rank, word)); }

  /// Why the ranks' counts of an all-to-all cannot be; empty if they can.
  std::string all_to_all_complaint() const {
    uint64_t total = 0;
    for (uint64_t source = 0; source < workers_; ++source)
      for (uint64_t destination = 0; destination < workers_; ++destination) {
        const uint64_t sent = at(source, destination);
        const uint64_t expected = at(destination, workers_ + source);
        if (sent != expected) return counts_text(source, sent, destination, expected);
        if (!add(sent, total)) return too_many_text();
      }
    return {};
  }
  std::string send_receive_complaint() const {
    for (uint64_t rank = 0; rank < workers_; ++rank)
      for (const uint32_t word : {kDestination, kSource})
        if (peer(rank, word) < kNobody || peer(rank, word) >= static_cast<int64_t>(workers_))
          return rank_text(rank) + " names " + std::to_string(peer(rank, word)) +
                 ", which is no rank";
    uint64_t total = 0;
    for (uint64_t rank = 0; rank < workers_; ++rank) {
      const int64_t to = peer(rank, kDestination);
      if (to != kNobody) {
        const auto destination = static_cast<uint64_t>(to);
        if (peer(destination, kSource) != static_cast<int64_t>(rank))
          return rank_text(rank) + " sends to " + rank_text(destination) +
                 ", which receives from " + peer_text(peer(destination, kSource));
        if (at(rank, kSendCount) != at(destination, kReceiveCount))
          return counts_text(rank, at(rank, kSendCount), destination,
                             at(destination, kReceiveCount));
        if (!add(at(rank, kSendCount), total)) return too_many_text();
      }
      const int64_t from = peer(rank, kSource);
      if (from != kNobody &&
          peer(static_cast<uint64_t>(from), kDestination) != static_cast<int64_t>(rank))
        return rank_text(rank) + " receives from " + peer_text(from) + ", which sends to " +
               peer_text(peer(static_cast<uint64_t>(from), kDestination));
    }
    return {};
  }

 private:
  /// False: there are more than an operation can have.
  static bool add(uint64_t count, uint64_t& total) {
    if (count > wire::kMaxBlocksElements - total) return false;
    total += count;
    return true;
  }
  static std::string counts_text(uint64_t source, uint64_t sent, uint64_t destination,
                                 uint64_t expected) {
    return rank_text(source) + " sends " + elements_text(sent) + " to " + rank_text(destination) +
           ", which receives " + elements_text(expected) + " from it";
  }
  static std::string too_many_text() {
    return "all ranks together send more than " + std::to_string(wire::kMaxBlocksElements) +
           " elements";
  }

  const uint64_t* rows_;
  uint64_t workers_;
  uint64_t words_;
};

}  // namespace

/// One operation under way, with its caller's counts.
class CountedMoves::Move final : public Executor::Kernels {
 public:
  explicit Move(CountedMoves& all) : all_(all) {}

  void set(Collective collective, const OwnCounts& counts) {
    send_displacements_.assign(counts.send_displacements.begin(), counts.send_displacements.end());
    receive_displacements_.assign(counts.receive_displacements.begin(),
                                  counts.receive_displacements.end());
    row_.clear();
    if (collective == Collective::kAllToAll) {
      row_.insert(row_.end(), counts.send.begin(), counts.send.end());
      row_.insert(row_.end(), counts.receive.begin(), counts.receive.end());
    } else {
      row_.resize(kSendReceiveWords);
      row_[kDestination] = static_cast<uint64_t>(int64_t{counts.destination});
      row_[kSendCount] = counts.send.front();
      row_[kSource] = static_cast<uint64_t>(int64_t{counts.source});
      row_[kReceiveCount] = counts.receive.front();
    }
  }

  void run(const Compute& compute, const Executor::Frame& frame) override {
    if (compute.kernel == kTell) {
      const size_t bytes = row_.size() * sizeof(uint64_t);
      std::memcpy(frame.scratch() + value(all_.rank_) * bytes, row_.data(), bytes);
      return;
    }
    try {
      agree(frame);
    } catch (const std::bad_alloc&) {  // in the thread that drives, which may be the library's
      all_.disagree("rank " + std::to_string(value(all_.rank_)) + " is out of memory");
    }
  }

  Operation* operation = nullptr;  ///< while it is somebody's

 private:
  void agree(const Executor::Frame& frame) {
    const Told told(frame.scratch(), all_.workers_, row_.size());
    const bool all_to_all = frame.spec().collective == Collective::kAllToAll;
    std::string complaint =
        all_to_all ? told.all_to_all_complaint() : told.send_receive_complaint();
    if (!complaint.empty()) return all_.disagree(std::move(complaint));
    frame.set_blocks(frame.stage() + 1, all_to_all ? all_to_all_table(told, frame.spec().dtype)
                                                   : send_receive_table(told, frame.spec().dtype));
  }
  uint32_t elements_per_fragment(Collective collective, DType dtype) const {
    return ina::elements_per_fragment(collective, dtype, all_.slot_bytes_);
  }
  std::shared_ptr<const BlockTable> all_to_all_table(const Told& told, DType dtype) {
    const uint32_t per_fragment = elements_per_fragment(Collective::kAllToAll, dtype);
    const uint64_t workers = all_.workers_;
    std::vector<uint64_t>& key = all_.key_;
    key.assign({static_cast<uint64_t>(Collective::kAllToAll), per_fragment});
    for (uint64_t source = 0; source < workers; ++source)
      for (uint64_t destination = 0; destination < workers; ++destination)
        key.push_back(told.at(source, destination));
    key.insert(key.end(), send_displacements_.begin(), send_displacements_.end());
    key.insert(key.end(), receive_displacements_.begin(), receive_displacements_.end());
    return all_.tables_.find_or_make(key, [&] {
      return scheduler::all_to_all_blocks(std::span(key).subspan(2, workers * workers),
                                          send_displacements_, receive_displacements_,
                                          per_fragment);
    });
  }
  std::shared_ptr<const BlockTable> send_receive_table(const Told& told, DType dtype) {
    const uint32_t per_fragment = elements_per_fragment(Collective::kPermute, dtype);
    std::vector<uint64_t>& key = all_.key_;
    key.assign({static_cast<uint64_t>(Collective::kPermute), per_fragment});
    for (const uint32_t word : {kSendCount, kDestination})
      for (uint64_t rank = 0; rank < all_.workers_; ++rank) key.push_back(told.at(rank, word));
    return all_.tables_.find_or_make(key, [&] {
      std::vector<int32_t> destinations(all_.workers_);
      for (uint64_t rank = 0; rank < all_.workers_; ++rank)
        destinations[rank] = static_cast<int32_t>(told.peer(rank, kDestination));
      return scheduler::permute_blocks(destinations, std::span(key).subspan(2, all_.workers_),
                                       per_fragment);
    });
  }

  CountedMoves& all_;
  std::vector<uint64_t> row_;  ///< the numbers that this rank tells
  std::vector<uint64_t> send_displacements_, receive_displacements_;
};

CountedMoves::CountedMoves(Executor& executor, Rank rank, uint32_t workers, uint32_t slot_bytes)
    : executor_(executor), rank_(rank), workers_(workers), slot_bytes_(slot_bytes) {}

CountedMoves::~CountedMoves() = default;

uint64_t CountedMoves::words(Collective collective) const {
  return collective == Collective::kAllToAll ? 2 * uint64_t{workers_} : uint64_t{kSendReceiveWords};
}

const std::shared_ptr<const Schedule>& CountedMoves::schedule_for(const OperationSpec& spec) {
  const auto known = std::ranges::find_if(schedules_, [&](const Known& one) {
    return one.collective == spec.collective && one.dtype == spec.dtype;
  });
  if (known != schedules_.end()) return known->schedule;
  schedules_.push_back(
      {spec.collective, spec.dtype,
       std::make_shared<const Schedule>(make_schedule(spec.collective, spec.dtype))});
  return schedules_.back().schedule;
}

Schedule CountedMoves::make_schedule(Collective collective, DType dtype) const {
  const uint64_t words = this->words(collective);
  const auto sizes = std::make_shared<const BlockTable>(scheduler::sizes_blocks(
      workers_, words,
      collective == Collective::kAllToAll ? wire::kSizesOfAllToAll : wire::kSizesOfSendReceive,
      ina::elements_per_fragment(Collective::kAllGather, DType::kInt64, slot_bytes_)));
  // Takes the place of the real one, which is not known before the counts are.
  const auto none = std::make_shared<const BlockTable>(std::span<const scheduler::Block>(), 1, 0);
  Schedule schedule;
  schedule.set_scratch_bytes(words * workers_ * sizeof(uint64_t));
  const Schedule::Stage tell = schedule.add(Compute{kTell});
  const Schedule::Stage told = schedule.add(
      Operate{.collective = Collective::kAllGather,
              .dtype = DType::kInt64,
              .op = Op::kSum,
              .elements = sizes->elements(),
              .send = {Buffer::Place::kScratch, value(rank_) * words * sizeof(uint64_t)},
              .receive = {Buffer::Place::kScratch},
              .blocks = sizes},
      {tell});
  const Schedule::Stage agree = schedule.add(Compute{kAgree}, {told});
  schedule.add(Operate{.collective = collective,
                       .dtype = dtype,
                       .op = Op::kSum,
                       .send = {Buffer::Place::kSend},
                       .receive = {Buffer::Place::kReceive},
                       .blocks = none},
               {agree});
  return schedule;
}

Operation* CountedMoves::start(const OperationSpec& spec, const OwnCounts& counts, Nanos now) {
  const auto& schedule = schedule_for(spec);
  Move& move = new_move();
  move.set(spec.collective, counts);
  move.operation = executor_.start(schedule, spec, &move, Executor::Handle::kKept, now);
  spare_.pop_back();
  return move.operation;
}

/// Leaves it among the spare ones.
CountedMoves::Move& CountedMoves::new_move() {
  if (spare_.empty()) {
    spare_.reserve(moves_.size() + 1);
    moves_.push_back(std::make_unique<Move>(*this));
    spare_.push_back(moves_.back().get());
  }
  return *spare_.back();
}

bool CountedMoves::release(Operation* operation) {
  const auto found =
      std::ranges::find_if(moves_, [&](const auto& move) { return move->operation == operation; });
  if (found == moves_.end()) return false;
  (*found)->operation = nullptr;
  spare_.push_back(found->get());
  executor_.release(operation);
  return true;
}

void CountedMoves::disagree(std::string text) {
  if (disagreement_.empty()) disagreement_ = std::move(text);
  executor_.stop();
}

}  // namespace ina::client
