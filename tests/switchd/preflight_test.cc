// The findings of `ina-switchd --check` on a machine: each check is made to fail once, alone.
#include "switchd/startup/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "control/socket.h"
#include "switchd/jobs/state_file.h"
#include "tests/support/temp_dir.h"

namespace ina::switchd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

auto problem(const std::string& check, const std::string& text) {
  return AllOf(Field(&Finding::check, check), Field(&Finding::text, HasSubstr(text)),
               Field(&Finding::fatal, true));
}
auto warning(const std::string& check, const std::string& text) {
  return AllOf(Field(&Finding::check, check), Field(&Finding::text, HasSubstr(text)),
               Field(&Finding::fatal, false));
}

class PreflightTest : public testing::Test {
 protected:
  PreflightTest() {
    config_.control.socket = folder_ / "switch.sock";
    machine_.cpus = {0, 1, 2, 3};
    machine_.free_bytes = uint64_t{8} << 30;
    machine_.raw_sockets = machine_.network_admin = machine_.bpf = true;
    machine_.mtu_of = [](const std::string& name) -> std::optional<uint32_t> {
      if (name == "eth0") return 1500;
      if (name == "jumbo") return 9000;
      return std::nullopt;
    };
    machine_.receive_queues_of = [](const std::string&) { return 1u; };
    machine_.pci_driver_of = [](const std::string& address) -> std::optional<std::string> {
      if (address == "0000:01:00.0") return "vfio-pci";
      if (address == "0000:01:00.1") return "ixgbe";
      if (address == "0000:01:00.2") return "";
      return std::nullopt;
    };
  }
  std::vector<Finding> found() const { return preflight(config_, machine_).findings; }
  config::PortConfig& add_port(const std::string& device) {
    config::PortConfig port{.name = "net" + std::to_string(config_.ports.size())};
    port.type = config::PortType::kEthdev;
    port.device = device;
    port.ip = 0x0a000001;
    config_.ports.push_back(port);
    return config_.ports.back();
  }
  /// One for slots of 8 KiB by AF_PACKET.
  void add_jumbo_port() {
    config_.aggregator.slot_bytes = 8192;
    config_.aggregator.slots = 512;
    add_port("net_af_packet" + std::to_string(config_.ports.size()) +
             ",iface=jumbo,qpairs=1,blocksz=36864,framesz=9216,framecnt=512")
        .mtu_bytes = 9000;
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0600);
    return path;
  }

  test::TempDir folder_;
  config::Config config_;
  Machine machine_;
};

TEST_F(PreflightTest, NothingIsWrongWithADefaultAndNothingIsLeftBehind) {
  const Preflight result = preflight(config_, machine_);
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_TRUE(result.may_start());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / ""));
}

TEST_F(PreflightTest, SeesAnotherSwitchAtTheSocketOrSomethingElse) {
  {
    const auto other = control::Listener::open(config_.control.socket, 0600);
    ASSERT_TRUE(other);
    EXPECT_THAT(found(), ElementsAre(problem("control.socket", "another switch already listens")));
  }
  write("switch.sock", "text");
  EXPECT_THAT(found(), ElementsAre(problem("control.socket", "exists and is not a socket")));
}

TEST_F(PreflightTest, SeesOneSocketForTwo) {
  config_.admin.socket = config_.control.socket;
  EXPECT_THAT(found(), ElementsAre(problem("admin.socket", "are the same path")));
}

TEST_F(PreflightTest, AGroupHasANameOrANumber) {
  config_.admin.group = "no-such-group";
  EXPECT_THAT(found(), testing::Contains(problem("admin.group", "has no group 'no-such-group'")));
  config_.admin.group = "23456";
  EXPECT_THAT(found(), Not(testing::Contains(Field(&Finding::check, "admin.group"))));
}

TEST_F(PreflightTest, SeesFilesThatAreTheSameByAnyName) {
  const std::string file = write("switchd.yaml", "log: {}\n");
  const auto found_with_file = [&] { return preflight(config_, machine_, file).findings; };
  const auto same = [](const std::string& a, const std::string& b) {
    return ElementsAre(AllOf(problem("places", a), problem("places", b)));
  };
  config_.log.file = config_.control.state_path();
  EXPECT_THAT(found(), same("log.file", "control.state"));
  for (const char* beside : {".new", ".spare"}) {
    config_.log.file = config_.control.state_path() + beside;
    EXPECT_THAT(found(), same("log.file", "the file beside control.state"));
  }
  config_.log.file = file;
  EXPECT_THAT(found_with_file(), same("log.file", "the configuration's file"));
  config_.log.file = folder_ / "./switchd.yaml";
  EXPECT_THAT(found_with_file(), same("log.file", "the configuration's file"));
  std::filesystem::create_symlink(file, folder_ / "link");
  std::filesystem::create_hard_link(file, folder_ / "hard");
  for (const char* name : {"link", "hard"}) {
    config_.log.file = folder_ / name;
    EXPECT_THAT(found_with_file(), same("log.file", "the configuration's file")) << name;
  }
  config_.log.file.clear();
  config_.control.state = config_.control.socket;
  EXPECT_THAT(found(), same("control.state", "control.socket"));
  config_.control.state = folder_ / "none/../switch.sock.admin";
  EXPECT_THAT(found(), testing::Contains(problem("places", "admin.socket and control.state")));
}

TEST_F(PreflightTest, AFileMayBeReadForSeveralPurposes) {
  config_.admin.tls = {folder_ / "one.pem", folder_ / "one.pem", folder_ / "one.pem"};
  EXPECT_THAT(found(), IsEmpty());
  config_.log.file = "/dev/null";
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(PreflightTest, SeesAddressesThatAreTheSame) {
  const auto taken = control::Listener::open_tcp("127.0.0.1:0", 1'000'000'000);
  ASSERT_TRUE(taken);
  const std::string port = std::to_string(taken->port());
  config_.control.allow_anonymous = true;
  config_.control.listen = "127.0.0.1:" + port;
  config_.metrics.listen = "0.0.0.0:" + port;
  EXPECT_THAT(found(), testing::Contains(problem(
                           "places", "metrics.listen (0.0.0.0:" + port + ") and control.listen")));
  config_.metrics.listen = "127.0.0.2:" + port;
  EXPECT_THAT(found(), Not(testing::Contains(Field(&Finding::check, "places"))));
  config_.metrics.listen = "127.0.0.1:0";
  config_.control.listen = "127.0.0.1:0";
  EXPECT_THAT(found(), IsEmpty()) << "a port of the system's choice";
}

TEST_F(PreflightTest, SeesLimitsOfTheProcessThatAreTooLow) {
  int low = -1;
  uint64_t most = 0;
  machine_.limits.most = [&](int resource) { return resource == low ? most : RLIM_INFINITY; };
  EXPECT_THAT(found(), IsEmpty());
  for (const auto& [resource, text] :
       {std::pair(RLIMIT_NOFILE, "ulimit -n"), std::pair(RLIMIT_FSIZE, "ulimit -f"),
        std::pair(RLIMIT_AS, "ulimit -v"), std::pair(RLIMIT_STACK, "ulimit -s")}) {
    low = resource;
    most = 20;
    EXPECT_THAT(found(), ElementsAre(problem("limits", text)));
    most = uint64_t{1} << 40;
    EXPECT_THAT(found(), IsEmpty());
  }
  low = RLIMIT_NOFILE;
  most = needed_limits(config_).open_files;
  EXPECT_THAT(found(), IsEmpty());
  config_.switchd.lcores = 8;
  EXPECT_THAT(found(), ElementsAre(problem("limits", "needs " + std::to_string(most + 56))));
  config_.switchd.lcores = 1;
  machine_.limits.startable_threads = [](size_t) { return size_t{12}; };
  EXPECT_THAT(found(), ElementsAre(problem("limits", "no more than 12 threads")));
}

TEST_F(PreflightTest, SeesDevicesThatAreMistyped) {
  add_port("");
  const auto with = [&](const std::string& device) {
    config_.ports.back().device = device;
    return found();
  };
  EXPECT_THAT(with("net_af_packt0,iface=eth0"),
              ElementsAre(problem("ports", "did you mean 'net_af_packet'?")));
  EXPECT_THAT(with("af_xdp0,iface=eth0"),
              ElementsAre(problem("ports", "did you mean 'net_af_xdp'?")));
  EXPECT_THAT(with("eth0"), ElementsAre(problem("ports", "write net_af_packet0,iface=NAME")));
  EXPECT_THAT(with("net_af_packet0,ifcae=eth0"),
              ElementsAre(problem("ports", "no argument 'ifcae': did you mean 'iface'?")));
  EXPECT_THAT(with("net_tap0,qpairs=2"),
              ElementsAre(problem("ports", "no argument 'qpairs': it has iface, remote, mac")));
  EXPECT_THAT(with("net_af_packet0,iface=eth0,qpairs=one"),
              ElementsAre(problem("ports", "qpairs=one is not a whole number")));
  EXPECT_THAT(with("net_memif0,role"), ElementsAre(problem("ports", "write role=VALUE")));
  EXPECT_THAT(with("net_pcap0,"), ElementsAre(problem("ports", "no argument ''")));
  for (const char* device : {"0000:01:00.0", "01:00.0", "net_null0", "net_ring0,nodeaction=a",
                             "net_pcap0,iface=jumbo,rx_pcap=/dev/null"})
    EXPECT_THAT(with(device), Not(testing::Contains(problem("ports", "did you mean")))) << device;
}

TEST_F(PreflightTest, SeesAFolderThatIsMissing) {
  config_.control.socket = folder_ / "none/switch.sock";
  EXPECT_THAT(found(), ElementsAre(problem("control.socket", "create it first"),
                                   problem("control.state", "create its folder first"),
                                   problem("admin.socket", "create it first")));
  config_.control.socket = std::string(200, 'x');
  EXPECT_THAT(found(), testing::Contains(problem("control.socket", "must have 1 to 107")));
}

TEST_F(PreflightTest, SeesAStateFileThatIsDamagedOrInUse) {
  const std::string path = write("switch.sock.state", "{");
  EXPECT_THAT(found(), ElementsAre(problem("control.state", "is damaged")));
  write("switch.sock.state", "");
  {
    const auto used = StateFile::open(path);
    ASSERT_TRUE(used);
    EXPECT_THAT(found(), ElementsAre(problem("control.state", "another switch uses")));
  }
  EXPECT_THAT(found(), IsEmpty());
  EXPECT_EQ(StateFile::open(path)->boots(), 2u) << "a check counts as no start";
}

TEST_F(PreflightTest, SeesAddressesThatCannotBeListenedOn) {
  const auto taken = control::Listener::open_tcp("127.0.0.1:0", 1'000'000'000);
  ASSERT_TRUE(taken);
  config_.control.listen = "127.0.0.1:" + std::to_string(taken->port());
  config_.control.allow_anonymous = true;
  EXPECT_THAT(found(), ElementsAre(problem("control.listen", "another program listens there")));
  config_.control.listen = "203.0.113.7:7583";
  EXPECT_THAT(found(), ElementsAre(problem("control.listen", "no address of this machine")));
  config_.control.listen = "127.0.0.1:0";
  EXPECT_THAT(found(), IsEmpty());
  config_.control.allow_anonymous = false;
  EXPECT_THAT(found(), ElementsAre(problem("control.listen", "would let anybody in")));
}

TEST_F(PreflightTest, SeesCredentialsThatCannotBeRead) {
  config_.control.listen = "127.0.0.1:0";
  config_.control.token_file = folder_ / "tokens";
  EXPECT_THAT(found(), ElementsAre(problem("control.token_file", "tokens")));
  write("tokens", "vision a-token-of-their-own\n");
  EXPECT_THAT(found(), IsEmpty());
  config_.control.tls.certificate = folder_ / "cert.pem";
  config_.control.tls.key = folder_ / "key.pem";
  config_.control.require_client_certificate = false;
  EXPECT_THAT(found(), ElementsAre(problem("control.tls_certificate", "cert.pem")));
  config_.control.tls.certificate.clear();
  config_.admin.listen = "127.0.0.1:0";
  config_.admin.tls = {folder_ / "none.pem", folder_ / "none.pem", folder_ / "none.pem"};
  EXPECT_THAT(found(), ElementsAre(problem("admin.listen", "none.pem")));
}

TEST_F(PreflightTest, SeesWhereMetricsAreServed) {
  const auto taken = control::Listener::open_tcp("127.0.0.1:0", 1'000'000'000);
  ASSERT_TRUE(taken);
  config_.metrics.listen = "127.0.0.1:" + std::to_string(taken->port());
  EXPECT_THAT(found(), ElementsAre(problem("metrics.listen", "another program listens there")));
  config_.metrics.listen = "0.0.0.0:0";
  EXPECT_THAT(found(), ElementsAre(warning("metrics.listen", "no loopback address")));
  config_.metrics.listen = "127.0.0.1:0";
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(PreflightTest, SeesAGroupAndALogThatAreNotThere) {
  config_.admin.group = "nobody-knows-this-group";
  config_.log.file = folder_ / "none/log";
  EXPECT_THAT(found(), ElementsAre(problem("admin.group", "has no group"),
                                   problem("log.file", "create it first")));
  config_.log.file = folder_ / "";
  config_.admin.group.clear();
  EXPECT_THAT(found(), ElementsAre(problem("log.file", "is a folder")));
}

TEST_F(PreflightTest, SeesProcessorsAndMemoryThatAreNotThere) {
  config_.eal.cpus = {1, 9};
  EXPECT_THAT(found(), ElementsAre(problem("eal.cpus", "CPU 9 does not exist")));
  machine_.isolated = {8, 9};
  EXPECT_THAT(found(), IsEmpty());
  config_.eal.cpus = {1};
  config_.switchd.lcores = 2;
  EXPECT_THAT(found(), ElementsAre(warning("eal.cpus", "share them")));
  config_.eal.cpus.clear();
  config_.eal.huge = HugePages::kYes;
  EXPECT_THAT(found(), ElementsAre(problem("memory", "but 0 MiB are free")));
  config_.eal.huge = HugePages::kNo;
  config_.aggregator.slots = 1 << 20;
  config_.aggregator.slot_bytes = 16384;
  EXPECT_THAT(found(), ElementsAre(problem("memory", "lower aggregator.slots")));
}

TEST_F(PreflightTest, WithoutDpdkHugepagesAreForTheRowsAlone) {
  const uint64_t rows = wanted_hugepage_bytes(config_);
  EXPECT_LT(rows, config_.eal.memory_bytes);
  EXPECT_EQ(rows % kHugePageBytes, 0u);
  EXPECT_GE(rows, row_memory_bytes(config_));
  config_.eal.huge = HugePages::kYes;
  machine_.free_hugepage_bytes = rows - 1;
  EXPECT_THAT(found(), ElementsAre(problem("memory", "aggregator.slots x slot_bytes")));
  machine_.free_hugepage_bytes = rows;
  EXPECT_THAT(found(), IsEmpty());
  EXPECT_TRUE(takes_hugepages(config_, machine_));
  config_.eal.telemetry = true;
  EXPECT_THAT(found(), ElementsAre(problem("memory", "(eal.memory)"))) << "DPDK runs now";
}

TEST_F(PreflightTest, SaysHowMuchMemoryOfDpdkPortsNeed) {
  const auto set = [&](uint64_t bytes) {
    config_.eal.memory_bytes = (bytes + (1 << 20) - 1) >> 20 << 20;
  };
  add_jumbo_port();
  add_jumbo_port();
  EXPECT_THAT(found(), IsEmpty()) << "two fit the default";
  add_jumbo_port();
  // Measured with DPDK 22.11: three such ports do not start with 71 MiB, and do with 72.
  EXPECT_THAT(found(), ElementsAre(problem("eal.memory", "64 MiB are not enough")));
  EXPECT_LE(needed_eal_memory(config_, false).least, uint64_t{72} << 20);
  EXPECT_GE(needed_eal_memory(config_, false).enough, uint64_t{72} << 20);
  set(needed_eal_memory(config_, false).least);
  EXPECT_THAT(found(), ElementsAre(warning("eal.memory", "may not be enough")));
  set(needed_eal_memory(config_, false).enough);
  EXPECT_THAT(found(), IsEmpty());
  machine_.free_hugepage_bytes = uint64_t{1} << 30;
  EXPECT_LT(needed_eal_memory(config_, true).enough, needed_eal_memory(config_, false).least);
}

TEST_F(PreflightTest, SeesWhatIsWrongWithAnInterface) {
  add_port("net_af_packet0,iface=none");
  EXPECT_THAT(found(), ElementsAre(problem("ports", "port net1: there is no interface none")));
  config_.ports.back().device = "net_af_packet0";
  EXPECT_THAT(found(), ElementsAre(problem("ports", "its device names no interface")));
  config_.ports.pop_back();
  add_jumbo_port();
  EXPECT_THAT(found(), IsEmpty());
  config_.ports.back().device = "net_af_packet0,iface=eth0,framesz=9216";
  EXPECT_THAT(found(), ElementsAre(warning("ports",
                                           "interface eth0 has an MTU of 1500, and slots "
                                           "of 8192 bytes need 8292")));
  config_.ports.back().device = "net_af_packet0,iface=jumbo";
  EXPECT_THAT(found(), ElementsAre(warning("ports", "framesz=2048 of its device holds no frame")));
  config_.ports.back().device = "net_af_packet0,iface=jumbo,framesz=9216,qpairs=2";
  EXPECT_THAT(found(), ElementsAre(problem("ports", "qpairs=2, but only 1 packet loops")));
  config_.ports.back().device = "net_af_packet0,iface=jumbo,framesz=9216";
  const auto needs = problem("ports", "AF_PACKET needs root, or CAP_NET_ADMIN and CAP_NET_RAW");
  machine_.raw_sockets = false;
  EXPECT_THAT(found(), ElementsAre(needs));
  machine_.raw_sockets = true;
  machine_.network_admin = false;
  EXPECT_THAT(found(), ElementsAre(needs));
}

TEST_F(PreflightTest, SeesWhatAfXdpAndTapCannotDo) {
  add_port("net_af_xdp0,iface=eth0");
  EXPECT_THAT(found(), IsEmpty());
  machine_.receive_queues_of = [](const std::string&) { return 4u; };
  EXPECT_THAT(found(),
              ElementsAre(problem("ports", "has 4 receive queues, and its device takes 1 of")));
  config_.ports.back().device = "net_af_xdp0,iface=eth0,queue_count=4";
  EXPECT_THAT(found(), ElementsAre(problem("ports", "queue_count=4, but only 1 packet loops")));
  config_.switchd.lcores = 4;
  EXPECT_THAT(found(), testing::Not(testing::Contains(problem("ports", "queue"))));
  config_.ports.back().device = "net_af_xdp0,iface=eth0,queue_count=4,start_queue=1";
  EXPECT_THAT(found(), testing::Contains(problem("ports", "its device takes 0 of")));
  config_.switchd.lcores = 1;
  config_.ports.back().device = "net_af_xdp0,iface=eth0";
  machine_.receive_queues_of = [](const std::string&) { return 1u; };
  machine_.bpf = false;
  EXPECT_THAT(found(), ElementsAre(problem("ports", "AF_XDP needs root")));
  machine_.bpf = true;
  config_.ports.back().device = "net_af_xdp0,iface=jumbo";
  EXPECT_THAT(found(), ElementsAre(warning("ports", "has an MTU of 9000")));
  config_.ports.back().device = "net_tap0,iface=ina0";
  machine_.network_admin = false;
  EXPECT_THAT(found(), testing::Contains(problem("ports", "TAP needs root, or CAP_NET_ADMIN")));
  machine_.network_admin = true;
  config_.aggregator.slot_bytes = 8192;
  config_.ports.back().mtu_bytes = 8292;
  EXPECT_THAT(found(), testing::Contains(
                           problem("ports",
                                   "its driver takes no mtu above 1500, and slots of 8192 bytes "
                                   "need 8292: use a veth pair in place of TAP")));
}

TEST_F(PreflightTest, SeesPciDevicesAndFilesThatAreNotThere) {
  add_port("0000:01:00.0");
  EXPECT_THAT(found(), IsEmpty());
  config_.ports.back().device = "0000:01:00.1";
  EXPECT_THAT(found(), ElementsAre(problem("ports", "used by the kernel's driver ixgbe")));
  config_.ports.back().device = "0000:01:00.2";
  EXPECT_THAT(found(), ElementsAre(problem("ports", "0000:01:00.2 has no driver")));
  config_.ports.back().device = "0000:09:00.0";
  EXPECT_THAT(found(), ElementsAre(problem("ports", "there is no PCI device 0000:09:00.0")));
  config_.ports.back().device =
      "net_pcap0,rx_pcap=" + (folder_ / "in.pcap") + ",tx_pcap=" + (folder_ / "none/out.pcap");
  EXPECT_THAT(found(), ElementsAre(problem("ports", "in.pcap cannot be read"),
                                   problem("ports", "out.pcap cannot be made")));
  config_.ports.back().device =
      "net_memif0,role=server,socket-abstract=no,socket=" + (folder_ / "none/memif.sock");
  EXPECT_THAT(found(), ElementsAre(problem("ports", "none/memif.sock")));
}

TEST_F(PreflightTest, SaysWhatItDidNotLookAt) {
  add_port("net_af_packet0,iface=eth0");
  config_.eal.extra_args = {"--log-level=8"};
  EXPECT_THAT(preflight(config_, machine_).not_checked,
              ElementsAre(HasSubstr("port net1: whether DPDK can open its device"),
                          HasSubstr("eal.extra_args")));
}

/// The files in conf/ on the machines that they are written for: values that depend on this machine
/// (addresses, credentials) are replaced.
class SampleConfigurations : public PreflightTest, public testing::WithParamInterface<const char*> {
 protected:
  SampleConfigurations() {
    auto loaded = config::load_config_file(std::string(SOURCE_DIR "/conf/") + GetParam());
    EXPECT_TRUE(loaded) << loaded.error().front().to_string();
    if (loaded) config_ = std::move(*loaded);
    config_.control.socket = folder_ / "switch.sock";
    if (!config_.control.listen.empty()) config_.control.listen = "127.0.0.1:0";
    if (!config_.metrics.listen.empty()) config_.metrics.listen = "127.0.0.1:0";
    if (!config_.control.token_file.empty())
      config_.control.token_file = write("tokens", "vision a-token-of-their-own\n");
    machine_.free_hugepage_bytes = uint64_t{2} << 30;
    machine_.mtu_of = [](const std::string& name) -> std::optional<uint32_t> {
      if (name == "eth1" || name == "eth2") return 3498;
      return std::nullopt;
    };
    machine_.pci_driver_of = [](const std::string& address) -> std::optional<std::string> {
      if (address == "0000:01:00.0" || address == "0000:01:00.1") return "vfio-pci";
      return std::nullopt;
    };
  }
};

TEST_P(SampleConfigurations, StartOnTheMachineThatTheyAreFor) {
  for (const Finding& finding : found()) ADD_FAILURE() << finding.check << ": " << finding.text;
}

INSTANTIATE_TEST_SUITE_P(, SampleConfigurations,
                         testing::Values("demo.yaml", "host.yaml", "rack.yaml", "switchd.yaml",
                                         "tofino.yaml", "xdp.yaml"));

/// Without devices, a sample lacks one for each ethdev port, and nothing else is wrong.
TEST_P(SampleConfigurations, LackNothingButTheirDevicesElsewhere) {
  machine_.mtu_of = [](const std::string&) { return std::nullopt; };
  machine_.pci_driver_of = [](const std::string&) { return std::nullopt; };
  const auto devices =
      std::ranges::count(config_.ports, config::PortType::kEthdev, &config::PortConfig::type);
  EXPECT_THAT(found(),
              AllOf(testing::SizeIs(devices), testing::Each(problem("ports", "there is no"))));
}

TEST(Preflight, LooksAtThisMachine) {
  const Machine here = Machine::here();
  EXPECT_THAT(here.cpus, Not(IsEmpty()));
  EXPECT_GT(here.free_bytes, uint64_t{1} << 20);
  EXPECT_EQ(here.mtu_of("no-such-interface"), std::nullopt);
  EXPECT_EQ(here.pci_driver_of("ffff:00:00.0"), std::nullopt);
}

}  // namespace
}  // namespace ina::switchd
