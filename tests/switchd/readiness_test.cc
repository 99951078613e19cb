// `ina-switchd --self-test` on made-up machines, which are folders with some files of /proc and
// /sys: a machine on which all is right, and each point broken once, and alone then.
#include "switchd/startup/readiness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace ina::switchd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
namespace fs = std::filesystem;

constexpr const char* kNic = "0000:01:00.0";
constexpr const char* kPci = "sys/bus/pci/devices/0000:01:00.0";

class SelfTestTest : public testing::Test {
 protected:
  SelfTestTest() {
    config_.control.socket = folder_ / "switch.sock";
    config_.switchd.lcores = 2;
    config_.eal.cpus = {2, 3};
    config_.eal.huge = HugePages::kYes;
    add_port(kNic);
    machine_.cpus = {0, 1, 2, 3};
    machine_.free_bytes = uint64_t{8} << 30;
    write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8388608 kB\nSwapFree: 0 kB\n");
    write("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
    set_limits("unlimited", "1048576");
    write("proc/sys/vm/max_map_count", "65530\n");
    write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "512\n");
    write("sys/devices/system/cpu/isolated", "2-3\n");
    write("sys/devices/system/cpu/nohz_full", "2-3\n");
    for (const std::string cpu : {"0", "1", "2", "3"}) {
      set_governor(cpu, "performance");
      write("sys/devices/system/cpu/cpu" + cpu + "/topology/thread_siblings_list", cpu + "\n");
    }
    write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    write(std::string(kPci) + "/class", "0x020000\n");
    link(std::string(kPci) + "/driver", "vfio-pci");
    link(std::string(kPci) + "/iommu_group", "17");
    write("sys/kernel/iommu_groups/17/type", "DMA\n");
    write("dev/vfio/17", "");
  }

  void write(const std::string& name, const std::string& text) const {
    const fs::path path = root() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void link(const std::string& name, const std::string& target) const {
    const fs::path path = root() / name;
    fs::remove(path);
    fs::create_symlink("../../somewhere/" + target, path);
  }
  void set_governor(const std::string& cpu, const std::string& governor) const {
    write("sys/devices/system/cpu/cpu" + cpu + "/cpufreq/scaling_governor", governor + "\n");
  }
  void set_limits(const std::string& locked, const std::string& files) const {
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max open files            1024                 " +
              files +
              "              files     \n"
              "Max locked memory         " +
              locked + "              " + locked + "        bytes\n");
  }
  void add_port(const std::string& device) {
    config::PortConfig port{.name = "rack1"};
    port.type = config::PortType::kEthdev;
    port.device = device;
    port.ip = 0x0a000001;
    config_.ports.push_back(port);
  }
  void use_shm_alone() { config_.ports = config::Config{}.ports; }

  fs::path root() const { return folder_ / "root"; }
  SelfTest run() const {
    const MachineFiles files(root());
    Machine machine = Machine::here(files);
    machine.cpus = machine_.cpus;
    machine.isolated = machine_.isolated;
    machine.limits = {.most = [](int) -> uint64_t { return RLIM_INFINITY; },
                      .startable_threads = [](size_t wanted) { return wanted; }};
    return self_test(config_, machine, HostFacts::of(files));
  }
  /// Points that are not ready.
  std::vector<SelfTestRow> wrong() const {
    std::vector<SelfTestRow> rows = run().rows;
    std::erase_if(rows, [](const SelfTestRow& row) { return row.state == Readiness::kReady; });
    return rows;
  }

  test::TempDir folder_;
  config::Config config_;
  Machine machine_;
};

auto row(const std::string& check, Readiness state, const std::string& change) {
  return AllOf(Field(&SelfTestRow::check, check), Field(&SelfTestRow::state, state),
               Field(&SelfTestRow::changes, testing::Contains(HasSubstr(change))));
}
auto improve(const std::string& check, const std::string& change) {
  return row(check, Readiness::kImprove, change);
}
auto missing(const std::string& check, const std::string& change) {
  return row(check, Readiness::kMissing, change);
}

TEST_F(SelfTestTest, AMachineOnWhichAllIsRightIsReady) {
  EXPECT_THAT(wrong(), IsEmpty()) << format_self_test(run());
  EXPECT_EQ(run().verdict(), Readiness::kReady);
  EXPECT_THAT(format_self_test(run()), testing::EndsWith("\nready\n"));
}

TEST_F(SelfTestTest, CountsHugepages) {
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
  // 64 MiB of eal.memory and 4 MiB of slots, with some spare rows, beside the 1 GiB in use.
  EXPECT_THAT(wrong(), ElementsAre(missing("start", "eal.huge: yes asks for"),
                                   missing("hugepages", "sysctl vm.nr_hugepages=54")));
  config_.eal.huge = HugePages::kAuto;
  EXPECT_THAT(wrong(), ElementsAre(improve("hugepages", "sysctl vm.nr_hugepages=54")));
  config_.eal.huge = HugePages::kNo;
  EXPECT_THAT(wrong(), IsEmpty());
}

TEST_F(SelfTestTest, WantsCoresThatNothingElseUses) {
  write("sys/devices/system/cpu/isolated", "2\n");
  EXPECT_THAT(wrong(), ElementsAre(improve("cores", "isolcpus=2-3 nohz_full=2-3")));
  write("sys/devices/system/cpu/isolated", "2-3\n");
  write("sys/devices/system/cpu/nohz_full", "\n");
  EXPECT_THAT(wrong(), ElementsAre(improve("cores", "nohz_full=2-3")));
  write("sys/devices/system/cpu/nohz_full", "1-3\n");
  config_.eal.cpus.clear();
  EXPECT_THAT(wrong(), ElementsAre(improve("cores", "eal.cpus: \"2-3\"")));
  machine_.cpus = {0, 1};
  EXPECT_THAT(wrong(), ElementsAre(improve("cores", "leaves no CPU for anything else")));
}

TEST_F(SelfTestTest, IsolatedCpusAreNoneOfTheProcess) {
  machine_.cpus = {0, 1};
  machine_.isolated = {2, 3};
  EXPECT_THAT(wrong(), IsEmpty());
  config_.eal.cpus.clear();
  EXPECT_THAT(wrong(), ElementsAre(improve("cores", "eal.cpus: \"2-3\"")));
}

TEST_F(SelfTestTest, SeesTwoLoopsOnOneCore) {
  for (const std::string cpu : {"2", "3"})
    write("sys/devices/system/cpu/cpu" + cpu + "/topology/thread_siblings_list", "2-3\n");
  EXPECT_THAT(wrong(), ElementsAre(improve("cores", "CPUs 2-3 are one core")));
}

TEST_F(SelfTestTest, LooksAtTheGovernorsOfTheLoopsAlone) {
  set_governor("0", "powersave");
  EXPECT_THAT(wrong(), IsEmpty());
  set_governor("3", "powersave");
  EXPECT_THAT(wrong(), ElementsAre(improve("governor", "cpupower -c 3 frequency-set")));
  fs::remove_all(root() / "sys/devices/system/cpu");
  EXPECT_THAT(wrong(), ElementsAre(improve("cores", "isolcpus"))) << "no scaling, no governor";
}

TEST_F(SelfTestTest, WantsAClockThatIsReadWithoutASystemCall) {
  const char* const file = "sys/devices/system/clocksource/clocksource0/current_clocksource";
  write(file, "kvm-clock\n");
  EXPECT_THAT(wrong(), IsEmpty());
  write(file, "acpi_pm\n");
  EXPECT_THAT(wrong(), ElementsAre(improve("clock", "clocksource=tsc")));
}

TEST_F(SelfTestTest, WantsNicsThatAreBound) {
  link(std::string(kPci) + "/driver", "ixgbe");
  EXPECT_THAT(wrong(), ElementsAre(missing("start", "used by the kernel's driver ixgbe"),
                                   missing("NICs", "--bind=vfio-pci 0000:01:00.0")));
  use_shm_alone();
  EXPECT_THAT(wrong(), IsEmpty()) << "no port needs it";
  add_port("02:00.0");
  EXPECT_THAT(wrong(), ElementsAre(missing("start", "there is no PCI device 02:00.0"),
                                   missing("NICs", "there is no 0000:02:00.0")));
}

TEST_F(SelfTestTest, WantsAnIommuForVfio) {
  fs::remove_all(root() / "sys/kernel/iommu_groups");
  EXPECT_THAT(wrong(), ElementsAre(missing("IOMMU", "intel_iommu=on")));
  write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
  EXPECT_THAT(wrong(), ElementsAre(missing("IOMMU", "may not open /dev/vfio/17")));
  write("dev/vfio/noiommu-17", "");
  EXPECT_THAT(wrong(), ElementsAre(improve("IOMMU", "read and write all memory")));
  link(std::string(kPci) + "/driver", "uio_pci_generic");
  EXPECT_THAT(wrong(), IsEmpty());
}

TEST_F(SelfTestTest, SeesAVfioGroupThatMayNotBeOpened) {
  fs::remove(root() / "dev/vfio/17");
  EXPECT_THAT(wrong(), ElementsAre(missing("IOMMU", "may not open /dev/vfio/17")));
}

TEST_F(SelfTestTest, ComparesLimitsWithWhatTheConfigurationNeeds) {
  set_limits("8388608", "1048576");
  EXPECT_THAT(wrong(), ElementsAre(missing("locked memory", "LimitMEMLOCK=infinity")));
  write("proc/self/status", "CapEff:\t0000000000004000\n");  // CAP_IPC_LOCK
  EXPECT_THAT(wrong(), IsEmpty());
  set_limits("unlimited", "1024");
  EXPECT_THAT(wrong(), ElementsAre(improve("open files", "to 2304 or more")));
  config_.control.max_connections = 400;
  EXPECT_THAT(wrong(), IsEmpty());
  write("proc/sys/vm/max_map_count", "8192\n");
  EXPECT_THAT(wrong(), ElementsAre(improve("mappings", "sysctl vm.max_map_count=")));
}

TEST_F(SelfTestTest, TheNumbersThatItProposesAreEnough) {
  const auto number_behind = [&](const std::string& check, const std::string& text) {
    for (const SelfTestRow& found : wrong())
      if (found.check == check)
        if (const size_t at = found.changes[0].find(text); at != std::string::npos)
          return std::to_string(std::stoull(found.changes[0].substr(at + text.size())));
    return std::string("none");
  };
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
  const std::string pages = number_behind("hugepages", "nr_hugepages=");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", pages);
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        std::to_string(std::stoull(pages) - 512));
  set_limits("unlimited", "1024");
  set_limits("unlimited", number_behind("open files", "open files to "));
  write("proc/sys/vm/max_map_count", "8192\n");
  write("proc/sys/vm/max_map_count", number_behind("mappings", "max_map_count="));
  EXPECT_THAT(wrong(), IsEmpty()) << format_self_test(run());
}

TEST_F(SelfTestTest, ColumnsLineUpAndChangesFollow) {
  set_governor("2", "schedutil");
  const std::string text = format_self_test(run());
  std::istringstream lines(text);
  std::string heading;
  std::getline(lines, heading);
  const size_t column = heading.find("FOUND");
  size_t rows = 0;
  for (std::string line; std::getline(lines, line) && !line.empty(); ++rows) {
    ASSERT_GT(line.size(), column) << text;
    EXPECT_EQ(line[column - 1], ' ') << line;
    EXPECT_NE(line[column], ' ') << line;
  }
  EXPECT_EQ(rows, run().rows.size());
  EXPECT_THAT(text, HasSubstr("\nto change:\n  governor (improve): 'cpupower"));
  EXPECT_THAT(text, testing::EndsWith("would serve; 1 of 10 points can be improved\n"));
}

TEST_F(SelfTestTest, JsonSaysTheSame) {
  set_governor("2", "schedutil");
  const nlohmann::json json = self_test_json(run());
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["verdict"], "improve");
  EXPECT_EQ(json["ready"], false);
  ASSERT_THAT(json["checks"], SizeIs(run().rows.size()));
  for (const auto& check : json["checks"])
    EXPECT_EQ(check["change"].empty(), check["state"] == "ready") << check;
  EXPECT_THAT(json["not_checked"], SizeIs(1));
}

TEST_F(SelfTestTest, AMachineThatSaysNothingIsNoCrash) {
  fs::remove_all(root());
  EXPECT_THAT(format_self_test(run()), HasSubstr("not ready"));
}

TEST(SelfTest, LooksAtThisMachine) {
  const HostFacts facts = HostFacts::of(MachineFiles());
  EXPECT_GT(facts.mappings, 1000u);
  EXPECT_GT(facts.open_files, 10u);
  EXPECT_THAT(facts.siblings, Not(IsEmpty()));
}

}  // namespace
}  // namespace ina::switchd
