// The ethdev port on the pcap driver: captures go in, captures come out.
#include "io/ethdev/ethdev_port.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tests/ethdev/eal_fixture.h"
#include "tests/ethdev/frames.h"
#include "tests/support/temp_dir.h"
#include "wire/group.h"

namespace ina::io {
namespace {

constexpr JobIndex kJobIndex = 5;
constexpr size_t kElements = 256;

std::span<const std::byte> bytes_of(const std::vector<int32_t>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<int32_t> gradient(uint32_t worker, uint32_t seq, size_t elements = kElements) {
  std::vector<int32_t> values(elements);
  std::iota(values.begin(), values.end(), static_cast<int32_t>(seq * 1000 + worker * 7));
  return values;
}

Bytes grad(uint32_t worker, uint32_t seq, size_t elements = kElements) {
  wire::Message m = message(wire::Type::kGrad, seq, elements);
  m.bitmap = WorkerSet::of(Rank(static_cast<uint8_t>(worker)));
  return encode(envelope(kWorkers[worker], kSwitch), m, bytes_of(gradient(worker, seq, elements)));
}

EthdevPortConfig with(uint32_t mtu, uint32_t slot_bytes) {
  EthdevPortConfig config;
  config.mtu = mtu;
  config.slot_bytes = slot_bytes;
  return config;
}

class EthdevPortTest : public ::testing::Test {
 protected:
  /// A port that reads `frames` and writes to the capture sent().
  void open(const std::vector<Bytes>& frames, EthdevPortConfig config = {}) {
    static int devices = 0;
    Capture::write((folder_ / "in.pcap"), frames);
    config.name = "test";
    config.device = "net_pcap" + std::to_string(devices++) + ",rx_pcap=" + (folder_ / "in.pcap") +
                    ",tx_pcap=" + (folder_ / "out.pcap");
    config.ip = kSwitch.ip;
    config.rx_descriptors = 128;
    config.tx_descriptors = 128;
    auto port = EthdevPort::open(config);
    ASSERT_TRUE(port) << port.error().text;
    port_ = std::move(port->front());
    own_ = port_->address();  // the driver counts its MAC addresses up
    ASSERT_EQ(own_.ip, kSwitch.ip);
    ASSERT_EQ(own_.udp_port, kSwitch.udp_port);
  }

  EndpointIndex bind(uint32_t worker) {
    const auto index =
        port_->bind(kWorkers[worker], kJob, kJobKey, kJobIndex, Rank(static_cast<uint8_t>(worker)));
    EXPECT_TRUE(index) << index.error().text;
    return index.value_or(EndpointIndex{0});
  }

  /// Receives all of the capture; gives each packet to `use`.
  template <class Use>
  void receive_all(size_t burst_size, Use use) {
    std::vector<RxPacket> burst(burst_size);
    for (uint64_t seen = UINT64_MAX; seen != port_->counters().rx_packets;) {
      seen = port_->counters().rx_packets;
      const size_t count = port_->rx_burst(burst);
      for (size_t i = 0; i < count; ++i) use(burst[i]);
      port_->rx_release();
      port_->tx_flush();
    }
  }
  void receive_all() {
    receive_all(32, [](const RxPacket&) {});
  }

  /// Frames sent; closes the port.
  std::vector<Bytes> sent() {
    port_.reset();
    return Capture::read((folder_ / "out.pcap"));
  }

  uint64_t drops(DropReason reason) const { return port_->counters().drops[reason]; }

  uint64_t all_drops() const {
    const auto& count = port_->counters().drops.count;
    return std::accumulate(count.begin(), count.end(), uint64_t{0});
  }

  test::TempDir folder_;
  std::unique_ptr<EthdevPort> port_;
  wire::Address own_;
};

TEST_F(EthdevPortTest, RemembersWhoseFramesItDroppedAndWhy) {
  const auto sent_by = [](uint32_t worker, const wire::Envelope& as) {
    wire::Message m = message(wire::Type::kGrad, 0, kElements);
    m.rank = Rank(static_cast<uint8_t>(worker));
    m.bitmap = WorkerSet::of(m.rank);
    return encode(as, m, bytes_of(gradient(worker, 0)));
  };
  wire::Envelope elsewhere = envelope(kWorkers[1], kSwitch);
  elsewhere.source.udp_port ^= 1;
  wire::Envelope wrong_port = envelope(kWorkers[2], kSwitch);
  wrong_port.destination.udp_port = 9;
  wire::Envelope stranger = elsewhere;
  stranger.job_key ^= 1;
  open({grad(0, 0), sent_by(1, elsewhere), sent_by(1, elsewhere), sent_by(2, wrong_port),
        sent_by(1, stranger)});
  port_->expect(kJob, kJobKey);
  const EndpointIndex first = bind(0);
  const EndpointIndex second = bind(1);
  bind(2);
  EXPECT_FALSE(port_->heard(first));
  receive_all();
  EXPECT_TRUE(port_->heard(first));
  EXPECT_FALSE(port_->heard(second));
  const auto dropped = port_->dropped(kJob);
  EXPECT_EQ(dropped[0].reason, DropReason::kUnknownSource);
  EXPECT_EQ(dropped[0].rank, Rank{1});
  EXPECT_EQ(dropped[0].count, 2u);
  EXPECT_EQ(dropped[0].source.udp_port, elsewhere.source.udp_port);
  EXPECT_EQ(dropped[1].reason, DropReason::kNotIna);
  EXPECT_EQ(dropped[1].rank, Rank{2});
  EXPECT_EQ(dropped[1].destination.udp_port, 9);
  EXPECT_EQ(dropped[2].count, 0u);
  EXPECT_EQ(drops(DropReason::kUnknownSource), 3u);
}

TEST_F(EthdevPortTest, SumsOfThreeWorkersGoToAllThree) {
  constexpr uint32_t kFragments = 50;
  std::vector<Bytes> in;
  for (uint32_t seq = 0; seq < kFragments; ++seq)
    for (const uint32_t worker : {2, 0, 1}) in.push_back(grad(worker, seq));
  EthdevPortConfig config;
  config.ecn = false;
  open(in, config);
  std::vector<EndpointIndex> endpoints;
  for (const uint32_t worker : {0, 1, 2}) endpoints.push_back(bind(worker));

  // The simplest switch: rows are added up and sent from where they lie.
  std::vector<std::vector<int32_t>> rows(kFragments, std::vector<int32_t>(kElements));
  std::vector<WorkerSet> seen(kFragments);
  receive_all(7, [&](const RxPacket& packet) {
    ASSERT_EQ(packet.job, kJobIndex);
    ASSERT_EQ(packet.payload_bytes, kElements * sizeof(int32_t));
    const uint32_t seq = packet.message.seq;
    ASSERT_LT(seq, kFragments);
    for (size_t i = 0; i < kElements; ++i) {
      int32_t element = 0;
      std::memcpy(&element, packet.payload + i * sizeof(element), sizeof(element));
      rows[seq][i] += element;
    }
    seen[seq].insert(packet.rank);
    if (seen[seq] != WorkerSet::first(3)) return;
    wire::Message result = message(wire::Type::kResult, seq, kElements);
    result.bitmap = WorkerSet::first(3);
    result.origin = wire::Origin::kSwitch;
    for (const EndpointIndex endpoint : endpoints)
      ASSERT_TRUE(port_->tx(endpoint, result, bytes_of(rows[seq])));
  });

  std::vector<Bytes> expected;
  for (uint32_t seq = 0; seq < kFragments; ++seq) {
    std::vector<int32_t> sum(kElements);
    for (const uint32_t worker : {0, 1, 2})
      for (size_t i = 0; i < kElements; ++i) sum[i] += gradient(worker, seq)[i];
    wire::Message result = message(wire::Type::kResult, seq, kElements);
    result.bitmap = WorkerSet::first(3);
    result.origin = wire::Origin::kSwitch;
    for (const wire::Address& worker : kWorkers)
      expected.push_back(encode(envelope(own_, worker), result, bytes_of(sum)));
  }
  const PortCounters counters = port_->counters();
  EXPECT_EQ(counters.rx_packets, in.size());
  EXPECT_EQ(counters.rx_bytes, in.size() * kElements * 4);
  EXPECT_EQ(counters.tx_packets, expected.size());
  EXPECT_EQ(counters.tx_bytes, expected.size() * kElements * 4);
  EXPECT_EQ(all_drops(), 0u);
  EXPECT_TRUE(sent() == expected);
}

TEST_F(EthdevPortTest, EveryFrameHasOneFate) {
  const auto changed = [](auto change) {
    Bytes frame = grad(0, 1);
    change(frame);
    return frame;
  };
  const auto encoded = [](auto change) {
    wire::Envelope e = envelope(kWorkers[0], kSwitch);
    wire::Message m = message(wire::Type::kGrad, 1, kElements);
    std::vector<int32_t> payload = gradient(0, 1);
    change(e, m, payload);
    return encode(e, m, bytes_of(payload));
  };
  using Payload = std::vector<int32_t>;
  using wire::Envelope;
  using wire::Message;
  const std::vector<std::pair<Bytes, DropReason>> bad = {
      // Malformed.
      {changed([](Bytes& f) { f.resize(60); }), DropReason::kTruncated},
      {changed([](Bytes& f) { f.pop_back(); }), DropReason::kTruncated},
      {changed([](Bytes& f) {
         store(f, 20, 0x2000, 2);
         fix_ip_checksum(f);
       }),
       DropReason::kIpFragment},
      {changed([](Bytes& f) { f[26] ^= std::byte{1}; }), DropReason::kIpChecksum},
      {changed([](Bytes& f) { f.back() ^= std::byte{1}; }), DropReason::kCrc},
      {changed([](Bytes& f) { f[wire::kFrameHeaderBytes - 40] ^= std::byte{1}; }),
       DropReason::kCrc},
      // Foreign.
      {changed([](Bytes& f) { store(f, 12, 0x86dd, 2); }), DropReason::kNotIna},
      {changed([](Bytes& f) { f[42] ^= std::byte{1}; }), DropReason::kNotIna},
      {encoded([](Envelope& e, Message&, Payload&) { ++e.destination.udp_port; }),
       DropReason::kNotIna},
      {encoded([](Envelope& e, Message&, Payload&) { ++e.destination.ip; }), DropReason::kNotIna},
      {arp_request(kWorkers[0], kWorkers[1].ip), DropReason::kNotIna},
      // From an address that is not bound.
      {encoded([](Envelope& e, Message&, Payload&) { ++e.source.ip; }), DropReason::kUnknownSource},
      {encoded([](Envelope& e, Message&, Payload&) { ++e.source.udp_port; }),
       DropReason::kUnknownSource},
      {encoded([](Envelope& e, Message&, Payload&) { ++e.source.mac[5]; }),
       DropReason::kUnknownSource},
      // Before its CRC is looked at.
      {changed([](Bytes& f) {
         store(f, 34, 1, 2);
         f.back() ^= std::byte{1};
       }),
       DropReason::kUnknownSource},
      {encoded([](Envelope& e, Message&, Payload&) { e.job = JobId{8}; }),
       DropReason::kUnknownSource},
      {encoded([](Envelope& e, Message&, Payload&) { ++e.job_key; }), DropReason::kBadJob},
      // Wrong in itself.
      {encoded([](Envelope&, Message& m, Payload&) { m.type = wire::Type{99}; }),
       DropReason::kBadType},
      {encoded([](Envelope&, Message& m, Payload&) { m.dtype = DType{99}; }),
       DropReason::kBadDtype},
      {encoded([](Envelope&, Message& m, Payload&) { m.op = Op::kAvg; }), DropReason::kBadOp},
      {encoded([](Envelope&, Message& m, Payload&) { --m.elements; }), DropReason::kBadLength},
      {encoded([](Envelope&, Message& m, Payload& p) {
         ++m.elements;
         p.push_back(0);
       }),
       DropReason::kBadLength},               // one more than a slot has
      {Bytes(3000), DropReason::kBadLength},  // longer than any frame of the mtu
  };
  std::vector<Bytes> in;
  std::map<DropReason, uint64_t> expected;
  for (uint32_t i = 0; i < bad.size(); ++i) {
    in.push_back(bad[i].first);
    ++expected[bad[i].second];
    in.push_back(grad(i % 3, i));  // good ones in between must not suffer
  }
  in.push_back(arp_request(kWorkers[1], kSwitch.ip));
  in.push_back(echo(kWorkers[1], kSwitch, 8, 77));
  open(in);
  for (const uint32_t worker : {0, 1, 2}) bind(worker);

  uint32_t good = 0;
  receive_all(8, [&](const RxPacket& packet) {
    EXPECT_EQ(packet.message.seq, good);
    EXPECT_EQ(value(packet.rank), good % 3);
    EXPECT_EQ(std::memcmp(packet.payload, gradient(good % 3, good).data(), packet.payload_bytes),
              0);
    ++good;
  });
  EXPECT_EQ(good, bad.size());
  for (size_t i = 0; i < kDropReasons; ++i) {
    const auto reason = static_cast<DropReason>(i);
    EXPECT_EQ(drops(reason), expected.contains(reason) ? expected[reason] : 0) << name(reason);
  }
  const EthdevCounters& own = port_->ethdev_counters();
  EXPECT_EQ(own.delivered, good);
  EXPECT_EQ(own.answered, 2u);
  EXPECT_EQ(port_->counters().rx_packets, in.size());
  EXPECT_EQ(port_->counters().rx_packets, own.delivered + own.answered + all_drops());
  EXPECT_EQ(port_->counters().tx_packets, 0u) << "answers are no messages";
  const std::vector<Bytes> answers = sent();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0], arp_reply(own_, kWorkers[1]));
  EXPECT_EQ(answers[1], echo(own_, kWorkers[1], 0, 77));
}

TEST_F(EthdevPortTest, RandomBytesHaveOneFateToo) {
  std::vector<Bytes> in;
  uint32_t state = 1;
  const auto random = [&state] { return state = state * 1664525 + 1013904223, state >> 8; };
  for (int i = 0; i < 3000; ++i) {
    Bytes frame = i % 2 == 0 ? grad(0, 1) : echo(kWorkers[0], kSwitch, 8, 1);
    for (uint32_t flips = random() % 4 + 1; flips != 0; --flips)
      frame[random() % frame.size()] ^= static_cast<std::byte>(1u << random() % 8);
    if (random() % 4 == 0) frame.resize(random() % frame.size());
    if (!frame.empty()) in.push_back(std::move(frame));
  }
  open(in);
  bind(0);
  receive_all();
  const EthdevCounters& own = port_->ethdev_counters();
  EXPECT_EQ(port_->counters().rx_packets, in.size());
  EXPECT_EQ(port_->counters().rx_packets, own.delivered + own.answered + all_drops());
}

TEST_F(EthdevPortTest, AGroupGetsOneFrame) {
  const wire::Address group = wire::group_of(JobId{0x7f345678}, 7584);
  EXPECT_EQ(group.ip, 0xefc05678) << "239.192.86.120";
  EXPECT_EQ(group.mac, (wire::MacAddress{0x01, 0x00, 0x5e, 0x40, 0x56, 0x78}));
  open({});
  const EndpointIndex endpoint = bind(1);
  const std::vector<int32_t> values = gradient(0, 1);
  wire::Message result = message(wire::Type::kResult, 1, kElements);
  result.origin = wire::Origin::kSwitch;
  ASSERT_TRUE(port_->tx_to_group(endpoint, result, bytes_of(values)));
  ASSERT_TRUE(port_->tx(endpoint, result, bytes_of(values)));
  port_->unbind(endpoint);
  EXPECT_FALSE(port_->tx_to_group(endpoint, result, bytes_of(values)));
  port_->tx_flush();
  EXPECT_EQ(sent(),
            (std::vector<Bytes>{encode(envelope(own_, wire::group_of(kJob, kSwitch.udp_port)),
                                       result, bytes_of(values)),
                                encode(envelope(own_, kWorkers[1]), result, bytes_of(values))}));
}

TEST_F(EthdevPortTest, JumboSlots) {
  constexpr size_t kLarge = 2048;
  open({grad(0, 1, kLarge)}, with(9000, kLarge * 4));
  const EndpointIndex endpoint = bind(0);
  const std::vector<int32_t> values = gradient(0, 1, kLarge);
  const auto bytes = bytes_of(values);
  const wire::Message result = message(wire::Type::kResult, 1, kLarge);
  receive_all(32, [&](const RxPacket& packet) {
    ASSERT_EQ(packet.payload_bytes, bytes.size());
    EXPECT_EQ(std::memcmp(packet.payload, bytes.data(), bytes.size()), 0);
    EXPECT_TRUE(port_->tx(endpoint, result, bytes));
  });
  EXPECT_EQ(sent(), std::vector<Bytes>{encode(envelope(own_, kWorkers[0]), result, bytes)});
}

TEST_F(EthdevPortTest, UnboundWorkersAreStrangersAgain) {
  open({grad(0, 0), grad(1, 0), grad(0, 1), grad(1, 1)});
  const EndpointIndex first = bind(0);
  bind(1);
  EXPECT_FALSE(port_->bind(kWorkers[0], JobId{9}, 1, 1, Rank{0})) << "one binding an address";
  RxPacket packets[2];
  EXPECT_EQ(port_->rx_burst(packets), 2u);
  port_->rx_release();
  port_->unbind(first);
  ASSERT_EQ(port_->rx_burst(packets), 1u);
  EXPECT_EQ(packets[0].rank, Rank{1});
  EXPECT_EQ(drops(DropReason::kUnknownSource), 1u);
  EXPECT_FALSE(port_->tx(first, message(wire::Type::kStale, 0, 0), {}));
  EXPECT_TRUE(port_->bind(kWorkers[0], JobId{9}, 1, 1, Rank{0}));
}

TEST_F(EthdevPortTest, PayloadsThatAreNoResultsMayChangeAfterTx) {
  open({});
  const EndpointIndex endpoint = bind(0);
  std::vector<Bytes> expected;
  std::vector<int32_t> sum(kElements);  // one row for all, as a worker's memory would be
  for (uint32_t seq = 0; seq < 5; ++seq) {
    wire::Message part = message(wire::Type::kPart, seq, kElements);
    part.bitmap = WorkerSet::of(Rank{0}) | WorkerSet::of(Rank{2});
    sum = gradient(1, seq);
    expected.push_back(encode(envelope(own_, kWorkers[0]), part, bytes_of(sum)));
    ASSERT_TRUE(port_->tx(endpoint, part, bytes_of(sum)));
    std::fill(sum.begin(), sum.end(), -1);
  }
  port_->tx_flush();
  EXPECT_EQ(sent(), expected);
}

TEST_F(EthdevPortTest, ResultsAreMarkedWhileFramesComeFasterThanTheyAreHandled) {
  constexpr uint32_t kBurst = 32;
  std::vector<Bytes> in;
  for (uint32_t seq = 0; seq < 6 * kBurst + 5; ++seq) in.push_back(grad(0, seq));
  for (const bool ecn : {true, false}) {
    EthdevPortConfig config;
    config.ecn = ecn;
    open(in, config);
    const EndpointIndex endpoint = bind(0);
    const std::vector<int32_t> row(kElements);
    receive_all(kBurst, [&](const RxPacket& packet) {
      wire::Message result = message(wire::Type::kResult, packet.message.seq, kElements);
      result.origin = wire::Origin::kSwitch;
      ASSERT_TRUE(port_->tx(endpoint, result, bytes_of(row)));
    });
    const auto frames = sent();
    ASSERT_EQ(frames.size(), in.size());
    for (const Bytes& bytes : frames) {
      const auto frame = wire::parse_frame(bytes, 0, 0);
      ASSERT_TRUE(frame);
      const uint32_t burst = frame->message.seq / kBurst;
      EXPECT_EQ((frame->message.flags & wire::kFlagEcn) != 0, ecn && burst >= 3 && burst < 6)
          << frame->message.seq;
    }
  }
}

TEST_F(EthdevPortTest, WorkersDoNotGiveWayToOthersFrames) {
  constexpr uint32_t kBurst = 32;
  std::vector<Bytes> in;
  for (uint32_t seq = 0; seq < 20 * kBurst; ++seq)
    in.push_back(seq % 2 == 0 ? grad(0, seq) : arp_reply(kWorkers[1], kWorkers[2]));
  open(in);
  const EndpointIndex endpoint = bind(0);
  const std::vector<int32_t> row(kElements);
  receive_all(kBurst, [&](const RxPacket& packet) {
    wire::Message result = message(wire::Type::kResult, packet.message.seq, kElements);
    result.origin = wire::Origin::kSwitch;
    ASSERT_TRUE(port_->tx(endpoint, result, bytes_of(row)));
  });
  const auto frames = sent();
  ASSERT_EQ(frames.size(), in.size() / 2);
  for (const Bytes& bytes : frames)
    EXPECT_EQ(wire::parse_frame(bytes, 0, 0)->message.flags & wire::kFlagEcn, 0u);
}

constexpr wire::TagKeys kTagKeys = {{1, 2}, {3, 4}};
/// Another worker of the same job: the payload's keys are the job's.
constexpr wire::TagKeys kOthersTagKeys = {{5, 6}, {3, 4}};

Bytes tagged_grad(uint32_t worker, uint32_t seq, const wire::TagKeys& keys,
                  size_t elements = kElements) {
  Bytes frame = grad(worker, seq, elements);
  const auto parsed = wire::parse_frame(frame, 0, 0);
  const std::span payload(parsed->payload, parsed->payload_bytes);
  const wire::Seal seal = wire::make_seal(keys, payload);
  wire::encode_headers(parsed->envelope, parsed->message, payload,
                       std::span(frame).first(wire::kFrameHeaderBytes), &seal);
  return frame;
}

TEST_F(EthdevPortTest, FramesWithoutTheRightTagAreDropped) {
  // Payloads of several lengths, and wrong ones among right ones.
  std::vector<Bytes> in;
  std::vector<uint32_t> good;
  for (uint32_t seq = 0; seq < 200; ++seq) {
    const size_t elements = seq % 7 < 5 ? kElements : seq % 7;
    if (seq % 3 != 0) good.push_back(seq);
    if (seq % 3 != 0)
      in.push_back(tagged_grad(seq % 2, seq, seq % 2 == 0 ? kTagKeys : kOthersTagKeys, elements));
    else if (seq % 2 == 0)
      in.push_back(grad(0, seq, elements));  // none at all
    else
      in.push_back(tagged_grad(0, seq, kOthersTagKeys, elements));
  }
  // A right tag does not make a message right.
  in.push_back(tagged_grad(0, 200, kTagKeys, kElements + 1));
  open(in);
  ASSERT_TRUE(port_->bind(kWorkers[0], kJob, kJobKey, kJobIndex, Rank{0}, kTagKeys));
  ASSERT_TRUE(port_->bind(kWorkers[1], kJob, kJobKey, kJobIndex, Rank{1}, kOthersTagKeys));
  std::vector<uint32_t> taken;
  uint64_t bytes = 0;
  receive_all(32, [&](const RxPacket& packet) {
    const uint32_t seq = packet.message.seq;
    taken.push_back(seq);
    bytes += packet.payload_bytes;
    EXPECT_EQ(value(packet.rank), seq % 2);
    const auto expected = gradient(seq % 2, seq, packet.message.elements);
    ASSERT_EQ(packet.payload_bytes, expected.size() * sizeof(int32_t));
    EXPECT_EQ(std::memcmp(packet.payload, expected.data(), packet.payload_bytes), 0);
  });
  EXPECT_EQ(taken, good);
  EXPECT_EQ(port_->counters().rx_bytes, bytes);
  EXPECT_EQ(drops(DropReason::kBadTag), 200 - good.size());
  EXPECT_EQ(drops(DropReason::kBadLength), 1u);
  EXPECT_EQ(port_->ethdev_counters().delivered, good.size());
}

TEST_F(EthdevPortTest, ResultsCarryATagForEachWorker) {
  std::vector<Bytes> in;
  for (uint32_t seq = 0; seq < 100; ++seq) in.push_back(tagged_grad(0, seq, kTagKeys));
  open(in);
  const auto first = port_->bind(kWorkers[0], kJob, kJobKey, kJobIndex, Rank{0}, kTagKeys);
  const auto second = port_->bind(kWorkers[1], kJob, kJobKey, kJobIndex, Rank{1}, kOthersTagKeys);
  ASSERT_TRUE(first && second);
  // One row that holds another result each time, in the ring and as somebody else's message.
  std::vector<int32_t> row(kElements);
  receive_all(1, [&](const RxPacket& packet) {
    std::ranges::fill(row, static_cast<int32_t>(packet.message.seq));
    wire::Message result = message(wire::Type::kResult, packet.message.seq, kElements);
    if (packet.message.seq % 2 == 0) result.origin = wire::Origin::kSwitch;
    ASSERT_TRUE(port_->tx(*first, result, bytes_of(row)));
    ASSERT_TRUE(port_->tx(*second, result, bytes_of(row)));
    port_->tx_flush();
  });
  const auto frames = sent();
  ASSERT_EQ(frames.size(), 2 * in.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto frame = wire::parse_frame(frames[i], 0, 0);
    ASSERT_TRUE(frame);
    const wire::TagKeys& keys = i % 2 == 0 ? kTagKeys : kOthersTagKeys;
    EXPECT_TRUE(
        wire::tag_matches(*frame, wire::make_seal(keys, {frame->payload, frame->payload_bytes})))
        << i;
  }
}

TEST_F(EthdevPortTest, MoreFramesThanABurstAreFlushedUnasked) {
  constexpr uint32_t kFrames = 3 * Device::kMaxBurst + 1;
  open({});
  const EndpointIndex endpoint = bind(2);
  for (uint32_t seq = 0; seq < kFrames; ++seq)
    ASSERT_TRUE(port_->tx(endpoint, message(wire::Type::kStale, seq, 0), {}));
  port_->tx_flush();
  EXPECT_EQ(port_->counters().tx_packets, kFrames);
  const std::vector<Bytes> frames = sent();
  ASSERT_EQ(frames.size(), kFrames);
  for (uint32_t seq = 0; seq < kFrames; ++seq)
    EXPECT_EQ(frames[seq],
              encode(envelope(own_, kWorkers[2]), message(wire::Type::kStale, seq, 0), {}));
}

TEST(EthdevPort, WhatTheDeviceDoesNotTakeIsCounted) {
  // Nobody is at the other end of this memif. It also takes payloads where they lie, so the
  // buffers that stand for them must come back.
  const test::TempDir folder;
  EthdevPortConfig config = with(1500, 1024);
  config.name = "alone";
  config.device = "net_memif7,role=server,id=0,socket-abstract=no,socket=" + (folder / "m.sock");
  config.ip = kSwitch.ip;
  config.rx_descriptors = 128;
  config.tx_descriptors = 128;
  const auto opened = EthdevPort::open(config);
  ASSERT_TRUE(opened) << opened.error().text;
  const auto& port = opened->front();
  const auto endpoint = port->bind(kWorkers[0], kJob, kJobKey, kJobIndex, Rank{0});
  const std::vector<std::vector<int32_t>> rows(2, gradient(0, 0));
  // A payload that may change after tx() is not left in the queue.
  wire::Message part = message(wire::Type::kPart, 0, kElements);
  part.bitmap = WorkerSet::of(Rank{0});
  ASSERT_TRUE(port->tx(*endpoint, part, bytes_of(rows[0])));
  EXPECT_EQ(port->counters().drops[DropReason::kTxFull], 1u);
  constexpr uint32_t kFrames = 5000;  // many times the buffers there are
  for (uint32_t seq = 0; seq < kFrames; ++seq) {
    wire::Message result = message(wire::Type::kResult, seq, kElements);
    result.origin = wire::Origin::kSwitch;
    ASSERT_TRUE(port->tx(*endpoint, result, bytes_of(rows[seq / 3 % 2])));
  }
  port->tx_flush();
  EXPECT_EQ(port->counters().drops[DropReason::kTxFull], 1 + kFrames);
  EXPECT_EQ(port->counters().tx_packets, 0u);
  EXPECT_FALSE(port->link_up());
}

TEST(EthdevPort, RefusesWhatCannotWork) {
  const auto error_of = [](const EthdevPortConfig& config) {
    const auto port = EthdevPort::open(config);
    return port ? std::string() : port.error().text;
  };
  EthdevPortConfig config = with(1500, 8192);
  config.name = "p0";
  config.device = "net_null3,";
  config.ip = kSwitch.ip;
  EXPECT_NE(error_of(config).find("mtu of 8292"), std::string::npos) << error_of(config);
  config.slot_bytes = 1024;
  config.device = "0000:99:00.0";
  EXPECT_NE(error_of(config).find("0000:99:00.0 does not exist"), std::string::npos);
  config.device = "net_pcap99,rx_pcap=/nonexistent/in.pcap";
  EXPECT_NE(error_of(config).find("Port p0: Device net_pcap99"), std::string::npos);
  config.device = "net_null3,";
  config.ip = 0;
  EXPECT_NE(error_of(config).find("no IP address"), std::string::npos);
  config.ip = kSwitch.ip;
  config.udp_port = 65535;
  config.lanes = 2;
  EXPECT_NE(error_of(config).find("lanes"), std::string::npos);
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
