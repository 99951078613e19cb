#include "plans/redistribution/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plans/redistribution/interpreter.h"
#include "plans/redistribution/planner.h"

namespace ina::redistribution {
namespace {

Problem problem_of(const char* mesh, Shape shape, const char* from, const char* to) {
  Problem problem{*Mesh::parse(mesh), std::move(shape), 1, {}, {}, {}, 0};
  problem.from = *parse_layout(problem.mesh, from);
  problem.to = *parse_layout(problem.mesh, to);
  return problem;
}

Problem jax_issue() {
  return problem_of("x=4,y=2", {16, 16, 16}, "y,-,x", "-,x*y,-");
}
Problem pytorch_issue() {
  return problem_of("x=2,y=2", {16, 16}, "x,y", "y,x");
}

/// Bytes that the busiest rank sends when the plan runs, which must be as predicted.
uint64_t sent(const Problem& problem, Method method) {
  const Plan plan = *plan_by(problem, method);
  const Observation seen = *verify(plan);
  EXPECT_EQ(seen.wrong_elements, 0u);
  EXPECT_EQ(seen.elements_checked, problem.mesh.ranks() * problem.target_elements());
  EXPECT_EQ(seen.most_sent_bytes(), plan.sent_bytes());
  EXPECT_EQ(seen.peak_bytes, plan.peak_bytes());
  return seen.most_sent_bytes();
}

TEST(RedistributionUsers, JaxIssue21562) {
  EXPECT_EQ(sent(jax_issue(), Method::kGatherSlice), 3584u);
  EXPECT_EQ(sent(jax_issue(), Method::kSynthesised), 640u);
  EXPECT_EQ(sent(jax_issue(), Method::kDirect), 448u);
}

TEST(RedistributionUsers, PytorchIssue132751) {
  EXPECT_EQ(sent(pytorch_issue(), Method::kGatherSlice), 192u);
  EXPECT_EQ(sent(pytorch_issue(), Method::kSynthesised), 64u);
  const Plan plan = *plan_by(pytorch_issue(), Method::kSynthesised);
  ASSERT_EQ(plan.steps().size(), 1u);
  EXPECT_EQ(plan.steps()[0].operation, Operation::kAllPermute);
}

StepChoice all_to_all(uint8_t from, uint8_t to, std::vector<PrimeId> axes) {
  return {Operation::kAllToAll, {{from, to, axes, axes}}, {}};
}

std::string refusal(const Problem& problem, const std::vector<StepChoice>& steps,
                    Pieces pieces = {}) {
  const auto plan = Plan::assemble(problem, Method::kSynthesised, steps, pieces);
  return plan ? "" : plan.error();
}

TEST(RedistributionPlan, StepsAreChecked) {
  const Problem problem = jax_issue();
  const auto x = problem.mesh.primes_of(0), y = problem.mesh.primes_of(1);
  const StepChoice first = all_to_all(2, 1, x), second = all_to_all(0, 1, y);
  EXPECT_EQ(refusal(problem, {first, second}), "");
  EXPECT_EQ(refusal(problem, {first}), "the plan ends with the layout y,x,-, not -,x*y,-");
  EXPECT_EQ(refusal(problem, {second, first}),
            "the plan ends with the layout -,y*x,-, not -,x*y,-");
  EXPECT_EQ(refusal(problem, {first, first}),
            "step 2, all-to-all: the axes that it takes are not the minor-most ones of their "
            "dimension");
  EXPECT_EQ(refusal(problem, {all_to_all(2, 2, x)}),
            "step 1, all-to-all: an all-to-all moves axes from one dimension to another");
  EXPECT_EQ(refusal(problem, {all_to_all(2, 3, x)}),
            "step 1, all-to-all: it names a dimension that the array lacks");
  EXPECT_EQ(refusal(problem, {all_to_all(2, 1, {9})}),
            "step 1, all-to-all: it names an axis that the mesh lacks");
  EXPECT_EQ(refusal(problem, {{Operation::kAllToAll, {}, {}}}),
            "step 1, all-to-all: it has not the moves that it needs");
  EXPECT_EQ(refusal(problem, {{Operation::kAllPermute, {}, problem.to}}),
            "step 1, all-permute: it changes the shape of the tiles");
  EXPECT_EQ(refusal(problem, {{Operation::kDynamicSlice, {{0, 0, {}, y}}, {}}}),
            "step 1, dynamic-slice: an axis that it adds is in use");
  EXPECT_EQ(refusal(problem, {first, second}, {1, 3, 0}),
            "the tiles do not divide into 3 pieces in dimension 1");
  EXPECT_EQ(refusal(problem, {first, second}, {7, 1, 0}),
            "the tiles do not divide into 1 pieces in dimension 7");
}

TEST(RedistributionPlan, AxesAreTakenFromTheTop) {
  const Problem problem = problem_of("x=4,y=2", {16, 16}, "x*y,-", "y,x");
  const auto x = problem.mesh.primes_of(0);
  EXPECT_EQ(refusal(problem, {all_to_all(0, 1, x)}),
            "step 1, all-to-all: the axes that it takes are not the minor-most ones of their "
            "dimension");
}

TEST(RedistributionPlan, SlicesAndGathersMustFitToo) {
  const Problem problem = problem_of("x=4,y=2", {6, 16}, "-,-", "-,-");
  const auto x = problem.mesh.primes_of(0);
  EXPECT_EQ(refusal(problem, {{Operation::kDynamicSlice, {{0, 0, {}, x}}, {}}}),
            "step 1, dynamic-slice: layout x,-: dimension 0 of 6 elements does not divide into 4 "
            "parts; pad it to 8");
  EXPECT_EQ(refusal(problem, {{Operation::kAllGather, {{1, 1, x, {}}}, {}}}),
            "step 1, all-gather: the axes that it takes are not the minor-most ones of their "
            "dimension");
}

TEST(RedistributionPlan, PiecesBoundTheMemory) {
  // Source and target have 512 elements; each of the two all-to-alls holds 1024.
  const Plan whole = *plan_by(jax_issue(), Method::kSynthesised);
  EXPECT_EQ(whole.peak_bytes(), 1024u);
  EXPECT_EQ(whole.peak_bytes(2), 256u + 512u);
  // The tiles are cut by 8 in dimensions 0 (8 and 16 elements) and by 4 in dimension 2.
  EXPECT_EQ(whole.least_peak_bytes(), 448u + 128u);
  const Pieces pieces = *whole.pieces_for(640);
  EXPECT_EQ(pieces, (Pieces{0, 4, 8}));
  EXPECT_FALSE(whole.pieces_for(512));
  const Plan cut = whole.cut(pieces);
  const Observation seen = *verify(cut);
  EXPECT_EQ(seen.wrong_elements, 0u);
  EXPECT_EQ(seen.peak_bytes, 640u);
  EXPECT_EQ(seen.peak_bytes, cut.peak_bytes());
  EXPECT_EQ(seen.most_sent_bytes(), 640u);
  // Each piece pays for the start of its operations.
  const CostModel costs;
  const double once = 2 * costs.operation_us + 4 * costs.message_us;
  EXPECT_DOUBLE_EQ(cut.predicted_us() - whole.predicted_us(), 3 * once);
}

TEST(RedistributionPlan, OnlyWhatLiesApartIsCopied) {
  const auto copied = [](const Shape& shape, const char* from, const char* to, Method method) {
    const Mesh mesh = *Mesh::parse("x=4");
    Problem problem{mesh, shape, 4, *parse_layout(mesh, from), *parse_layout(mesh, to), {}, 0};
    problem.costs.copied_bytes_per_us = 1;
    const Plan plan = *plan_by(problem, method);
    EXPECT_EQ(plan.steps().size(), 1u);
    const Step& step = plan.steps().front();
    problem.costs.copied_bytes_per_us = 0;
    EXPECT_NEAR(step.predicted_us - plan_by(problem, method)->steps().front().predicted_us,
                4.0 * static_cast<double>(step.copied_elements), 1e-6);
    return step.copied_elements;
  };
  EXPECT_EQ(copied({16, 8}, "x,-", "-,x", Method::kSynthesised), 32u);  // columns are sent
  EXPECT_EQ(copied({16, 8}, "-,x", "x,-", Method::kSynthesised), 32u);  // columns are received
  EXPECT_EQ(copied({2, 16, 8}, "-,x,-", "-,-,x", Method::kSynthesised), 128u);
  EXPECT_EQ(copied({2, 16, 8}, "-,x,-", "-,-,x", Method::kDirect), 128u);
  EXPECT_EQ(copied({16, 8}, "x,-", "-,x", Method::kDirect), 32u);
  EXPECT_EQ(copied({16, 8}, "x,-", "-,-", Method::kSynthesised), 0u);  // rows are gathered
  EXPECT_EQ(copied({16, 8}, "-,x", "-,-", Method::kSynthesised), 128u);
  EXPECT_EQ(copied({16, 8}, "-,-", "-,x", Method::kSynthesised), 32u);  // a slice
}

TEST(RedistributionPlan, WhereAllGatherEachSendsOnce) {
  const auto messages = [](const char* from, const char* to) {
    const Mesh mesh = *Mesh::parse("x=4,y=2");
    const Problem problem{mesh, {16, 8}, 4, *parse_layout(mesh, from), *parse_layout(mesh, to),
                          {},   0};
    return plan_by(problem, Method::kSynthesised)->steps().front().messages;
  };
  EXPECT_EQ(messages("x,y", "-,-"), 1u);
  EXPECT_EQ(messages("x,y", "-,y"), 3u);
}

TEST(RedistributionPlan, TheCanonicalTextIsStable) {
  const Plan plan = *plan_by(jax_issue(), Method::kSynthesised);
  EXPECT_EQ(plan.canonical_text(),
            "ina-redistribution 1\nmesh x=4,y=2\nshape 16,16,16\nelement_bytes 1\nfrom y,-,x\n"
            "to -,x*y,-\npieces 0 1\nstep all-to-all y,x,- 2:x>1:x\n"
            "step all-to-all -,x*y,- 0:y>1:y\n");
}

TEST(RedistributionPlan, TheHashIsFnv1aOfTheText) {
  const Plan plan = *plan_by(jax_issue(), Method::kSynthesised);
  EXPECT_EQ(fmt::format("{:016x}", plan.hash()), "db3c16217512c072");
}

TEST(RedistributionPlan, TheHashTellsPlansApartAndIgnoresPredictions) {
  const Problem problem = jax_issue();
  const uint64_t hash = plan_by(problem, Method::kSynthesised)->hash();
  EXPECT_NE(hash, plan_by(problem, Method::kDirect)->hash());
  EXPECT_NE(hash, plan_by(problem, Method::kSynthesised)->cut({0, 2, 0}).hash());
  Problem other = problem;
  other.element_bytes = 2;
  EXPECT_NE(hash, plan_by(other, Method::kSynthesised)->hash());
  other = problem;
  other.costs.operation_us = 21;
  EXPECT_EQ(hash, plan_by(other, Method::kSynthesised)->hash());
}

}  // namespace
}  // namespace ina::redistribution
