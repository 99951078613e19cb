// The fallback against any sequence of messages. The content of a contribution follows from its
// bit, so every result must be the sum of all workers' contributions. It may be given only when all
// of these, or a result of the switch, have been seen.
//
// Input: the configuration (3 bytes), then one message or call after the other.
#include <map>

#include "aggregator/fallback.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/contribution.h"
#include "tests/fuzz/input.h"

namespace {

using namespace ina;
using aggregator::Fallback;
using aggregator::FallbackConfig;
using fuzz::Input;
using wire::Type;

constexpr uint32_t kJob = 0;

class Run {
 public:
  explicit Run(Input& input) : input_(input) {
    config_.workers = 1 + input.below(5);
    config_.window = 1u << input.below(5);
    config_.slot_bytes = fuzz::kSlotBytes;
    config_.shards = 1 + input.below(config_.workers);
    config_.shard = input.below(config_.shards);
    config_.bind_at_once = input.flag();
    config_.instance = input.below(3);
    config_.min_epoch = input.below(3);
    full_ = WorkerSet::first(config_.workers);
    fallback_.emplace(config_);
  }

  void run() {
    while (!input_.empty()) step();
    while (fallback_->has_output())
      if (flush(16, 16) == 0) break;
    INA_FUZZ_CHECK(!fallback_->has_output());
  }

 private:
  void step() {
    switch (input_.below(12)) {
      case 0:
        return fallback_->raise_floor(Seq{base_ + input_.below(64)});
      case 1:
      case 2: {
        const size_t room = 1 + input_.below(16);
        flush(room, input_.below(17));
        return;
      }
      case 3:  // the job goes on
        base_ += input_.below(2 * config_.window + 1);
        return;
      case 4:
        config_.epoch = std::max(config_.epoch, input_.below(4));
        return fallback_->set_epoch(config_.epoch);
      case 5:
        return hostile();
      default:
        return message();
    }
  }

  /// A message as workers and switch send it, about a fragment of the window, or nearly.
  void message() {
    static constexpr Type kTypes[] = {Type::kPart,  Type::kPart,  Type::kPart,
                                      Type::kQuery, Type::kSent,  Type::kHave,
                                      Type::kDefer, Type::kDefer, Type::kNotYet};
    const Type type = kTypes[input_.below(std::size(kTypes))];
    const uint32_t seq =
        base_ + input_.below(4 * config_.window) / config_.shards * config_.shards + config_.shard;
    wire::Message message = fuzz::message_of(type, seq, config_.workers);
    message.rank = Rank{static_cast<uint8_t>(input_.below(config_.workers))};
    message.instance = config_.instance + input_.below(4) / 3;
    message.epoch = input_.below(4);
    WorkerSet workers = full_;
    if (type == Type::kPart) {
      workers &= WorkerSet::from_bits(input_.byte());
      if (workers.empty()) workers = WorkerSet::of(message.rank);
      if (workers.is_single() && input_.flag()) message.flags = wire::kFlagRaw;
    } else if (type == Type::kDefer) {
      workers = WorkerSet::of(message.rank);
      if (input_.flag()) message.flags = wire::kFlagRaw;
    }
    message.bitmap = workers;
    const uint32_t bytes = wire::payload_bytes(message);
    INA_FUZZ_CHECK(!wire::validate(message, bytes, fuzz::kSlotBytes));
    if (type == Type::kHave) known_[seq] |= full_;
    if (bytes != 0) known_[seq] |= workers;
    const auto payload = fuzz::sum_of(kJob, seq, workers);
    const uint64_t dropped = fallback_->counters().dropped;
    fallback_->on_message(message, bytes == 0 ? nullptr : payload.data());
    // I3: a question is answered, or the others are asked; at the latest when it comes again.
    if (type == Type::kQuery && !fallback_->has_output()) fallback_->on_message(message, nullptr);
    if (type == Type::kQuery && fallback_->counters().dropped == dropped)
      INA_FUZZ_CHECK(fallback_->has_output());
  }

  /// Anything that a transport lets through, with a payload of its size. Its fragments are far from
  /// the others, which it must not disturb; it may push them out of memory, as any newer one may.
  void hostile() {
    wire::Message message;
    input_.fill(std::as_writable_bytes(std::span(&message, 1)));
    message.seq = base_ + 100'000 + message.seq % 1'000;
    if (wire::validate(message, wire::payload_bytes(message), fuzz::kSlotBytes)) return;
    const std::vector<std::byte> payload(wire::payload_bytes(message), std::byte{0x5a});
    hostile_ = true;
    fallback_->on_message(message, payload.empty() ? nullptr : payload.data());
  }

  size_t flush(size_t room, size_t accepted) {
    std::vector<wire::Outgoing> packets(room);
    const size_t count = fallback_->prepare(packets);
    INA_FUZZ_CHECK(count <= room);
    for (size_t i = 0; i < count; ++i) check(packets[i]);
    fallback_->sent(std::min(accepted, count));
    return count;
  }

  void check(const wire::Outgoing& packet) {
    const wire::Message& message = packet.message;
    INA_FUZZ_CHECK(message.seq % config_.shards == config_.shard || hostile_);
    INA_FUZZ_CHECK(message.instance == config_.instance && message.epoch == config_.epoch);
    INA_FUZZ_CHECK(message.type == Type::kResult || message.type == Type::kPoll ||
                   message.type == Type::kRemind);
    if (hostile_ && message.seq >= base_ + 50'000) return;
    INA_FUZZ_CHECK(!wire::validate(message, packet.payload_bytes, fuzz::kSlotBytes));
    if (message.type != Type::kResult) return;
    INA_FUZZ_CHECK(message.origin == wire::Origin::kFallback && message.bitmap == full_);
    INA_FUZZ_CHECK(known_[message.seq] == full_);
    INA_FUZZ_CHECK(fuzz::is_sum(packet.payload, packet.payload_bytes, kJob, message.seq, full_));
  }

  Input& input_;
  FallbackConfig config_;
  WorkerSet full_;
  std::optional<Fallback> fallback_;
  uint32_t base_ = 0;
  bool hostile_ = false;
  std::map<uint32_t, WorkerSet> known_;  ///< contributions that have been offered
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Run(input).run();
  return 0;
}
