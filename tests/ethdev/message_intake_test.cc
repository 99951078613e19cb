// Which frames are messages of bound workers. Without a device: frames in, packets out.
#include "io/ethdev/message_intake.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/ethdev/frames.h"

namespace ina::io {
namespace {

using Taken = MessageIntake::Taken;

constexpr size_t kElements = 64;
constexpr wire::TagKeys kTagKeys = {{1, 2}, {3, 4}};

Bytes payload_of(uint32_t seq) {
  return Bytes(kElements * sizeof(int32_t), static_cast<std::byte>(seq));
}

wire::Message grad_of(uint32_t worker, uint32_t seq) {
  wire::Message m = message(wire::Type::kGrad, seq, kElements);
  m.rank = Rank(static_cast<uint8_t>(worker));
  m.bitmap = WorkerSet::of(m.rank);
  return m;
}

Bytes grad(uint32_t worker, uint32_t seq, const wire::Address& to = kSwitch) {
  return encode(envelope(kWorkers[worker], to), grad_of(worker, seq), payload_of(seq));
}

Bytes tagged_grad(uint32_t worker, uint32_t seq, const wire::TagKeys& keys) {
  const Bytes payload = payload_of(seq);
  Bytes frame = grad(worker, seq);
  const wire::Seal seal = wire::make_seal(keys, payload);
  wire::encode_headers(envelope(kWorkers[worker], kSwitch), grad_of(worker, seq), payload,
                       std::span(frame).first(wire::kFrameHeaderBytes), &seal);
  return frame;
}

class MessageIntakeTest : public ::testing::Test {
 protected:
  void bind(uint32_t worker, const std::optional<wire::TagKeys>& keys = {}) {
    EndpointTable::Refusal refusal{};
    ASSERT_TRUE(intake_.endpoints().insert({.address = kWorkers[worker],
                                            .job_id = kJob,
                                            .family = kJob,
                                            .job_key = kJobKey,
                                            .job = 5,
                                            .rank = Rank(static_cast<uint8_t>(worker)),
                                            .tag_keys = keys},
                                           refusal));
  }
  Taken take(const Bytes& frame, bool wrong_udp_checksum = false) {
    reason_ = DropReason::kVersion;
    return intake_.take(frame, wrong_udp_checksum, packet_, reason_);
  }
  /// Why `frame` is not taken; kVersion: no reason was given.
  DropReason refused(const Bytes& frame, bool wrong_udp_checksum = false) {
    EXPECT_EQ(take(frame, wrong_udp_checksum), Taken::kRefused);
    return reason_;
  }
  uint64_t all_drops() const {
    uint64_t sum = 0;
    for (const uint64_t count : counters_.drops.count) sum += count;
    return sum;
  }

  PortCounters counters_;
  MessageIntake intake_{{.ip = kSwitch.ip,
                         .udp_port = kSwitch.udp_port,
                         .udp_ports = 2,
                         .slot_bytes = kElements * sizeof(int32_t),
                         .max_endpoints = 4},
                        counters_};
  RxPacket packet_{};
  DropReason reason_{};
};

TEST_F(MessageIntakeTest, ABoundWorkersMessageIsTaken) {
  bind(1);
  const Bytes frame = grad(1, 3);
  ASSERT_EQ(take(frame), Taken::kFilled);
  EXPECT_EQ(packet_.message.seq, 3u);
  EXPECT_EQ(packet_.job, 5);
  EXPECT_EQ(packet_.rank, Rank{1});
  EXPECT_EQ(packet_.payload_bytes, kElements * sizeof(int32_t));
  EXPECT_EQ(packet_.payload, frame.data() + wire::kFrameHeaderBytes) << "it is not copied";
  EXPECT_EQ(all_drops(), 0u);
}

TEST_F(MessageIntakeTest, TheSwitchHasSoManyUdpPorts) {
  bind(0);
  for (const uint16_t port : {0, 1, 2}) {
    wire::Address to = kSwitch;
    to.udp_port = static_cast<uint16_t>(to.udp_port + port);
    if (port < 2)
      EXPECT_EQ(take(grad(0, port, to)), Taken::kFilled) << port;
    else
      EXPECT_EQ(refused(grad(0, port, to)), DropReason::kNotIna);
  }
}

TEST_F(MessageIntakeTest, RefusesWithAReasonAndCountsNothing) {
  bind(0);
  wire::Address elsewhere = kSwitch;
  elsewhere.ip ^= 1;
  EXPECT_EQ(refused(arp_request(kWorkers[0], kSwitch.ip)), DropReason::kNotIna);
  EXPECT_EQ(refused(grad(0, 0, elsewhere)), DropReason::kNotIna);
  EXPECT_EQ(refused(grad(1, 0)), DropReason::kUnknownSource);
  wire::Envelope other_key = envelope(kWorkers[0], kSwitch);
  other_key.job_key ^= 1;
  EXPECT_EQ(refused(encode(other_key, grad_of(0, 0), payload_of(0))), DropReason::kBadJob);
  Bytes damaged = grad(0, 0);
  damaged.back() ^= std::byte{1};
  EXPECT_EQ(refused(damaged), DropReason::kCrc);
  EXPECT_EQ(refused(grad(0, 0), true), DropReason::kUdpChecksum);
  EXPECT_EQ(all_drops(), 0u);
}

TEST_F(MessageIntakeTest, WrongHeadersAreDroppedAndRemembered) {
  bind(0);
  intake_.witness().expect(kJob, kJobKey);
  wire::Message wrong = grad_of(0, 0);
  wrong.elements += 1;
  EXPECT_EQ(take(encode(envelope(kWorkers[0], kSwitch), wrong, payload_of(0))), Taken::kSettled);
  EXPECT_EQ(counters_.drops[DropReason::kBadLength], 1u);
  EXPECT_EQ(intake_.witness().dropped(kJob)[0].count, 1u);
  EXPECT_FALSE(intake_.endpoints()[0].heard);
}

TEST_F(MessageIntakeTest, TagsAreLookedAtTogether) {
  constexpr wire::TagKeys kOthersKeys = {{5, 6}, {3, 4}};
  bind(0, kTagKeys);
  bind(1, kOthersKeys);
  const std::vector<Bytes> frames = {tagged_grad(0, 0, kTagKeys), tagged_grad(1, 1, kTagKeys),
                                     grad(0, 2), tagged_grad(1, 3, kOthersKeys),
                                     tagged_grad(0, 4, kTagKeys)};
  EXPECT_FALSE(intake_.has_tagged());
  for (const Bytes& frame : frames) EXPECT_EQ(take(frame), Taken::kSettled);
  ASSERT_TRUE(intake_.has_tagged());
  std::array<RxPacket, 8> burst{};
  ASSERT_EQ(intake_.take_tagged(burst), 3u);
  EXPECT_EQ(burst[0].message.seq, 0u);
  EXPECT_EQ(burst[1].message.seq, 3u);
  EXPECT_EQ(burst[1].rank, Rank{1});
  EXPECT_EQ(burst[2].message.seq, 4u);
  EXPECT_EQ(counters_.drops[DropReason::kBadTag], 2u);
  EXPECT_FALSE(intake_.has_tagged());
}

TEST_F(MessageIntakeTest, WhatIsRefusedIsRememberedWhateverThePort) {
  intake_.witness().expect(kJob, kJobKey);
  wire::Address wrong_port = kSwitch;
  wrong_port.udp_port = 9;
  const Bytes frame = grad(2, 0, wrong_port);
  intake_.note_drop(frame, refused(frame));
  const DroppedFrames& dropped = intake_.witness().dropped(kJob)[0];
  EXPECT_EQ(dropped.count, 1u);
  EXPECT_EQ(dropped.rank, Rank{2});
  EXPECT_EQ(dropped.destination.udp_port, 9);
}

}  // namespace
}  // namespace ina::io
