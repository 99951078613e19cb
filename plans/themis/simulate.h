// The time of a plan, by a model of the network: in each dimension a link that sends and gets one
// operation's bytes after another's, at its rate. An operation's latency delays its chunk, and not
// the link. The simulation uses neither randomness nor floats.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "plans/themis/plan.h"
#include "plans/themis/window.h"

namespace ina::themis {

/// Which of the operations that are ready a dimension begins with. Of equals the one that was ready
/// first, and of those that of the chunk with the lowest number.
enum class Discipline : uint8_t {
  kFifo,              ///< ready first
  kSmallestFirst,     ///< fewest bytes ("SCF")
  kLongestRemaining,  ///< of the chunk with most left to do; not in the paper
};

inline constexpr std::array<std::string_view, 3> kDisciplineNames = {"fifo", "scf", "longest"};

constexpr std::string_view name(Discipline discipline) {
  return kDisciplineNames[static_cast<size_t>(discipline)];
}

/// Simulates plans of one topology and the same requests, many times.
///
/// An operation begins once its dimension is free to send. It is received no sooner than it is
/// sent, and after the operations sent before it. Point to point both directions are busy alike. By
/// an aggregating switch a reduce-scatter sends for longer than it receives, and an all-gather
/// receives for longer. Of the first ones of either kind the all-gather goes first if nothing would
/// be left to receive before the other one is sent; otherwise the reduce-scatter does.
///
/// In a carried topology, closing fragments hold up the end of a collective, and no stage of it but
/// by their place in the window. An operation that finds no place there delays those behind it.
class Simulator {
 public:
  /// Both must live as long.
  Simulator(const Topology& topology, const std::vector<Request>& requests);

  /// When the last operation ends.
  Picos end_ps(const std::vector<Chunk>& chunks, Discipline discipline);
  Timeline run(const std::vector<Chunk>& chunks, Discipline discipline);
  /// Simulates with the dimensions' order given. Error: an operation that never comes, because the
  /// order is not one of all operations, or has operations wait for each other in a circle.
  Result<Timeline> keep_order(const std::vector<Chunk>& chunks,
                              const std::vector<std::vector<OperationId>>& order);

 private:
  struct PendingStage {
    int64_t key = 0;
    uint32_t chunk = 0;
    uint32_t stage = 0;
    Picos ready_ps = 0;
  };
  struct Link {
    Picos tx_free_ps = 0;
    Picos rx_free_ps = 0;
    std::vector<PendingStage> waiting = {};  ///< best first
    size_t begun = 0;
    Window window;  ///< of carried topologies
  };
  struct Event {
    Picos at_ps = 0;
    uint32_t chunk = 0;  ///< that has come to `stage`
    uint32_t stage = 0;
  };

  void simulate(const std::vector<Chunk>& chunks);
  /// Goes to the next time at which a chunk comes, or is free to send that one waits for. False:
  /// there is none.
  bool advance();
  void arrive(const Event& event);
  int64_t key_of(const Event& event) const;
  void begin_what_can(uint8_t dimension);
  size_t next_of(const Link& link) const;
  size_t next_of_order(const Link& link, uint8_t dimension) const;
  const Stage& stage_of(const PendingStage& waiting) const {
    return (*chunks_)[waiting.chunk].stages[waiting.stage];
  }
  void begin(uint8_t dimension, const PendingStage& waiting);
  void end_no_sooner(uint32_t request, Picos at_ps);
  void push(const Event& event);
  bool all_done() const;

  const std::vector<Request>& requests_;
  const std::vector<Chunk>* chunks_ = nullptr;
  Discipline discipline_ = Discipline::kFifo;
  const std::vector<std::vector<OperationId>>* order_ = nullptr;  ///< to keep; none: by discipline
  Timeline* timeline_ = nullptr;                                  ///< to fill in; none: not wanted
  std::vector<Link> links_;
  std::vector<Event> events_;  ///< a heap, the earliest on top
  Picos now_ps_ = 0;
  Picos end_ps_ = 0;
};

/// A plan's timeline. Error: its order cannot be kept.
Result<Timeline> replay(const Plan& plan);

/// The order in which a timeline's dimensions begin their operations.
std::vector<std::vector<OperationId>> order_of(const Timeline& timeline);

}  // namespace ina::themis
