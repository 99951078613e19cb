// The rules of the protocol whose need a fault search can prove. Production code calls rule(),
// which is constant there. The fault simulator builds the same sources with INA_RULE_KNOBS. There a
// rule can be switched off, and the simulator must then find a violation. docs/reliability.md lists
// the purpose of each rule and the effect of its absence.
#pragma once

#include <cstdint>
#include <string_view>

namespace ina {

// X(enumerator, name)
#define INA_RULES(X)                                                                    \
  X(kBaseTest, "base_test")             /* a partial sum is never a RESULT */           \
  X(kAntiReplay, "anti_replay")         /* a contribution counts once */                \
  X(kReplayTooOld, "replay_too_old")    /* what the window passed is dropped */         \
  X(kResultOrigin, "result_origin")     /* who deferred takes no switch sum */          \
  X(kEpochCheck, "epoch_check")         /* before any slot is touched */                \
  X(kOneEpoch, "one_epoch")             /* a GRAD leaves in one epoch only */           \
  X(kInstance, "instance")              /* DEFER and RESULT name the fallback's life */ \
  X(kEpochBump, "epoch_bump")           /* when a fallback restarts */                  \
  X(kRetainResults, "retain_results")   /* W results are kept for POLLs */              \
  X(kFallbackMemory, "fallback_memory") /* of 2W fragments */                           \
  X(kWideKey, "wide_key")               /* 64-bit sequence numbers inside */            \
  X(kLeaveBarrier, "leave_barrier")     /* a leaver stays until all have all */         \
  X(kDisjointMerge, "disjoint_merge")   /* overlapping partial sums are not added */    \
  X(kKeptResult, "kept_result")         /* who needs no result back has taken it */

enum class Rule : uint8_t {
#define INA_X(enumerator, text) enumerator,
  INA_RULES(INA_X)
#undef INA_X
};

inline constexpr std::string_view kRuleNames[] = {
#define INA_X(enumerator, text) text,
    INA_RULES(INA_X)
#undef INA_X
};
inline constexpr uint32_t kRules = sizeof(kRuleNames) / sizeof(kRuleNames[0]);

#ifdef INA_RULE_KNOBS
inline uint32_t rules_off = 0;  ///< bit r: Rule r is switched off
inline bool rule(Rule r) {
  return (rules_off >> static_cast<uint32_t>(r) & 1) == 0;
}
#else
constexpr bool rule(Rule) {
  return true;
}
#endif

}  // namespace ina
