// A switch as its administrator meets it: `inactl` against a real daemon, over the unix socket and
// over TLS, and workers that join with the ticket it prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "control/client.h"
#include "tests/support/certificates.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using control::Json;
using test::Process;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  std::string output;  ///< stdout and stderr
  int status = 0;
};

class InactlAdminTest : public testing::Test {
 protected:
  std::string socket() const { return dir_ / "switch.sock"; }
  std::string tokens() const { return dir_ / "tokens"; }
  void write(const std::string& path, const std::string& text) const {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0600);
  }
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(dir_ / "log").rdbuf();
    return text.str();
  }
  static uint16_t free_port() {
    const auto listener = control::Listener::open_tcp("127.0.0.1:0", 1'000'000'000);
    return listener->port();
  }
  void start(const std::string& admin = "") {
    write(tokens(), "vision a-token-of-their-own\n");
    write(dir_ / "switchd.yaml",
          "aggregator: {slots: 512, slot_bytes: 1024}\n"
          "static: {slots_per_job: 64}\n"
          "eal: {file_prefix: ina-admin-" +
              std::to_string(::getpid()) + ", huge: no}\nlog: {file: " + (dir_ / "log") +
              "}\ncontrol: {socket: " + socket() + ", listen: \"127.0.0.1:" +
              std::to_string(free_port()) + "\", token_file: " + tokens() +
              "}\ntenants: [{name: vision, jobs_max: 2}]\n" + admin);
    daemon_ = std::make_unique<Process>(
        std::vector<std::string>{INA_SWITCHD, "--config", dir_ / "switchd.yaml"});
    ASSERT_TRUE(control::query_status(socket(), 20'000'000'000)) << log();
  }
  Outcome inactl(const std::string& arguments) const {
    Process process(
        {"/bin/sh", "-c", "INA_SOCKET=" + socket() + " " + INACTL + " " + arguments + " 2>&1"});
    Outcome outcome;
    outcome.output = process.output();
    outcome.status = process.wait();
    return outcome;
  }
  /// What a succeeding command printed.
  std::string ran(const std::string& arguments) const {
    const Outcome outcome = inactl(arguments);
    EXPECT_EQ(outcome.status, 0) << arguments << ": " << outcome.output;
    return outcome.output;
  }
  /// What a failing one did.
  std::string complaint(const std::string& arguments) const {
    const Outcome outcome = inactl(arguments);
    EXPECT_EQ(outcome.status, 1) << arguments << ": " << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("inactl: "));
    return outcome.output;
  }
  Json status() const {
    const auto status = control::query_status(socket(), 5'000'000'000);
    return status ? *status : Json();
  }

  test::TempDir dir_;
  std::unique_ptr<Process> daemon_;
};

TEST_F(InactlAdminTest, WhatCreatePrintsIsAllThatWorkersNeed) {
  start();
  const std::string script = ran("create \"it's\" --workers 2 --tenant vision --ttl 5m");
  EXPECT_THAT(script, HasSubstr("of tenant vision: 2 workers, 64 slots, a window of 32 fragments"));
  EXPECT_THAT(script, HasSubstr("waits 5 min for its workers"));
  EXPECT_THAT(ran("status"), HasSubstr("waiting for ranks 0, 1 to join"));
  std::vector<Process> workers;
  for (const char* rank : {"0", "1"})
    workers.emplace_back(std::vector<std::string>{"/bin/sh", "-c",
                                                  script + "exec " + LOAD_WORKER +
                                                      " shm:" + socket() + " \"$INA_JOB\" " + rank +
                                                      " $INA_WORLD_SIZE 20000 10 0"});
  for (auto& worker : workers) EXPECT_EQ(worker.output(), "INA_OK \n") << log();
  EXPECT_TRUE(status()["jobs"].empty());
  const auto ticket = script.substr(script.find("INA_TICKET=") + 11, 32);
  EXPECT_THAT(log(), testing::Not(HasSubstr(ticket)));
  Process late({"/bin/sh", "-c",
                script + "exec " + LOAD_WORKER + " shm:" + socket() + " \"$INA_JOB\" 0 2 1 1 0"});
  EXPECT_THAT(late.output(), StartsWith("INA_ERR_REFUSED the ticket is unknown"));
}

TEST_F(InactlAdminTest, CreateSaysWhyNotAndByHowMuch) {
  start();
  EXPECT_THAT(complaint("create a --workers 2 --slots-floor 4096 --window 8MiB"),
              HasSubstr("job 'a' does not fit: the job needs 4096 slots in one piece, 512 of 512 "
                        "are free and the largest piece is 512: short by 3584"));
  EXPECT_THAT(complaint("create a --workers 65"), HasSubstr("65 workers are not in 1..64"));
  ran("create a --workers 2 --tenant vision");
  ran("create b --workers 2 --tenant vision");
  EXPECT_THAT(complaint("create c --workers 2 --tenant vision"),
              HasSubstr("tenant 'vision' has 2 of 2 jobs: short by 1"));
  EXPECT_THAT(complaint("create a --workers 2"), HasSubstr("there is a job 'a' already"));
  EXPECT_THAT(ran("tenants"), HasSubstr("vision  2 of 2        4         128            128"));
  EXPECT_EQ(Json::parse(ran("tenants -j"))[0]["workers"], 4);
  const Json made = Json::parse(ran("create c --workers 3 --priority-max 9 --ttl 2h -j"));
  EXPECT_EQ(made["ticket"].get<std::string>().size(), 32u);
  EXPECT_EQ(made["priority_max"], 9);
  EXPECT_EQ(made["expires_in"], "7200s");
  EXPECT_EQ(status()["jobs"][2]["owner"], "uid:" + std::to_string(::getuid()));
}

TEST_F(InactlAdminTest, DrainWaitsForTheLastJobAndAbortEndsIt) {
  start();
  ran("create a --workers 1");
  ran("create b --workers 1");
  EXPECT_EQ(ran("drain"), "2 jobs are left: a, b\n");
  EXPECT_THAT(complaint("drain --wait 1s"), HasSubstr("not drained after 1 s"));
  EXPECT_THAT(complaint("create c --workers 1"), HasSubstr("the switch is drained"));
  Process drain({"/bin/sh", "-c", "INA_SOCKET=" + socket() + " " + INACTL + " drain --wait 30s"});
  ran("abort a --reason maintenance");
  EXPECT_THAT(complaint("abort a"), HasSubstr("there is no job 'a'"));
  ran("abort b");
  EXPECT_THAT(drain.output(), testing::EndsWith("drained: no job is left, and none is let in\n"));
  EXPECT_EQ(drain.wait(), 0);
  ran("undrain");
  ran("create c --workers 1");
  EXPECT_THAT(complaint("kick c 0"), HasSubstr("job 'c' has no rank 0 at present"));
}

TEST_F(InactlAdminTest, TokensAreReadAgainByCommandAndBySignal) {
  start();
  write(tokens(), "vision a-token-of-their-own\nspeech another-token-of-16\n");
  EXPECT_EQ(ran("reload"), "2 tokens\n");
  write(tokens(), "vision short\n");
  EXPECT_THAT(complaint("reload"), HasSubstr("line 1: the token has not 16..256 characters"));
  write(tokens(), "a a-token-of-their-own\nb another-token-of-16\nc a-third-token-of-16\n");
  daemon_->kill(SIGHUP);
  for (int i = 0; i < 1000 && log().find("tokens=\"3\" by=\"SIGHUP\"") == std::string::npos; ++i)
    ::usleep(5000);
  EXPECT_THAT(log(), HasSubstr("tokens=\"3\" by=\"SIGHUP\""));
}

TEST_F(InactlAdminTest, OverTcpByMutualTls) {
  test::CertificateAuthority authority(dir_, "ca");
  test::CertificateAuthority stranger(dir_, "stranger");
  const auto own = authority.issue("switch", "IP:127.0.0.1");
  const auto operator_files = authority.issue("operator");
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  start("admin: {listen: \"" + address + "\", certificate: " + own.certificate +
        ", key: " + own.key + ", client_ca: " + authority.file() + "}\n");
  const auto by = [&](const std::string& ca, const test::CertificateFiles& files) {
    return " --admin " + address + " --ca " + ca + " --cert " + files.certificate + " --key " +
           files.key;
  };
  EXPECT_THAT(ran("create far --workers 2 --tenant vision" + by(authority.file(), operator_files)),
              HasSubstr("INA_TICKET="));
  EXPECT_THAT(log(), HasSubstr("by=\"certificate operator at ipv4:127.0.0.1:"));
  EXPECT_THAT(complaint("create near --workers 2" + by(authority.file(), operator_files)),
              HasSubstr("Give --tenant"));
  EXPECT_THAT(complaint("tenants --admin " + address), HasSubstr("give --ca, --cert and --key"));
  EXPECT_THAT(complaint("tenants" + by(stranger.file(), operator_files)),
              HasSubstr("is it signed by --ca"));
  EXPECT_THAT(complaint("tenants" + by(authority.file(), stranger.issue("operator"))),
              HasSubstr("is --cert signed by the switch's admin.client_ca?"));
  EXPECT_THAT(complaint("tenants" + by("/no/such/file", operator_files)),
              HasSubstr("cannot open /no/such/file (--ca)"));
}

TEST_F(InactlAdminTest, WithoutASwitchItSaysWhereItLooked) {
  EXPECT_THAT(complaint("undrain"),
              HasSubstr("no answer from the switch at unix:" + socket() + ".admin"));
  EXPECT_THAT(complaint("undrain"), HasSubstr("is this its admin.socket?"));
  EXPECT_THAT(complaint("undrain --admin /no/where"), HasSubstr("unix:/no/where"));
  EXPECT_NE(inactl("create --workers 2").status, 0);
  EXPECT_NE(inactl("create a --workers 2 --ttl soon").status, 0);
}

TEST_F(InactlAdminTest, ASwitchWithoutAdministratorsHasNoSocket) {
  start("admin: {enabled: false}\n");
  EXPECT_THAT(complaint("undrain"), HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace ina
