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

/// One fragment of each job.
Outcome run(const Script& script) {
  Rack rack(script);
  // Whole sums are 13 if the first two are added first, otherwise 16: one made twice shows, and so
  // does one that lacks or repeats a contribution.
  const std::vector<float> inputs{1e8f + 8, -1e8f, 5};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    rack.submit(rank, {inputs[rank]});
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
  const std::vector<float> got = rack.got_all();
  outcome.good = (got[0] == 13 || got[0] == 16) && got[1] == got[0] && got[2] == got[0] &&
                 rack.counters().slots_used == 0;
  if (script.jobs.size() > 1 && rack.got_all(1) != std::vector<float>{3, 3}) outcome.good = false;
  return outcome;
}

/// Adds accidents from message `from` of `messages` on, up to `most`. False as soon as a run went
/// wrong; then they are still there.
bool explore(Script& script, size_t from, size_t messages, size_t most) {
  std::vector<Kind> kinds{Kind::kLost, Kind::kDoubled, Kind::kLate, Kind::kSwitchRestarts};
  if (script.home == Home::kDedicated) kinds.push_back(Kind::kFallbackRestarts);
  for (size_t nth = from; nth < messages; ++nth) {
    for (const Kind kind : kinds) {
      script.accidents.push_back({nth, kind});
      const Outcome outcome = run(script);  // more messages than without the accident
      if (!outcome.good) return false;
      if (most > 1 && !explore(script, nth + 1, outcome.sent, most - 1)) return false;
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
  script.jobs = {{.workers = 3, .priority = 10}};
  if (!contended) return script;
  script.jobs.push_back({.workers = 2, .priority = 20});
  if (scheduler::traits(setting.policy).hashed) script.slots = 1;
  return script;
}

class Accidents : public testing::TestWithParam<Setting> {};

TEST_P(Accidents, NoneBreaksAnything) {
  Script script = script_of(GetParam(), false);
  const Outcome undisturbed = run(script);
  ASSERT_TRUE(undisturbed.good);
  EXPECT_TRUE(explore(script, 0, undisturbed.sent, kAccidents)) << text_of(script);
}

TEST_P(Accidents, NoneBreaksAnythingWhereJobsFight) {
  Script script = script_of(GetParam(), true);
  const Outcome undisturbed = run(script);
  ASSERT_TRUE(undisturbed.good);
  EXPECT_TRUE(explore(script, 0, undisturbed.sent, kAccidents - 1)) << text_of(script);
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
class AccidentsWithout : public testing::TestWithParam<Rule> {};

TEST_P(AccidentsWithout, SomethingBreaks) {
  const Without without(GetParam());
  for (const Setting& setting : all_settings()) {
    for (const bool contended : {true, false}) {
      Script script = script_of(setting, contended);
      const Outcome undisturbed = run(script);
      if (!undisturbed.good ||
          !explore(script, 0, undisturbed.sent, contended ? kAccidents - 1 : kAccidents))
        return;
    }
  }
  FAIL() << "nobody misses it";
}

INSTANTIATE_TEST_SUITE_P(Rules, AccidentsWithout,
                         testing::Values(Rule::kBaseTest, Rule::kAntiReplay, Rule::kEpochCheck,
                                         Rule::kOneEpoch, Rule::kEpochBump, Rule::kRetainResults,
                                         Rule::kDisjointMerge),
                         [](const auto& one) {
                           return std::string(kRuleNames[static_cast<size_t>(one.param)]);
                         });

}  // namespace
}  // namespace ina::sim
