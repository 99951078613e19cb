// The shm port between its two real sides, within one process: the packets that may be sent, a
// worker that does not read, and the damage by a worker that lies about its position.
#include "io/shm/shm_port.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "common/sealed_memory.h"
#include "tests/support/shm_session.h"

namespace ina {
namespace {

constexpr uint32_t kSlotBytes = 256;

class ShmPortTest : public test::ShmSession {
 protected:
  static wire::Message result() {
    wire::Message message;
    message.type = wire::Type::kResult;
    message.origin = wire::Origin::kSwitch;
    message.dtype = DType::kInt32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    message.elements = 1;
    message.operation_elements = 1;
    return message;
  }
  std::span<const std::byte> row(uint64_t number) const {
    return {results_.map.data() + number * kSlotBytes, 4};
  }
  bool send_result(uint64_t number) { return port_->tx(endpoint_, result(), row(number)); }
  /// Reads up to `most` packets, and gives their payloads back if `release`.
  std::vector<client::RxPacket> receive(size_t most, bool release = true) {
    port_->tx_flush();
    std::vector<client::RxPacket> packets(most);
    packets.resize(transport_->rx_burst(packets));
    if (release) transport_->rx_release();
    return packets;
  }
  static int32_t element(const client::RxPacket& packet) {
    int32_t value;
    std::memcpy(&value, packet.payload, 4);
    return value;
  }
};

TEST_F(ShmPortTest, CarriesPayloadsThatAreNoResults) {
  open({1, 8, 8, kSlotBytes, 4, 8});
  std::memset(results_.map.data() + 2 * kSlotBytes, 0x11, 4);
  for (int32_t round = 0; round < 100; ++round) {
    ASSERT_TRUE(send_part(round));
    ASSERT_TRUE(send_result(2));
    ASSERT_TRUE(send_part(-round));
    const auto packets = receive(8, false);
    ASSERT_EQ(packets.size(), 3u);
    EXPECT_EQ(element(packets[0]), round);
    EXPECT_EQ(packets[1].payload_bytes, 4u);
    EXPECT_EQ(element(packets[1]), 0x11111111);
    EXPECT_EQ(element(packets[2]), -round);
    transport_->rx_release();
  }
  EXPECT_EQ(transport_->counters().dropped, 0u);
}

TEST_F(ShmPortTest, NeverOverwritesASideRowThatIsNotRead) {
  open({1, 8, 16, kSlotBytes, 4, 4});
  int32_t next_sent = 0;
  int32_t next_read = 0;
  for (int round = 0; round < 50; ++round) {
    while (send_part(next_sent)) ++next_sent;
    EXPECT_EQ(next_sent - next_read, 4) << "as many as there are rows";
    // Results need no row, so they go on.
    ASSERT_TRUE(send_result(1));
    // Read, but not yet given back: the rows are still the worker's.
    const auto packets = receive(2, false);
    ASSERT_EQ(packets.size(), 2u);
    EXPECT_FALSE(send_part(next_sent));
    for (const auto& packet : packets)
      if (packet.message.type == wire::Type::kPart) {
        EXPECT_EQ(element(packet), next_read++);
      }
    transport_->rx_release();
    for (const auto& packet : receive(16))
      if (packet.message.type == wire::Type::kPart) {
        EXPECT_EQ(element(packet), next_read++);
      }
    EXPECT_EQ(next_read, next_sent);
  }
  EXPECT_EQ(port_->counters().drops[DropReason::kTxFull], 100u);
}

TEST_F(ShmPortTest, OnlyTheRowsOfTheResultRingAreReferredTo) {
  open({1, 8, 8, kSlotBytes, 4, 8});
  // The last row, and the bytes right behind it in the same mapping.
  std::memset(results_.map.data() + 3 * kSlotBytes, 1, 2 * kSlotBytes);
  ASSERT_TRUE(send_result(3));
  ASSERT_TRUE(send_result(4));
  std::memset(results_.map.data() + 3 * kSlotBytes, 2, 2 * kSlotBytes);
  const auto packets = receive(8);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(element(packets[0]), 0x02020202) << "copied";
  EXPECT_EQ(element(packets[1]), 0x01010101) << "not copied";
}

TEST_F(ShmPortTest, MarksCongestionWhenTheReaderLagsBehind) {
  open({1, 8, 16, kSlotBytes, 4, 16});
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(send_result(0));
  EXPECT_FALSE(send_result(0)) << "a full ring";
  auto packets = receive(16);
  ASSERT_EQ(packets.size(), 16u);
  for (size_t i = 0; i < packets.size(); ++i)
    EXPECT_EQ((packets[i].message.flags & wire::kFlagEcn) != 0, i >= 12) << i;
  ASSERT_TRUE(send_result(0));
  packets = receive(1);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].message.flags & wire::kFlagEcn, 0) << "the reader has caught up";
}

TEST_F(ShmPortTest, MarksCongestionWhenTheRowsForPayloadsRunOut) {
  open({1, 8, 64, kSlotBytes, 4, 8});
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(send_part(i));
  EXPECT_FALSE(send_part(8)) << "no row is free";
  ASSERT_TRUE(send_result(0)) << "needs none";
  auto packets = receive(9);
  ASSERT_EQ(packets.size(), 9u);
  for (size_t i = 0; i < packets.size(); ++i)
    EXPECT_EQ((packets[i].message.flags & wire::kFlagEcn) != 0, i >= 5 && i < 8) << i;
  ASSERT_TRUE(send_part(9));
  packets = receive(1);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].message.flags & wire::kFlagEcn, 0) << "the reader has caught up";
}

// An endpoint that is given twice stands for two workers.
TEST_F(ShmPortTest, WhatGoesToAllIsAsIfItHadBeenSentToEach) {
  open({1, 8, 16, kSlotBytes, 4, 16});
  std::memset(results_.map.data() + 2 * kSlotBytes, 0x11, 4);
  const std::vector<io::EndpointIndex> both = {endpoint_, endpoint_};
  ASSERT_EQ(port_->tx_to_all(both, result(), row(2)), 2u);
  wire::Message elsewhere = result();
  elsewhere.seq = 7;
  std::byte copied[4] = {};
  ASSERT_EQ(port_->tx_to_all(both, elsewhere, copied), 2u);
  copied[0] = std::byte{1};
  wire::Message question;
  question.type = wire::Type::kPoll;
  ASSERT_EQ(port_->tx_to_all(both, question, {}), 2u);
  auto packets = receive(16, false);
  ASSERT_EQ(packets.size(), 6u);
  EXPECT_EQ(element(packets[0]), 0x11111111);
  EXPECT_EQ(element(packets[1]), 0x11111111);
  EXPECT_EQ(packets[2].message.seq, 7u);
  EXPECT_EQ(element(packets[3]), 0) << "not in the result ring, so it was copied";
  EXPECT_EQ(packets[5].payload_bytes, 0u);
  EXPECT_EQ(port_->counters().tx_packets, 6u);
  EXPECT_EQ(port_->counters().tx_bytes, 16u);
  transport_->rx_release();

  for (int i = 0; i < 7; ++i) ASSERT_EQ(port_->tx_to_all(both, result(), row(2)), 2u);
  ASSERT_TRUE(send_result(2));
  EXPECT_EQ(port_->tx_to_all(both, result(), row(2)), 1u) << "room for one";
  EXPECT_EQ(port_->counters().drops[DropReason::kTxFull], 1u);
  packets = receive(16);
  ASSERT_EQ(packets.size(), 16u);
  for (size_t i = 0; i < packets.size(); ++i)
    EXPECT_EQ((packets[i].message.flags & wire::kFlagEcn) != 0, i >= 12) << i;
}

TEST_F(ShmPortTest, DoesNotMarkCongestionWhenToldNotTo) {
  open({1, 8, 16, kSlotBytes, 4, 16}, false);
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(send_result(0));
  for (const auto& packet : receive(16)) EXPECT_EQ(packet.message.flags, 0);
}

TEST_F(ShmPortTest, APositionThatCannotBeIsAFullRing) {
  open({1, 8, 16, kSlotBytes, 4, 4});
  // The worker's own region, as a hostile worker would write it.
  const io::shm::WorkerLayout layout(geometry_);
  ASSERT_TRUE(send_part(1));
  // The region is sealed against further writable mappings, so the lie goes through a copy.
  std::vector<std::byte> lie(layout.bytes);
  std::memcpy(lie.data(), session_->worker_region.data(), layout.bytes);
  const uint64_t far = 1'000'000;
  std::memcpy(lie.data() + layout.rx_read, &far, sizeof(far));
  Fd file(::memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::write(file.get(), lie.data(), lie.size()), static_cast<ssize_t>(lie.size()));
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, kRegionSeals), 0);
  port_->detach(endpoint_);
  auto mapped = io::shm::map_peer_region(file, layout.bytes, "worker region");
  ASSERT_TRUE(mapped) << mapped.error().text;
  session_->worker_region = std::move(*mapped);
  const auto endpoint = port_->attach(*session_, 0, Rank{1});
  ASSERT_TRUE(endpoint);
  endpoint_ = *endpoint;
  // Until the port looks, it counts what it wrote itself; then the ring is full for good.
  for (int i = 0; i < 1000; ++i) send_result(0);
  EXPECT_FALSE(send_result(0));
  EXPECT_FALSE(send_part(2));
  EXPECT_GT(port_->counters().drops[DropReason::kTxFull], 900u);
}

// Registered memory: payloads are read where they lie, and nowhere else.
TEST_F(ShmPortTest, ReadsRegisteredMemoryInPlaceAndNothingBeyondIt) {
  open({1, 8, 8, kSlotBytes, 4, 8});
  auto memory = io::shm::make_region("test-registered", io::shm::kPageBytes);
  ASSERT_TRUE(memory) << memory.error().text;
  std::byte* const data = memory->map.data();
  auto theirs = io::shm::map_peer_region(memory->fd, io::shm::kPageBytes, "registered memory");
  ASSERT_TRUE(theirs) << theirs.error().text;
  session_->registered[3] = std::move(*theirs);
  const std::span seen(session_->registered[3].data(), session_->registered[3].size());
  transport_->set_registered(3, {data, io::shm::kPageBytes});

  const auto send = [&](const std::byte* payload) -> std::vector<io::RxPacket> {
    client::TxPacket packet;
    packet.message.type = wire::Type::kGrad;
    packet.message.dtype = DType::kInt32;
    packet.message.op = Op::kSum;
    packet.message.collective = Collective::kAllReduce;
    packet.message.elements = 1;
    packet.message.operation_elements = 1;
    packet.payload = payload;
    packet.payload_bytes = 4;
    EXPECT_EQ(transport_->tx_burst({&packet, 1}), 1u);
    std::vector<io::RxPacket> packets(4);
    packets.resize(port_->rx_burst(packets));
    port_->rx_release();
    return packets;
  };
  const auto dropped = [&] {
    return port_->counters().drops.count[static_cast<size_t>(DropReason::kBadOffset)];
  };
  EXPECT_TRUE(send(data).empty()) << "the lane does not know it yet";
  EXPECT_EQ(dropped(), 1u);
  port_->set_registered(endpoint_, 3, seen);
  ASSERT_EQ(send(data + 128).size(), 1u);
  EXPECT_EQ(send(data + 128)[0].payload, seen.data() + 128);
  EXPECT_EQ(send(data + io::shm::kPageBytes - 4)[0].payload, seen.data() + io::shm::kPageBytes - 4);
  EXPECT_EQ(transport_->counters().bytes_copied, 0u);
  std::byte plain[4] = {};
  EXPECT_EQ(send(plain).size(), 1u);
  EXPECT_EQ(transport_->counters().bytes_copied, 4u);
  // A worker that claims more than it registered, or numbers that do not exist.
  transport_->set_registered(3, {data, 2 * io::shm::kPageBytes});
  EXPECT_TRUE(send(data + io::shm::kPageBytes - 2).empty());
  EXPECT_EQ(dropped(), 2u);
  for (const uint32_t number : {4u, io::shm::kMaxRegions, 0xffffu}) {
    transport_->set_registered(3, {});
    transport_->set_registered(number, {data, io::shm::kPageBytes});
    const uint64_t before = dropped();
    EXPECT_TRUE(send(data).empty()) << number;
    EXPECT_EQ(dropped(), before + 1);
    transport_->set_registered(number, {});
  }
  port_->set_registered(endpoint_, 3, {});
  transport_->set_registered(3, {data, io::shm::kPageBytes});
  EXPECT_TRUE(send(data).empty()) << "taken back";
}

TEST_F(ShmPortTest, TheWorkerDropsDescriptorsThatPointOutOfTheirRegion) {
  open({1, 8, 8, kSlotBytes, 4, 8});
  const io::shm::SwitchLayout layout(geometry_);
  auto* ring = io::shm::at<io::shm::Descriptor>(session_->switch_region.map.data(), layout.rx_ring);
  const uint64_t offsets[] = {layout.bytes | io::shm::kSidePayload,
                              (layout.bytes - 3) | io::shm::kSidePayload, ~uint64_t{0},
                              io::shm::result_region_bytes(geometry_), uint64_t{1} << 62};
  for (size_t i = 0; i < std::size(offsets); ++i) ASSERT_TRUE(send_part(1));
  for (size_t i = 0; i < std::size(offsets); ++i) ring[i].payload_offset = offsets[i];
  EXPECT_TRUE(receive(8).empty());
  EXPECT_EQ(transport_->counters().dropped, std::size(offsets));
}

// ---- rings

class ShmPortRings : public ShmPortTest {
 protected:
  static constexpr Nanos kMs = 1'000'000;

  void SetUp() override { open({1, 8, 8, kSlotBytes, 4, 8}); }
  void ring() {
    const uint64_t one = 1;
    ASSERT_EQ(::write(session_->wake_events[0].get(), &one, sizeof(one)),
              static_cast<ssize_t>(sizeof(one)));
  }
  /// True if a sleeper is woken, which then tells the port.
  bool heard(Nanos now) {
    epoll_event events[8];
    const int count = ::epoll_wait(port_->epoll_fd(), events, 8, 0);
    port_->rung(std::span(events).first(static_cast<size_t>(std::max(0, count))), now);
    return count > 0;
  }
  int heard_of(int rings, Nanos now) {
    int count = 0;
    for (int i = 0; i < rings; ++i) {
      ring();
      count += heard(now) ? 1 : 0;
    }
    return count;
  }
};

TEST_F(ShmPortRings, WithoutPacketsAreHeardSoOftenAndThenLookedAt) {
  EXPECT_EQ(port_->listen(0), INT64_MAX);
  const int at_once = heard_of(10'000, 0);
  EXPECT_GT(at_once, 32);
  EXPECT_LT(at_once, 100);
  EXPECT_EQ(port_->listen(1 * kMs), 1 * kMs) << "its packets must not wait for others' rings";
  EXPECT_EQ(heard_of(100, 1 * kMs), 0);
  // In the long run so many a second, however many there are.
  int in_a_second = 0;
  for (Nanos now = 0; now < 1000 * kMs; now += kMs) {
    port_->listen(now);
    in_a_second += heard_of(20, now);
  }
  EXPECT_GT(in_a_second, 500);
  EXPECT_LT(in_a_second, 1100);
  // Silence is rewarded.
  EXPECT_EQ(port_->listen(2000 * kMs), INT64_MAX);
  ring();
  EXPECT_TRUE(heard(2000 * kMs));
}

TEST_F(ShmPortRings, WithPacketsAreAlwaysHeard) {
  client::TxPacket packet;
  packet.message.type = wire::Type::kQuery;
  std::vector<io::RxPacket> burst(8);
  for (uint32_t i = 0; i < 1'000; ++i) {
    ASSERT_EQ(transport_->tx_burst({&packet, 1}), 1u);
    // Before or after the lane has taken what they are for.
    if (i % 2 == 0) ring();
    const bool before = heard(0);
    ASSERT_EQ(port_->rx_burst(burst), 1u);
    port_->rx_release();
    if (i % 2 != 0) ring();
    const bool after = heard(0);
    EXPECT_TRUE(i % 2 == 0 ? before : after) << i;
    ASSERT_EQ(port_->listen(0), INT64_MAX);
  }
}

TEST_F(ShmPortRings, OneThatIsNotHeardLeavesNothingBehind) {
  heard_of(1'000, 0);
  ASSERT_NE(port_->listen(0), INT64_MAX);
  port_->detach(endpoint_);
  EXPECT_EQ(port_->listen(0), INT64_MAX);
  ASSERT_TRUE(port_->attach(*session_, 0, Rank{1}));
  ring();
  EXPECT_TRUE(heard(0));
}

}  // namespace
}  // namespace ina
