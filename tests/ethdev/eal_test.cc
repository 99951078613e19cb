#include "io/ethdev/eal.h"

#include <gtest/gtest.h>
#include <rte_lcore.h>

#include <algorithm>
#include <filesystem>

#include "io/ethdev/eal_log.h"

namespace ina::io {
namespace {

using Cpus = std::vector<uint32_t>;

std::string lcores_of(const EalConfig& config, const Cpus& available, const Cpus& isolated = {}) {
  const auto args = eal_arguments(config, available, false, isolated);
  if (!args) return args.error().text;
  const auto found =
      std::ranges::find_if(*args, [](const auto& arg) { return arg.starts_with("--lcores="); });
  return found == args->end() ? "" : found->substr(9);
}

EalConfig with(uint32_t lcores, std::string cpus) {
  EalConfig config;
  config.lcores = lcores;
  config.cpus = std::move(cpus);
  return config;
}

TEST(CpuList, NumbersAndRanges) {
  EXPECT_EQ(parse_cpu_list("0").value(), (Cpus{0}));
  EXPECT_EQ(parse_cpu_list("7,2-4,3").value(), (Cpus{2, 3, 4, 7}));
  for (const char* bad : {"", ",", "1,", "a", "1-", "-1", "3-2", "1 ", "0x1", "1-2-3", "100000"})
    EXPECT_FALSE(parse_cpu_list(bad)) << bad;
  EXPECT_NE(parse_cpu_list("0,x1").error().text.find("\"x1\""), std::string::npos);
}

TEST(EalArguments, LcoresFloatWithoutCpuList) {
  EXPECT_EQ(lcores_of(with(1, ""), {0, 1}), "0@(0-1),1@(0-1)");
  EXPECT_EQ(lcores_of(with(0, ""), {0}), "0@(0)");
  EXPECT_EQ(lcores_of(with(2, ""), {0, 2, 3, 5}), "0@(0,2-3,5),1@(0,2-3,5),2@(0,2-3,5)");
}

TEST(EalArguments, LcoresArePinnedWhenCpusSuffice) {
  EXPECT_EQ(lcores_of(with(2, "2-3"), {0, 1, 2, 3}), "0@(0-3),1@2,2@3");
  EXPECT_EQ(lcores_of(with(2, "3"), {0, 1, 2, 3}), "0@(0-3),1@(3),2@(3)");
}

TEST(EalArguments, IsolatedCpusAreForThoseWhoNameThem) {
  EXPECT_EQ(lcores_of(with(2, "2-3"), {0, 1}, {2, 3}), "0@(0-1),1@2,2@3");
  EXPECT_EQ(lcores_of(with(1, ""), {0, 1}, {2, 3}), "0@(0-1),1@(0-1)");
  EXPECT_NE(lcores_of(with(1, "4"), {0, 1}, {2, 3}).find("CPU 4"), std::string::npos);
}

TEST(EalArguments, RefuseCpusThatAreNotThere) {
  EXPECT_NE(lcores_of(with(1, "0,7"), {0, 1}).find("CPU 7"), std::string::npos);
}

TEST(EalArguments, MemoryAndDevices) {
  EalConfig config;
  config.memory_bytes = (uint64_t{32} << 20) + 1;
  config.file_prefix = "p";
  config.vdevs = {"net_null0"};
  config.extra_args = {"--match-allocations"};
  const auto has = [](const std::vector<std::string>& args, const std::string& arg) {
    return std::ranges::find(args, arg) != args.end();
  };
  const auto ordinary = eal_arguments(config, {0}, false).value();
  for (const char* arg : {"--no-huge", "--no-pci", "--no-telemetry", "33", "--file-prefix=p",
                          "--vdev=net_null0", "--match-allocations"})
    EXPECT_TRUE(has(ordinary, arg)) << arg;
  EXPECT_FALSE(has(ordinary, "--in-memory"));

  config.telemetry = true;
  const auto asked = eal_arguments(config, {0}, false).value();
  EXPECT_TRUE(has(asked, "--telemetry"));
  EXPECT_FALSE(has(asked, "--no-telemetry"));

  config.pci = {"0000:01:00.0"};
  const auto huge = eal_arguments(config, {0}, true).value();
  EXPECT_TRUE(has(huge, "--in-memory"));
  EXPECT_TRUE(has(huge, "0000:01:00.0"));
  EXPECT_FALSE(has(huge, "--no-huge"));
  EXPECT_FALSE(has(huge, "--no-pci"));
}

// One test, because DPDK starts once in a process: the failures before it, then the start itself.
TEST(Eal, StartsOnceAndLeavesNothing) {
  EalConfig config;
  config.huge = HugePages::kYes;
  config.memory_bytes = uint64_t{1} << 60;
  const auto too_much = Eal::start(config);
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().status, INA_ERR_NO_MEMORY);
  EXPECT_NE(too_much.error().text.find("nr_hugepages"), std::string::npos);

  // Too much for hugepages only: auto goes on without.
  config.huge = HugePages::kNo;
  config.memory_bytes = uint64_t{32} << 20;
  config.lcores = 3;
  std::vector<std::string> lines;
  config.log_level = EalLogLevel::kInfo;
  config.log = [&lines](EalLogLevel, std::string_view line) { lines.emplace_back(line); };
  {
    auto eal = Eal::start(config);
    ASSERT_TRUE(eal) << eal.error().text;
    EXPECT_FALSE(eal->uses_hugepages());
    EXPECT_EQ(rte_lcore_count(), 4u);  // however few CPUs there are
    EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
      return line.find("EAL:") != std::string::npos && line.find('\n') == std::string::npos;
    })) << "DPDK's log reaches the callback line by line";
  }
  const std::string folder = "dpdk/ina-" + std::to_string(::getpid());
  for (const char* base : {"/var/run/", "/tmp/"})
    EXPECT_FALSE(std::filesystem::exists(base + folder));
  config.log = {};
  const auto again = Eal::start(config);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().text.find("once"), std::string::npos);
}

TEST(EalLog, WhatIsNoErrorIsNotCalledOne) {
  EXPECT_EQ(proper_level(EalLogLevel::kError,
                         "qdisc_create_multiq(): Could not add multiq qdisc (2): No such file"),
            EalLogLevel::kInfo);
  EXPECT_EQ(proper_level(EalLogLevel::kError, "eth_dev_tap_create(): tapx: cannot open"),
            EalLogLevel::kError);
  EXPECT_EQ(proper_level(EalLogLevel::kWarning, "something"), EalLogLevel::kWarning);
}

}  // namespace
}  // namespace ina::io
