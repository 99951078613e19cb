// Generated texts of a configuration, and files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "scheduler/policies.h"
#include "switchd/config/keys.h"
#include "tests/config/config_texts.h"

namespace ina::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Sample, LoadsToTheDefaults) {
  EXPECT_EQ(load(sample_config()), Config{});
}

TEST(Sample, MentionsEveryKey) {
  for (const Key& key : keys())
    EXPECT_THAT(sample_config(), HasSubstr(std::string(key.name) + ": ")) << key.section;
}

TEST(Sample, ItsExamplesLoadWhenUncommented) {
  std::string text;
  std::istringstream lines(sample_config());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  # - ") || line.starts_with("  #   ")) line.erase(2, 2);
    text += line + '\n';
  }
  const Config config = load(text);
  EXPECT_THAT(config.tenants, ElementsAre(scheduler::TenantQuota{.name = "vision"}));
  ASSERT_THAT(config.ports, SizeIs(2));
  EXPECT_EQ(config.ports[1].type, PortType::kEthdev);
  EXPECT_EQ(config.ports[1].udp_port, 7584);
}

TEST(Sample, IsTheOneInConf) {
  EXPECT_EQ(read_file(INA_CONF_DIR "/switchd.yaml"), sample_config())
      << "regenerate it: ina-config-doc sample > conf/switchd.yaml";
}

TEST(ManualPage, HasEverySectionAndKey) {
  const std::string page = manual_page();
  EXPECT_TRUE(page.starts_with(".TH INA-SWITCHD.YAML 5 "));
  for (const Section& section : sections())
    EXPECT_THAT(page, HasSubstr(".SH SECTION " + std::string(section.name) + '\n'));
  for (const Key& key : keys())
    EXPECT_THAT(page, HasSubstr(".TP\n.B " + std::string(key.name) + '\n'));
}

TEST(ManualPage, NoTextLineIsTakenForARequest) {
  std::istringstream lines(manual_page());
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with('.') || line.starts_with('\'')) {
      EXPECT_THAT(line, testing::ContainsRegex("^\\.(TH|SH|TP|B|BR|PP|nf|fi)( |$)"));
    }
}

TEST(Table, EveryPathIsUnique) {
  std::vector<std::string> paths;
  for (const Key& key : keys()) paths.push_back(fmt::format("{}.{}", key.section, key.name));
  std::ranges::sort(paths);
  EXPECT_EQ(std::ranges::adjacent_find(paths), paths.end());
}

// ---- files

TEST(ConfFolder, EveryFileLoads) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(INA_CONF_DIR)) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const auto config = load_config_file(entry.path());
    EXPECT_TRUE(config) << config.error().front().to_string();
  }
  EXPECT_GE(files, 4u);
}

TEST(ConfFolder, TheDemonstrationHasLargeSlots) {
  const auto config = load_config_file(INA_CONF_DIR "/demo.yaml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->aggregator.slot_bytes, 8192u);
  EXPECT_EQ(config->static_pools.slots_per_job, 512u);
}

TEST(File, MissingOrUnreadableIsAnError) {
  auto config = load_config_file("/nonexistent/x.yaml");
  ASSERT_FALSE(config);
  ASSERT_THAT(config.error(), SizeIs(1));
  EXPECT_EQ(config.error()[0].to_string(),
            "/nonexistent/x.yaml: cannot be read: No such file or directory");
  config = load_config_file("/");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error()[0].to_string(), HasSubstr("/: cannot be read"));
}

TEST(File, EmptyOneIsTheDefaults) {
  const auto config = load_config_file("/dev/null");
  ASSERT_TRUE(config);
  EXPECT_EQ(*config, Config{});
}

TEST(File, EndlessOneIsRefused) {
  const auto config = load_config_file("/dev/zero");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error()[0].to_string(),
            "/dev/zero: 1048577 bytes; more than 1048576 are refused");
}

}  // namespace
}  // namespace ina::config
