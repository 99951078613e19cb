// ina-switchd as an operator and its users meet it: real processes, DPDK, the shm port and memif.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "control/client.h"
#include "tests/support/certificates.h"
#include "tests/support/free_port.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using test::Process;
using test::TempDir;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
namespace fs = std::filesystem;

class DaemonTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  std::string read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(dir_ / name).rdbuf();
    return text.str();
  }
  std::string prefix() const { return "ina-e2e-" + std::to_string(::getpid()); }
  std::string socket() const { return dir_ / "switch.sock"; }
  std::string url() const { return "shm:" + socket(); }

  /// A configuration with this test's own paths; `more` is appended, `control` to its section.
  std::string config(const std::string& more = "", const std::string& control = "") {
    return write("switchd.yaml",
                 "aggregator: {slots: 512, slot_bytes: 1024}\n"
                 "static: {slots_per_job: 64}\n"
                 "eal: {file_prefix: " +
                     prefix() +
                     ", huge: no}\n"
                     "log: {file: " +
                     (dir_ / "log") +
                     "}\n"
                     "control: {socket: " +
                     socket() + control + "}\n" + more);
  }
  Process start(const std::string& file) {
    Process daemon({INA_SWITCHD, "--config", file});
    const auto status = control::query_status(socket(), 20'000'000'000);
    EXPECT_TRUE(status) << status.error().text << "\n" << read("log");
    return daemon;
  }
  struct Ended {
    int status = 0;
    std::string said;
  };
  /// Starts a switch that will not serve; it says why on its standard error.
  static Ended failed_start(const std::string& arguments) {
    Process daemon(
        {"/bin/sh", "-c", std::string("exec ") + INA_SWITCHD + " " + arguments + " 2>&1"});
    Ended ended{.said = daemon.output()};
    ended.status = daemon.wait();
    return ended;
  }
  Process worker(const std::string& url, const std::string& job, int rank, int world,
                 size_t elements, int times, int pause_ms = 0) {
    return Process({LOAD_WORKER, url, job, std::to_string(rank), std::to_string(world),
                    std::to_string(elements), std::to_string(times), std::to_string(pause_ms)});
  }
  /// Waits until the switch has completed `results` fragments.
  uint64_t await_results(uint64_t results) const {
    for (;;) {
      const auto status = control::query_status(socket(), 20'000'000'000);
      const uint64_t now = status ? (*status)["aggregator"]["results"].get<uint64_t>() : 0;
      if (now >= results) return now;
      ::usleep(1000);
    }
  }

  TempDir dir_;
};

TEST_F(DaemonTest, ServesAndLeavesNothingBehind) {
  Process daemon = start(config());
  std::vector<Process> workers;
  for (int rank = 0; rank < 4; ++rank) workers.push_back(worker(url(), "job", rank, 4, 20'000, 20));
  for (auto& process : workers) {
    EXPECT_EQ(process.output(), "INA_OK \n");
    EXPECT_EQ(process.wait(), 0);
  }
  const auto status = control::query_status(socket(), 1'000'000'000);
  ASSERT_TRUE(status);
  EXPECT_EQ((*status)["aggregator"]["absorbed_bytes"], 4u * 20 * 20'000 * 4);
  daemon.kill(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0) << read("log");
  EXPECT_FALSE(fs::exists(socket()));
  for (const char* place : {"/var/run/dpdk", "/dev/hugepages", "/tmp/dpdk"})
    if (std::error_code none; fs::exists(place, none)) {
      for (const auto& entry : fs::directory_iterator(place))
        EXPECT_THAT(entry.path().string(), Not(HasSubstr(prefix())));
    }
  EXPECT_THAT(read("log"), HasSubstr("stopped"));
}

TEST_F(DaemonTest, SwitchThatIsNotStartedAgainIsAnError) {
  Process daemon = start(config());
  ::setenv("INA_REJOIN_TIMEOUT_US", "500000", 1);
  Process first = worker(url(), "job", 0, 2, 50'000, -1);
  Process second = worker(url(), "job", 1, 2, 50'000, -1);
  ::unsetenv("INA_REJOIN_TIMEOUT_US");
  await_results(100);
  daemon.kill(SIGINT);
  EXPECT_EQ(daemon.wait(), 0);
  EXPECT_THAT(first.output(), StartsWith("INA_ERR_SWITCH_LOST"));
  EXPECT_THAT(second.output(), StartsWith("INA_ERR_SWITCH_LOST"));
}

TEST_F(DaemonTest, GroupsOfWorkersOverMemifAndShm) {
  const std::string memif = dir_ / "memif.sock";
  const Process daemon = start(config(
      "ports:\n"
      "  - {name: shm0, type: shm}\n"
      "  - {name: memif0, type: ethdev, ip: 10.0.0.1, mtu: 2000, device: \"net_memif0,role=server,"
      "id=0,socket=" +
      memif + ",socket-abstract=no,rsize=10,bsize=2048\"}\n"));
  const auto member = [&](const std::string& url, int rank) {
    return Process({GROUP_WORKER, url, "split", std::to_string(rank), "2", "1", "20"});
  };
  Process remote =
      member("memif:" + memif + "?ip=10.0.0.2&udp_port=9000&mtu=2000&control=" + socket(), 0);
  Process local = member(url(), 1);
  EXPECT_EQ(remote.output(), "ok 60\n") << read("log");
  EXPECT_EQ(local.output(), "ok 60\n");
}

/// With several lanes memif's one queue is lane 0's, which receives and sends for the others.
class DaemonLanesTest : public DaemonTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Lcores, DaemonLanesTest, ::testing::Values(1, 2));

TEST_P(DaemonLanesTest, RestartsGoUnnoticedByItsWorkers) {
  const std::string memif = dir_ / "memif.sock";
  const std::string file = config(
      "switch: {lcores: " + std::to_string(GetParam()) +
      "}\n"
      "ports:\n"
      "  - {name: shm0, type: shm}\n"
      "  - {name: memif0, type: ethdev, ip: 10.0.0.1, mtu: 2000, device: \"net_memif0,role=server,"
      "id=0,socket=" +
      memif + ",socket-abstract=no,rsize=10,bsize=2048\"}\n");
  constexpr uint64_t kFragments = 20;
  constexpr int kPauseMs = 200;
  auto daemon = std::make_unique<Process>(start(file));
  Process remote =
      worker("memif:" + memif + "?ip=10.0.0.2&udp_port=9000&mtu=2000&control=" + socket(), "mixed",
             0, 2, 256 * kFragments, 12, kPauseMs);
  Process local = worker(url(), "mixed", 1, 2, 256 * kFragments, 12, kPauseMs);
  for (const int signal : {SIGTERM, SIGKILL}) {
    // In the pause after a sum.
    const uint64_t done = await_results(kFragments);
    await_results((done / kFragments + 1) * kFragments);
    ::usleep(kPauseMs / 4 * 1000);
    daemon->kill(signal);
    EXPECT_EQ(daemon->wait(), signal == SIGKILL ? -SIGKILL : 0) << read("log");
    daemon = std::make_unique<Process>(start(file));
  }
  EXPECT_EQ(remote.output(), "INA_OK \n") << read("log");
  EXPECT_EQ(local.output(), "INA_OK \n");
  EXPECT_THAT(read("log"), HasSubstr("job running again job=\"mixed\""));
}

TEST_F(DaemonTest, DamagedStateIsRefusedBeforeAnythingOpens) {
  const std::string file = config();
  write("switch.sock.state", "{\"boots\"");
  const auto [status, said] = failed_start("--config " + file);
  EXPECT_EQ(status, 1);
  EXPECT_THAT(said, HasSubstr("the state file " + socket() + ".state is damaged"));
  EXPECT_FALSE(fs::exists(socket()));
}

TEST_F(DaemonTest, BadConfigurationNamesEveryPlaceAndOpensNothing) {
  const std::string file = write("bad.yaml", "aggregator:\n  slots: 0\n  slotz: 3\n");
  Process daemon({"/bin/sh", "-c", std::string(INA_SWITCHD) + " --config " + file + " 2>&1"});
  const std::string said = daemon.output();
  EXPECT_EQ(daemon.wait(), 2);
  EXPECT_THAT(said, HasSubstr(file + ":2:10: aggregator.slots: 0 is not in 1..2^24"));
  EXPECT_THAT(said, HasSubstr(file + ":3:3: "));
  Process check(
      {"/bin/sh", "-c", std::string(INA_SWITCHD) + " --check --config " + file + " 2>&1"});
  check.output();
  EXPECT_EQ(check.wait(), 2);
  Process good({INA_SWITCHD, "--check", "--config", config()});
  EXPECT_THAT(good.output(), HasSubstr("ok"));
  EXPECT_EQ(good.wait(), 0);
}

TEST_F(DaemonTest, ShippedConfigurationsAreValid) {
  for (const auto& entry : fs::directory_iterator(CONF_DIR)) {
    if (entry.path().extension() != ".yaml") continue;
    // 1: this machine lacks what they name, such as /run/ina.
    Process check({INA_SWITCHD, "--check", "--config", entry.path()});
    EXPECT_THAT(check.wait(), testing::AnyOf(0, 1)) << entry.path();
  }
}

TEST_F(DaemonTest, FailedStartSaysWhatFailedAndWhatToDo) {
  const auto [status, said] =
      failed_start("--config " + config() + " --socket " + (dir_ / "no/such/folder/s.sock"));
  EXPECT_EQ(status, 1);
  EXPECT_THAT(said, HasSubstr("no/such/folder/s.sock"));
  EXPECT_THAT(said, HasSubstr("create its folder first"));

  Process first = start(config());
  const std::string own = write("second.yaml", "eal: {file_prefix: " + prefix() +
                                                   "-2, huge: no}\n"
                                                   "log: {file: " +
                                                   (dir_ / "log2") + "}\n");
  const auto second = failed_start("--config " + own + " --socket " + socket());
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.said, HasSubstr("another switch uses the state file"));
}

TEST_F(DaemonTest, InactlShowsWhyNothingHappens) {
  Process daemon = start(config());
  Process lonely = worker(url(), "train", 1, 3, 10, 1);
  for (;;) {
    const auto status = control::query_status(socket(), 1'000'000'000);
    if (status && !(*status)["jobs"].empty() && !(*status)["jobs"][0]["joined"].empty()) break;
    ::usleep(1000);
  }
  Process table({INACTL, "status", "--socket", socket()});
  EXPECT_THAT(table.output(), HasSubstr("/train: waiting for ranks 0, 2 to join"));
  EXPECT_EQ(table.wait(), 0);
  Process json({INACTL, "status", "-j", "--socket", socket()});
  EXPECT_EQ(control::Json::parse(json.output())["jobs"][0]["missing"], (std::vector{0, 2}));
  EXPECT_EQ(json.wait(), 0);
  Process nobody({"/bin/sh", "-c", std::string(INACTL) + " status --socket /no/switch.sock 2>&1"});
  EXPECT_THAT(nobody.output(), HasSubstr("/no/switch.sock"));
  EXPECT_EQ(nobody.wait(), 3);
}

TEST_F(DaemonTest, MemifWorkerAndShmWorkerAreOneJob) {
  const std::string memif = dir_ / "memif.sock";
  Process daemon = start(config(
      "ports:\n"
      "  - {name: shm0, type: shm}\n"
      "  - {name: memif0, type: ethdev, ip: 10.0.0.1, mtu: 2000, device: \"net_memif0,role=server,"
      "id=0,socket=" +
      memif + ",socket-abstract=no,rsize=10,bsize=2048\"}\n"));
  Process remote = worker(
      "memif:" + memif + "?ip=10.0.0.2&udp_port=9000&mtu=2000&port=memif0&control=" + socket(),
      "mixed", 0, 2, 20'000, 10);
  Process local = worker(url(), "mixed", 1, 2, 20'000, 10);
  EXPECT_EQ(remote.output(), "INA_OK \n");
  EXPECT_EQ(local.output(), "INA_OK \n");
  const auto status = control::query_status(socket(), 1'000'000'000);
  ASSERT_TRUE(status);
  for (const auto& port : (*status)["ports"]) {
    EXPECT_GE(port["rx_packets"], 10 * 79) << port;
    EXPECT_GE(port["rx_bytes"].get<uint64_t>() / 80'000, 10u) << port;  // some come again
  }
  daemon.kill(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0) << read("log");
}

/// Two workers who join over TCP, each behind a memif port of its own.
class RemoteDaemonTest : public DaemonTest {
 protected:
  RemoteDaemonTest() { address_ = "127.0.0.1:" + std::to_string(test::free_port()); }
  /// `more`: of the section control.
  std::string remote_config(const std::string& more) {
    std::string ports = "ports:\n";
    for (const char* name : {"memif0", "memif1"})
      ports += std::string("  - {name: ") + name +
               ", type: ethdev, ip: 10.0.0.1, mtu: 2000, device: \"net_" + name +
               ",role=server,id=0,socket=" + (dir_ / name) +
               ",socket-abstract=no,rsize=10,bsize=2048\"}\n";
    return config(ports, ", listen: \"" + address_ + "\", " + more);
  }
  Process remote(const std::string& scheme, int rank) {
    const std::string name = "memif" + std::to_string(rank);
    // Its address is that of its control connection.
    return worker("memif:" + (dir_ / name) +
                      "?ip=127.0.0.1&udp_port=" + std::to_string(9000 + rank) +
                      "&mtu=2000&port=" + name + "&control=" + scheme + address_,
                  "far", rank, 2, 256 * 20, 8, 200);
  }
  /// While the switch is killed and started again, both get all their sums.
  void expect_to_come_back(const std::string& file, const std::string& scheme) {
    auto daemon = std::make_unique<Process>(start(file));
    Process first = remote(scheme, 0);
    Process second = remote(scheme, 1);
    await_results(20);
    Process table({INACTL, "status", "-j", "--socket", scheme + address_});
    const std::string shown = table.output();
    ASSERT_EQ(table.wait(), 0) << shown << read("log");
    const auto status = control::Json::parse(shown);
    EXPECT_EQ(status["jobs"][0]["tenant"], "train");
    daemon->kill(SIGKILL);
    EXPECT_EQ(daemon->wait(), -SIGKILL);
    daemon = std::make_unique<Process>(start(file));
    EXPECT_EQ(first.output(), "INA_OK \n") << read("log");
    EXPECT_EQ(second.output(), "INA_OK \n");
    EXPECT_THAT(read("log"), HasSubstr("job running again job=\"far\""));
  }
  /// For the processes that are started while it lives.
  class Variable {
   public:
    Variable(const char* name, const std::string& value) : name_(name) {
      ::setenv(name, value.c_str(), 1);
    }
    Variable(const Variable&) = delete;
    ~Variable() { ::unsetenv(name_); }

   private:
    const char* name_;
  };
  std::string address_;
};

TEST_F(RemoteDaemonTest, WorkersWhoJoinOverTcpAreOneJobAndComeBackAfterARestart) {
  const std::string tokens = write("tokens", "train a-token-of-their-own\n");
  fs::permissions(tokens, fs::perms::owner_read | fs::perms::owner_write);
  const std::string file = remote_config("token_file: " + tokens);
  {
    const Variable wrong("INA_TOKEN_FILE", write("wrong", "a-token-of-another-kind\n"));
    Process daemon = start(file);
    EXPECT_THAT(remote("tcp:", 1).output(), StartsWith("INA_ERR_REFUSED the token is unknown"));
    daemon.kill(SIGTERM);
    daemon.wait();
  }
  const Variable token("INA_TOKEN_FILE", write("token", "a-token-of-their-own\n"));
  expect_to_come_back(file, "tcp:");
  EXPECT_THAT(read("log"), Not(HasSubstr("a-token-of")));
}

TEST_F(RemoteDaemonTest, WorkersWithCertificatesAreOneJobAndComeBackAfterARestart) {
  test::CertificateAuthority authority(dir_, "ca");
  test::CertificateAuthority stranger(dir_, "stranger");
  const auto own = authority.issue("the switch", "IP:127.0.0.1");
  const auto train = authority.issue("train");
  const std::string file =
      remote_config("tls_certificate: " + own.certificate + ", tls_key: " + own.key +
                    ", tls_client_ca: " + authority.file());
  const Variable certificate("INA_TLS_CERT", train.certificate);
  const Variable key("INA_TLS_KEY", train.key);
  {
    Process daemon = start(file);
    EXPECT_THAT(remote("tls:", 1).output(), HasSubstr("Set INA_TLS_CA"));
    const Variable other("INA_TLS_CA", stranger.file());
    EXPECT_THAT(remote("tls:", 1).output(),
                HasSubstr("the switch's certificate is not accepted: "));
    EXPECT_THAT(remote("tcp:", 1).output(), HasSubstr("use tls:HOST:PORT"));
    daemon.kill(SIGTERM);
    daemon.wait();
  }
  const Variable ca("INA_TLS_CA", authority.file());
  expect_to_come_back(file, "tls:");
}

TEST_F(RemoteDaemonTest, LibinaBringsNoOpenSslUntilItIsAskedFor) {
  Process libraries({"/usr/bin/ldd", LIBINA});
  EXPECT_THAT(libraries.output(), Not(HasSubstr("libssl")));
}

}  // namespace
}  // namespace ina
