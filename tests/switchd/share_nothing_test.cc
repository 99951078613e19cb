// Lanes share nothing: of sixteen lanes that serve the same job no two write the same cache line.
//
// Counted in a whole switch within this process. Its workers are processes, and stopped while it is
// counted. Its threads are held by a signal, but one lane at a time.
#include <dirent.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/written_lines.h"

namespace ina::test {
namespace {

constexpr uint32_t kLanes = 16;
constexpr size_t kWorld = 3;
constexpr uint32_t kMostRounds = 100;
constexpr uint64_t kEnoughLines = 20;  ///< of each lane
constexpr uint32_t kMostThreads = 64;

/// One thread's place to stand.
struct Stand {
  pid_t thread = 0;
  std::atomic<uint32_t> may_go = 1;
  std::atomic<bool> stands = false;
};

/// All that this test writes while others stand.
struct alignas(4096) Stands {
  std::array<Stand, kMostThreads> of;
  size_t count = 0;
} stands;

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

/// The signal's handler.
void stand_still(int) {
  const int error = errno;
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  for (Stand& stand : stands.of) {
    if (stand.thread != self) continue;
    stand.stands = true;
    while (stand.may_go == 0) futex(stand.may_go, FUTEX_WAIT, 0);
    stand.stands = false;
  }
  errno = error;
}

void hold(Stand& stand) {
  stand.may_go = 0;
  ::syscall(SYS_tgkill, ::getpid(), stand.thread, SIGUSR1);
  while (!stand.stands) ::usleep(20);
}

void release(Stand& stand) {
  stand.may_go = 1;
  futex(stand.may_go, FUTEX_WAKE, 1);
  while (stand.stands) ::usleep(20);
}

/// True if the thread takes the signal: some threads block all, and have nothing to do here.
bool takes_signal(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigBlk:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (SIGUSR1 - 1) & 1) == 0;
  return false;
}

/// All threads of this process but the one that asks.
void find_threads() {
  DIR* const folder = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t thread = std::atoi(entry->d_name);
    if (thread == 0 || thread == ::gettid() || !takes_signal(thread)) continue;
    ASSERT_LT(stands.count, kMostThreads);
    stands.of[stands.count++].thread = thread;
  }
  ::closedir(folder);
}

Stand& stand_of(pid_t thread) {
  return *std::find_if(stands.of.begin(), stands.of.end(),
                       [thread](const Stand& stand) { return stand.thread == thread; });
}

void stop(const Process& process) {
  process.kill(SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(process.pid()), &info, WSTOPPED | WEXITED), 0);
  ASSERT_EQ(info.si_code, CLD_STOPPED) << process.output();
}

Nanos processor_time(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

/// Returns when whoever has this clock has had the processor for so long.
void wait_for_work(clockid_t clock, Nanos processor_ns) {
  const Nanos end = processor_time(clock) + processor_ns;
  const Nanos deadline = now_ns() + 10'000'000'000;
  while (processor_time(clock) < end && now_ns() < deadline) ::usleep(100);
}

/// clock_gettime(2): of a thread by its number.
clockid_t clock_of_thread(pid_t thread) {
  return static_cast<clockid_t>(~thread) << 3 | 6;
}

class ShareNothing : public testing::Test {
 protected:
  /// `idle`: of the workers, as INA_IDLE.
  void start(const char* idle) {
    struct sigaction action {};
    action.sa_handler = stand_still;
    action.sa_flags = SA_RESTART;
    ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
    SwitchOptions options;
    options.lanes = kLanes;
    options.slots = 64 * kLanes;
    options.idle = IdleMode::kYield;
    options.max_jobs = 4;
    options.max_groups = 4;
    options.on_lane_thread = [this] {
      const std::lock_guard lock(mutex_);
      lanes_.push_back(::gettid());
    };
    switch_.emplace(options);
    ::setenv("INA_IDLE", idle, 1);
    for (size_t rank = 0; rank < kWorld; ++rank)
      workers_.emplace_back(std::vector<std::string>{LOAD_WORKER, switch_->url(), "shared",
                                                     std::to_string(rank), std::to_string(kWorld),
                                                     "100000"});
    ::unsetenv("INA_IDLE");
    for (const Process& worker : workers_) wait_for_work(clock_of(worker), 100'000'000);
    stands.count = 0;
    find_threads();
    ASSERT_EQ(lanes_.size(), kLanes);
  }

  /// Each lane has some turns, alone, and then the workers go on.
  void take_turns(WrittenLines& lines, uint32_t first) {
    // All lanes have done what there was, so that each finds something new, and not only the one
    // that is held first.
    for (const Process& worker : workers_) stop(worker);
    for (const pid_t lane : lanes_) wait_for_work(clock_of_thread(lane), 100'000);
    for (const pid_t lane : lanes_) hold(stand_of(lane));
    for (const Process& worker : workers_) worker.kill(SIGCONT);
    for (const Process& worker : workers_) wait_for_work(clock_of(worker), 2'000'000);
    for (const Process& worker : workers_) stop(worker);
    for (Stand& stand : all())
      if (!stand.stands) hold(stand);
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint32_t lane = (first + i) % kLanes;
      lines.before();
      release(stand_of(lanes_[lane]));
      wait_for_work(clock_of_thread(lanes_[lane]), 500'000);
      hold(stand_of(lanes_[lane]));
      lines.after(lane);
    }
    for (Stand& stand : all()) release(stand);
    for (const Process& worker : workers_) worker.kill(SIGCONT);
    for (const Process& worker : workers_) wait_for_work(clock_of(worker), 2'000'000);
  }

  void finish() {
    workers_[0].kill(SIGTERM);
    for (Process& worker : workers_) EXPECT_EQ(worker.wait(), 0) << worker.output();
  }

  static std::span<Stand> all() { return std::span(stands.of).first(stands.count); }
  static clockid_t clock_of(const Process& process) {
    clockid_t clock{};
    ::clock_getcpuclockid(process.pid(), &clock);
    return clock;
  }

  std::mutex mutex_;
  std::vector<pid_t> lanes_;
  std::optional<TestSwitch> switch_;
  std::vector<Process> workers_;
};

TEST_F(ShareNothing, NoTwoLanesWriteTheSameCacheLine) {
  ASSERT_NO_FATAL_FAILURE(start("yield"));
  WrittenLines lines(std::as_bytes(std::span(&stands, 1)));
  const auto fewest_written = [&] {
    uint64_t fewest = UINT64_MAX;
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      fewest = std::min(fewest, lines.written_by(lane));
    return fewest;
  };
  for (uint32_t round = 0; round < kMostRounds && fewest_written() < kEnoughLines; ++round)
    ASSERT_NO_FATAL_FAILURE(take_turns(lines, round));
  ASSERT_TRUE(lines.complete());
  EXPECT_GE(fewest_written(), kEnoughLines);
  uint64_t written = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) written += lines.written_by(lane);
  for (const std::string& line : lines.shared()) ADD_FAILURE() << line;
  std::printf("%" PRIu64 " lines written by one lane each, %zu by several\n", written,
              lines.shared().size());
  finish();
}

// The exception, which shows that a line of two lanes would be found.
TEST_F(ShareNothing, ButForTheDoorbellsOfWorkersThatSleep) {
  ASSERT_NO_FATAL_FAILURE(start("interrupt"));
  WrittenLines lines(std::as_bytes(std::span(&stands, 1)));
  for (uint32_t round = 0; round < kMostRounds && lines.shared().size() < kWorld; ++round)
    ASSERT_NO_FATAL_FAILURE(take_turns(lines, round));
  ASSERT_TRUE(lines.complete());
  const std::vector<std::string> shared = lines.shared();
  EXPECT_EQ(shared.size(), kWorld);
  for (const std::string& line : shared)
    EXPECT_NE(line.find("/memfd:ina-switch"), std::string::npos) << line;
  finish();
}

}  // namespace
}  // namespace ina::test
