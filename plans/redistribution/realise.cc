#include "plans/redistribution/realise.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace ina::redistribution {
namespace {

/// The most orders of a path's moves that are tried: all orders of five moves.
constexpr size_t kMostOrders = 120;

/// The axes at the top of a stack that multiply to `factor`, the major-most first.
std::optional<std::vector<PrimeId>> top_block(const Mesh& mesh, const Stack& stack,
                                              uint32_t factor) {
  uint32_t product = 1;
  size_t first = stack.size;
  while (product < factor && first > 0) product *= mesh.size(stack[--first]);
  if (product != factor) return std::nullopt;
  return std::vector<PrimeId>(stack.begin() + first, stack.end());
}

/// Walks a path's moves, forward from a layout or backward from one.
class Walk {
 public:
  Walk(const Problem& problem, std::vector<ShapeMove> moves)
      : problem_(problem), moves_(std::move(moves)) {}

  /// Layouts before move 0, 1, .. as far as the moves can be done; and the moves themselves.
  void forward(const Layout& start) {
    forward_.assign(1, start);
    done_.clear();
    for (const ShapeMove& move : moves_) {
      Layout layout = forward_.back();
      const auto block = top_block(problem_.mesh, layout[move.from], move.factor);
      if (!block) return;
      Move taken{move.from, move.to, *block, *block};
      if (const auto wanted = order_of(problem_.to[move.to], *block)) taken.pushed = *wanted;
      shift(layout, taken);
      done_.push_back(std::move(taken));
      forward_.push_back(layout);
    }
  }

  /// Layouts after the last move, before it, and so on, likewise.
  void backward(const Layout& end) {
    backward_.assign(1, end);
    undone_.clear();
    for (size_t i = moves_.size(); i-- > 0;) {
      Layout layout = backward_.back();
      const auto block = top_block(problem_.mesh, layout[moves_[i].to], moves_[i].factor);
      if (!block) return;
      shift(layout, {moves_[i].to, moves_[i].from, *block, *block});
      undone_.push_back({moves_[i].from, moves_[i].to, *block, *block});
      backward_.push_back(layout);
    }
  }

  const Layout& end() const { return forward_.back(); }

  /// The moves with a permutation in one place, if there is a place where both walks have been.
  std::optional<std::vector<StepChoice>> joined() const {
    for (const bool equal : {true, false})
      for (size_t at = forward_.size(); at-- > 0;) {
        const size_t left = moves_.size() - at;
        if (left >= backward_.size()) continue;
        if (equal && !(forward_[at] == backward_[left])) continue;
        std::vector<StepChoice> steps;
        for (size_t i = 0; i < at; ++i) steps.push_back({Operation::kAllToAll, {done_[i]}, {}});
        if (!equal) steps.push_back({Operation::kAllPermute, {}, backward_[left]});
        for (size_t i = left; i-- > 0;) steps.push_back({Operation::kAllToAll, {undone_[i]}, {}});
        return steps;
      }
    return std::nullopt;
  }

  /// The moves with a permutation before each that is blocked, and one to `end` if need be.
  std::vector<StepChoice> with_permutes(Layout layout, const Layout& end) const {
    std::vector<StepChoice> steps;
    for (const ShapeMove& move : moves_) {
      if (!top_block(problem_.mesh, layout[move.from], move.factor)) {
        raise(layout[move.from], move.factor);
        steps.push_back({Operation::kAllPermute, {}, layout});
      }
      const auto block = *top_block(problem_.mesh, layout[move.from], move.factor);
      const Move taken{move.from, move.to, block, block};
      shift(layout, taken);
      steps.push_back({Operation::kAllToAll, {taken}, {}});
    }
    if (!(layout == end)) steps.push_back({Operation::kAllPermute, {}, end});
    return steps;
  }

 private:
  static void shift(Layout& layout, const Move& move) {
    for (size_t i = 0; i < move.popped.size(); ++i) layout[move.from].pop();
    for (const PrimeId axis : move.pushed) layout[move.to].push(axis);
  }
  /// The block in the order in which the target has it, if that has all of it.
  static std::optional<std::vector<PrimeId>> order_of(const Stack& target,
                                                      const std::vector<PrimeId>& block) {
    std::vector<PrimeId> ordered;
    for (const PrimeId axis : target)
      if (std::find(block.begin(), block.end(), axis) != block.end()) ordered.push_back(axis);
    if (ordered.size() != block.size()) return std::nullopt;
    return ordered;
  }
  /// Brings axes that multiply to `factor` to the top.
  void raise(Stack& stack, uint32_t factor) const {
    std::vector<PrimeId> below, above;
    for (const PrimeId axis : stack) {
      const bool is_taken = factor % problem_.mesh.size(axis) == 0;
      if (is_taken) factor /= problem_.mesh.size(axis);
      (is_taken ? above : below).push_back(axis);
    }
    stack = {};
    for (const PrimeId axis : below) stack.push(axis);
    for (const PrimeId axis : above) stack.push(axis);
  }

  const Problem& problem_;
  std::vector<ShapeMove> moves_;
  std::vector<Layout> forward_;
  std::vector<Layout> backward_;
  std::vector<Move> done_;
  std::vector<Move> undone_;  ///< the last first
};

bool is_free(const Layout& layout, PrimeId axis) {
  return (layout.used() >> axis & 1) == 0;
}

/// Adds free axes that multiply to `factor` to a stack, those of `preferred` first.
void push_free(const Mesh& mesh, Layout& layout, size_t dimension, uint32_t factor,
               uint32_t preferred) {
  for (const bool first : {true, false})
    for (PrimeId axis = 0; axis < mesh.prime_count(); ++axis) {
      if (factor % mesh.size(axis) != 0 || !is_free(layout, axis)) continue;
      if (first && (preferred >> axis & 1) == 0) continue;
      layout[dimension].push(axis);
      factor /= mesh.size(axis);
    }
}

/// The source, sliced as far as the path says: by the target's axes where they come next there,
/// otherwise by axes that the target does not use.
Layout sliced_layout(const Problem& problem, const ShapePath& path) {
  Layout layout = problem.from;
  Splits left{};
  for (size_t d = 0; d < layout.dimensions; ++d) {
    left[d] = path.sliced[d] / static_cast<uint32_t>(parts_of(problem.mesh, layout[d]));
    const Stack& target = problem.to[d];
    while (layout[d].size < target.size && common_bottom(layout[d], target) == layout[d].size) {
      const PrimeId next = target[layout[d].size];
      if (!is_free(layout, next) || left[d] % problem.mesh.size(next) != 0) break;
      layout[d].push(next);
      left[d] /= problem.mesh.size(next);
    }
  }
  const uint32_t unwanted = ~problem.to.used();
  for (size_t d = 0; d < layout.dimensions; ++d)
    push_free(problem.mesh, layout, d, left[d], unwanted);
  return layout;
}

/// The target, with the axes on top that the gathers will take off: as in `reached` where possible.
Layout gathered_layout(const Problem& problem, const ShapePath& path, const Layout& reached) {
  Layout layout = problem.to;
  Splits left{};
  for (size_t d = 0; d < layout.dimensions; ++d) {
    left[d] = path.gathered[d] / static_cast<uint32_t>(parts_of(problem.mesh, layout[d]));
    if (common_bottom(reached[d], problem.to[d]) < problem.to[d].size) continue;
    for (size_t i = problem.to[d].size; i < reached[d].size; ++i) {
      const PrimeId axis = reached[d][i];
      if (!is_free(layout, axis) || left[d] % problem.mesh.size(axis) != 0) break;
      layout[d].push(axis);
      left[d] /= problem.mesh.size(axis);
    }
  }
  for (size_t d = 0; d < layout.dimensions; ++d) {
    uint32_t reached_here = 0;
    for (const PrimeId axis : reached[d]) reached_here |= uint32_t{1} << axis;
    push_free(problem.mesh, layout, d, left[d], reached_here);
  }
  return layout;
}

/// True if the moves can be done in this order, as far as sizes go.
bool is_walkable(const Problem& problem, Splits splits, const std::vector<ShapeMove>& moves) {
  for (const ShapeMove& move : moves) {
    const uint64_t local = problem.shape[move.to] / splits[move.to];
    if (splits[move.from] % move.factor != 0 || local % move.factor != 0) return false;
    splits[move.from] /= move.factor;
    splits[move.to] *= move.factor;
  }
  return true;
}

size_t permutes_in(const std::vector<StepChoice>& steps) {
  return static_cast<size_t>(std::count_if(steps.begin(), steps.end(), [](const StepChoice& step) {
    return step.operation == Operation::kAllPermute;
  }));
}

}  // namespace

std::vector<StepChoice> slices(const Layout& layout, const Layout& target) {
  StepChoice step{Operation::kDynamicSlice, {}, {}};
  for (uint8_t d = 0; d < layout.dimensions; ++d)
    if (target[d].size > layout[d].size)
      step.moves.push_back({d, d, {}, {target[d].begin() + layout[d].size, target[d].end()}});
  if (step.moves.empty()) return {};
  return {step};
}

std::vector<StepChoice> gathers(const Problem& problem, const Layout& layout,
                                const Layout& target) {
  // All axes in the order in which they can be popped, with their dimensions.
  std::vector<std::pair<uint8_t, PrimeId>> axes;
  for (uint8_t d = 0; d < layout.dimensions; ++d)
    for (size_t i = layout[d].size; i-- > target[d].size;) axes.emplace_back(d, layout[d][i]);
  // However they are grouped, the same bytes are sent in all.
  std::vector<double> least_us(axes.size() + 1, std::numeric_limits<double>::infinity());
  std::vector<size_t> begin(axes.size() + 1);
  least_us[0] = 0;
  for (size_t end = 1; end <= axes.size(); ++end) {
    uint64_t group = 1;
    for (size_t first = end; first-- > 0;) {
      group *= problem.mesh.size(axes[first].second);
      const double us = least_us[first] + problem.costs.time_us(group - 1, 0);
      if (us >= least_us[end]) continue;
      least_us[end] = us;
      begin[end] = first;
    }
  }
  std::vector<StepChoice> steps;
  for (size_t end = axes.size(); end > 0; end = begin[end]) {
    StepChoice step{Operation::kAllGather, {}, {}};
    for (size_t i = begin[end]; i < end; ++i) {
      const auto [dimension, axis] = axes[i];
      if (step.moves.empty() || step.moves.back().from != dimension)
        step.moves.push_back({dimension, dimension, {}, {}});
      auto& popped = step.moves.back().popped;
      popped.insert(popped.begin(), axis);
    }
    steps.insert(steps.begin(), std::move(step));
  }
  return steps;
}

std::vector<StepChoice> realise(const Problem& problem, const ShapePath& path) {
  const Layout start = sliced_layout(problem, path);
  std::vector<size_t> order(path.moves.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<StepChoice> best;
  bool found = false;
  const auto keep = [&](std::vector<StepChoice> middle, const Layout& end) {
    if (found && permutes_in(best) <= permutes_in(middle)) return;
    best = slices(problem.from, start);
    best.insert(best.end(), middle.begin(), middle.end());
    const auto last = gathers(problem, end, problem.to);
    best.insert(best.end(), last.begin(), last.end());
    found = true;
  };
  for (size_t tried = 0; tried < kMostOrders; ++tried) {
    std::vector<ShapeMove> moves;
    for (const size_t i : order) moves.push_back(path.moves[i]);
    const bool last = !std::next_permutation(order.begin(), order.end());
    if (!is_walkable(problem, path.sliced, moves)) {
      if (last) break;
      continue;
    }
    Walk walk(problem, moves);
    walk.forward(start);
    const Layout end = gathered_layout(problem, path, walk.end());
    walk.backward(end);
    if (auto middle = walk.joined())
      keep(std::move(*middle), end);
    else
      keep(walk.with_permutes(start, end), end);
    if (last || permutes_in(best) == 0) break;
  }
  return best;
}

}  // namespace ina::redistribution
