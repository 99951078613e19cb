// Starting ina-switchd: the start keeps the promise of `--check`, for every configuration that the
// project ships or shows; and a switch killed at any moment comes back with its jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>

#include "control/client.h"
#include "control/socket.h"
#include "tests/support/free_port.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using control::Json;
using test::Process;
using test::TempDir;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr Nanos kDeadlineNs = 20'000'000'000;

std::string text_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Shown {
  std::string where;
  std::string text;
};

/// The files in conf/, and the yaml blocks of the documents.
std::vector<Shown> configurations() {
  std::vector<Shown> found;
  for (const auto& entry : fs::directory_iterator(SOURCE_DIR "/conf"))
    if (entry.path().extension() == ".yaml") found.push_back({entry.path(), text_of(entry.path())});
  for (const auto& entry : fs::directory_iterator(SOURCE_DIR "/docs")) {
    if (entry.path().extension() != ".md") continue;
    std::istringstream lines(text_of(entry.path()));
    std::string block;
    bool inside = false;
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line == "```yaml") {
        inside = true;
      } else if (inside && line.starts_with("```")) {
        found.push_back({entry.path().string() + " #" + std::to_string(++number), block});
        inside = false;
        block.clear();
      } else if (inside) {
        block += line + "\n";
      }
    }
  }
  return found;
}

/// The configuration with a port, a name and files that no other switch of this machine has.
std::string with_own_names(const std::string& text, const TempDir& folder) {
  const std::string name = "test-" + std::to_string(::getpid()) + "-";
  const std::string port = std::to_string(test::free_port());
  std::string own = std::regex_replace(text, std::regex("/run/ina/|/tmp/"), folder / "");
  own = std::regex_replace(own, std::regex("(file_prefix: )(\\w)"), "$1" + name + "$2");
  return std::regex_replace(own, std::regex("(listen: \"?[0-9.]+):[0-9]+"), "$1:" + port);
}

struct Ended {
  int status = 0;
  std::string output;
};

class StartTest : public testing::Test {
 protected:
  std::string socket() const { return dir_ / "switch.sock"; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  static Ended shell(const std::string& command) {
    Process process({"/bin/sh", "-c", command + " 2>&1"});
    Ended ended;
    ended.output = process.output();
    ended.status = process.wait();
    return ended;
  }
  Ended check(const std::string& file) const {
    return shell(std::string(INA_SWITCHD) + " --check --config " + file + " --socket " + socket());
  }
  /// A daemon with its log beside it.
  Process start(const std::string& file) const {
    return Process({"/bin/sh", "-c",
                    std::string("exec ") + INA_SWITCHD + " --config " + file + " --socket " +
                        socket() + " 2>" + (dir_ / "log")});
  }
  std::string log() const { return text_of(dir_ / "log"); }

  TempDir dir_;
  /// The port of the shipped configurations is taken, by this test or by a switch of this machine.
  const Result<control::Listener> taken_ =
      control::Listener::open_tcp("127.0.0.1:7586", 1'000'000'000);
};

TEST_F(StartTest, WhatTheCheckSaysTheStartKeeps) {
  int started = 0;
  int whole = 0;
  for (const Shown& shown : configurations()) {
    SCOPED_TRACE(shown.where);
    const std::string file = write("switchd.yaml", with_own_names(shown.text, dir_));
    const Ended checked = check(file);
    ASSERT_TRUE(checked.status >= 0 && checked.status <= 2) << checked.output;
    if (checked.status == 2) {
      // Documents show parts, too.
      EXPECT_THAT(shown.where, HasSubstr("/docs/")) << checked.output;
      continue;
    }
    ++whole;
    Process daemon = start(file);
    if (checked.status == 0) {
      EXPECT_THAT(checked.output, HasSubstr("ok"));
      EXPECT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
      daemon.kill(SIGTERM);
      EXPECT_EQ(daemon.wait(), 0) << log();
      ++started;
      continue;
    }
    // The start fails with the check's sentences.
    EXPECT_EQ(daemon.wait(), 1) << log();
    std::istringstream lines(checked.output);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(file + ": ") && !line.starts_with(file + ": warning: ")) {
        EXPECT_THAT(log(), HasSubstr(line.substr(file.size() + 2)));
      }
  }
  EXPECT_GE(started, 2);
  EXPECT_GE(whole, 5);
}

TEST_F(StartTest, TheTofinoLikeSwitchSumsIntegersOf64ToAPacket) {
  constexpr uint64_t kElements = 64 * 1000;
  constexpr uint64_t kSums = 3;
  Process daemon =
      start(write("tofino.yaml", with_own_names(text_of(SOURCE_DIR "/conf/tofino.yaml"), dir_)));
  ASSERT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
  const std::string worker = std::string(LOAD_WORKER) + " shm:" + socket() + " job ";
  const std::string sums = " 2 " + std::to_string(kElements) + " " + std::to_string(kSums);
  const Ended ended = shell(worker + "1" + sums + " & " + worker + "0" + sums + "; wait");
  EXPECT_THAT(ended.output, testing::MatchesRegex("INA_OK *\nINA_OK *\n")) << log();
  const auto status = control::query_status(socket(), kDeadlineNs);
  ASSERT_TRUE(status) << status.error().text;
  const Json& aggregator = status->at("aggregator");
  EXPECT_EQ(aggregator.at("slot_bytes"), 64 * sizeof(int32_t));
  EXPECT_EQ(aggregator.at("policy"), "static");
  EXPECT_EQ(aggregator.at("absorbed"), 2 * kSums * kElements / 64);
  for (const char* never : {"bypassed", "parts", "preemptions", "reminders", "fallback_results"})
    EXPECT_EQ(aggregator.at(never), 0) << never;
  daemon.kill(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0) << log();
}

/// Names of a process's threads.
std::vector<std::string> threads_of(pid_t pid) {
  std::vector<std::string> names;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    names.push_back(name);
  }
  return names;
}

TEST_F(StartTest, DpdkRunsOnlyWhereSomethingNeedsIt) {
  struct Case {
    const char* config;
    bool dpdk;
  };
  for (const Case& shown : {Case{"switch: {lcores: 2}\neal: {huge: no}\n", false},
                            Case{"eal: {huge: no, telemetry: true}\n", true},
                            Case{"eal: {huge: no, extra_args: [--no-hpet]}\n", true}}) {
    SCOPED_TRACE(shown.config);
    Process daemon = start(write("switchd.yaml", shown.config));
    ASSERT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
    const auto threads = threads_of(daemon.pid());
    EXPECT_EQ(std::ranges::count(threads, "eal-intr-thread") == 1, shown.dpdk);
    EXPECT_EQ(std::ranges::count(threads, "ina-lane-1") == 1, !shown.dpdk);
    EXPECT_THAT(log(), HasSubstr(shown.dpdk ? "dpdk=\"true\"" : "dpdk=\"false\""));
    const Ended sums = shell(std::string(LOAD_WORKER) + " shm:" + socket() + " job 0 1 5000 3");
    EXPECT_THAT(sums.output, testing::StartsWith("INA_OK")) << log();
    daemon.kill(SIGTERM);
    EXPECT_EQ(daemon.wait(), 0) << log();
  }
}

TEST_F(StartTest, ALogInJsonIsAnObjectALine) {
  Process daemon = start(write("switchd.yaml", "eal: {huge: no}\nlog: {format: json}\n"));
  ASSERT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
  shell(std::string(LOAD_WORKER) + " shm:" + socket() + " 'a \"name\"' 0 1 5000 3");
  daemon.kill(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0) << log();
  std::istringstream lines(log());
  std::vector<std::string> messages;
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line, nullptr, false);
    ASSERT_TRUE(record.is_object()) << line;
    EXPECT_EQ(record.at("level"), "info") << line;
    EXPECT_TRUE(record.at("time").is_string()) << line;
    const std::string message = record.at("message");
    messages.push_back(message);
    if (message == "serving") {
      EXPECT_EQ(record.at("lcores"), 1) << line;
    }
    if (message == "job admitted") {
      EXPECT_EQ(record.at("job"), "a \"name\"") << line;
    }
  }
  EXPECT_THAT(messages, testing::IsSupersetOf({"serving", "job admitted", "stopped"}));
}

TEST_F(StartTest, TheSelfTestIsATableOrJsonAndItsExitStatusTheVerdict) {
  const std::string file = write("switchd.yaml", "eal: {huge: no}\n");
  const std::string command =
      std::string(INA_SWITCHD) + " --self-test --config " + file + " --socket " + socket();
  const Ended table = shell(command);
  EXPECT_THAT(table.output, testing::StartsWith("CHECK "));
  const Ended object = shell(command + " --json");
  const Json json = Json::parse(object.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << object.output;
  EXPECT_EQ(object.status, table.status);
  EXPECT_EQ(json.at("verdict"), table.status == 0 ? "ready" : "improve") << table.output;
  EXPECT_TRUE(table.status == 0 || table.status == 3) << table.output;
  // The start fails with the same text as --check.
  const std::string absent = write("absent.yaml",
                                   "ports: [{name: a, type: ethdev, ip: 10.0.0.1, "
                                   "device: \"net_af_packet0,iface=no-such-one\"}]\n");
  const Ended missing =
      shell(std::string(INA_SWITCHD) + " --self-test --config " + absent + " --socket " + socket());
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.output, HasSubstr("there is no interface no-such-one"));
  EXPECT_EQ(shell(std::string(INA_SWITCHD) + " --json").status, 2) << "only of --self-test";
}

TEST_F(StartTest, WhyNamesTheRankThatWasStopped) {
  Process daemon = start(write("switchd.yaml", "eal: {huge: no}\n"));
  ASSERT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
  std::vector<Process> ranks;
  for (const char* rank : {"0", "1", "2"})
    ranks.push_back(Process({LOAD_WORKER, "shm:" + socket(), "train", rank, "3", "200000"}));
  const auto why = [&] {
    const Ended ended = shell(std::string(INACTL) + " why train --json --socket " + socket());
    return Json::parse(ended.output, nullptr, false);
  };
  const auto advances = [&] {
    const Json said = why();
    return said.contains("jobs") && said["jobs"].size() == 1 && said["jobs"][0]["advances"] == true;
  };
  for (int round = 0; round < 20 && !advances(); ++round) ::usleep(100'000);
  ASSERT_TRUE(advances()) << log();
  ranks[1].kill(SIGSTOP);
  Json reasons;
  // The others come to a halt when their windows are full.
  for (int round = 0; round < 20; ++round) {
    reasons = why().at("jobs").at(0).at("reasons");
    if (!reasons.empty() && reasons[0].at("cause") == "process_stopped") break;
  }
  ASSERT_FALSE(reasons.empty());
  EXPECT_EQ(reasons[0].at("cause"), "process_stopped") << reasons;
  EXPECT_EQ(reasons[0].at("ranks"), Json::array({1})) << reasons;
  EXPECT_THAT(reasons[0].at("text"), HasSubstr("rank 1 (pid " + std::to_string(ranks[1].pid())));
  EXPECT_THAT(reasons[0].at("text"), HasSubstr("allreduce of 200000 int32 sum"));
  ranks[1].kill(SIGCONT);
  EXPECT_TRUE(advances());
  ranks[0].kill(SIGTERM);  // which ends all after the same sum
  for (Process& rank : ranks) EXPECT_EQ(rank.wait(), 0);
  daemon.kill(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0) << log();
}

TEST_F(StartTest, ACheckLeavesARunningSwitchAndItsStateAlone) {
  const std::string file = write("switchd.yaml", "eal: {huge: no}\n");
  Process daemon = start(file);
  ASSERT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
  const std::string state = text_of(socket() + ".state");
  const Ended checked = check(file);
  EXPECT_EQ(checked.status, 1);
  EXPECT_THAT(checked.output, HasSubstr("another switch already listens on " + socket()));
  EXPECT_THAT(checked.output, HasSubstr("another switch uses the state file"));
  EXPECT_EQ(text_of(socket() + ".state"), state);
  EXPECT_TRUE(control::query_status(socket(), kDeadlineNs));
  daemon.kill(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0);
  EXPECT_EQ(check(file).status, 0);
  EXPECT_EQ(text_of(socket() + ".state"), state);
}

TEST_F(StartTest, KilledAtAnyMomentItComesBackAndServes) {
  const std::string file = write("switchd.yaml",
                                 "eal: {huge: no}\n"
                                 "aggregator: {slots: 4096, slot_bytes: 1024}\n"
                                 "static: {slots_per_job: 64}\n");
  std::mt19937 random(20261122);
  std::unique_ptr<Process> daemon;
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    daemon = std::make_unique<Process>(start(file));
    ASSERT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
    // Jobs are made; of some nobody comes, some run and end, some run on until the switch is back.
    const std::string name = "job-" + std::to_string(round) + "-";
    Process users({"/bin/sh", "-c",
                   "export INA_SOCKET=" + socket() + "; for i in 1 2 3 4; do eval \"$(" + INACTL +
                       " create " + name + "$i --workers 1 --ttl 5m)\" && case $i in 1|3) " +
                       LOAD_WORKER + " shm:" + socket() +
                       " \"$INA_JOB\" 0 1 5000 50 2 ;; esac; "
                       "done 2>&1"});
    ::usleep(static_cast<useconds_t>(random() % 500'000));
    daemon->kill(SIGKILL);
    daemon->wait();
    daemon = std::make_unique<Process>(start(file));
    ASSERT_TRUE(control::query_status(socket(), kDeadlineNs)) << log();
    const Ended fresh = shell(std::string(LOAD_WORKER) + " shm:" + socket() + " fresh 0 1 5000 3");
    EXPECT_THAT(fresh.output, testing::StartsWith("INA_OK")) << log();
    users.output();  // until the last of them has ended
    users.wait();
    daemon->kill(SIGKILL);
    daemon->wait();
  }
}

}  // namespace
}  // namespace ina
