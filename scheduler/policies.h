// The registry of policies: a policy is its file, its line here, and its tests. The daemon, the
// simulators, the benchmarks and the tests take names, traits and code from it.
#pragma once

#include "scheduler/policy.h"
// One file a policy.
#include "scheduler/esa.h"
#include "scheduler/fcfs.h"
#include "scheduler/static_pool.h"

// X(Policy): its class. The first is the default. The order is that of experiments: seeds choose a
// policy by its place, so a new one goes to the end.
#define INA_POLICIES(X) \
  X(Static)             \
  X(Fcfs)               \
  X(Esa)                \
  /* the next one */

namespace ina::scheduler {

enum class PolicyKind : uint8_t {
#define INA_X(Policy) k##Policy,
  INA_POLICIES(INA_X)
#undef INA_X
};

inline constexpr size_t kPolicies = 0
#define INA_X(Policy) +1
    INA_POLICIES(INA_X)
#undef INA_X
    ;

inline constexpr Names<PolicyKind, kPolicies> kPolicyNames = {{
#define INA_X(Policy) {Policy::kTraits.name, PolicyKind::k##Policy},
    INA_POLICIES(INA_X)
#undef INA_X
}};

static_assert(are_distinct(kPolicyNames));
#define INA_X(Policy) static_assert(!Policy::kTraits.hashed || HashedPolicy<Policy>);
INA_POLICIES(INA_X)
#undef INA_X

/// Calls `function` with an object of the policy's class. Only the object's type matters:
/// `function` is compiled for each policy.
template <class Function>
constexpr decltype(auto) with_policy(PolicyKind kind, Function&& function) {
  switch (kind) {
#define INA_X(Policy)         \
  case PolicyKind::k##Policy: \
    return function(Policy{});
    INA_POLICIES(INA_X)
#undef INA_X
  }
  __builtin_unreachable();
}

constexpr const PolicyTraits& traits(PolicyKind kind) {
  return with_policy(kind, [](auto policy) -> const PolicyTraits& { return policy.kTraits; });
}

constexpr std::string_view name(PolicyKind kind) {
  return traits(kind).name;
}

}  // namespace ina::scheduler
