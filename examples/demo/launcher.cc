#include "examples/demo/launcher.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "control/client.h"
#include "examples/demo/channel.h"
#include "examples/demo/worker.h"

namespace ina::demo {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kSwitchStart = 20s;  ///< DPDK's start included
constexpr auto kNoProgress = 30s;   ///< longer than the workers' own time-out
constexpr auto kLastWords = 2s;     ///< for the others to say what they saw of a failure
constexpr auto kLeave = 15s;
constexpr int kSwitchGraceMs = 5000;
constexpr int64_t kStatusTimeoutNs = 2'000'000'000;
constexpr size_t kLogLines = 20;

/// The daemon on a socket and with a log in `folder`.
class Switch {
 public:
  Switch(const LaunchSetup& setup, const std::string& folder)
      : socket_(folder + "/switch.sock"),
        log_(folder + "/switchd.log"),
        process_(Process::spawn(
            "ina-switchd", {setup.switchd, "--config", setup.config, "--socket", socket_}, log_)) {}
  ~Switch() { process_.stop(kSwitchGraceMs); }

  void wait_until_ready(const TerminationSignals& signals) {
    const auto deadline = Clock::now() + kSwitchStart;
    while (!control::Connection::open(socket_, 0)) {
      throw_if_interrupted(signals);
      if (process_.wait(20)) throw std::runtime_error("the switch did not start: " + obituary());
      if (Clock::now() > deadline)
        throw std::runtime_error(fmt::format("the switch does not listen on {} after {} s{}",
                                             socket_, kSwitchStart.count(), log_tail()));
    }
  }
  /// Also collects its status, for obituary().
  bool ended() { return process_.wait(0); }
  int pidfd() const { return process_.pidfd(); }
  std::string url() const { return "shm:" + socket_; }
  std::string obituary() const { return process_.describe() + log_tail(); }
  SwitchFigures figures() const {
    const auto status = control::query_status(socket_, kStatusTimeoutNs);
    if (!status) throw std::runtime_error("cannot query the switch: " + status.error().text);
    return switch_figures(*status);
  }

 private:
  std::string log_tail() const {
    const std::string tail = last_lines(log_, kLogLines);
    return tail.empty() ? "; it logged nothing" : "; its last log lines:" + tail;
  }
  std::string socket_;
  std::string log_;
  Process process_;
};

struct Worker {
  Process process;
  Channel channel;
  std::vector<EpochStats> epochs;
  std::optional<std::vector<std::byte>> weights;
  std::string error;
  bool closed = false;  ///< its end of the channel is gone

  void take(ChannelMessage&& message) {
    switch (message.kind) {
      case Kind::kEpoch:
        if (message.body.size() != sizeof(EpochStats)) break;
        std::memcpy(&epochs.emplace_back(), message.body.data(), sizeof(EpochStats));
        return;
      case Kind::kWeights:
        weights = std::move(message.body);
        return;
      case Kind::kError:
        error.assign(reinterpret_cast<const char*>(message.body.data()), message.body.size());
        return;
      case Kind::kLeave:
        break;
    }
    error = "it sent something unexpected to the launcher";
  }
};

/// The worker processes, from their start to their end.
class Crew {
 public:
  Crew(const LaunchSetup& setup, const Split& data, Switch& daemon,
       const TerminationSignals& signals)
      : daemon_(daemon), signals_(signals) {
    for (int rank = 0; rank < setup.workers; ++rank) {
      auto ends = Channel::make_pair();
      const WorkerSetup worker{daemon.url(), rank, setup.workers, setup.hyper};
      Process process = Process::fork(fmt::format("worker {}", rank), [&] {
        // Copies of the launcher's ends would keep the others from noticing that it is gone.
        ends.first.close();
        for (Worker& other : workers_) other.channel.close();
        return run_worker(worker, data, ends.second);
      });
      workers_.push_back({std::move(process), std::move(ends.first), {}, {}, {}, false});
    }
  }

  /// Returns when all have sent their weights.
  void follow(int epochs, const std::function<void(const std::vector<EpochStats>&)>& on_epoch) {
    const auto trained = [](const Worker& worker) { return worker.weights.has_value(); };
    int reported = 0;
    auto deadline = Clock::now() + kNoProgress;
    while (reported < epochs || !std::all_of(workers_.begin(), workers_.end(), trained)) {
      if (receive(deadline)) deadline = Clock::now() + kNoProgress;
      throw_if_interrupted(signals_);
      if (something_failed()) fail();
      if (Clock::now() > deadline)
        throw std::runtime_error(
            fmt::format("no worker has reported anything for {} s", kNoProgress.count()));
      while (auto stats = epoch(static_cast<size_t>(reported))) {
        on_epoch(*stats);
        ++reported;
      }
    }
  }

  /// Lets all leave the job and waits for their end.
  void leave() {
    for (Worker& worker : workers_) worker.channel.send(Kind::kLeave, {});
    const auto deadline = Clock::now() + kLeave;
    while (!std::all_of(workers_.begin(), workers_.end(),
                        [](const Worker& worker) { return worker.closed; })) {
      receive(deadline);
      throw_if_interrupted(signals_);
      if (daemon_.ended()) fail();
      if (Clock::now() > deadline)
        throw std::runtime_error(
            fmt::format("the workers have not left the job after {} s", kLeave.count()));
    }
    for (Worker& worker : workers_) worker.process.wait(-1);
    for (const Worker& worker : workers_)
      if (worker.process.failed()) fail();
  }

  /// The reports of all ranks on an epoch (from 0), once all have reported.
  std::optional<std::vector<EpochStats>> epoch(size_t index) const {
    std::vector<EpochStats> stats;
    for (const Worker& worker : workers_) {
      if (worker.epochs.size() <= index) return std::nullopt;
      stats.push_back(worker.epochs[index]);
    }
    return stats;
  }
  std::vector<std::vector<std::byte>> weights() const {
    std::vector<std::vector<std::byte>> all;
    for (const Worker& worker : workers_) all.push_back(worker.weights.value());
    return all;
  }

 private:
  /// Waits for a message, a signal, or the end of a process, and takes all messages that are there.
  /// Returns whether there was one.
  bool receive(Clock::time_point deadline) {
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {daemon_.pidfd(), POLLIN, 0}};
    for (const Worker& worker : workers_)
      if (!worker.closed) fds.push_back({worker.channel.fd(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    ::poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    bool any = false;
    for (Worker& worker : workers_) {
      if (worker.closed) continue;
      worker.closed = !worker.channel.pump();
      while (auto message = worker.channel.next()) {
        worker.take(std::move(*message));
        any = true;
      }
    }
    return any;
  }

  bool something_failed() const {
    return daemon_.ended() || std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) {
             return w.closed || !w.error.empty();
           });
  }

  /// Gathers what every process says of the failure, and throws it.
  [[noreturn]] void fail() {
    const auto deadline = Clock::now() + kLastWords;
    while (Clock::now() < deadline &&
           !std::all_of(workers_.begin(), workers_.end(),
                        [](const Worker& worker) { return worker.closed; })) {
      receive(std::min(deadline, Clock::now() + 100ms));
      throw_if_interrupted(signals_);
    }
    std::string text = "training failed:";
    if (daemon_.ended()) text += "\n  the switch is gone: " + daemon_.obituary();
    for (Worker& worker : workers_) {
      if (!worker.error.empty())
        text += fmt::format("\n  {}: {}", worker.process.name(), worker.error);
      else if (worker.closed && worker.process.wait(1000) && worker.process.failed())
        text += "\n  " + worker.process.describe();
      else if (!worker.closed)
        text += fmt::format("\n  {}, without a word", worker.process.describe());
    }
    throw std::runtime_error(text);
  }

  Switch& daemon_;
  const TerminationSignals& signals_;
  std::vector<Worker> workers_;
};

}  // namespace

Interrupted::Interrupted(int signal)
    : std::runtime_error(fmt::format("interrupted by signal {}", signal)), signal_(signal) {}

void throw_if_interrupted(const TerminationSignals& signals) {
  if (const auto signal = signals.poll()) throw Interrupted(*signal);
}

LaunchResult launch(const LaunchSetup& setup, const Split& data, const TerminationSignals& signals,
                    const std::function<void(const std::vector<EpochStats>&)>& on_epoch) {
  const TemporaryFolder folder;
  Switch daemon(setup, folder.path());
  daemon.wait_until_ready(signals);

  const auto start = Clock::now();
  Crew crew(setup, data, daemon, signals);
  crew.follow(setup.hyper.epochs, on_epoch);
  LaunchResult result;
  result.train_s = std::chrono::duration<double>(Clock::now() - start).count();
  result.weights = crew.weights();
  for (size_t epoch = 0; epoch < static_cast<size_t>(setup.hyper.epochs); ++epoch)
    result.epochs.push_back(*crew.epoch(epoch));
  // Before they leave, because their ports and the ports' counters go with them.
  result.switch_figures = daemon.figures();
  crew.leave();
  return result;
}

}  // namespace ina::demo
