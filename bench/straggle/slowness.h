// When a worker is slow, and how much: the duration of a piece of work that takes a given time on
// an undisturbed worker. Time and a seed alone decide it, so that it is the same with and without
// straggler help.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <tl/expected.hpp>

namespace ina::straggle {

/// Nanoseconds.
using Time = int64_t;

struct Pattern {
  enum class Kind : uint8_t {
    kNone,
    kPermanent,  ///< rank 0, always
    kRotating,   ///< one after the other, a period each
    kRandom,     ///< each at times of its own, one at a time on average
    kLink,       ///< rank 0 works as the others, but its gradients leave slowly
  };
  Kind kind = Kind::kNone;
  double severity = 1;  ///< times slower
  Time period = 0;      ///< how long a worker is slow: kRotating always, kRandom on average
};

/// "none", "permanent:4", "rotating:4:250ms", "random:4:250ms", "link:4"; the error says what is
/// wrong.
tl::expected<Pattern, std::string> parse_pattern(const std::string& text);

class Slowness {
 public:
  Slowness(const Pattern& pattern, int rank, int ranks, uint64_t seed);

  /// When `work` that begins at `start` is done. Calls must not go back in time; the first worker
  /// of a rotation is slow from time 0 on.
  Time done(Time start, Time work);

 private:
  /// True if the worker is slow at `now`; `until` becomes the time until when that stays so.
  bool slow_at(Time now, Time& until);

  Pattern pattern_;
  int rank_;
  int ranks_;
  std::mt19937_64 random_;
  // kRandom
  Time change_ = 0;
  bool slow_ = true;  ///< turned around before time 0
};

}  // namespace ina::straggle
