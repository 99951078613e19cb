// The choice of contributions that get a slot when fragments outnumber slots: the common part of
// all policies. A policy is one small file beside this one and one line in the registry
// (policies.h). docs/policies.md shows how to add one.
#pragma once

#include <concepts>
#include <string_view>

#include "wire/named.h"
#include "wire/worker_set.h"

namespace ina::scheduler {

/// The registry has the enumerators (policies.h).
enum class PolicyKind : uint8_t;

/// The properties of a policy that the rest of the switch depends on.
struct PolicyTraits {
  std::string_view name;     ///< in configurations, results and statistics
  std::string_view summary;  ///< which contribution gets a slot, for the manual
  /// Jobs share all slots, and a hash says where a fragment belongs. Otherwise each job has a pool
  /// of its own: it is admitted by slots, keeps results in them, and cannot help stragglers.
  bool hashed = true;
  /// The complete sum goes to the fallback, whose RESULT frees the slot. Nobody takes it before.
  bool held_until_acknowledged = false;
};

/// How the priority of a slot that keeps others out goes down. Ablations of `esa`.
enum class Decay : uint8_t {
  kPreemption,  ///< halves with each attempt that fails
  kTime,        ///< halves with each half-life since its first contribution
  kNone,
};
inline constexpr Names<Decay, 3> kDecayNames = {
    {{"preemption", Decay::kPreemption}, {"time", Decay::kTime}, {"none", Decay::kNone}}};

inline constexpr uint32_t kMaxWays = 8;

struct PolicyOptions {
  PolicyKind kind{};  ///< the first of the registry
  /// The switch knows of each fragment whose contributions have gone to the fallback, so that the
  /// late ones follow without a timeout. ESA keeps that beside the slot, for its last victim; here
  /// it is in the anti-replay window, for all fragments.
  bool residual = true;
  Decay decay = Decay::kPreemption;
  Nanos decay_half_life_ns = 1'000'000;
  bool near_full_bonus = false;  ///< three quarters full: counts twice its priority
  /// Slots that a fragment has to choose from, side by side: 1, 2, 4 or 8. Hardware has one.
  uint32_t ways = 4;
  bool operator==(const PolicyOptions&) const = default;
};

/// The fragment that has a slot, as far as a policy may look at it.
struct Occupant {
  uint8_t priority = 0;
  Nanos first_arrival = 0;
  WorkerSet contributed =
      {};                ///< workers whose contributions have come, to the slot or the fallback
  uint32_t workers = 0;  ///< of its job
};

/// A policy that decides which fragment gets a hashed slot.
// clang-format off
template <class P>
concept HashedPolicy =
    requires(const Occupant& occupant, uint8_t priority, Nanos now, const PolicyOptions& options) {
      /// The value of the slot when a fragment may choose among several: the least is taken.
      { P::worth(occupant, now, options) } -> std::same_as<uint32_t>;
      /// True if a contribution of `priority` takes the slot.
      { P::takes_over(occupant, priority, now, options) } -> std::same_as<bool>;
      /// The priority of a slot, of `priority` so far, after a newcomer was turned away.
      { P::kept(priority, options) } -> std::same_as<uint8_t>;
    };
// clang-format on

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
