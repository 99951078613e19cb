// ina-plan collective: its output and drawings, and the input that it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/json/json.h"
#include "plans/themis/planner.h"
#include "programs/plan/plan_svg.h"
#include "tests/support/temp_dir.h"

namespace ina::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

struct Outcome {
  int status = 0;
  std::string output;
};

/// Runs the program through a shell, its errors among its output.
Outcome run(const std::string& arguments) {
  const char* program = std::getenv("INA_PLAN");
  if (!program) throw std::runtime_error("INA_PLAN must name the program under test");
  FILE* pipe = ::popen((std::string(program) + " " + arguments + " 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("popen failed");
  Outcome outcome;
  char buffer[4096];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.output.append(buffer, got);
  outcome.status = WEXITSTATUS(::pclose(pipe));
  return outcome;
}

const std::string kCollective =
    "collective --topology " INA_CONF_DIR "/topologies/2d-sw-sw.yaml --bytes 1000000000 ";

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

size_t count(std::string_view text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

double predicted_us(const std::string& options) {
  const Outcome outcome = run(kCollective + "--json --chunks 8 --scheduler baseline " + options);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  return Json::parse(outcome.output)["predicted_us"].get<double>();
}

// As libina has it: a switch sends what it holds, and gives back a part of it.
TEST(Plan, MayBeForTheSwitchesThatCarryItOut) {
  const double by_kind = predicted_us("");
  const double by_switches = predicted_us("--for-switches");
  EXPECT_NE(by_kind, by_switches);
  const Outcome outcome = run(kCollective + "--json --chunks 8 --for-switches --against baseline");
  const Json plan = Json::parse(outcome.output);
  EXPECT_DOUBLE_EQ(plan["against"]["predicted_us"].get<double>(), by_switches);
  EXPECT_THAT(run(kCollective + "--for-switches --aggregating-switches").output,
              HasSubstr("--for-switches"));
}

TEST(Plan, TheBaselineIsOfTheSameNetworkWhereThatIsAsked) {
  const auto against = [](const std::string& options) {
    const Outcome outcome = run(kCollective + "--json --chunks 8 --aggregating-switches " +
                                options + " --against baseline");
    return Json::parse(outcome.output)["against"]["predicted_us"].get<double>();
  };
  EXPECT_DOUBLE_EQ(against(""), predicted_us(""));
  EXPECT_DOUBLE_EQ(against("--in-network always"),
                   predicted_us("--aggregating-switches --in-network always"));
  EXPECT_NE(against("--in-network always"), against(""));
  EXPECT_DOUBLE_EQ(against("--in-network by-cost"),
                   predicted_us("--aggregating-switches --in-network by-cost"));
  EXPECT_NE(against("--in-network by-cost"), against(""));
}

TEST(Plan, SaysWhatACollectiveTakes) {
  const Outcome outcome = run(kCollective + "--against baseline");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("all-reduce of 1000000000 bytes in 2D-SW_SW, 1024 participants"));
  EXPECT_THAT(outcome.output, HasSubstr("baseline: predicted 1250"));
  EXPECT_THAT(outcome.output, HasSubstr("times as fast as baseline"));
  EXPECT_THAT(outcome.output, HasSubstr(" 1  halving-doubling 16"));
  EXPECT_THAT(outcome.output, HasSubstr(" 2  halving-doubling 64"));
}

TEST(Plan, JsonHasThePlan) {
  const Outcome outcome =
      run(kCollective + "--json --chunks 8 --also all-gather:1MiB@50 --against baseline");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const Json plan = Json::parse(outcome.output);
  EXPECT_EQ(plan["participants"], 1024);
  EXPECT_EQ(plan["scheduler"], "themis");
  EXPECT_EQ(plan["hash"].get<std::string>().size(), 16u);
  EXPECT_EQ(plan["chunks"].size(), 16u);
  EXPECT_EQ(plan["dimensions"].size(), 2u);
  // 8 chunks twice in each dimension, and 8 once.
  EXPECT_EQ(plan["dimensions"][0]["operations"].size(), 24u);
  EXPECT_EQ(plan["collectives"][1]["collective"], "all-gather");
  EXPECT_EQ(plan["collectives"][1]["issue_us"], 50.0);
  EXPECT_GT(plan["against"]["predicted_us"].get<double>(), plan["predicted_us"].get<double>());
}

TEST(Plan, PlansSeveralCollectivesTogether) {
  const std::string several =
      kCollective + "--chunks 8 --also all-gather:64MiB --also all-to-all:16MiB@50 ";
  const Outcome text = run(several);
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output,
              HasSubstr("all-reduce and 2 others of 1083886080 bytes together in 2D-SW_SW"));
  EXPECT_THAT(text.output,
              HasSubstr("collective 3: all-to-all of 16777216 bytes, from 50.0 us to"));
  EXPECT_THAT(text.output, HasSubstr("one after the other they take"));
  const Json plan = Json::parse(run(several + "--json").output);
  EXPECT_EQ(plan["collectives"].size(), 3u);
  EXPECT_LT(plan["predicted_us"].get<double>(), plan["one_after_another_us"].get<double>());
  EXPECT_NE(plan["hash"],
            Json::parse(run(several + "--json --fresh-loads --strict").output)["hash"]);
}

TEST(Plan, DrawsARowForEachDimension) {
  const test::TempDir folder;
  const std::string path = folder / "plan.svg";
  const Outcome outcome = run(kCollective + "--against baseline --svg " + path);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const std::string svg = read_file(path);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, ">1: halving-doubling 16<"), 2u);
  EXPECT_EQ(count(svg, ">2: halving-doubling 64<"), 2u);
  EXPECT_THAT(svg, HasSubstr("baseline: predicted"));
  EXPECT_THAT(svg, HasSubstr("themis: predicted"));
  EXPECT_THAT(svg, HasSubstr(">idle<"));
  EXPECT_THAT(svg, HasSubstr(">time ["));
  EXPECT_THAT(svg, HasSubstr(">reduce-scatter<"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Plan, BarsAddUpToWhatADimensionIsBusy) {
  const themis::Topology topology{.name = "x",
                                  .dimensions = {{.name = "a<b",
                                                  .kind = themis::DimensionKind::kDirect,
                                                  .size = 4,
                                                  .bits_per_s = 2'000'000'000},
                                                 {.name = "switch",
                                                  .kind = themis::DimensionKind::kIna,
                                                  .size = 4,
                                                  .bits_per_s = 1'000'000'000}}};
  const auto planned = themis::make_plan(topology, {{.bytes = 1 << 20}},
                                         {.chunks = 4, .in_network = themis::InNetwork::kAlways});
  ASSERT_TRUE(planned);
  const std::string svg = draw_svg({{"title & more", &planned->plan, &planned->timeline}});
  EXPECT_THAT(svg, HasSubstr("title &amp; more"));
  EXPECT_THAT(svg, HasSubstr("1: a&lt;b"));
  // An operation by an aggregating switch sends and gets unlike amounts.
  EXPECT_THAT(svg, HasSubstr(">sends<"));
  EXPECT_THAT(svg, HasSubstr(">gets<"));
  EXPECT_THAT(svg, HasSubstr("by an aggregating switch"));
}

TEST(Plan, WrongInputIsASentence) {
  const auto expect = [](const std::string& arguments, const std::string& text) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(text));
  };
  expect("collective --topology /no/such/file --bytes 1", "/no/such/file: cannot be read");
  expect(kCollective + "--also all-gather", "--also: 'all-gather' is not COLLECTIVE:SIZE");
  expect(kCollective + "--also all-gather:much", "is not COLLECTIVE:SIZE");
  expect(kCollective + "--also all-gather:1MiB@-3", "is not COLLECTIVE:SIZE");
  expect(kCollective + "--carry-loads --fresh-loads", "--carry-loads excludes --fresh-loads");
  expect(kCollective + "--svg /no/such/folder/x.svg", "cannot write /no/such/folder/x.svg");
  expect("collective --topology " INA_CONF_DIR "/topologies/2d-sw-sw.yaml --bytes 0",
         "collective 1 has 0 bytes");
  expect("collective --topology x", "--bytes is required");
  expect("", "A subcommand is required");
}

}  // namespace
}  // namespace ina::cli
