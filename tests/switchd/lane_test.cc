// How a lane shares its time among its ports: over ports that always have something.
#include "switchd/lanes/lane.h"

#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <thread>

#include "switchd/jobs/job_rules.h"
#include "switchd/lanes/lanes.h"
#include "tests/support/packet_builder.h"

namespace ina::switchd {
namespace {

constexpr uint32_t kBurst = 32;
constexpr uint32_t kWorkers = 64;
constexpr uint32_t kWindow = 256;
constexpr uint32_t kSlotBytes = 256;

/// Has the same message again and again, of one worker of one job.
struct BusyPort : NoFramePort {
  size_t rx_burst(std::span<io::RxPacket> burst) {
    for (io::RxPacket& packet : burst) packet = next;
    taken += burst.size();
    return burst.size();
  }
  bool tx(io::EndpointIndex, const wire::Message&, std::span<const std::byte>) {
    ++sent;
    return true;
  }
  Result<io::EndpointIndex> bind(const wire::Address&, JobId, uint64_t, io::JobIndex, Rank,
                                 const std::optional<wire::TagKeys>&, JobId) {
    if (has_no_memory) throw std::bad_alloc();
    if (is_full) return fail(INA_ERR_REFUSED, "the port is full");
    return io::EndpointIndex{0};
  }
  void unbind(io::EndpointIndex) {}
  void expect(JobId job, uint64_t key) { witness.expect(job, key); }
  void forget(JobId job) { witness.forget(job); }
  std::span<const io::DroppedFrames> dropped(JobId job) const { return witness.dropped(job); }
  bool heard(io::EndpointIndex) const { return has_heard; }

  io::DropWitness witness;
  bool has_heard = false;
  bool has_no_memory = false;
  bool is_full = false;
  io::RxPacket next;
  uint64_t taken = 0;
  uint64_t sent = 0;
};

class LaneTest : public ::testing::Test {
 protected:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  static LaneConfig config() {
    LaneConfig config;
    config.shape.slots = 1024;
    config.shape.slot_bytes = kSlotBytes;
    config.shape.max_jobs = 2;
    config.shape.burst = kBurst;
    config.shape.policy.kind = scheduler::PolicyKind::kEsa;
    return config;
  }

  /// A job with all its workers at one port.
  void add_job(aggregator::JobIndex index, uint32_t workers, uint32_t port) {
    command::AddJob job{.job = index, .id = JobId{index + 1u}};
    job.spec = job_spec(index, workers);
    run(job);
    for (uint32_t rank = 0; rank < workers; ++rank)
      attach(index, Rank{static_cast<uint8_t>(rank)}, port);
  }

  aggregator::JobSpec job_spec(aggregator::JobIndex index, uint32_t workers) {
    aggregator::JobSpec spec;
    spec.id = JobId{index + 1u};
    spec.epoch = 1;
    spec.workers = workers;
    spec.window = kWindow;
    spec.results = results_[index].data()->bytes;
    spec.seen = seen_[index].data();
    return spec;
  }

  void attach(aggregator::JobIndex index, Rank rank, uint32_t port) {
    run(command::AttachFrame{
        .job = index, .rank = rank, .frame_port = port, .job_id = JobId{index + 1u}});
  }

  void run(std::initializer_list<LaneCommand> commands) {
    for (const LaneCommand& command : commands) link_.post(command);
    Posted<command::Stop> stop;
    link_.post(&stop);
    lane_.run();
  }
  /// With its outputs.
  template <class Command>
  Command run(Command command) {
    Posted<Command> posted(std::move(command));
    run({&posted});
    return posted;
  }

  static io::RxPacket packet(aggregator::JobIndex job, wire::Type type) {
    wire::Message message;
    message.type = type;
    message.epoch = 1;
    message.phase = wire::Phase::kStatus;
    return {
        .message = message, .payload = nullptr, .payload_bytes = 0, .job = job, .rank = Rank{0}};
  }

  std::vector<Line> rows_ =
      std::vector<Line>(aggregator::Aggregator::row_memory_bytes(config().shape) / sizeof(Line));
  std::vector<Line> results_[2] = {std::vector<Line>(2 * kWindow * kSlotBytes / sizeof(Line)),
                                   std::vector<Line>(2 * kWindow * kSlotBytes / sizeof(Line))};
  std::vector<WorkerSet> seen_[2] = {std::vector<WorkerSet>(2 * kWindow),
                                     std::vector<WorkerSet>(2 * kWindow)};
  BusyPort loud_, plain_;
  LaneLink link_;
  Lane<BusyPort> lane_{
      config(), std::as_writable_bytes(std::span(rows_)), link_, {&loud_, &plain_}};
};

TEST_F(LaneTest, BusyPortsTakeTurns) {
  add_job(0, 2, 0);
  add_job(1, 2, 1);
  loud_.next = packet(0, wire::Type::kQuery);
  plain_.next = packet(1, wire::Type::kQuery);
  for (int round = 0; round < 100; ++round) lane_.poll_once();
  EXPECT_EQ(loud_.taken, 100 * kBurst);
  EXPECT_EQ(plain_.taken, 100 * kBurst);
  EXPECT_EQ(plain_.sent, plain_.taken);
}

TEST(JobRules, NoLinkLosesBeforeAWorkerHasAttached) {
  ConductorConfig config;
  config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
  const JobRules rules(config, 1);
  Job job;
  job.workers = 2;
  job.grant.window = kWindow;
  job.grant.in_switch = kWindow / 2;
  job.geometry.lanes = 1;
  Domain& domain = job.domains.emplace_back();
  domain.members = 2;
  domain.seen.resize(1);
  domain.placed.resize(1);
  domain.parked.resize(1);
  domain.given.resize(1);
  aggregator::JobSpec spec;
  rules.fill_spec(job, domain, 0, Seq{}, spec);
  EXPECT_FALSE(spec.links_lose);
  EXPECT_TRUE(spec.parkers.empty());
}

TEST_F(LaneTest, AWorkerByAPortForFramesHasALinkThatLoses) {
  command::AddJob job{.job = 0, .id = JobId{1}};
  job.spec = job_spec(0, 2);
  job.spec.links_lose = false;
  run(job);
  EXPECT_FALSE(lane_.aggregator().spec(0).links_lose);
  attach(0, Rank{1}, 0);
  EXPECT_TRUE(lane_.aggregator().spec(0).links_lose);
}

// The home of a job of 64 workers may have the switch tell all of them something by one message.
TEST_F(LaneTest, APortThatHasMuchSentTakesLittle) {
  add_job(0, kWorkers, 0);
  add_job(1, 2, 1);
  loud_.next = packet(0, wire::Type::kPoll);
  plain_.next = packet(1, wire::Type::kQuery);
  lane_.poll_once();
  EXPECT_EQ(loud_.sent, kBurst * kWorkers) << "that could not be known before";
  for (int round = 0; round < 100; ++round) {
    const uint64_t sent = loud_.sent;
    const uint64_t plain = plain_.taken;
    lane_.poll_once();
    EXPECT_LE(loud_.sent - sent, 8 * kBurst);
    EXPECT_GT(loud_.sent - sent, kBurst);
    EXPECT_EQ(plain_.taken - plain, kBurst);
  }
  // Back to whole bursts when there is no reason any more.
  loud_.next = packet(0, wire::Type::kQuery);
  for (int round = 0; round < 8; ++round) lane_.poll_once();
  const uint64_t taken = loud_.taken;
  lane_.poll_once();
  EXPECT_EQ(loud_.taken - taken, kBurst);
}

TEST_F(LaneTest, CountsBurstsBySizeAndTimeByWhetherThereWasWork) {
  EXPECT_EQ(LaneCounters::bucket_of(1), 0u);
  EXPECT_EQ(LaneCounters::bucket_of(2), 1u);
  EXPECT_EQ(LaneCounters::bucket_of(4), 2u);
  EXPECT_EQ(LaneCounters::bucket_of(5), 3u);
  EXPECT_EQ(LaneCounters::bucket_of(512), LaneCounters::kBurstBuckets - 1);

  add_job(0, 2, 0);
  add_job(1, 2, 1);
  loud_.next = packet(0, wire::Type::kQuery);
  plain_.next = packet(1, wire::Type::kQuery);
  const Nanos began = now_ns();
  for (int round = 0; round < 10; ++round) lane_.poll_once();
  const Nanos took = now_ns() - began;
  const LaneCounters counted = run(command::TakeSnapshot{}).snapshot.lane;
  EXPECT_EQ(counted.bursts[LaneCounters::bucket_of(kBurst)], 20u);  // of two ports
  EXPECT_EQ(counted.burst_packets, 20 * kBurst);
  EXPECT_GT(counted.busy_ns, 0);
  EXPECT_LE(counted.busy_ns, took);
  EXPECT_EQ(counted.idle_ns, 0);
}

TEST_F(LaneTest, SaysWhoseFramesCameInAndWhoseWereDroppedAtWhichPort) {
  add_job(0, 2, 0);
  add_job(1, 2, 1);
  loud_.has_heard = true;
  wire::Envelope envelope;
  envelope.job = JobId{1};
  envelope.source.ip = 7;
  plain_.witness.note(envelope, Rank{1}, DropReason::kUnknownSource);  // the job is at the other
  const auto first = run(command::FindArrivals{0});
  EXPECT_EQ(first.heard, WorkerSet::first(2));
  ASSERT_EQ(first.dropped.size(), 1u);
  EXPECT_EQ(first.dropped[0].port, 1u);
  EXPECT_EQ(first.dropped[0].frames.rank, Rank{1});
  EXPECT_EQ(first.dropped[0].frames.source.ip, 7u);
  const auto second = run(command::FindArrivals{1});
  EXPECT_EQ(second.heard, WorkerSet());
  EXPECT_TRUE(second.dropped.empty());
  run(command::RemoveJob{0});
  EXPECT_TRUE(plain_.witness.dropped(JobId{1}).empty());
}

TEST_F(LaneTest, ACommandThatFailsSaysWhyAndOthersAreCarriedOut) {
  add_job(0, 2, 1);
  loud_.has_no_memory = true;
  plain_.is_full = true;
  const auto attach_at = [](uint32_t port) {
    return Posted(command::AttachFrame{.frame_port = port, .job_id = JobId{1}});
  };
  Posted starved = attach_at(0);
  Posted refused = attach_at(1);
  Posted progress(command::FindProgress{});
  run({&starved, &refused, &progress});
  EXPECT_TRUE(starved.done && refused.done && progress.done);
  EXPECT_EQ(starved.error, "no memory");
  EXPECT_EQ(refused.error, "the port is full");
  EXPECT_EQ(progress.error, "");
}

TEST_F(LaneTest, ASnapshotIsOfTheJobsThatWereAskedForAndOfFragmentsWhereTheyHoldSlots) {
  add_job(0, 2, 0);
  add_job(1, 2, 1);
  alignas(64) const std::byte payload[32] = {};
  loud_.next = {.message = testing::PacketBuilder().rank(Rank{0}).message(),
                .payload = payload,
                .payload_bytes = sizeof(payload),
                .job = 0,
                .rank = Rank{0}};
  plain_.next = packet(1, wire::Type::kQuery);
  lane_.poll_once();
  command::TakeSnapshot asked{.find_waiting = true};
  asked.snapshot.jobs = {{.job = 1}, {.job = 0}};
  const LaneSnapshot both = run(asked).snapshot;
  ASSERT_EQ(both.jobs.size(), 2u);
  EXPECT_EQ(both.jobs[0].counters.slots_held, 0u);
  EXPECT_FALSE(both.jobs[0].waiting);
  EXPECT_EQ(both.jobs[1].counters.slots_held, 1u);
  ASSERT_TRUE(both.jobs[1].waiting);
  EXPECT_EQ(both.jobs[1].waiting->missing, WorkerSet::of(Rank{1}));
  asked.find_waiting = false;
  EXPECT_FALSE(run(asked).snapshot.jobs[1].waiting);
  EXPECT_TRUE(run(command::TakeSnapshot{}).snapshot.jobs.empty());
}

TEST(Lanes, WhoWaitsForAnswersGetsThoseOfAllLanes) {
  LaneLink links[2];
  Lanes lanes({&links[0], &links[1]});
  lanes.set_running();
  const auto serve = [](LaneLink& link) {
    for (int served = 0; served < 1000;) {
      const auto command = link.next_command();
      if (!command) continue;
      auto& find = *std::get<Posted<command::FindProgress>*>(*command);
      find.results_end = Seq{find.job};
      find.done = true;
      link.report_answer();
      ++served;
    }
  };
  std::thread first(serve, std::ref(links[0]));
  std::thread second(serve, std::ref(links[1]));
  for (aggregator::JobIndex job = 0; job < 1000; ++job)
    for (const auto& found : lanes.run(command::FindProgress{.job = job}))
      EXPECT_EQ(found.results_end, Seq{job});
  first.join();
  second.join();
}

TEST_F(LaneTest, ShowsItsSlotsOrEverySeveralOfThem) {
  add_job(0, 2, 0);
  add_job(1, 2, 1);
  alignas(64) const std::byte payload[32] = {};
  const wire::Message message = testing::PacketBuilder().rank(Rank{0}).message();
  loud_.next = {.message = message,
                .payload = payload,
                .payload_bytes = sizeof(payload),
                .job = 0,
                .rank = Rank{0}};
  plain_.next = packet(1, wire::Type::kQuery);
  const Nanos began = now_ns();
  lane_.poll_once();
  const auto look = [&](uint32_t first, uint32_t step, size_t count) {
    return run(command::LookAtSlots{first, step, std::vector<SlotView>(count)}).slots;
  };
  const auto is_used = [](const SlotView& slot) {
    return slot.state != aggregator::SlotState::kEmpty;
  };
  const std::vector<SlotView> all = look(0, 1, 1024);
  EXPECT_EQ(std::ranges::count_if(all, is_used), 1);
  const auto used = std::ranges::find_if(all, is_used);
  ASSERT_NE(used, all.end());
  EXPECT_EQ(used->state, aggregator::SlotState::kFilling);
  EXPECT_EQ(used->job, 0);
  EXPECT_EQ(used->contributions, 1);
  EXPECT_GE(used->first_arrival, began);
  // A step of 2 shows every second slot, each at half its place, and none beyond the last.
  const auto at = static_cast<uint32_t>(used - all.begin());
  const std::vector<SlotView> half = look(at % 2, 2, 1024);
  EXPECT_EQ(std::ranges::count_if(half, is_used), 1);
  EXPECT_TRUE(is_used(half[at / 2]));
}

/// The lane's trace of job 0.
class LaneTraceTest : public LaneTest {
 protected:
  void SetUp() override {
    add_job(0, 2, 0);
    add_job(1, 2, 1);
    wire::Message message = testing::PacketBuilder().rank(Rank{1}).operation(9, 8).message();
    message.priority = 5;
    loud_.next = {.message = message,
                  .payload = payload_,
                  .payload_bytes = sizeof(payload_),
                  .job = 0,
                  .rank = Rank{1}};
    plain_.next = packet(1, wire::Type::kQuery);
  }
  void trace(PacketTrace* into) { run(command::SetTrace{into}); }

  alignas(64) const std::byte payload_[32] = {};
};

TEST_F(LaneTraceTest, HasThePacketsOfOneJobUntilItIsFull) {
  PacketTrace written({0}, kBurst + 3);
  trace(&written);
  const Nanos began = now_ns();
  lane_.poll_once();
  ASSERT_EQ(written.records().size(), kBurst) << "of the other job's port nothing";
  // The first one takes a slot, the others are the same again.
  const TraceRecord& first = written.records()[0];
  EXPECT_EQ(first.fate, aggregator::Verdict::Fate::kAbsorbed);
  EXPECT_EQ(first.rank, Rank{1});
  EXPECT_EQ(first.port, 1u);
  EXPECT_EQ(first.message.operation, 9u);
  EXPECT_EQ(first.message.priority, 5);
  EXPECT_EQ(first.state, aggregator::SlotState::kFilling);
  EXPECT_EQ(first.held, WorkerSet::of(Rank{1}));
  EXPECT_GE(first.time, began);
  const TraceRecord& second = written.records()[1];
  EXPECT_EQ(second.fate, aggregator::Verdict::Fate::kDropped);
  EXPECT_EQ(second.reason, DropReason::kDuplicate);
  EXPECT_EQ(second.slot, first.slot);
  lane_.poll_once();
  lane_.poll_once();
  EXPECT_EQ(written.records().size(), kBurst + 3);
  EXPECT_TRUE(written.is_full());
  EXPECT_EQ(loud_.taken, 3 * kBurst) << "all are served, whether they are written down or not";
}

TEST_F(LaneTraceTest, SaysWhichSlotAResultCameFrom) {
  PacketTrace written({0}, 2 * kBurst);
  trace(&written);
  lane_.poll_once();
  loud_.next.message.rank = loud_.next.rank = Rank{0};
  lane_.poll_once();
  const TraceRecord& first = written.records()[0];
  const TraceRecord& last = written.records()[kBurst];
  EXPECT_EQ(last.fate, aggregator::Verdict::Fate::kAbsorbed);
  EXPECT_EQ(last.slot, first.slot);
  EXPECT_EQ(last.state, aggregator::SlotState::kEmpty) << "it left";
  EXPECT_EQ(last.held, WorkerSet());
  ASSERT_EQ(last.sent_count, 1);
  EXPECT_EQ(last.sent[0].type, wire::Type::kResult);
  EXPECT_EQ(last.sent[0].to, aggregator::Emission::To::kAll);
}

TEST_F(LaneTraceTest, EndsWhenItIsTakenAwayAndWithItsJob) {
  PacketTrace taken_away({0}, 1000);
  trace(&taken_away);
  trace(nullptr);
  lane_.poll_once();
  EXPECT_TRUE(taken_away.records().empty());
  PacketTrace of_the_job({0}, 1000);
  trace(&of_the_job);
  run(command::RemoveJob{0});
  add_job(0, 2, 0);  // another job at its place
  lane_.poll_once();
  EXPECT_TRUE(of_the_job.records().empty());
}

}  // namespace
}  // namespace ina::switchd
