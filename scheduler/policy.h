// The choice of contributions that get a slot when fragments outnumber slots. A policy is one small
// file beside this one (esa.h, fcfs.h; static_pool.h for reserved pools). docs/policies.md shows
// how to add one.
#pragma once

#include "wire/types.h"

namespace ina::scheduler {

enum class PolicyKind : uint8_t {
  kStatic,  ///< SwitchML: a pool of 2W slots per job
  kFcfs,    ///< ATP: the first fragment keeps the slot until the fallback acknowledges it
  kEsa,     ///< ESA: more urgent fragments preempt less urgent ones
};

/// How the priority of a slot that keeps others out goes down. Ablations of `esa`.
enum class Decay : uint8_t {
  kPreemption,  ///< halves with each attempt that fails
  kTime,        ///< halves with each half-life since its first contribution
  kNone,
};

inline constexpr uint32_t kMaxWays = 8;

struct PolicyOptions {
  PolicyKind kind = PolicyKind::kStatic;
  /// The switch knows of each fragment whose contributions have gone to the fallback, so that the
  /// late ones follow without a timeout. ESA keeps that beside the slot, for its last victim; here
  /// it is in the anti-replay window, for all fragments.
  bool residual = true;
  Decay decay = Decay::kPreemption;
  Nanos decay_half_life_ns = 1'000'000;
  bool near_full_bonus = false;  ///< three quarters full: counts twice its priority
  /// Slots that a fragment has to choose from, side by side: 1, 2, 4 or 8. Hardware has one.
  uint32_t ways = 4;
};

/// A job's share of one lane's slots. Guaranteed: up to `floor` of them. Never more than `ceiling`.
struct Quota {
  uint32_t floor = 0;
  uint32_t ceiling = UINT32_MAX;
};

/// The slot where a fragment belongs, of `slots`. Multiplication by the golden ratio spreads a
/// window of consecutive fragments evenly, so that a job hardly collides with itself.
constexpr uint32_t hashed_slot(JobId job, Seq seq, uint32_t slots) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  const uint64_t salt = (value(job) + uint64_t{1}) * 0xbf58476d1ce4e5b9;
  return static_cast<uint32_t>(((seq.value * kGolden + salt) >> 32) * slots >> 32);
}

}  // namespace ina::scheduler
