// In steady state the packet path allocates nothing, takes no lock and makes no system call but
// those of the idle strategy: counted in a whole switch and its workers, within this process.
//
// The lane spins, so that it has no reason for a system call at all (a clock is read without one).
// The workers' calls allocate nothing either; their context has a mutex, which they may take.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <mutex>
#include <thread>

#include "ina/ina.hpp"
#include "tests/path/count_calls.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using path::Counts;
using path::Role;

constexpr int kWorld = 3;  // of two, a reproducible sum of float64 would be a native one

struct Case {
  const char* name;
  const char* policy;
  Home home;
  uint32_t slots;
  ina_numeric numeric;
  uint64_t coalesce_bytes;
  bool traced = false;  ///< the lane writes down the packets of a phase at least
};

// GoogleTest looks for this name.
void PrintTo(const Case& test_case, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << test_case.name;
}

/// One rank's buffers, and its operations on them in a round.
class Worker {
 public:
  Worker(const test::TestSwitch& sw, int rank, const Case& test_case) {
    ina_config config;
    ina_config_init(&config);
    const std::string url = sw.url();
    config.url = url.c_str();
    config.rank = rank;
    config.world_size = kWorld;
    config.timeout_us = 60'000'000;
    config.idle = INA_IDLE_YIELD;
    config.copy_threads = 1;
    config.numeric = test_case.numeric;
    config.coalesce_bytes = test_case.coalesce_bytes;
    context_.emplace(config);
    for (const size_t count : {1, 100, 256, 1000, 5000, 40'000}) {
      floats_.emplace_back(count);
      bytes_.emplace_back(count);
      integers_.emplace_back(count);
      doubles_.emplace_back(count);
    }
    requests_.reserve(4 * floats_.size());
  }

  /// Blocking, asynchronous and grouped operations of all sizes and some types, and a barrier.
  void round() {
    for (auto& tensor : floats_) {
      fill(tensor);
      context_->allreduce<float>(tensor);
      check(tensor);
    }
    for (const bool grouped : {false, true}) {
      std::optional<Group> group;
      if (grouped) group.emplace(*context_);
      for (size_t i = 0; i < floats_.size(); ++i) {
        start(floats_[i]);
        start(integers_[i]);
        start(bytes_[i]);
        start(doubles_[i]);
      }
      if (group) group->end();
      for (Request& request : requests_) request.wait();
      requests_.clear();
      for (size_t i = 0; i < floats_.size(); ++i) {
        check(floats_[i]);
        check(integers_[i]);
        check(bytes_[i]);
        check(doubles_[i]);
      }
    }
    context_->barrier();
  }

  static constexpr uint64_t kOperations = 6 + 2 * 24 + 1;  ///< of a round

  uint64_t wrong() const { return wrong_; }
  void finalize() { context_->finalize(); }

 private:
  template <class T>
  static void fill(std::vector<T>& tensor) {
    for (size_t i = 0; i < tensor.size(); ++i)
      tensor[i] = static_cast<T>(i % 40);  // no sum of int8 saturates
  }
  template <class T>
  void start(std::vector<T>& tensor) {
    fill(tensor);
    requests_.push_back(context_->allreduce_async(std::span<T>(tensor)));
  }
  template <class T>
  void check(const std::vector<T>& tensor) {
    for (size_t i = 0; i < tensor.size(); ++i)
      wrong_ += tensor[i] != static_cast<T>(i % 40 * kWorld) ? 1 : 0;
  }

  std::optional<Context> context_;
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<int8_t>> bytes_;
  std::vector<std::vector<int64_t>> integers_;
  std::vector<std::vector<double>> doubles_;
  std::vector<Request> requests_;
  uint64_t wrong_ = 0;
};

/// The counts. The number and sizes of operations that a client has under way at once depend on the
/// kernel's scheduler. Its pools grow until they have seen the most of it, so that it has some
/// phases to become steady; the lane has everything from the beginning.
struct Measured {
  static constexpr int kMostPhases = 5;
  int phases = 0;
  Counts lane;                      ///< in all phases
  uint64_t client_allocations = 0;  ///< in the last one
  std::string trap_failure;

  void begin(pid_t lane_thread) {
    if (phases == 0 && !path::trap_system_calls(lane_thread)) trap_failure = std::strerror(errno);
    path::arm();
  }
  void end() {
    path::disarm();
    ++phases;
    const Counts of_phase = path::counts_of(Role::kLane);
    lane.allocations += of_phase.allocations;
    lane.locks += of_phase.locks;
    lane.system_calls += of_phase.system_calls;
    if (of_phase.system_calls != 0) lane.last_system_call = of_phase.last_system_call;
    client_allocations = path::counts_of(Role::kClient).allocations;
  }
  bool is_over() const {
    return lane.allocations + lane.locks + lane.system_calls != 0 || client_allocations == 0 ||
           phases == kMostPhases;
  }
};

class SteadyState : public testing::TestWithParam<Case> {};

TEST_P(SteadyState, PacketPathAllocatesLocksAndCallsTheSystemNever) {
  constexpr int kWarmupRounds = 10;
  constexpr int kRounds = 60;
  constexpr aggregator::JobIndex kFirstJob = 0;
  constexpr uint32_t kTracedPackets = 1 << 18;  // more than those of the rounds before
  std::atomic<pid_t> lane_thread{0};
  test::SwitchOptions options;
  options.slots = GetParam().slots;
  options.slots_per_job = options.slots;
  options.idle = IdleMode::kSpin;
  options.on_lane_thread = [&] {
    path::set_role(Role::kLane);
    lane_thread = static_cast<pid_t>(::syscall(SYS_gettid));
  };
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = value_in(scheduler::kPolicyNames, GetParam().policy).value();
    config.rules.home = GetParam().home;
    // On a busy machine a worker may not run for long; asking for its sums is not steady state.
    config.rules.rto_min_ns = config.rules.rto_max_ns = 20'000'000'000;
  };
  std::optional<switchd::PacketTrace> trace;
  if (GetParam().traced) options.trace = &trace.emplace(std::vector{kFirstJob}, kTracedPackets);
  test::TestSwitch sw(options);

  // The last rank to arrive runs this, while the others wait.
  Measured measured;
  int arrivals = 0;
  size_t traced_before = 0, traced_packets = 0;
  const auto next_phase = [&]() noexcept {
    const bool begins = arrivals++ % 2 == 0;
    if (begins) {
      if (trace) traced_before = trace->records().size();
      measured.begin(lane_thread.load());
    } else {
      measured.end();
      if (trace) traced_packets += trace->records().size() - traced_before;
    }
  };
  std::barrier barrier(kWorld, next_phase);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        Worker worker(sw, rank, GetParam());
        for (int i = 0; i < kWarmupRounds; ++i) worker.round();
        do {
          barrier.arrive_and_wait();
          path::set_role(Role::kClient);
          for (int i = 0; i < kRounds; ++i) worker.round();
          path::set_role(Role::kOther);
          barrier.arrive_and_wait();
        } while (!measured.is_over());
        EXPECT_EQ(worker.wrong(), 0u);
        worker.finalize();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
        path::disarm();
        barrier.arrive_and_drop();
      }
    });
  for (auto& rank : ranks) rank.join();

  ASSERT_EQ(measured.trap_failure, "") << "cannot see system calls";
  const auto status = sw.status();
  // That there was something to count in: each operation has a fragment at least, a group fewer.
  EXPECT_GE(status["aggregator"]["packets"].get<uint64_t>(), kRounds * Worker::kOperations);
  EXPECT_EQ(traced_packets != 0, GetParam().traced);
  EXPECT_EQ(measured.lane.allocations, 0u);
  EXPECT_EQ(measured.lane.locks, 0u);
  EXPECT_EQ(measured.lane.system_calls, 0u) << "the last one: " << measured.lane.last_system_call;
  EXPECT_EQ(measured.client_allocations, 0u) << "in the last of " << measured.phases << " phases";
  if (measured.lane.allocations + measured.lane.locks != 0) path::print_first_call(Role::kLane);
  if (measured.client_allocations != 0) path::print_first_call(Role::kClient);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, SteadyState,
    testing::Values(Case{"Static", "static", Home::kWorkers, 512, INA_NUMERIC_NATIVE, 0},
                    Case{"Fcfs", "fcfs", Home::kSpill, 512, INA_NUMERIC_NATIVE, 0},
                    Case{"Esa", "esa", Home::kWorkers, 512, INA_NUMERIC_NATIVE, 0},
                    Case{"EsaSpill", "esa", Home::kSpill, 512, INA_NUMERIC_NATIVE, 0},
                    Case{"Traced", "esa", Home::kSpill, 512, INA_NUMERIC_NATIVE, 0, true},
                    Case{"Coalescing", "static", Home::kWorkers, 512, INA_NUMERIC_NATIVE, 4096},
                    Case{"Reproducible", "static", Home::kWorkers, 512, INA_NUMERIC_REPRODUCIBLE,
                         0}),
    [](const auto& param) { return std::string(param.param.name); });

// ---- the counters themselves: a count of 0 means something only if they count.

TEST(CountCalls, SeeWhatAThreadDoesAndOnlyThatThread) {
  std::atomic<pid_t> id{0};
  std::atomic<int> step{0};
  std::mutex mutex;
  std::thread thread([&] {
    path::set_role(Role::kLane);
    void* volatile memory = std::malloc(100);  // a thread's first allocation sets up its arena
    std::free(memory);
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    while (step.load() == 0) {
    }
    auto first = std::make_unique<int>(::getppid());
    { const std::lock_guard lock(mutex); }
    step = 2;
    while (step.load() != 0) {
    }
  });
  while (id.load() == 0) ::usleep(100);
  ASSERT_TRUE(path::trap_system_calls(id.load())) << std::strerror(errno);
  path::arm();
  step = 1;
  while (step.load() == 1) ::usleep(100);
  { const std::lock_guard lock(mutex); }
  path::disarm();
  const Counts lane = path::counts_of(Role::kLane);
  EXPECT_EQ(lane.allocations, 1u);
  EXPECT_EQ(lane.locks, 1u);
  EXPECT_EQ(lane.system_calls, 1u);
  EXPECT_EQ(lane.last_system_call, SYS_getppid);
  EXPECT_EQ(path::counts_of(Role::kClient).locks, 0u);
  step = 0;
  thread.join();
}

TEST(CountCalls, TrappedSystemCallsDoWhatTheyDo) {
  std::atomic<bool> go{false};
  std::atomic<pid_t> id{0};
  bool same = false;
  ssize_t moved = 0;
  int failure = 0;
  std::thread thread([&] {
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    while (!go.load()) {
    }
    same = ::syscall(SYS_gettid) == id.load();
    int ends[2];
    char letter = 'a';
    if (::pipe(ends) == 0) moved = ::write(ends[1], &letter, 1) + ::read(ends[0], &letter, 1);
    ::close(ends[0]);
    failure = ::close(ends[0]) == 0 ? 0 : errno;
    ::close(ends[1]);
  });
  while (id.load() == 0) ::usleep(100);
  ASSERT_TRUE(path::trap_system_calls(id.load())) << std::strerror(errno);
  go = true;
  thread.join();
  EXPECT_TRUE(same);
  EXPECT_EQ(moved, 2);
  EXPECT_EQ(failure, EBADF);
}

}  // namespace
}  // namespace ina
