#include "sim/faults/redistribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "plans/redistribution/interpreter.h"
#include "plans/redistribution/planner.h"

namespace ina::sim {
namespace {

using redistribution::Layout;
using redistribution::Mesh;
using redistribution::Method;
using redistribution::Plan;
using redistribution::Problem;
using redistribution::Shape;
using scheduler::Buffer;
using scheduler::Schedule;
using Random = std::mt19937_64;
using Bytes = std::vector<std::byte>;

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa7};
constexpr uint32_t kMostTries = 50;

uint64_t upto(Random& random, uint64_t most) {
  return random() % (most + 1);
}
bool chance(Random& random, uint32_t percent) {
  return random() % 100 < percent;
}

/// As many ranks as the job has workers, on axes of one or several primes.
Mesh draw_mesh(Random& random, uint32_t workers) {
  std::vector<uint32_t> sizes;
  for (const uint32_t prime : redistribution::prime_factors(workers)) {
    if (!sizes.empty() && chance(random, 40))
      sizes.back() *= prime;
    else
      sizes.push_back(prime);
  }
  if (sizes.empty()) sizes.push_back(1);
  std::vector<redistribution::MeshAxis> axes;
  for (size_t i = 0; i < sizes.size(); ++i)
    axes.push_back({std::string(1, static_cast<char>('a' + i)), sizes[i]});
  return *Mesh::create(std::move(axes));
}

/// Axes in any order on any dimensions; one of four is left out, and replicates the array.
Layout draw_layout(Random& random, const Mesh& mesh, uint8_t dimensions) {
  std::vector<uint32_t> axes(mesh.axes().size());
  std::iota(axes.begin(), axes.end(), 0);
  std::shuffle(axes.begin(), axes.end(), random);
  Layout layout;
  layout.dimensions = dimensions;
  for (const uint32_t axis : axes) {
    if (chance(random, 25)) continue;
    redistribution::Stack& stack = layout[random() % dimensions];
    for (const redistribution::PrimeId prime : mesh.primes_of(axis)) stack.push(prime);
  }
  return layout;
}

/// Small enough for `most_bytes` in all tiles together, or the smallest that was drawn.
Problem draw_problem(Random& random, uint32_t workers, uint64_t most_bytes) {
  constexpr std::array<uint32_t, 5> kElementBytes = {1, 2, 4, 8, 12};
  Problem problem{draw_mesh(random, workers), {}, 4, {}, {}, {}, 0};
  const Mesh& mesh = problem.mesh;
  const auto bytes_of = [&](const Problem& of) {
    return workers * of.element_bytes * std::max(of.source_elements(), of.target_elements());
  };
  std::optional<Problem> smallest;
  for (uint32_t i = 0; i < kMostTries; ++i) {
    const auto dimensions = static_cast<uint8_t>(1 + upto(random, 2));
    problem.element_bytes = kElementBytes[random() % kElementBytes.size()];
    problem.from = draw_layout(random, mesh, dimensions);
    problem.to = draw_layout(random, mesh, dimensions);
    problem.shape.clear();
    for (size_t d = 0; d < dimensions; ++d)
      problem.shape.push_back(
          std::lcm(parts_of(mesh, problem.from[d]), parts_of(mesh, problem.to[d])) *
          (1 + upto(random, 11)));
    if (!smallest || bytes_of(problem) < bytes_of(*smallest)) smallest = problem;
    if (bytes_of(problem) <= most_bytes && !(problem.from == problem.to)) return problem;
  }
  return *smallest;
}

/// By any method; often with as little memory as it can do with, or some more.
Plan draw_plan(Random& random, const Problem& drawn) {
  constexpr std::array<Method, 5> kMethods = {Method::kSynthesised, Method::kSynthesised,
                                              Method::kDirect, Method::kXlaOrder,
                                              Method::kGatherSlice};
  constexpr uint64_t kMostPieces = 16;
  const Method method = kMethods[random() % kMethods.size()];
  Plan plan = *plan_by(drawn, method);
  if (!chance(random, 60)) return plan;
  Problem limited = drawn;
  const uint64_t least = plan.least_peak_bytes();
  limited.limit_bytes = least + upto(random, plan.peak_bytes() - least);
  auto cut = plan_by(limited, method);
  return cut && cut->pieces().count <= kMostPieces ? *cut : plan;
}

/// Puts a fault into the plan that the simulator must notice. A plan without steps may stay whole.
Plan broken(const Plan& plan, BrokenPlans how) {
  Problem problem = plan.problem();
  std::vector<redistribution::StepChoice> steps;
  for (const redistribution::Step& step : plan.steps())
    steps.push_back({step.operation, step.moves, step.after});
  if (how == BrokenPlans::kTooLarge) {
    problem.limit_bytes = plan.peak_bytes() - 1;
    return *Plan::assemble(problem, plan.method(), steps, plan.pieces());
  }
  if (steps.empty()) return plan;
  problem.limit_bytes = 0;
  problem.to = plan.steps().back().before;
  steps.pop_back();
  return *Plan::assemble(problem, plan.method(), steps);
}

/// A rank's tile in a buffer with guards.
Bytes buffer_of(const Problem& problem, uint64_t buffer_bytes, const Layout& layout, uint32_t rank,
                uint32_t salt) {
  const uint64_t tile_bytes =
      redistribution::elements_of(tile_shape(problem.mesh, layout, problem.shape)) *
      problem.element_bytes;
  Bytes bytes(std::max(buffer_bytes, tile_bytes) + 2 * kGuardBytes, kGuard);
  size_t at = kGuardBytes;
  for (const uint32_t index : index_tile(problem.mesh, layout, problem.shape, rank))
    for (uint32_t i = 0; i < problem.element_bytes; ++i)
      bytes[at++] =
          static_cast<std::byte>((index * 2'654'435'761u + i * 40'503u + salt) >> 8 * (i % 4));
  return bytes;
}

/// Payload of a rank's part: the bytes sent and received.
std::pair<uint64_t, uint64_t> payload_of(const Schedule& schedule, uint32_t rank) {
  uint64_t up = 0, down = 0;
  for (Schedule::Stage stage = 0; stage < schedule.size(); ++stage) {
    const auto* operate = std::get_if<scheduler::Operate>(&schedule.work(stage));
    if (!operate) continue;
    for (const scheduler::Block& block : operate->blocks->blocks()) {
      const uint64_t bytes = block.elements * wire_bytes(operate->dtype);
      if (block.source == 1 + rank) up += bytes;
      if (block.receiver == 0 || block.receiver == 1 + rank) down += bytes;
    }
  }
  return {up, down};
}

/// The end of an operation's blocks in a buffer, in bytes from the origin of the blocks.
uint64_t end_of_blocks(const scheduler::Operate& operate, uint32_t rank, bool sent) {
  uint64_t end = 0;
  for (const scheduler::Block& block : operate.blocks->blocks()) {
    const uint32_t role = sent ? block.source : block.receiver;
    if (role != 0 && role != 1 + rank) continue;
    end = std::max(end, (sent ? block.send_offset : block.receive_offset) + block.elements);
  }
  return end * wire_bytes(operate.dtype);
}

}  // namespace

PlannedOperation draw_redistribution(Random& random, const OperationLimits& limits) {
  const uint64_t most_bytes = uint64_t{limits.max_fragments} * limits.slot_bytes;
  const Plan plan = draw_plan(random, draw_problem(random, limits.workers, most_bytes));
  const Problem& problem = plan.problem();
  PlannedOperation planned;
  planned.collective = Collective::kAllToAll;
  planned.dtype = DType::kUInt8;
  planned.in_place = true;
  planned.redistribution = std::make_shared<const Plan>(
      limits.broken_plans == BrokenPlans::kNone ? plan : broken(plan, limits.broken_plans));
  const uint64_t peak_bytes = planned.redistribution->peak_bytes();
  const auto salt = static_cast<uint32_t>(random());
  for (uint32_t rank = 0; rank < limits.workers; ++rank) {
    planned.inputs.push_back(buffer_of(problem, peak_bytes, problem.from, rank, salt));
    Bytes target = buffer_of(problem, peak_bytes, problem.to, rank, salt);
    target.resize(kGuardBytes + problem.target_elements() * problem.element_bytes);
    planned.targets.push_back(std::move(target));
    planned.received_bytes.push_back(planned.inputs.back().size());
    const redistribution::Execution execution(
        planned.redistribution, {Rank{static_cast<uint8_t>(rank)}, limits.slot_bytes});
    planned.payloads.push_back(payload_of(*execution.schedule(), rank));
    if (!planned.beyond_memory) planned.beyond_memory = beyond_memory(execution);
  }
  return planned;
}

std::byte* redistributed(Bytes& buffer) {
  return buffer.data() + kGuardBytes;
}

std::optional<std::string> wrong_redistribution(const PlannedOperation& plan, uint32_t rank,
                                                const Bytes& got) {
  const Bytes& target = plan.targets[rank];
  if (got.size() != plan.inputs[rank].size()) return "a buffer of another size";
  if (got.size() < target.size() + kGuardBytes) return "a buffer that is smaller than the tile";
  const auto [at, _] = std::ranges::mismatch(got, target);
  const auto right = static_cast<size_t>(at - got.begin());
  if (right < kGuardBytes) return "something is written before the plan's memory";
  if (right < target.size())
    return fmt::format("byte {} of the tile: {:#04x} instead of {:#04x}", right - kGuardBytes,
                       std::to_integer<unsigned>(got[right]),
                       std::to_integer<unsigned>(target[right]));
  if (std::any_of(got.end() - kGuardBytes, got.end(), [](std::byte b) { return b != kGuard; }))
    return "something is written beyond the plan's memory";
  return std::nullopt;
}

std::optional<std::string> beyond_memory(const redistribution::Execution& execution) {
  const Plan& plan = execution.plan();
  const uint64_t peak = plan.peak_bytes(), limit = plan.problem().limit_bytes;
  if (limit != 0 && peak > limit)
    return fmt::format("{} bytes at the peak, the limit is {}", peak, limit);
  const uint64_t hashes = plan.problem().mesh.ranks() * sizeof(uint64_t);
  const Schedule& schedule = *execution.schedule();
  if (schedule.scratch_bytes() != hashes)
    return fmt::format("{} bytes of scratch memory instead of {}", schedule.scratch_bytes(),
                       hashes);
  const auto rank = static_cast<uint32_t>(execution.hash_offset() / sizeof(uint64_t));
  const auto is_beyond = [&](const Buffer& buffer, uint64_t bytes) {
    return buffer.offset_bytes + bytes > (buffer.place == Buffer::Place::kScratch ? hashes : peak);
  };
  for (Schedule::Stage stage = 0; stage < schedule.size(); ++stage) {
    const auto* operate = std::get_if<scheduler::Operate>(&schedule.work(stage));
    const auto* copy = std::get_if<scheduler::Copy>(&schedule.work(stage));
    if ((operate && (is_beyond(operate->send, end_of_blocks(*operate, rank, true)) ||
                     is_beyond(operate->receive, end_of_blocks(*operate, rank, false)))) ||
        (copy && (is_beyond(copy->from, copy->bytes) || is_beyond(copy->to, copy->bytes))))
      return fmt::format("stage {} reaches beyond {} bytes", stage, peak);
  }
  return std::nullopt;
}

}  // namespace ina::sim
