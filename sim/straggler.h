// Workers that are slow at times: the duration of work that starts at a given time.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "wire/types.h"

namespace ina::sim {

enum class Pattern : uint8_t {
  kNone,
  kPermanent,  ///< rank 0, always
  kRotating,   ///< one rank after the other, a period each
  kShares,     ///< each rank in its own share of the work, whenever it comes to it
  kRandom,     ///< each rank stops now and then
  kLink,       ///< the link of rank 0 is slow, both ways
};

/// The slow part of a straggler.
enum class Slow : uint8_t {
  kProducer,  ///< makes its contributions slowly, and computes slowly
  kUplink,    ///< its link towards the switch; the contributions are ready
};

struct StragglerSpec {
  Pattern pattern = Pattern::kNone;
  Slow slow = Slow::kProducer;
  /// kProducer: fragments that a worker may have made and not sent. With few it stands still
  /// whenever its window is full (a coupled producer). 0: the whole gradient.
  uint64_t staging = 4;
  double factor = 4;               ///< how many times slower
  Nanos period_ns = 1'000'000;     ///< kRotating: of one rank; kRandom: the mean stop
  Nanos phase_ns = 0;              ///< kRotating: so long has it gone on when the time begins
  double stopped = 0.05;           ///< kRandom: the part of its time that a worker stands still
  uint64_t share_fragments = 256;  ///< kShares: fragments of one rank's share
};

/// One worker's speed over time.
class Pace {
 public:
  Pace(const StragglerSpec& spec, uint32_t rank, uint32_t workers, uint64_t seed)
      : spec_(spec), rank_(rank), workers_(workers), random_(seed * 64 + rank) {}

  bool steady() const { return spec_.pattern == Pattern::kNone || spec_.pattern == Pattern::kLink; }
  /// When `work_ns` of work, at full speed, are done if they start at `start`. `fragments`: how
  /// many contributions it has made before.
  Nanos finish(Nanos start, Nanos work_ns, uint64_t fragments);

 private:
  struct Segment {
    Nanos end;
    double speed;
  };
  Segment segment_at(Nanos time);

  StragglerSpec spec_;
  uint32_t rank_;
  uint32_t workers_;
  std::mt19937_64 random_;
  std::vector<Nanos> stops_;  ///< kRandom: times at which it stops and goes on, in turn
};

}  // namespace ina::sim
