#include "plans/redistribution/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "plans/redistribution/routes.h"

namespace ina::redistribution {
namespace {

constexpr std::array kOperations{
    std::pair{Operation::kDynamicSlice, "dynamic-slice"},
    std::pair{Operation::kAllToAll, "all-to-all"},
    std::pair{Operation::kAllPermute, "all-permute"},
    std::pair{Operation::kAllGather, "all-gather"},
    std::pair{Operation::kExchange, "exchange"},
};
constexpr std::array kMethods{
    std::pair{Method::kSynthesised, "synthesised"},
    std::pair{Method::kDirect, "direct"},
    std::pair{Method::kGatherSlice, "gather-slice"},
    std::pair{Method::kXlaOrder, "xla-order"},
};

tl::unexpected<std::string> refuse(std::string text) {
  return tl::unexpected<std::string>(std::move(text));
}

/// Pops exactly these axes from the top.
Expected<void> pop(Stack& stack, const std::vector<PrimeId>& axes) {
  if (axes.empty() || axes.size() > stack.size ||
      !std::equal(axes.begin(), axes.end(), stack.end() - axes.size()))
    return refuse("the axes that it takes are not the minor-most ones of their dimension");
  for (size_t i = 0; i < axes.size(); ++i) stack.pop();
  return {};
}

Expected<void> push(Layout& layout, size_t dimension, const std::vector<PrimeId>& axes) {
  for (const PrimeId axis : axes) {
    if ((layout.used() >> axis & 1) != 0) return refuse("an axis that it adds is in use");
    layout[dimension].push(axis);
  }
  return {};
}

bool has_same_axes(std::vector<PrimeId> a, std::vector<PrimeId> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

/// Carries a move out on a layout.
Expected<void> apply(const Mesh& mesh, Operation operation, const Move& move, Layout& layout) {
  const bool pops = operation != Operation::kDynamicSlice;
  const bool pushes = operation != Operation::kAllGather;
  for (const PrimeId axis : pushes ? move.pushed : move.popped)
    if (axis >= mesh.primes().size()) return refuse("it names an axis that the mesh lacks");
  if (move.from >= layout.dimensions || move.to >= layout.dimensions)
    return refuse("it names a dimension that the array lacks");
  if (pops && pushes && (move.from == move.to || !has_same_axes(move.popped, move.pushed)))
    return refuse("an all-to-all moves axes from one dimension to another");
  if (pops)
    if (auto popped = pop(layout[move.from], move.popped); !popped) return popped;
  if (!pushes) return {};
  if (move.pushed.empty()) return refuse("it adds no axis");
  return push(layout, move.to, move.pushed);
}

/// The tile of a step, before it and after it.
struct Tiles {
  Shape before;
  Shape after;
};

uint64_t copied_elements(const Step& step, const Tiles& tiles) {
  bool packs = false, unpacks = false;
  switch (step.operation) {
    case Operation::kDynamicSlice:
      return step.output_elements;
    case Operation::kAllPermute:
      return 0;
    case Operation::kAllToAll:
      packs = lies_apart(tiles.before, step.moves.front().to);
      unpacks = lies_apart(tiles.after, step.moves.front().from);
      break;
    case Operation::kAllGather:
      for (const Move& move : step.moves) unpacks = unpacks || lies_apart(tiles.after, move.from);
      break;
    case Operation::kExchange:
      for (size_t d = 0; d < tiles.before.size(); ++d) {
        // A tile is cut where the other layout cuts the dimension further.
        const size_t common = common_bottom(step.before[d], step.after[d]);
        packs = packs || (common < step.after[d].size && lies_apart(tiles.before, d));
        unpacks = unpacks || (common < step.before[d].size && lies_apart(tiles.after, d));
      }
      break;
  }
  return (packs ? step.input_elements : 0) + (unpacks ? step.output_elements : 0);
}

void compute_load(const Problem& problem, Step& step) {
  const uint64_t in = step.input_elements;
  const uint32_t ranks = problem.mesh.ranks();
  uint64_t group = 1;
  for (const Move& move : step.moves)
    group *= parts_of(problem.mesh,
                      step.operation == Operation::kDynamicSlice ? move.pushed : move.popped);
  Load load;
  switch (step.operation) {
    case Operation::kDynamicSlice:
      group = 1;
      break;
    case Operation::kAllToAll:
      load = {in / group * (group - 1), in / group * (group - 1), static_cast<uint32_t>(group - 1)};
      break;
    case Operation::kAllGather:
      load = {in * (group - 1), in * (group - 1), gather_messages(group, ranks)};
      break;
    case Operation::kAllPermute:
      group = ranks;
      load = {in, in, 1};
      break;
    case Operation::kExchange:
      group = ranks;
      load = exchange_load(problem.mesh, problem.shape, step.before, step.after);
      break;
  }
  step.group = static_cast<uint32_t>(group);
  step.sent_elements = load.sent_elements;
  step.received_elements = load.received_elements;
  step.messages = load.messages;
}

void compute_time(const Problem& problem, uint64_t pieces, Step& step) {
  const auto bytes_of = [&](uint64_t elements) {
    return static_cast<double>(elements) * problem.element_bytes;
  };
  step.predicted_us = problem.costs.copies_us(bytes_of(step.copied_elements));
  if (step.operation == Operation::kDynamicSlice) return;
  const double bytes = bytes_of(std::max(step.sent_elements, step.received_elements));
  const auto count = static_cast<double>(pieces);
  step.predicted_us += count * problem.costs.time_us(step.messages, bytes / count);
}

bool has_moves(Operation operation) {
  return operation != Operation::kAllPermute && operation != Operation::kExchange;
}

/// Divisors, ascending.
std::vector<uint64_t> divisors(uint64_t number) {
  std::vector<uint64_t> found;
  for (uint64_t d = 1; d * d <= number; ++d)
    if (number % d == 0) {
      found.push_back(d);
      if (d * d != number) found.push_back(number / d);
    }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Expected<void> check_problem(const Problem& problem) {
  const auto& [mesh, shape, element_bytes, from, to, costs, limit] = problem;
  if (shape.empty() || shape.size() > kMostDimensions)
    return refuse(
        fmt::format("an array has 1 to {} dimensions, not {}", kMostDimensions, shape.size()));
  uint64_t elements = 1;
  for (const uint64_t size : shape) {
    if (size == 0) return refuse(fmt::format("the array {} has no elements", shape_text(shape)));
    if (size > (uint64_t{1} << 48) / elements)
      return refuse(fmt::format("the array {} has more than 2^48 elements", shape_text(shape)));
    elements *= size;
  }
  if (element_bytes == 0 || element_bytes > 4096)
    return refuse(fmt::format("an element has 1 to 4096 bytes, not {}", element_bytes));
  const auto is_cost = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!is_cost(costs.operation_us) || !is_cost(costs.message_us) || !is_cost(costs.bytes_per_us) ||
      !is_cost(costs.copied_bytes_per_us) || costs.bytes_per_us == 0)
    return refuse("costs are finite numbers of at least 0, and the bandwidth is above 0");
  if (auto checked = check_layout(mesh, from, shape); !checked) return checked;
  return check_layout(mesh, to, shape);
}

Expected<Plan> Plan::assemble(const Problem& problem, Method method,
                              const std::vector<StepChoice>& choices, Pieces pieces) {
  if (auto checked = check_problem(problem); !checked) return refuse(checked.error());
  Plan plan(problem, method);
  for (const StepChoice& choice : choices)
    if (auto appended = plan.append(choice); !appended) return refuse(appended.error());
  const Layout& end = plan.steps_.empty() ? problem.from : plan.steps_.back().after;
  if (!(end == problem.to))
    return refuse(fmt::format("the plan ends with the layout {}, not {}",
                              layout_text(problem.mesh, end),
                              layout_text(problem.mesh, problem.to)));
  if (pieces.dimension >= problem.shape.size() || pieces.count == 0 ||
      plan.grain(pieces.dimension) % pieces.count != 0)
    return refuse(fmt::format("the tiles do not divide into {} pieces in dimension {}",
                              pieces.count, pieces.dimension));
  return plan.cut(pieces);
}

Expected<void> Plan::append(const StepChoice& choice) {
  const auto refuse_step = [&](const std::string& why) {
    return refuse(
        fmt::format("step {}, {}: {}", steps_.size() + 1, name_of(choice.operation), why));
  };
  Step step;
  step.operation = choice.operation;
  step.moves = choice.moves;
  step.before = steps_.empty() ? problem_.from : steps_.back().after;
  step.after = step.before;
  if (has_moves(choice.operation)) {
    if (choice.moves.empty() ||
        (choice.operation == Operation::kAllToAll && choice.moves.size() > 1))
      return refuse_step("it has not the moves that it needs");
    for (const Move& move : choice.moves)
      if (auto applied = apply(problem_.mesh, choice.operation, move, step.after); !applied)
        return refuse_step(applied.error());
  } else {
    step.after = choice.after;
  }
  if (auto checked = check_layout(problem_.mesh, step.after, problem_.shape); !checked)
    return refuse_step(checked.error());
  const Tiles tiles{tile_shape(problem_.mesh, step.before, problem_.shape),
                    tile_shape(problem_.mesh, step.after, problem_.shape)};
  if (choice.operation == Operation::kAllPermute && tiles.before != tiles.after)
    return refuse_step("it changes the shape of the tiles");
  step.input_elements = elements_of(tiles.before);
  step.output_elements = elements_of(tiles.after);
  step.copied_elements = copied_elements(step, tiles);
  compute_load(problem_, step);
  compute_time(problem_, 1, step);
  steps_.push_back(std::move(step));
  return {};
}

uint64_t Plan::peak_bytes(uint64_t pieces) const {
  const uint64_t source = problem_.source_elements() / pieces;
  const uint64_t target = problem_.target_elements() / pieces;
  if (steps_.empty()) return source * pieces * problem_.element_bytes;
  uint64_t widest = 0;
  for (const Step& step : steps_)
    widest = std::max(widest, (step.input_elements + step.output_elements) / pieces);
  // The pieces that wait and those that are done grow or shrink linearly: the first or the last
  // piece is the worst.
  return (std::max(source, target) * (pieces - 1) + widest) * problem_.element_bytes;
}

double Plan::predicted_us() const {
  double sum = 0;
  for (const Step& step : steps_) sum += step.predicted_us;
  return sum;
}

uint64_t Plan::sent_bytes() const {
  uint64_t elements = 0;
  for (const Step& step : steps_) elements += step.sent_elements;
  return elements * problem_.element_bytes;
}

uint32_t Plan::communications() const {
  return static_cast<uint32_t>(std::count_if(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.operation != Operation::kDynamicSlice;
  }));
}

uint64_t Plan::largest_tile_elements() const {
  uint64_t largest = problem_.source_elements();
  for (const Step& step : steps_) largest = std::max(largest, step.output_elements);
  return largest;
}

uint64_t Plan::grain(size_t dimension) const {
  uint64_t grain = problem_.shape[dimension] / parts_of(problem_.mesh, problem_.from[dimension]);
  for (const Step& step : steps_)
    grain =
        std::gcd(grain, problem_.shape[dimension] / parts_of(problem_.mesh, step.after[dimension]));
  return grain;
}

std::optional<Pieces> Plan::pieces_for(uint64_t limit_bytes) const {
  std::optional<Pieces> fewest;
  for (size_t d = 0; d < problem_.shape.size(); ++d) {
    const uint64_t whole = grain(d);
    for (const uint64_t count : divisors(whole)) {
      if (fewest && count >= fewest->count) break;
      if (peak_bytes(count) > limit_bytes) continue;
      fewest = Pieces{static_cast<uint8_t>(d), count, whole};
      break;
    }
  }
  return fewest;
}

uint64_t Plan::least_peak_bytes() const {
  uint64_t least = peak_bytes(1);
  for (size_t d = 0; d < problem_.shape.size(); ++d) least = std::min(least, peak_bytes(grain(d)));
  return least;
}

Plan Plan::cut(const Pieces& pieces) const {
  Plan plan = *this;
  plan.pieces_ = pieces;
  plan.pieces_.grain = grain(pieces.dimension);
  for (Step& step : plan.steps_) compute_time(problem_, pieces.count, step);
  return plan;
}

std::string Plan::canonical_text() const {
  const Mesh& mesh = problem_.mesh;
  std::string text = fmt::format(
      "ina-redistribution 1\nmesh {}\nshape {}\nelement_bytes {}\nfrom {}\nto {}\npieces {} {}\n",
      mesh.text(), fmt::join(problem_.shape, ","), problem_.element_bytes,
      layout_text(mesh, problem_.from), layout_text(mesh, problem_.to), pieces_.dimension,
      pieces_.count);
  for (const Step& step : steps_) {
    text += fmt::format("step {} {}", name_of(step.operation), layout_text(mesh, step.after));
    for (const Move& move : step.moves)
      text += fmt::format(" {}:{}>{}:{}", move.from, axes_text(mesh, move.popped), move.to,
                          axes_text(mesh, move.pushed));
    text += "\n";
  }
  return text;
}

uint64_t Plan::hash() const {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : canonical_text()) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

const char* name_of(Operation operation) {
  return kOperations[static_cast<size_t>(operation)].second;
}

const char* name_of(Method method) {
  return kMethods[static_cast<size_t>(method)].second;
}

std::optional<Operation> operation_named(std::string_view name) {
  for (const auto& [operation, known] : kOperations)
    if (name == known) return operation;
  return std::nullopt;
}

std::optional<Method> method_named(std::string_view name) {
  for (const auto& [method, known] : kMethods)
    if (name == known) return method;
  return std::nullopt;
}

}  // namespace ina::redistribution
