#include "sim/faults/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ina::sim {

namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t upto(uint64_t most) { return random_() % (most + 1); }
  uint64_t between(uint64_t low, uint64_t high) { return low + upto(high - low); }
  double real(double most) { return static_cast<double>(random_() >> 11) * 0x1p-53 * most; }
  bool chance(double p) { return real(1) < p; }
  /// Every power of two is as likely as any other.
  uint32_t log_between(uint32_t low, uint32_t high) {
    const double from = std::log2(low);
    return std::clamp(static_cast<uint32_t>(std::exp2(from + real(std::log2(high) - from)) + 0.5),
                      low, high);
  }

 private:
  std::mt19937_64 random_;
};

constexpr Nanos kMs = 1'000'000;

bool is_race(const std::string& rule) {
  for (const char* race : {"anti_replay", "replay_too_old", "result_origin", "epoch_check",
                           "one_epoch", "instance", "epoch_bump"})
    if (rule == race) return true;
  return false;
}

/// Rules whose absence shows only when a late packet meets a certain moment: many short moments of
/// the right kind, with sums that tell the order of their making.
Scenario make_race(uint64_t seed, const std::string& rule) {
  Dice dice(seed * 0xd6e8feb86659fd93 + 7);
  Scenario s;
  s.seed = seed;
  s.policy.kind = scheduler::PolicyKind::kEsa;
  s.policy.residual = dice.chance(0.5);
  s.floats_only = true;
  s.rto_min_ns = 50'000;
  const bool of_fallback = rule == "instance" || rule == "epoch_bump";
  const bool of_switch = rule == "epoch_check" || rule == "one_epoch";
  const bool scarce = rule == "epoch_bump" || rule == "one_epoch";
  s.home = of_fallback ? (dice.chance(0.7) ? Home::kDedicated : Home::kSpill)
                       : (dice.chance(0.7) ? Home::kWorkers : Home::kDedicated);
  s.slots = scarce ? dice.log_between(1, 8) : 256;
  for (uint64_t i = scarce ? 2 : 1; i != 0; --i) {
    JobPlan job;
    job.workers = static_cast<uint32_t>(dice.between(3, 4));
    job.window = static_cast<uint32_t>(dice.between(2, rule == "replay_too_old" ? 3 : 8));
    job.operations = 12;
    job.max_fragments = 10;
    job.depth = 2;
    s.jobs.push_back(job);
  }
  s.faults.loss = 0.02 + dice.real(0.25);
  s.faults.duplicate = dice.chance(0.5) ? 0.9 : dice.real(0.9);
  s.faults.reorder = dice.real(0.9);
  s.faults.reorder_delay_ns = static_cast<Nanos>(dice.between(50, 400)) * 1000;
  s.faults.spike = dice.real(0.2);
  s.faults.spike_ns = static_cast<Nanos>(dice.between(100, 1500)) * 1000;
  s.faults_end_ns = 60 * kMs;
  if (of_fallback || of_switch)
    for (int i = 0; i < 40; ++i) {
      Event event;
      event.kind = of_switch ? Event::Kind::kSwitchRestart : Event::Kind::kFallbackRestart;
      event.at = static_cast<Nanos>(dice.between(100, 40'000)) * 1000;
      event.length_ns = static_cast<Nanos>(dice.between(1, 200)) * 1000;
      event.job = static_cast<uint32_t>(dice.upto(s.jobs.size() - 1));
      s.events.push_back(event);
    }
  std::stable_sort(s.events.begin(), s.events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  return s;
}

/// The later a policy's place in the registry, the more it has to go wrong, and the more seeds it
/// gets: as many shares as its place counts.
scheduler::PolicyKind choose_policy(Dice& dice) {
  constexpr uint64_t kShares = scheduler::kPolicies * (scheduler::kPolicies + 1) / 2;
  uint64_t share = dice.upto(kShares - 1);
  size_t place = 0;
  while (share > place) share -= ++place;
  return scheduler::kPolicyNames[place].value;
}

}  // namespace

Scenario make_scenario(uint64_t seed, const Restrictions& restrictions) {
  Dice dice(seed * 0x9e3779b97f4a7c15 + 1);
  Scenario s;
  s.seed = seed;
  s.policy.kind = choose_policy(dice);
  if (restrictions.policy) s.policy.kind = *restrictions.policy;
  s.policy.residual = dice.chance(0.8);
  s.policy.decay = scheduler::kDecayNames[dice.chance(0.6) ? 0 : dice.upto(2)].value;
  s.policy.near_full_bonus = dice.chance(0.2);
  s.policy.ways = std::max<uint32_t>(1, uint32_t{1} << dice.upto(6) >> 3);  // mostly 1
  s.home = dice.chance(0.4) ? Home::kWorkers : kHomeNames[dice.upto(2)].value;
  if (restrictions.home) s.home = *restrictions.home;
  s.lanes = dice.chance(0.8) ? 1 : static_cast<uint32_t>(dice.between(2, 3));
  s.slots = dice.log_between(1, 4096);
  s.ecn = dice.chance(0.3);

  const bool wide = dice.chance(0.03);
  const auto jobs = dice.chance(0.05) ? dice.between(4, 16) : dice.between(1, 3);
  for (uint64_t i = 0; i < jobs; ++i) {
    JobPlan job;
    job.workers = wide && i == 0 ? static_cast<uint32_t>(dice.between(9, 64))
                                 : static_cast<uint32_t>(dice.between(i == 0 ? 2 : 1, 6));
    job.window = dice.log_between(1, dice.chance(0.1) ? 64 : 16);
    job.operations = static_cast<uint32_t>(dice.between(1, 6));
    job.max_fragments = static_cast<uint32_t>(wide || jobs > 3 ? 10 : dice.between(5, 60));
    job.depth = static_cast<uint32_t>(dice.between(1, 3));
    job.think_ns = dice.chance(0.5) ? 0 : static_cast<Nanos>(dice.upto(3 * kMs));
    job.aggregator_window = dice.chance(0.3);
    s.jobs.push_back(job);
  }
  if (restrictions.small) {
    const scheduler::PolicyKind kind = s.policy.kind;
    s.policy = {};
    s.policy.kind = kind;
    s.lanes = 1;
    s.slots = 64;
    s.ecn = false;
    s.jobs.assign(2, {});
    for (JobPlan& job : s.jobs) {
      job.operations = 6;
      job.max_fragments = 40;
    }
    if (s.home == Home::kDedicated && !restrictions.home) s.home = Home::kWorkers;
  }
  if (restrictions.slots != 0) s.slots = restrictions.slots;
  if (restrictions.residual >= 0) s.policy.residual = restrictions.residual != 0;
  const bool hashed = scheduler::traits(s.policy.kind).hashed;
  if (!hashed) {
    // The pools must fit, or the jobs would not have been admitted.
    s.slots = 0;
    for (const JobPlan& job : s.jobs)
      s.slots += 2 * ((job.window + s.lanes - 1) / s.lanes) * s.lanes;
  } else if (!restrictions.small && dice.chance(0.4)) {
    uint32_t left = s.slots / s.lanes;
    for (JobPlan& job : s.jobs) {
      job.quota.floor = static_cast<uint32_t>(dice.upto(left / 2)) * s.lanes;
      left -= job.quota.floor / s.lanes;
      if (dice.chance(0.5))
        job.quota.ceiling =
            std::max(s.lanes, job.quota.floor + static_cast<uint32_t>(dice.upto(s.slots)));
    }
  }

  s.faults_end_ns = static_cast<Nanos>(dice.between(20, 300)) * kMs;
  const auto length = [&] { return static_cast<Nanos>(dice.between(1, 30)) * kMs; };
  const auto when = [&] { return static_cast<Nanos>(dice.upto(60)) * kMs + 50'000; };
  if (restrictions.loss >= 0) {
    s.faults.loss = restrictions.loss;
    s.faults_end_ns = INT64_MAX;
    return s;
  }
  if (dice.chance(0.7)) s.faults.loss = dice.chance(0.5) ? dice.real(0.3) : dice.real(0.02);
  if (dice.chance(0.2)) s.faults.burst = dice.real(0.01);
  if (dice.chance(0.4)) s.faults.duplicate = dice.real(0.5);
  if (dice.chance(0.4)) s.faults.reorder = dice.real(0.5);
  if (dice.chance(0.2)) s.faults.reorder_delay_ns = 5 * kMs;
  if (dice.chance(0.2)) s.faults.corrupt = dice.real(0.1);
  if (dice.chance(0.3)) s.faults.spike = dice.real(0.05);

  const auto add = [&](Event::Kind kind, double probability, uint64_t most) {
    if (!dice.chance(probability)) return;
    for (uint64_t n = dice.between(1, most); n != 0; --n) {
      Event event;
      event.kind = kind;
      event.at = when();
      event.length_ns = length();
      event.job = static_cast<uint32_t>(dice.upto(s.jobs.size() - 1));
      event.worker = static_cast<uint32_t>(dice.upto(s.jobs[event.job].workers - 1));
      event.direction = static_cast<uint32_t>(dice.upto(2));
      s.events.push_back(event);
    }
  };
  if (is_race(restrictions.profile)) return make_race(seed, restrictions.profile);
  add(Event::Kind::kSwitchRestart, 0.25, 3);
  if (s.home != Home::kWorkers) add(Event::Kind::kFallbackRestart, 0.3, 3);
  add(Event::Kind::kPauseWorker, 0.3, 4);
  add(Event::Kind::kCut, 0.25, 4);
  add(Event::Kind::kKillJob, 0.08, 1);
  for (JobPlan& job : s.jobs) job.lossy_link = dice.chance(0.5);
  if (hashed && dice.chance(0.5))
    for (JobPlan& job : s.jobs) {
      job.in_switch = static_cast<uint32_t>(dice.between(1, job.window));
      job.park_after = static_cast<uint32_t>(dice.between(1, job.in_switch));
      if (dice.chance(0.7)) job.park_room = dice.log_between(1, 2 * job.window);
      if (dice.chance(0.3)) job.park_pressure = static_cast<uint32_t>(dice.upto(job.in_switch));
      if (dice.chance(0.5)) job.park_patience = static_cast<Nanos>(dice.upto(2'000)) * 1000;
    }
  for (JobPlan& job : s.jobs) job.park_if_it_pays = job.park_after != 0 && dice.chance(0.5);
  std::stable_sort(s.events.begin(), s.events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  return s;
}

std::string describe(const Scenario& s) {
  std::string text = fmt::format(
      "seed={} policy={}{} ways={} home={} slots={} lanes={} loss={:.3f} burst={:.3f} dup={:.2f} "
      "reorder={:.2f} corrupt={:.2f} spike={:.3f} events={} jobs=",
      s.seed, name(s.policy.kind), s.policy.residual ? "" : "-residual", s.policy.ways,
      name(s.home), s.slots, s.lanes, s.faults.loss, s.faults.burst, s.faults.duplicate,
      s.faults.reorder, s.faults.corrupt, s.faults.spike, s.events.size());
  for (size_t i = 0; i < s.jobs.size(); ++i)
    text += fmt::format("{}{}x{}w", i ? "," : "", s.jobs[i].workers, s.jobs[i].window);
  return text;
}

}  // namespace ina::sim
