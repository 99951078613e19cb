// The rules of the protocol whose need a fault search can prove. Production code calls rule(),
// which is constant there. The fault simulator builds the same sources with INA_RULE_KNOBS. There a
// rule can be switched off, and the simulator must then find a violation. docs/reliability.md lists
// the purpose of each rule and the effect of its absence.
#pragma once

#include <cstdint>
#include <string_view>

namespace ina {

// X(enumerator, name)
#define INA_RULES(X)                                                                       \
  X(kPartialTest, "partial_test")          /* a partial sum is never a RESULT */           \
  X(kAntiReplay, "anti_replay")            /* a contribution counts once */                \
  X(kReplayTooOld, "replay_too_old")       /* what the window passed is dropped */         \
  X(kResultOrigin, "result_origin")        /* who deferred takes no switch sum */          \
  X(kEpochCheck, "epoch_check")            /* before any slot is touched */                \
  X(kOneEpoch, "one_epoch")                /* a GRAD leaves in one epoch only */           \
  X(kInstance, "instance")                 /* DEFER and RESULT name the fallback's life */ \
  X(kEpochBump, "epoch_bump")              /* when a fallback restarts */                  \
  X(kRetainResults, "retain_results")      /* W results are kept for POLLs */              \
  X(kFallbackMemory, "fallback_memory")    /* of 2W fragments */                           \
  X(kWideKey, "wide_key")                  /* 64-bit sequence numbers inside */            \
  X(kLeaveBarrier, "leave_barrier")        /* a leaver stays until all have all */         \
  X(kDisjointMerge, "disjoint_merge")      /* overlapping partial sums are not added */    \
  X(kKeptResult, "kept_result")            /* who needs no result back has taken it */     \
  X(kAllMarks, "all_marks")                /* before a moved payload goes on */            \
  X(kClosing, "closing")                   /* is entered only with all received */         \
  X(kBindAgain, "bind_again")              /* who got no bytes may be bound again */       \
  X(kNonReceiverSent, "non_receiver_sent") /* and says SENT, for it has no result */       \
  X(kGroupOnce, "group_once")              /* each worker, within a group of a burst */    \
  X(kJoinNext, "join_next")                /* a run has decided fragments only */          \
  X(kJoinLate, "join_late")                /* not kept: what others have overtaken */      \
  X(kJoinLimit, "join_limit")              /* and goes at a quarter of a window */         \
  X(kJoinPrompt, "join_prompt")            /* at once to who has a small window */         \
  X(kJoinForget, "join_forget")            /* and ends with its job */                     \
  X(kStageOrder, "stage_order")            /* of a Schedule: after all that it awaits */   \
  X(kGivenResult, "given_result")          /* is given again while its row holds it */     \
  X(kReceiptWhole, "receipt_whole")        /* is told with the last byte, not before */    \
  X(kRunWindow, "run_window")              /* C1 for the last of a run of marks */         \
  X(kRunClosing, "run_closing")            /* a run of marks ends before a closing one */  \
  X(kResultAgrees, "result_agrees")        /* with the operation of its receiver */        \
  X(kDoneReport, "done_report")            /* a member's result decides its fragment */    \
  X(kReportStop, "report_stop")            /* what reports takes nothing meanwhile */      \
  X(kOldResult, "old_result")              /* of an earlier life of the sender */          \
  X(kHasRetract, "has_retract")            /* SENT takes a report back */                  \
  X(kRowAnswers, "row_answers")            /* a decided row answers contributions */       \
  X(kRowAscends, "row_ascends")            /* a whole one goes up again when asked */      \
  X(kAskBelow, "ask_below")                /* a switch asks for what it lacks */           \
  X(kHaveTaken, "have_taken")              /* a member's result, by every switch */        \
  X(kBareAgain, "bare_again")              /* who got no bytes contributes again */

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
inline uint64_t rules_off = 0;  ///< bit r: Rule r is switched off
inline bool rule(Rule r) {
  return (rules_off >> static_cast<uint32_t>(r) & 1) == 0;
}
#else
constexpr bool rule(Rule) {
  return true;
}
#endif

}  // namespace ina
