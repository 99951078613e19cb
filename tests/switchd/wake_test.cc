// Workers that no thread drives: each packet for them must be announced, and none be lost.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "ina/ina.h"
#include "tests/support/raw_worker.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::RawWorker;
using test::TestSwitch;

client::TxPacket barrier(uint32_t rank, uint32_t seq, uint32_t epoch) {
  client::TxPacket packet;
  packet.message.type = wire::Type::kGrad;
  packet.message.dtype = DType::kInt8;
  packet.message.op = Op::kSum;
  packet.message.collective = Collective::kBarrier;
  packet.message.rank = Rank{static_cast<uint8_t>(rank)};
  packet.message.bitmap = WorkerSet::of(Rank{static_cast<uint8_t>(rank)});
  packet.message.operation = seq;
  packet.message.seq = seq;
  packet.message.epoch = epoch;
  return packet;
}

TEST(Wake, AnIdleWorkerIsCalledOncePerIdlePeriod) {
  TestSwitch sw;
  RawWorker idle(sw.socket_path(), "job", 0, 2);
  RawWorker other(sw.socket_path(), "job", 1, 2);
  ASSERT_TRUE(idle.hear_until("ready"));
  ASSERT_TRUE(other.hear_until("ready"));
  const auto epoch = idle.joined["epoch"].get<uint32_t>();
  client::RxPacket packets[8];
  for (uint32_t seq = 0; seq < 200; ++seq) {
    const client::TxPacket ours = barrier(0, seq, epoch);
    ASSERT_EQ(idle.transport->tx_burst({&ours, 1}), 1u);
    ASSERT_FALSE(idle.transport->set_idle(true)) << "nothing can have come yet";
    const client::TxPacket theirs = barrier(1, seq, epoch);
    ASSERT_EQ(other.transport->tx_burst({&theirs, 1}), 1u);
    ASSERT_EQ(idle.hear()["type"], "wake");
    idle.transport->set_idle(false);
    ASSERT_EQ(idle.transport->rx_burst(packets), 1u);
    EXPECT_EQ(packets[0].message.type, wire::Type::kResult);
    idle.transport->rx_release();
    while (other.transport->rx_burst(packets) == 0) ::sched_yield();
    other.transport->rx_release();
  }
  // One that is driven is not called.
  const client::TxPacket ours = barrier(0, 200, epoch);
  const client::TxPacket theirs = barrier(1, 200, epoch);
  ASSERT_EQ(idle.transport->tx_burst({&ours, 1}), 1u);
  ASSERT_EQ(other.transport->tx_burst({&theirs, 1}), 1u);
  while (idle.transport->rx_burst(packets) == 0) ::sched_yield();
  idle.transport->rx_release();
  EXPECT_TRUE(idle.hear(20'000'000).is_null());
}

// One that falls idle without end has the switch call it all the time; the last call comes all the
// same.
TEST(Wake, AWorkerIsCalledSoOftenAndTheLastCallIsNotLost) {
  TestSwitch sw;
  RawWorker idle(sw.socket_path(), "job", 0, 1);
  ASSERT_TRUE(idle.hear_until("ready"));
  const auto epoch = idle.joined["epoch"].get<uint32_t>();
  client::RxPacket packets[8];
  const Nanos start = now_ns();
  uint64_t calls = 0;
  constexpr uint32_t kPeriods = 4'000;
  for (uint32_t seq = 0; seq < kPeriods; ++seq) {
    const client::TxPacket packet = barrier(0, seq, epoch);
    idle.transport->set_idle(true);
    ASSERT_EQ(idle.transport->tx_burst({&packet, 1}), 1u);
    while (idle.transport->rx_burst(packets) == 0) ::sched_yield();
    idle.transport->rx_release();
    idle.transport->set_idle(false);
    while (idle.hear(0)["type"] == "wake") ++calls;
  }
  const auto ms = static_cast<uint64_t>((now_ns() - start) / 1'000'000);
  EXPECT_LE(calls, 80 + ms / 10) << "of " << kPeriods << " periods in " << ms << " ms";
  // The end of it: nothing to be read, then one more packet.
  while (idle.hear(100'000'000)["type"] == "wake") {
  }
  const client::TxPacket packet = barrier(0, kPeriods, epoch);
  idle.transport->set_idle(true);
  ASSERT_EQ(idle.transport->tx_burst({&packet, 1}), 1u);
  EXPECT_EQ(idle.hear()["type"], "wake");
}

// Nor do calls fill a connection that nobody reads: the switch would close it, and the job end.
TEST(Wake, CallsOfAWorkerThatReadsNothingLeaveItsConnectionOpen) {
  TestSwitch sw;
  RawWorker idle(sw.socket_path(), "job", 0, 1);
  ASSERT_TRUE(idle.hear_until("ready"));
  const auto epoch = idle.joined["epoch"].get<uint32_t>();
  client::RxPacket packets[8];
  // At 100 calls a second more than a socket takes.
  uint32_t seq = 0;
  for (const Nanos end = now_ns() + 4'000'000'000; now_ns() < end; ++seq) {
    const client::TxPacket packet = barrier(0, seq, epoch);
    idle.transport->set_idle(true);
    ASSERT_EQ(idle.transport->tx_burst({&packet, 1}), 1u);
    while (idle.transport->rx_burst(packets) == 0) {
      ASSERT_LT(now_ns(), end + 5'000'000'000) << "the job has ended after " << seq << " calls";
      ::sched_yield();
    }
    idle.transport->rx_release();
    idle.transport->set_idle(false);
    ::usleep(1'000);
  }
  while (idle.hear(200'000'000)["type"] == "wake") {
  }
  ASSERT_TRUE(control::say(idle.control, control::request::Explain{}));
  EXPECT_EQ(idle.hear()["type"], "explain");
  const client::TxPacket packet = barrier(0, seq, epoch);
  idle.transport->set_idle(true);
  ASSERT_EQ(idle.transport->tx_burst({&packet, 1}), 1u);
  EXPECT_EQ(idle.hear()["type"], "wake");
}

// A worker that misses a result asks its home, whose user computes: both the question and the poll
// that follows must be answered by that worker's background thread.
TEST(Wake, AWorkerWhoseUserComputesAnswersQuestions) {
  TestSwitch::Options options;
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
  };
  TestSwitch sw(options);
  constexpr uint32_t kRounds = 300;
  std::atomic<uint32_t> begun{0};
  std::thread user([&] {
    ina_config config;
    ina_config_init(&config);
    const std::string url = sw.url();
    config.url = url.c_str();
    config.job = "job";
    config.rank = 0;
    config.world_size = 2;
    config.timeout_us = 20'000'000;
    ina_context* context = nullptr;
    ASSERT_EQ(ina_init(&config, &context), INA_OK);
    for (uint32_t round = 0; round < kRounds; ++round) {
      // Computes until the other has its answer.
      while (begun < round) ::usleep(100);
      ASSERT_EQ(ina_barrier(context, 0), INA_OK);
    }
    while (begun < kRounds) ::usleep(100);
    ina_finalize(context, 1000);
  });
  RawWorker other(sw.socket_path(), "job", 1, 2);
  ASSERT_TRUE(other.hear_until("ready"));
  const auto epoch = other.joined["epoch"].get<uint32_t>();
  const auto await_result = [&](wire::Origin origin, Nanos patience_ns = 5'000'000'000) {
    const Nanos deadline = now_ns() + patience_ns;
    client::RxPacket packets[8];
    while (now_ns() < deadline) {
      const size_t count = other.transport->rx_burst(packets);
      bool found = false;
      for (size_t i = 0; i < count; ++i)
        found |=
            packets[i].message.type == wire::Type::kResult && packets[i].message.origin == origin;
      other.transport->rx_release();
      if (found) return true;
      if (count == 0) ::sched_yield();
    }
    return false;
  };
  bool answered = true;
  for (uint32_t round = 0; round < kRounds && answered; ++round) {
    client::TxPacket packet = barrier(1, round, epoch);
    packet.message.priority = 1;
    ASSERT_EQ(other.transport->tx_burst({&packet, 1}), 1u);
    ASSERT_TRUE(await_result(wire::Origin::kSwitch)) << "round " << round;
    if (round % 2 == 0) {  // the others are this worker's own to answer
      // Sometimes at once, while the other still leaves its rings, sometimes when it has long left.
      ::usleep(round % 7 * 300);
      packet.message = wire::Message{};
      packet.message.type = wire::Type::kQuery;
      packet.message.rank = Rank{1};
      packet.message.seq = round;
      packet.message.epoch = epoch;
      ASSERT_EQ(other.transport->tx_burst({&packet, 1}), 1u);
      // Where the home has asked before, because this worker was late, the first question reminds
      // the switch only, and the second binds. A lost call loses the answers to both.
      answered = await_result(wire::Origin::kFallback, 2'000'000'000);
      if (!answered) {
        ASSERT_EQ(other.transport->tx_burst({&packet, 1}), 1u);
        answered = await_result(wire::Origin::kFallback);
      }
      EXPECT_TRUE(answered) << "round " << round << ": nobody answered";
    }
    begun = round + 1;
  }
  begun = kRounds;
  other.control.close();
  user.join();
}

// The race itself, without a control plane between: one side sends whenever the other has answered,
// so that sending and falling idle meet in every order. A lost call stops everything.
TEST(Wake, NoPacketIsLostBetweenReadingAndFallingIdle) {
  using namespace io::shm;
  const Geometry geometry{1, 8, 8, 256, 4, 8};
  auto results = make_region("test-results", result_region_bytes(geometry));
  ASSERT_TRUE(results);
  auto made = WorkerSession::create(geometry, results->map.data());
  ASSERT_TRUE(made);
  WorkerSession& session = **made;
  std::vector<Fd> events;
  events.emplace_back(::dup(session.wake_events[0].get()));
  client::BulkCopier copier(1, 1);
  auto transport = client::ShmTransport::create(geometry, session.switch_region.fd, results->fd,
                                                std::move(events), copier);
  ASSERT_TRUE(transport);
  auto region = map_peer_region(Fd(::dup((*transport)->region_fd())), WorkerLayout(geometry).bytes,
                                "worker region");
  ASSERT_TRUE(region);
  session.worker_region = std::move(*region);
  ShmPort port(0, 1);
  const auto endpoint = port.attach(session, 0, Rank{0});
  ASSERT_TRUE(endpoint);

  constexpr uint64_t kMessages = 200'000;
  std::atomic<uint64_t> read{0};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0};
  const Fd call(::eventfd(0, EFD_CLOEXEC));
  std::thread worker([&] {
    client::RxPacket packets[4];
    const auto take_all = [&] {
      (*transport)->set_idle(false);
      while (const size_t count = (*transport)->rx_burst(packets)) {
        (*transport)->rx_release();
        read.fetch_add(count, std::memory_order_release);
      }
    };
    while (!stop) {
      if ((*transport)->set_idle(true)) {
        take_all();
        continue;
      }
      uint64_t value;
      ASSERT_EQ(::read(call.get(), &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
      ++calls;
      take_all();
    }
  });
  wire::Message message;
  message.type = wire::Type::kPoll;
  bool lost = false;
  for (uint64_t sent = 0; sent < kMessages && !lost; ++sent) {
    // In bursts of one to three, so that the worker also falls idle in the midst of them.
    for (uint64_t burst = 0; burst <= sent % 3; ++burst) {
      if (!port.tx(*endpoint, message, {})) continue;
      port.tx_flush();
      if (port.take_calls() && session.call_wanted.exchange(false)) {
        const uint64_t one = 1;
        ASSERT_EQ(::write(call.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
      }
    }
    const Nanos deadline = now_ns() + 1'000'000'000;
    while (read.load(std::memory_order_acquire) != port.counters().tx_packets && !lost)
      lost = now_ns() > deadline;
  }
  EXPECT_FALSE(lost) << "a packet was not announced; read " << read << " of "
                     << port.counters().tx_packets;
  EXPECT_GT(calls, 0u);
  stop = true;
  const uint64_t one = 1;
  ASSERT_EQ(::write(call.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  worker.join();
}

}  // namespace
}  // namespace ina
