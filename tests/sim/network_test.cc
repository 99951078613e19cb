// ns-3's links behind the façade: a rate, a delay, a queue, marks and losses, of both kinds of
// links.
#include "sim/ns3_network.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace ina::ns3net {
namespace {

struct Recorder final : Host {
  Network* network = nullptr;
  std::vector<std::pair<Nanos, bool>> arrivals;  ///< when, and whether marked
  std::vector<Bytes> contents;
  std::vector<uint64_t> timers;
  void on_frame(Bytes content, bool marked) override {
    arrivals.emplace_back(network->now(), marked);
    contents.push_back(std::move(content));
  }
  void on_timer(uint64_t argument) override { timers.push_back(argument); }
};

class LinkTest : public testing::TestWithParam<Links> {
 protected:
  void connect(const LinkSpec& spec) {
    network_ = std::make_unique<Network>(1, GetParam());
    a_.network = b_.network = network_.get();
    from_ = network_->add_node(a_);
    to_ = network_->add_node(b_);
    network_->connect(from_, to_, spec);
  }
  bool send(uint32_t wire_bytes, std::byte content = std::byte{7}) {
    return network_->send(from_, to_, Bytes(40, content), wire_bytes);
  }
  LinkCounters counters() { return network_->counters(from_, to_); }

  Recorder a_, b_;
  std::unique_ptr<Network> network_;
  Node from_ = 0, to_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Ns3, LinkTest, testing::Values(Links::kComputed, Links::kDevices),
                         [](const auto& links) {
                           return links.param == Links::kComputed ? "computed" : "devices";
                         });

TEST_P(LinkTest, ObeysRateAndDelay) {
  LinkSpec spec;
  spec.rate_bps = 10'000'000'000;
  spec.delay_ns = 2'000;
  connect(spec);
  // 1250 bytes take 1 us at 10 Gb/s.
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(send(1250, std::byte(i)));
  network_->run(1'000'000);
  ASSERT_EQ(b_.arrivals.size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(b_.arrivals[static_cast<size_t>(i)].first, (i + 1) * 1'000 + 2'000);
    EXPECT_EQ(b_.contents[static_cast<size_t>(i)], Bytes(40, std::byte(i)));
  }
  EXPECT_EQ(counters().wire_bytes, 12'500u);
}

TEST_P(LinkTest, BothDirectionsAreLinksOfTheirOwn) {
  LinkSpec spec;
  spec.rate_bps = 10'000'000'000;
  spec.delay_ns = 0;
  connect(spec);
  ASSERT_TRUE(send(1250));
  ASSERT_TRUE(network_->send(to_, from_, Bytes(40), 1250));
  network_->run(1'000'000);
  ASSERT_EQ(a_.arrivals.size(), 1u);
  ASSERT_EQ(b_.arrivals.size(), 1u);
  EXPECT_EQ(a_.arrivals[0].first, 1'000);
  EXPECT_EQ(b_.arrivals[0].first, 1'000);
}

TEST_P(LinkTest, DropsWhatFindsTheQueueFull) {
  LinkSpec spec;
  spec.queue_bytes = 5'000;
  connect(spec);
  int accepted = 0;
  for (int i = 0; i < 10; ++i) accepted += send(1'000);
  // One is on the wire, five wait.
  EXPECT_EQ(accepted, 6);
  EXPECT_EQ(counters().queue_drops, 4u);
  EXPECT_EQ(network_->queued_bytes(from_, to_), 5'000u);
  network_->run(1'000'000);
  EXPECT_EQ(b_.arrivals.size(), 6u);
  EXPECT_EQ(network_->queued_bytes(from_, to_), 0u);
}

TEST_P(LinkTest, MarksWhatFindsMoreThanTheThreshold) {
  LinkSpec spec;
  spec.ecn_bytes = 2'000;
  connect(spec);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(send(1'000));
  network_->run(1'000'000);
  // The first is on the wire; the fifth finds three that wait.
  ASSERT_EQ(b_.arrivals.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(b_.arrivals[i].second, i >= 4) << i;
  EXPECT_EQ(counters().marks, 2u);
}

TEST_P(LinkTest, ShortFramesDoNotWaitWhereTheyHaveAQueueOfTheirOwn) {
  LinkSpec spec;
  spec.rate_bps = 10'000'000'000;
  spec.delay_ns = 2'000;
  spec.express_bytes = 125;
  if (GetParam() == Links::kDevices) {
    EXPECT_THROW(connect(spec), std::invalid_argument);
    return;
  }
  connect(spec);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(send(1250, std::byte{0}));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(send(125, std::byte{1}));
  EXPECT_EQ(network_->queued_bytes(from_, to_), 2'500u);
  network_->run(1'000'000);
  std::vector<Nanos> times;
  for (const auto& [time, marked] : b_.arrivals) times.push_back(time);
  // They wait for each other.
  EXPECT_EQ(times, (std::vector<Nanos>{2'100, 2'200, 3'000, 4'000, 5'000}));
  EXPECT_EQ(b_.contents.front(), Bytes(40, std::byte{1}));
  EXPECT_EQ(counters().wire_bytes, 4'000u);
}

TEST_P(LinkTest, AMarkStays) {
  connect({});
  ASSERT_TRUE(network_->send(from_, to_, Bytes(40), 1'000, true));
  network_->run(1'000'000);
  ASSERT_EQ(b_.arrivals.size(), 1u);
  EXPECT_TRUE(b_.arrivals[0].second);
  EXPECT_EQ(counters().marks, 0u);
}

TEST_P(LinkTest, LosesItsShare) {
  LinkSpec spec;
  spec.loss = 0.1;
  spec.queue_bytes = 100'000'000;
  connect(spec);
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(send(1'000));
  network_->run(1'000'000'000);
  EXPECT_EQ(b_.arrivals.size() + counters().losses, 10'000u);
  EXPECT_NEAR(static_cast<double>(counters().losses), 1'000, 150);
}

TEST_P(LinkTest, TimersComeInOrder) {
  connect({});
  network_->schedule(300, b_, 3);
  network_->schedule(100, b_, 1);
  network_->schedule(200, b_, 2);
  network_->run(250);
  EXPECT_EQ(b_.timers, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(network_->now(), 250);
}

}  // namespace
}  // namespace ina::ns3net
