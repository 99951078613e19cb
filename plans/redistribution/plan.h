// A redistribution plan: steps that lead from one layout to another, the cost of each step, and the
// memory that a rank needs for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plans/redistribution/problem.h"

namespace ina::redistribution {

enum class Operation : uint8_t {
  kDynamicSlice,  ///< each rank keeps a part of its tile: c -> c / |x|, x is pushed; nothing is
                  ///< sent
  kAllToAll,      ///< x is popped from one dimension and pushed on another
  kAllPermute,    ///< tiles change places: any layout to any other with tiles of the same shape
  kAllGather,     ///< x is popped, c -> c |x|: replicas of larger tiles
  kExchange,      ///< direct all-to-all-v: every rank sends each other what it needs
};

/// The effect of an operation on one dimension, or on two. Axes are listed major-most first.
struct Move {
  uint8_t from = 0;               ///< the dimension that loses `popped`
  uint8_t to = 0;                 ///< the dimension that gets `pushed`
  std::vector<PrimeId> popped{};  ///< all-to-all and all-gather
  std::vector<PrimeId> pushed{};  ///< dynamic slice and all-to-all, there in an order of its own

  bool operator==(const Move&) const = default;
};

/// A step as it is chosen. `after`: read of all-permute and exchange only, which have no moves.
struct StepChoice {
  Operation operation{};
  std::vector<Move> moves{};  ///< one of all-to-all; dynamic slices and all-gathers may be joined
  Layout after{};
};

/// A step and its derived values. Elements, messages and bytes are those of the busiest rank and of
/// the whole step: each piece has its share of the elements, and as many messages.
struct Step {
  Operation operation{};
  std::vector<Move> moves{};
  Layout before{};
  Layout after{};
  uint64_t input_elements = 0;   ///< of a rank's tile
  uint64_t output_elements = 0;  ///< of a rank's tile
  uint64_t sent_elements = 0;
  uint64_t received_elements = 0;
  uint64_t copied_elements = 0;  ///< within a rank's memory, to order them before and after
  uint32_t messages = 0;
  uint32_t group = 1;  ///< ranks that take part in one instance of it
  double predicted_us = 0;
};

/// How the steps are chosen.
enum class Method : uint8_t {
  kSynthesised,  ///< dynslice* (alltoall | allpermute)* allgather*, by search
  kDirect,       ///< one exchange
  kGatherSlice,  ///< gather the whole array, then slice: a baseline
  kXlaOrder,     ///< the order of XLA's partitioner: a baseline
};

/// A plan may be carried out piece by piece, so that no step holds its whole input and output. Let
/// c be `grain`, the greatest common divisor of the tiles' sizes in `dimension`, over all steps.
/// Piece q of n has the elements whose index i in that dimension has floor((i mod c) / (c / n)) =
/// q. Every tile has an n-th of each piece, so all steps act within a piece, on an array of g / n.
struct Pieces {
  uint8_t dimension = 0;
  uint64_t count = 1;
  uint64_t grain = 1;  ///< c

  bool operator==(const Pieces&) const = default;
};

/// All ranks compute the same plan from the same problem.
class Plan {
 public:
  /// Checks the steps and computes what follows from them. Error: a sentence that names the step
  /// that cannot be done where it stands, or pieces that do not divide the tiles.
  static Expected<Plan> assemble(const Problem& problem, Method method,
                                 const std::vector<StepChoice>& choices, Pieces pieces = {});

  const Problem& problem() const { return problem_; }
  Method method() const { return method_; }
  const std::vector<Step>& steps() const { return steps_; }
  const Pieces& pieces() const { return pieces_; }

  /// The most that the buffers of a rank ever hold. They hold input and output of the step under
  /// way, which is out of place, pieces of the source that are still to come, and of the target
  /// that are there. A piece of the source is given up once its first step is done. Not counted:
  /// the transport's own memory.
  uint64_t peak_bytes() const { return peak_bytes(pieces_.count); }
  /// The peak_bytes() of the plan in another number of pieces.
  uint64_t peak_bytes(uint64_t pieces) const;
  /// By the problem's costs, of all pieces one after another.
  double predicted_us() const;
  /// Bytes that the busiest rank sends, summed over the steps.
  uint64_t sent_bytes() const;
  /// Operations that communicate, of one piece.
  uint32_t communications() const;
  /// The largest tile of any step, source and target included, in elements.
  uint64_t largest_tile_elements() const;

  /// The fewest pieces whose peak is within the limit; nothing if no cut is enough.
  std::optional<Pieces> pieces_for(uint64_t limit_bytes) const;
  /// The least peak that any cut into equal pieces in one dimension reaches.
  uint64_t least_peak_bytes() const;
  /// The plan with the same steps, cut into pieces.
  Plan cut(const Pieces& pieces) const;

  /// The identity of a plan: problem without costs and limit, steps and pieces, one a line. The
  /// format is documented in docs/redistribution.md and stable.
  std::string canonical_text() const;
  /// FNV-1a, 64 bits, of canonical_text(). Ranks compare it; it is no protection against forgery.
  uint64_t hash() const;

 private:
  Plan(const Problem& problem, Method method) : problem_(problem), method_(method) {}
  Expected<void> append(const StepChoice& choice);
  /// The greatest common divisor of the tiles' sizes in a dimension.
  uint64_t grain(size_t dimension) const;

  Problem problem_;
  Method method_;
  std::vector<Step> steps_;
  Pieces pieces_;
};

/// "all-to-all" and so on.
const char* name_of(Operation operation);
const char* name_of(Method method);
std::optional<Operation> operation_named(std::string_view name);
std::optional<Method> method_named(std::string_view name);

}  // namespace ina::redistribution
