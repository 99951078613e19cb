// All accidents that can befall the messages of a fragment, up to three at once: lost, doubled or
// late, or the switch or the fallback restarts. Not a search but each of them, for each policy and
// home, with a slot for everybody and with one that two jobs fight for.
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/script.h"
#include "tests/support/sanitizers.h"

namespace ina::sim {
namespace {

using scheduler::PolicyKind;
using Kind = Accident::Kind;

#ifdef INA_SLOW_BUILD
constexpr size_t kAccidents = 2;
#else
constexpr size_t kAccidents = 3;
#endif

constexpr int kMostRounds = 40;

struct Outcome {
  bool good = false;
  size_t sent = 0;  ///< messages until all was silent
};

bool all_done(const Rack& rack, const Script& script) {
  for (uint32_t job = 0; job < script.jobs.size(); ++job)
    for (uint32_t rank = 0; rank < script.jobs[job].workers; ++rank)
      if (!rack.done(rank, job)) return false;
  return true;
}

// Whole sums are 13 if the first two are added first, otherwise 16: one made twice shows, and so
// does one that lacks or repeats a contribution.
const std::vector<float> kInputs{1e8f + 8, -1e8f, 5};

/// The sender and receiver of a collective's fragment, where not all are. It is at home at rank 0.
ScriptFragment roles_in(Collective collective) {
  switch (collective) {
    case Collective::kReduce:
      return {.source = 0, .receiver = 2};
    case Collective::kBroadcast:
      return {.source = 2, .receiver = 0};
    default:
      return {.source = 3, .receiver = 2};
  }
}

bool is_right(const Rack& rack, Collective collective) {
  const std::vector<float> got = rack.got_all();
  const auto is_sum = [](float value) { return value == 13 || value == 16; };
  switch (collective) {
    case Collective::kReduce:
      return got[0] == -1 && is_sum(got[1]) && got[2] == -1;
    case Collective::kBroadcast:
      return got == std::vector<float>(3, kInputs[1]);
    case Collective::kGather:
      return got == std::vector<float>{-1, kInputs[2], -1};
    default:
      return is_sum(got[0]) && got[1] == got[0] && got[2] == got[0];
  }
}

/// One fragment of each job, and the fragment that closes it.
Outcome run(const Script& script, Collective collective) {
  Rack rack(script);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    if (collective == Collective::kAllReduce)
      rack.submit(rank, {kInputs[rank]});
    else
      rack.submit(rank, collective, {roles_in(collective)}, {kInputs[rank]});
    if (script.jobs.size() > 1 && rank < 2) rack.submit(rank, {static_cast<float>(rank + 1)}, 1);
  }
  rack.deliver_all();
  for (int round = 0; round < kMostRounds && !all_done(rack, script); ++round) {
    for (uint32_t job = 0; job < script.jobs.size(); ++job) {
      for (uint32_t rank = 0; rank < script.jobs[job].workers; ++rank) {
        if (rack.done(rank, job)) continue;
        rack.time_out(rank, job);
        rack.deliver_all();
      }
    }
    if (round % 2 == 1) rack.release_all();
    rack.deliver_all();
  }
  Outcome outcome;
  outcome.sent = rack.sent();
  rack.release_all();
  rack.deliver_all();
  outcome.good =
      all_done(rack, script) && is_right(rack, collective) && rack.counters().slots_used == 0;
  if (script.jobs.size() > 1 && rack.got_all(1) != std::vector<float>{3, 3}) outcome.good = false;
  return outcome;
}

/// Adds accidents from message `from` of `messages` on, up to `most`. False as soon as a run went
/// wrong; then they are still there.
bool explore(Script& script, Collective collective, size_t from, size_t messages, size_t most) {
  std::vector<Kind> kinds{Kind::kLost, Kind::kDoubled, Kind::kLate, Kind::kSwitchRestarts};
  if (script.home == Home::kDedicated) kinds.push_back(Kind::kFallbackRestarts);
  for (size_t nth = from; nth < messages; ++nth) {
    for (const Kind kind : kinds) {
      script.accidents.push_back({nth, kind});
      const Outcome outcome = run(script, collective);  // more messages than without the accident
      if (!outcome.good) return false;
      if (most > 1 && !explore(script, collective, nth + 1, outcome.sent, most - 1)) return false;
      script.accidents.pop_back();
    }
  }
  return true;
}

std::string text_of(const Script& script) {
  static constexpr const char* kKinds[] = {"is lost", "comes twice", "is late",
                                           "is followed by a restart of the switch",
                                           "is followed by a restart of the fallback"};
  std::string text;
  for (const Accident& accident : script.accidents)
    text += "message " + std::to_string(accident.nth) + " " +
            kKinds[static_cast<size_t>(accident.kind)] + "; ";
  return text;
}

struct Setting {
  PolicyKind policy{};
  Home home{};
};

Script script_of(const Setting& setting, bool contended) {
  Script script;
  script.policy.kind = setting.policy;
  script.home = setting.home;
  script.scribbles = true;
  script.jobs = {{.workers = 3, .priority = 10}};
  if (!contended) return script;
  script.jobs.push_back({.workers = 2, .priority = 20});
  if (scheduler::traits(setting.policy).hashed) script.slots = 1;
  return script;
}

class Accidents : public testing::TestWithParam<Setting> {
 protected:
  static void try_all(bool contended, Collective collective, size_t most) {
    Script script = script_of(GetParam(), contended);
    const Outcome undisturbed = run(script, collective);
    ASSERT_TRUE(undisturbed.good);
    EXPECT_TRUE(explore(script, collective, 0, undisturbed.sent, most))
        << name(collective) << ": " << text_of(script);
  }
};

TEST_P(Accidents, NoneBreaksAnything) {
  try_all(false, Collective::kAllReduce, kAccidents);
}

TEST_P(Accidents, NoneBreaksAnythingWhereJobsFight) {
  try_all(true, Collective::kAllReduce, kAccidents - 1);
}

// These take more messages, and more of them: the fragment that closes them is another.
TEST_P(Accidents, NoneBreaksWhatGoesToOneOrComesFromOne) {
  for (const Collective collective :
       {Collective::kReduce, Collective::kBroadcast, Collective::kGather})
    for (const bool contended : {false, true}) try_all(contended, collective, kAccidents - 1);
}

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const auto& policy : scheduler::kPolicyNames)
    for (const auto& home : kHomeNames) settings.push_back({policy.value, home.value});
  return settings;
}

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return std::string(name(info.param.policy)) + "_" + std::string(name(info.param.home));
}

INSTANTIATE_TEST_SUITE_P(Settings, Accidents, testing::ValuesIn(all_settings()), name_of);

/// That it can fail: rules that one fragment is enough to miss.
struct Missed {
  Rule rule{};
  Collective collective = Collective::kAllReduce;
};

class AccidentsWithout : public testing::TestWithParam<Missed> {};

TEST_P(AccidentsWithout, SomethingBreaks) {
  const auto [rule, collective] = GetParam();
  const Without without(rule);
  for (const Setting& setting : all_settings()) {
    for (const bool contended : {true, false}) {
      Script script = script_of(setting, contended);
      const Outcome undisturbed = run(script, collective);
      const size_t most =
          contended || collective != Collective::kAllReduce ? kAccidents - 1 : kAccidents;
      if (!undisturbed.good || !explore(script, collective, 0, undisturbed.sent, most)) return;
    }
  }
  FAIL() << "nobody misses it";
}

INSTANTIATE_TEST_SUITE_P(Rules, AccidentsWithout,
                         testing::Values(Missed{Rule::kPartialTest}, Missed{Rule::kAntiReplay},
                                         Missed{Rule::kEpochCheck}, Missed{Rule::kOneEpoch},
                                         Missed{Rule::kEpochBump}, Missed{Rule::kRetainResults},
                                         Missed{Rule::kDisjointMerge},
                                         Missed{Rule::kClosing, Collective::kReduce},
                                         Missed{Rule::kBindAgain, Collective::kReduce},
                                         Missed{Rule::kNonReceiverSent, Collective::kReduce}),
                         [](const auto& one) {
                           return std::string(kRuleNames[static_cast<size_t>(one.param.rule)]);
                         });

}  // namespace
}  // namespace ina::sim
