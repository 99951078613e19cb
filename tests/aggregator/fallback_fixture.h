// A fallback aggregator with three workers, for tests of single messages.
#pragma once

#include "aggregator/fallback.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "tests/support/worker_literal.h"

namespace ina::aggregator {

using wire::Message;
using wire::Outgoing;
using wire::Phase;
using wire::Type;
using Values = std::vector<int32_t>;

inline constexpr uint32_t kWindow = 4;
inline constexpr uint32_t kSlotBytes = 64;
inline constexpr uint32_t kInstance = 7;
inline constexpr uint32_t kEpoch = 3;

/// A message of the fallback, with a copy of its payload.
struct Said {
  Message message;
  std::vector<std::byte> payload;
  Values values() const {
    Values values(payload.size() / 4);
    if (!payload.empty()) std::memcpy(values.data(), payload.data(), payload.size());
    return values;
  }
};

class FallbackTest : public testing::Test {
 protected:
  FallbackTest() {
    config_.workers = 3;
    config_.window = kWindow;
    config_.slot_bytes = kSlotBytes;
    config_.instance = kInstance;
    config_.epoch = kEpoch;
    config_.min_epoch = kEpoch;
    start();
  }
  void start() { fallback_.emplace(config_); }

  static Message message_of(Type type, uint32_t rank, uint64_t seq) {
    Message message;
    message.type = type;
    message.rank = Rank{static_cast<uint8_t>(rank)};
    message.bitmap = WorkerSet::of(message.rank);
    message.seq = static_cast<uint32_t>(seq);
    message.epoch = kEpoch;
    message.instance = kInstance;
    return message;
  }
  static Message with_values(Type type, uint32_t rank, uint64_t seq, size_t count) {
    Message message = message_of(type, rank, seq);
    message.elements = static_cast<uint16_t>(count);
    message.operation_elements = count;
    message.dtype = DType::kInt32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    return message;
  }
  void hear(const Message& message, const void* payload = nullptr) {
    ASSERT_FALSE(wire::validate(message, wire::payload_bytes(message), kSlotBytes));
    fallback_->on_message(message, static_cast<const std::byte*>(payload));
  }
  void part(uint64_t seq, WorkerSet bits, const Values& values, uint32_t epoch = kEpoch) {
    Message message = with_values(Type::kPart, 0, seq, values.size());
    message.bitmap = bits;
    message.epoch = epoch;
    hear(message, values.data());
  }
  void query(uint64_t seq, uint32_t rank = 0) { hear(message_of(Type::kQuery, rank, seq)); }
  void sent(uint64_t seq, uint32_t rank, uint32_t instance = kInstance) {
    Message message = message_of(Type::kSent, rank, seq);
    message.instance = instance;
    hear(message);
  }
  void all_sent(uint64_t seq) {
    for (uint32_t rank = 0; rank < config_.workers; ++rank) sent(seq, rank);
  }
  void defer(uint64_t seq, uint32_t rank, std::optional<int32_t> raw,
             uint32_t instance = kInstance) {
    Message message =
        raw ? with_values(Type::kDefer, rank, seq, 1) : message_of(Type::kDefer, rank, seq);
    message.instance = instance;
    if (raw) message.flags = wire::kFlagRaw;
    hear(message, raw ? &*raw : nullptr);
  }
  void have(uint64_t seq, uint32_t rank, int32_t value, uint16_t flags = 0,
            uint32_t instance = kInstance) {
    Message message = with_values(Type::kHave, rank, seq, 1);
    message.flags = flags;
    message.instance = instance;
    hear(message, &value);
  }

  /// All that it wants to say now.
  std::vector<Said> output() {
    std::vector<Said> said;
    Outgoing packets[4];
    while (const size_t count = fallback_->prepare(packets)) {
      for (size_t i = 0; i < count; ++i) {
        const Outgoing& packet = packets[i];
        EXPECT_FALSE(wire::validate(packet.message, packet.payload_bytes, kSlotBytes));
        EXPECT_EQ(packet.message.rank, kFallbackRank);
        EXPECT_EQ(packet.message.instance, config_.instance);
        said.push_back({packet.message, {}});
        if (packet.payload_bytes != 0)
          said.back().payload.assign(packet.payload, packet.payload + packet.payload_bytes);
      }
      fallback_->sent(count);
    }
    EXPECT_FALSE(fallback_->has_output());
    return said;
  }
  void expect_silent() {
    EXPECT_FALSE(fallback_->has_output());
    Outgoing packet;
    EXPECT_EQ(fallback_->prepare(std::span(&packet, 1)), 0u);
  }
  /// Exactly one RESULT.
  void expect_result(uint64_t seq, const Values& values, uint16_t flags = 0) {
    const std::vector<Said> said = output();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].message.type, Type::kResult);
    EXPECT_EQ(said[0].message.origin, wire::Origin::kFallback);
    EXPECT_EQ(said[0].message.seq, static_cast<uint32_t>(seq));
    EXPECT_EQ(said[0].message.epoch, kEpoch);
    EXPECT_EQ(said[0].message.bitmap, 0b111_workers);
    EXPECT_EQ(said[0].message.flags, flags);
    EXPECT_EQ(said[0].values(), values);
  }
  /// Exactly one POLL of this phase.
  void expect_poll(Phase phase) {
    const std::vector<Said> said = output();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].message.type, Type::kPoll);
    EXPECT_EQ(said[0].message.phase, phase);
  }
  const FallbackCounters& counters() const { return fallback_->counters(); }

  FallbackConfig config_;
  std::optional<Fallback> fallback_;
};

}  // namespace ina::aggregator
