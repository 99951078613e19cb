// Every pair of accidents that can befall the messages of a fragment: lost, doubled or late. Not a
// search but all of them, for each policy and home.
#include <gtest/gtest.h>

#include "tests/sim/script.h"

namespace ina::sim {
namespace {

using scheduler::PolicyKind;
using Kind = Accident::Kind;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStride = 7;  // of the second accident
#else
constexpr size_t kStride = 1;
#endif

constexpr int kMostRounds = 40;

struct Setting {
  PolicyKind policy{};
  Home home{};
};

Script script_of(const Setting& setting) {
  Script script;
  script.policy.kind = setting.policy;
  script.home = setting.home;
  script.jobs = {{.workers = 3}};
  return script;
}

/// Runs one fragment to its end. Returns how many messages that took.
size_t run(const Script& script) {
  std::string text;
  for (const Accident& accident : script.accidents)
    text += " message " + std::to_string(accident.nth) + " kind " +
            std::to_string(static_cast<int>(accident.kind));
  SCOPED_TRACE("accidents:" + text);
  Rack rack(script);
  // 1e8 - 1e8 + 1 = 1, 1e8 + 1 - 1e8 = 0: a sum made twice shows.
  rack.submit_all({1e8f, -1e8f, 1});
  rack.deliver_all();
  for (int round = 0; round < kMostRounds; ++round) {
    bool done = true;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      if (rack.done(rank)) continue;
      done = false;
      rack.time_out(rank);
      rack.deliver_all();
    }
    if (done) break;
    if (round % 2 == 1) rack.release_all();
    rack.deliver_all();
  }
  const size_t sent = rack.sent();
  rack.release_all();
  rack.deliver_all();
  const std::vector<float> got = rack.got_all();
  EXPECT_TRUE(got[0] == 0 || got[0] == 1) << got[0];
  EXPECT_EQ(got[1], got[0]);
  EXPECT_EQ(got[2], got[0]);
  EXPECT_EQ(rack.counters().slots_used, 0u);
  return sent;
}

class Accidents : public testing::TestWithParam<Setting> {};

TEST_P(Accidents, NoPairBreaksAnything) {
  Script script = script_of(GetParam());
  constexpr Kind kKinds[] = {Kind::kLost, Kind::kDoubled, Kind::kLate};
  const size_t undisturbed = run(script);
  for (size_t first = 0; first < undisturbed; ++first) {
    for (const Kind one : kKinds) {
      script.accidents = {{first, one}};
      const size_t sent = run(script);  // the first accident makes them more
      for (size_t second = first + 1; second < sent; second += kStride) {
        for (const Kind other : kKinds) {
          script.accidents = {{first, one}, {second, other}};
          run(script);
          if (HasFailure()) return;
        }
      }
    }
  }
}

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const PolicyKind policy : {PolicyKind::kStatic, PolicyKind::kFcfs, PolicyKind::kEsa})
    for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill})
      settings.push_back({policy, home});
  return settings;
}

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  static constexpr const char* kPolicies[] = {"static", "fcfs", "esa"};
  return std::string(kPolicies[static_cast<size_t>(info.param.policy)]) + "_" +
         std::string(name(info.param.home));
}

INSTANTIATE_TEST_SUITE_P(Settings, Accidents, testing::ValuesIn(all_settings()), name_of);

}  // namespace
}  // namespace ina::sim
