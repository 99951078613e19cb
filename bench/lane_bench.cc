// A lane's turns for scripts/bench_lane.py, which counts their instructions: packets of a job of
// two workers through a port in memory, with a trace or without.
//   lane_bench WHAT TURNS
// WHAT: plain; other: a trace of another job is under way; traced: one of this job, begun anew when
// it is full; looks: one look of `inactl why` every 16 turns. Prints the packets that were summed.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "switchd/lanes/lane.h"

namespace ina::switchd {
namespace {

constexpr uint32_t kBurst = 32;
constexpr uint32_t kWorkers = 2;
constexpr uint32_t kWindow = 256;
constexpr uint32_t kSlotBytes = 1024;
constexpr uint32_t kJobs = 1088;  // places of a switch as configured without more
constexpr uint32_t kTurnsPerLook = 16;

/// Both workers' contributions to one fragment after the other.
struct Contributions : NoFramePort {
  size_t rx_burst(std::span<io::RxPacket> burst) {
    for (io::RxPacket& packet : burst) {
      packet = {.message = message,
                .payload = payload.data()->bytes,
                .payload_bytes = kSlotBytes,
                .job = 0,
                .rank = Rank{static_cast<uint8_t>(taken % kWorkers)}};
      packet.message.rank = packet.rank;
      packet.message.bitmap = WorkerSet::of(packet.rank);
      packet.message.seq = static_cast<uint32_t>(taken++ / kWorkers);
    }
    return burst.size();
  }
  bool tx(io::EndpointIndex, const wire::Message&, std::span<const std::byte>) {
    ++sent;
    return true;
  }
  Result<io::EndpointIndex> bind(const wire::Address&, JobId, uint64_t, io::JobIndex, Rank,
                                 const std::optional<wire::TagKeys>&, JobId) {
    return io::EndpointIndex{0};
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  wire::Message message;
  std::vector<Line> payload = std::vector<Line>(kSlotBytes / sizeof(Line));
  uint64_t taken = 0;
  uint64_t sent = 0;
};

class Bench {
 public:
  Bench() {
    wire::Message& message = port_.message;
    message.type = wire::Type::kGrad;
    message.dtype = DType::kFloat32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    message.elements = kSlotBytes / sizeof(float);
    message.operation_elements = uint64_t{1} << 40;
    message.epoch = 1;
    command::AddJob job;
    job.spec.id = JobId{1};
    job.spec.epoch = 1;
    job.spec.workers = kWorkers;
    job.spec.window = kWindow;
    job.spec.results = results_.data()->bytes;
    job.spec.seen = seen_.data();
    run(job);
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      run(command::AttachFrame{.rank = Rank{static_cast<uint8_t>(rank)}, .job_id = JobId{1}});
    }
  }

  void turn() { lane_.poll_once(); }
  void trace(PacketTrace* into) { run(command::SetTrace{into}); }
  /// The conductor's request for a status with the fragments that one job waits for.
  void look() {
    command::TakeSnapshot snapshot;
    snapshot.snapshot.jobs.resize(1);
    run(std::move(snapshot));
    run(command::FindOldestWaiting{});
  }
  /// Packets whose sums were sent to all workers.
  uint64_t summed() const { return port_.sent; }

 private:
  using Line = Contributions::Line;

  static LaneConfig config() {
    LaneConfig config;
    config.shape.slots = 1024;
    config.shape.slot_bytes = kSlotBytes;
    config.shape.max_jobs = kJobs;
    config.shape.burst = kBurst;
    config.shape.policy.kind = scheduler::PolicyKind::kEsa;
    return config;
  }
  template <class Command>
  void run(Command command) {
    Posted<Command> posted(std::move(command));
    link_.post(&posted);
    Posted<command::Stop> stop;
    link_.post(&stop);
    lane_.run();
  }

  std::vector<Line> rows_ =
      std::vector<Line>(aggregator::Aggregator::row_memory_bytes(config().shape) / sizeof(Line));
  std::vector<Line> results_ = std::vector<Line>(2 * kWindow * kSlotBytes / sizeof(Line));
  std::vector<WorkerSet> seen_ =
      std::vector<WorkerSet>(aggregator::JobSpec::seen_words(kWindow, 1));
  Contributions port_;
  LaneLink link_;
  Lane<Contributions> lane_{config(), std::as_writable_bytes(std::span(rows_)), link_, {&port_}};
};

int main(std::string_view what, long turns) {
  Bench bench;
  PacketTrace other({1}, 4096);
  std::vector<std::unique_ptr<PacketTrace>> own;
  if (what == "other") bench.trace(&other);
  for (long turn = 0; turn < turns; ++turn) {
    if (what == "traced" && (own.empty() || own.back()->is_full()))
      bench.trace(own.emplace_back(
                         std::make_unique<PacketTrace>(std::vector<aggregator::JobIndex>{0}, 4096))
                      .get());
    if (what == "looks" && turn % kTurnsPerLook == 0) bench.look();
    bench.turn();
  }
  std::printf("%llu\n", static_cast<unsigned long long>(bench.summed()));
  const uint64_t expected = static_cast<uint64_t>(turns) * kBurst;
  return bench.summed() == expected ? 0 : 1;
}

}  // namespace
}  // namespace ina::switchd

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: lane_bench plain|other|traced|looks TURNS\n");
    return 2;
  }
  return ina::switchd::main(argv[1], std::strtol(argv[2], nullptr, 10));
}
