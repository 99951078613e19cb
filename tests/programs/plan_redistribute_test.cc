#include "programs/plan/plan_redistribute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/redistribute/cases.h"
#include "common/command_line.h"
#include "plans/redistribution/planner.h"
#include "plans/redistribution/text/plan_json.h"
#include "programs/plan/redistribution_svg.h"

namespace ina::cli {
namespace {

using redistribution::Case;
using redistribution::Cases;
using redistribution::Method;
using redistribution::Plan;
using redistribution::plan_from_json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(RedistributionJson, PlansComeBackAsTheyWere) {
  Cases cases(1);
  for (int i = 0; i < 300; ++i) {
    Case drawn = cases.small(uint64_t{1} << 30);
    SCOPED_TRACE(drawn.name);
    if (i % 3 == 0)  // in pieces
      drawn.problem.limit_bytes =
          5 * std::max(drawn.problem.source_elements(), drawn.problem.target_elements());
    for (const Method method : {Method::kSynthesised, Method::kDirect, Method::kXlaOrder}) {
      const auto plan = plan_by(drawn.problem, method);
      if (!plan) continue;
      const auto again = plan_from_json(to_json(*plan).dump());
      ASSERT_TRUE(again) << again.error();
      EXPECT_EQ(again->canonical_text(), plan->canonical_text());
      EXPECT_EQ(again->method(), plan->method());
      EXPECT_EQ(again->pieces(), plan->pieces());
      EXPECT_EQ(again->problem().costs, plan->problem().costs);
      EXPECT_EQ(again->problem().limit_bytes, plan->problem().limit_bytes);
      EXPECT_EQ(again->predicted_us(), plan->predicted_us());
      EXPECT_EQ(again->peak_bytes(), plan->peak_bytes());
    }
  }
}

/// The JSON of a plan of two all-to-alls.
nlohmann::json example() {
  return nlohmann::json::parse(
      to_json(*plan_by(redistribution::users_cases()[0].problem, Method::kSynthesised)).dump());
}

std::string refusal(const nlohmann::json& json) {
  const auto plan = plan_from_json(json.dump());
  return plan ? "" : plan.error();
}

TEST(RedistributionJson, WhatIsNoPlanIsRefused) {
  EXPECT_EQ(refusal(example()), "");
  EXPECT_THAT(plan_from_json("{").error(), StartsWith("this is no plan: "));
  EXPECT_THAT(plan_from_json("[]").error(), StartsWith("this is no plan: "));
  nlohmann::json json = example();
  json["version"] = 2;
  EXPECT_EQ(refusal(json), "this is no plan: it is not ina-redistribution, version 1");
  json = example();
  json.erase("shape");
  EXPECT_THAT(refusal(json), HasSubstr("'shape' not found"));
  json = example();
  json["element_bytes"] = "four";
  EXPECT_THAT(refusal(json), HasSubstr("type must be number"));
  json = example();
  json["steps"][0]["operation"] = "teleport";
  EXPECT_EQ(refusal(json), "this is no plan: no operation is called \"teleport\"");
  json = example();
  json["method"] = "luck";
  EXPECT_EQ(refusal(json), "this is no plan: no method is called \"luck\"");
}

TEST(RedistributionJson, StepsAndHashAreChecked) {
  nlohmann::json json = example();
  std::swap(json["steps"][0], json["steps"][1]);
  EXPECT_EQ(refusal(json), "this is no plan: the plan ends with the layout -,y*x,-, not -,x*y,-");
  json = example();
  json["steps"][0]["moves"][0]["popped"] = "y";
  EXPECT_THAT(refusal(json), HasSubstr("step 1, all-to-all"));
  json = example();
  json["steps"][0]["moves"][0]["from"] = 300;
  EXPECT_NE(refusal(json), "");
  json = example();
  json["pieces"]["count"] = 3;
  EXPECT_THAT(refusal(json), HasSubstr("do not divide into 3 pieces"));
  json = example();
  json["pieces"]["count"] = 2;
  EXPECT_THAT(refusal(json), HasSubstr("its hash is"));
}

TEST(RedistributionSvg, HasARowAStep) {
  const Plan plan = *plan_by(redistribution::users_cases()[0].problem, Method::kSynthesised);
  const std::string svg = timeline_svg(plan);
  EXPECT_THAT(svg, StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr(">1 all-to-all<"));
  EXPECT_THAT(svg, HasSubstr(">2 all-to-all<"));
  EXPECT_THAT(svg, HasSubstr(">peak 1024 B<"));
}

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

Outcome run(const std::vector<std::string>& arguments) {
  command_line::App app("test");
  std::function<int()> chosen;
  add_redistribute(app, chosen);
  std::vector<const char*> argv{"ina-plan", "redistribute"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  const auto status = command_line::parse(app, static_cast<int>(argv.size()), argv.data());
  outcome.status = status ? *status : chosen();
  std::fflush(stdout);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

std::vector<std::string> jax_issue(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"--mesh", "x=4,y=2", "--shape", "16,16,16",
                                     "--from", "y,-,x",   "--to",    "-,x*y,-"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(PlanRedistribute, PrintsAndVerifiesThePlan) {
  const Outcome seen = run(jax_issue({"--method", "synthesised", "--explain", "--verify"}));
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_THAT(seen.out, HasSubstr("(640 elements)"));
  EXPECT_THAT(seen.out,
              HasSubstr("groups of 4 ranks exchange chunks: x from dimension 2 to dimension 1"));
  EXPECT_THAT(seen.out, HasSubstr("gather-slice"));
  EXPECT_THAT(seen.out, HasSubstr("0 of 4096 elements on 8 ranks are wrong"));
}

TEST(PlanRedistribute, WritesThePlanAsJson) {
  const Outcome seen = run(jax_issue({"--json", "-", "--verify"}));
  EXPECT_EQ(seen.status, 0) << seen.err;
  const auto plan = plan_from_json(seen.out);
  ASSERT_TRUE(plan) << plan.error();
  EXPECT_EQ(plan->problem().element_bytes, 4u);
}

TEST(PlanRedistribute, KeepsTheLimit) {
  const Outcome seen = run(jax_issue({"--limit", "3KiB", "--json", "-"}));
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_LE(plan_from_json(seen.out)->peak_bytes(), 3072u);
}

TEST(PlanRedistribute, SaysWhatIsWrong) {
  const auto expect_refusal = [](const std::vector<std::string>& arguments,
                                 const std::string& text) {
    const Outcome seen = run(arguments);
    EXPECT_EQ(seen.status, command_line::kExitUsage);
    EXPECT_EQ(seen.err, "ina-plan: " + text + "\n");
    EXPECT_EQ(seen.out, "");
  };
  const auto with = [](const char* shape, const char* from, const char* to) {
    return std::vector<std::string>{"--mesh", "x=4,y=2", "--shape", shape,
                                    "--from", from,      "--to",    to};
  };
  expect_refusal(with("16,16", "x,x", "y,x"),
                 "--from: layout x,x: a layout may use the axis x once, not twice");
  expect_refusal(with("16,16", "x,y", "z,x"), "--to: layout z,x: the mesh x=4,y=2 has no axis 'z'");
  expect_refusal(
      with("16,18", "x,y", "y,x"),
      "layout y,x: dimension 1 of 18 elements does not divide into 4 parts; pad it to 20");
  expect_refusal(with("16", "x,y", "y,x"), "the layout x,y has 2 dimensions, the array 16 has 1");
  expect_refusal(with("16,many", "x,y", "y,x"),
                 "'many' is no size of a dimension; a shape is written as 16,16,16");
  expect_refusal(jax_issue({"--ranks", "6"}),
                 "the mesh x=4,y=2 has 8 positions, but the job has 6 ranks");
  expect_refusal(jax_issue({"--limit", "0"}),
                 "--limit: '0' is not a number of at least 1; --help lists what there is");
  expect_refusal(jax_issue({"--limit", "2KiB"}),
                 "no plan keeps the buffers of a rank within 2048 bytes; the least limit that does "
                 "is 2304 bytes");
}

}  // namespace
}  // namespace ina::cli
