#include "plans/redistribution/layout_search.h"

#include <algorithm>
#include <queue>
#include <string_view>
#include <unordered_map>

#include "plans/redistribution/realise.h"

namespace ina::redistribution {
namespace {

struct State {
  Layout layout;
  bool moving = false;  ///< the slices are done

  bool operator==(const State&) const = default;
};

struct StateHash {
  size_t operator()(const State& state) const {
    uint64_t hash = state.moving ? 0x9e3779b97f4a7c15 : 0xcbf29ce484222325;
    for (size_t d = 0; d < state.layout.dimensions; ++d) {
      const Stack& stack = state.layout[d];
      hash = (hash ^ (stack.size + 64)) * 0x100000001b3;
      for (const PrimeId axis : stack) hash = (hash ^ axis) * 0x100000001b3;
    }
    return hash ^ hash >> 31;
  }
};

class LayoutSearch {
 public:
  LayoutSearch(const Problem& problem, const Bound& bound, Slicing slicing, uint64_t most_moved,
               double below_us)
      : problem_(problem),
        bound_(bound),
        slicing_(slicing),
        most_moved_(most_moved),
        below_us_(below_us) {
    for (PrimeId axis = 0; axis < problem.mesh.prime_count(); ++axis)
      all_axes_ |= uint32_t{1} << axis;
  }

  std::optional<std::vector<StepChoice>> run() {
    reach({problem_.from, slicing_ == Slicing::kBetweenMoves}, 0, kNone, {});
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (entry.us > nodes_[entry.node].bound_us) continue;
      const State state = nodes_[entry.node].state;
      if (state.moving && progress(state.layout).is_goal) return steps_to(entry.node);
      if (!state.moving)
        add_slices(entry.node, state);
      else if (slicing_ == Slicing::kFirst || !add_late_slice(entry.node, state))
        add_moves(entry.node, state);
      if (nodes_.size() > kMostLayouts) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  struct Node {
    State state;
    double us;
    double bound_us;
    uint32_t parent;
    Move move;
  };
  struct Entry {
    double us;
    size_t placed;  ///< axes where the target has them; more first
    uint32_t node;
    bool operator<(const Entry& other) const {
      if (us != other.us) return us > other.us;
      return placed != other.placed ? placed < other.placed : node < other.node;
    }
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// How far a layout is from the target.
  struct Progress {
    Splits missing{};     ///< by dimension, factors that must yet come by all-to-alls
    size_t placed = 0;    ///< axes that lie where the target has them
    bool is_goal = true;  ///< only gathers are left
  };

  Progress progress(const Layout& layout) const {
    Progress progress;
    for (size_t d = 0; d < layout.dimensions; ++d) {
      const size_t common = common_bottom(layout[d], problem_.to[d]);
      progress.placed += common;
      progress.missing[d] = product(problem_.to[d], common);
      progress.is_goal = progress.is_goal && common == problem_.to[d].size;
    }
    return progress;
  }
  uint32_t product(const Stack& stack, size_t first) const {
    uint32_t product = 1;
    for (size_t i = first; i < stack.size; ++i) product *= problem_.mesh.size(stack[i]);
    return product;
  }
  /// lies_apart() for the layout's tile, whose dimension `cut` is cut `factor` times further.
  bool lies_apart(const Layout& layout, size_t dimension, size_t cut, uint32_t factor) const {
    for (size_t d = 0; d < dimension; ++d)
      if (problem_.shape[d] > uint64_t{product(layout[d], 0)} * (d == cut ? factor : 1))
        return true;
    return false;
  }
  uint64_t tile_of(const Layout& layout) const {
    uint64_t parts = 1;
    for (size_t d = 0; d < layout.dimensions; ++d) parts *= product(layout[d], 0);
    return elements_of(problem_.shape) / parts;
  }

  /// The least cost that is left. While slices go on, free axes may yet take their places for
  /// nothing.
  double bound_of(const State& state, Progress& now) const {
    const auto tile = static_cast<double>(tile_of(state.layout));
    if (state.moving && slicing_ == Slicing::kFirst) return bound_.us(now.missing, tile);
    const uint32_t free = all_axes_ & ~state.layout.used();
    double smallest = tile;
    for (PrimeId axis = 0; axis < problem_.mesh.prime_count(); ++axis)
      if ((free >> axis & 1) != 0) smallest /= problem_.mesh.size(axis);
    Splits missing = now.missing;
    for (size_t d = 0; d < state.layout.dimensions; ++d) {
      const Stack& target = problem_.to[d];
      if (slicing_ == Slicing::kBetweenMoves) {
        missing[d] = 1;
        for (size_t i = common_bottom(state.layout[d], target); i < target.size; ++i)
          if ((free >> target[i] & 1) == 0) missing[d] *= problem_.mesh.size(target[i]);
        continue;
      }
      size_t next = common_bottom(state.layout[d], target);
      if (next < state.layout[d].size) continue;
      while (next < target.size && (free >> target[next] & 1) != 0) ++next;
      missing[d] = product(target, next);
    }
    return bound_.slicing_us(missing, smallest, tile);
  }

  void add_slices(uint32_t node, const State& state) {
    const double us = nodes_[node].us;
    const uint64_t tile = tile_of(state.layout);
    if (tile <= most_moved_ && bound_.target() % tile == 0)
      reach({state.layout, true}, us, node, {});
    for (PrimeId axis = 0; axis < problem_.mesh.prime_count(); ++axis) {
      if ((state.layout.used() >> axis & 1) != 0) continue;
      for (uint8_t d = 0; d < state.layout.dimensions; ++d) {
        const uint64_t local = problem_.shape[d] / product(state.layout[d], 0);
        if (local % problem_.mesh.size(axis) != 0) continue;
        State next = state;
        next.layout[d].push(axis);
        reach(next, us, node, {});
      }
    }
  }

  /// An axis at the place that the target has for it costs nothing, and makes all that follows
  /// smaller. False: there is none.
  bool add_late_slice(uint32_t node, const State& state) {
    for (uint8_t d = 0; d < state.layout.dimensions; ++d) {
      const Stack& now = state.layout[d];
      const Stack& target = problem_.to[d];
      if (now.size == target.size || common_bottom(now, target) != now.size) continue;
      const PrimeId axis = target[now.size];
      if ((state.layout.used() >> axis & 1) != 0) continue;
      State next = state;
      next.layout[d].push(axis);
      reach(next, nodes_[node].us, node, {d, d, {}, {axis}});
      return true;
    }
    return false;
  }

  void add_moves(uint32_t node, const State& state) {
    const uint64_t tile = tile_of(state.layout);
    if (tile > most_moved_) return;
    const double copy_us =
        problem_.costs.copies_us(static_cast<double>(tile) * problem_.element_bytes);
    for (uint8_t from = 0; from < state.layout.dimensions; ++from) {
      uint32_t factor = 1;
      std::vector<PrimeId> block;
      for (size_t first = state.layout[from].size; first-- > 0;) {
        block.insert(block.begin(), state.layout[from][first]);
        factor *= problem_.mesh.size(state.layout[from][first]);
        const uint64_t bytes = tile / factor * (factor - 1) * problem_.element_bytes;
        const double us =
            nodes_[node].us + problem_.costs.time_us(factor - 1, static_cast<double>(bytes));
        for (uint8_t to = 0; to < state.layout.dimensions; ++to) {
          const uint64_t local = problem_.shape[to] / product(state.layout[to], 0);
          if (to == from || local % factor != 0) continue;
          // Dimensions before `from` are the same after the move, but for `to`.
          const int copies = (lies_apart(state.layout, to, to, 1) ? 1 : 0) +
                             (lies_apart(state.layout, from, to, factor) ? 1 : 0);
          add_move(node, state, {from, to, block, block}, us + copies * copy_us);
        }
      }
    }
  }

  /// The move as it is, and with its axes in the order in which the target has them: an all-to-all
  /// may number its chunks as it likes.
  void add_move(uint32_t node, const State& state, Move move, double us) {
    State next = state;
    for (size_t i = 0; i < move.popped.size(); ++i) next.layout[move.from].pop();
    const Layout popped = next.layout;
    for (const PrimeId axis : move.pushed) next.layout[move.to].push(axis);
    reach(next, us, node, move);
    std::vector<PrimeId> ordered;
    for (const PrimeId axis : problem_.to[move.to])
      if (std::find(move.popped.begin(), move.popped.end(), axis) != move.popped.end())
        ordered.push_back(axis);
    if (ordered.size() != move.popped.size() || ordered == move.pushed) return;
    move.pushed = ordered;
    next.layout = popped;
    for (const PrimeId axis : move.pushed) next.layout[move.to].push(axis);
    reach(next, us, node, move);
  }

  void reach(const State& state, double us, uint32_t parent, Move move) {
    Progress now = progress(state.layout);
    const double bound_us = us + bound_of(state, now);
    if (bound_us >= below_us_) return;
    const auto [known, is_new] = index_.try_emplace(state, static_cast<uint32_t>(nodes_.size()));
    if (is_new)
      nodes_.push_back({state, us, bound_us, parent, std::move(move)});
    else if (us < nodes_[known->second].us)
      nodes_[known->second] = {state, us, bound_us, parent, std::move(move)};
    else
      return;
    queue_.push({bound_us, now.placed, known->second});
  }

  /// Slices that follow each other are one step.
  static void prepend(const Move& move, std::vector<StepChoice>& steps) {
    if (move.pushed.empty()) return;
    const bool slices = move.popped.empty();
    if (!slices || steps.empty() || steps.front().operation != Operation::kDynamicSlice) {
      const Operation operation = slices ? Operation::kDynamicSlice : Operation::kAllToAll;
      steps.insert(steps.begin(), {operation, {move}, {}});
      return;
    }
    std::vector<Move>& moves = steps.front().moves;
    const auto same = std::ranges::find(moves, move.to, &Move::to);
    if (same == moves.end())
      moves.insert(moves.begin(), move);
    else
      same->pushed.insert(same->pushed.begin(), move.pushed.begin(), move.pushed.end());
  }

  std::vector<StepChoice> steps_to(uint32_t node) const {
    std::vector<StepChoice> steps = gathers(problem_, nodes_[node].state.layout, problem_.to);
    for (; node != kNone && nodes_[node].state.moving; node = nodes_[node].parent)
      prepend(nodes_[node].move, steps);
    if (node == kNone) return steps;
    const auto sliced = slices(problem_.from, nodes_[node].state.layout);
    steps.insert(steps.begin(), sliced.begin(), sliced.end());
    return steps;
  }

  const Problem& problem_;
  const Bound& bound_;
  const Slicing slicing_;
  uint64_t most_moved_;
  double below_us_;
  uint32_t all_axes_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<State, uint32_t, StateHash> index_;
  std::priority_queue<Entry> queue_;
};

}  // namespace

std::optional<std::vector<StepChoice>> search_layouts(const Problem& problem, const Bound& bound,
                                                      Slicing slicing, uint64_t most_moved,
                                                      double below_us) {
  return LayoutSearch(problem, bound, slicing, most_moved, below_us).run();
}

}  // namespace ina::redistribution
