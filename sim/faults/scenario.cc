#include "sim/faults/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/faults/hierarchy.h"

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

constexpr Collective kCollectives[] = {
    Collective::kAllReduce, Collective::kBarrier,   Collective::kReduce, Collective::kReduceScatter,
    Collective::kBroadcast, Collective::kAllGather, Collective::kGather, Collective::kScatter,
    Collective::kAllToAll,  Collective::kPermute};

/// Rules of collectives whose receivers are not all workers, or whose fragments have one source.
bool is_collective_rule(const std::string& rule) {
  for (const char* name :
       {"all_marks", "closing", "bind_again", "non_receiver_sent", "run_window", "run_closing"})
    if (rule == name) return true;
  return false;
}

/// Rules by which workers find out that they called different operations.
bool is_agreement_rule(const std::string& rule) {
  return rule == "result_agrees";
}

/// Rules of bare results that are put together.
bool is_joining_rule(const std::string& rule) {
  return rule.starts_with("join_");
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

/// Rules of trees of switches.
bool is_tree_rule(const std::string& rule) {
  for (const char* name : {"done_report", "report_stop", "old_result", "has_retract", "row_answers",
                           "row_ascends", "ask_below", "have_taken", "bare_again"})
    if (rule == name) return true;
  return false;
}

/// Rules of trees whose absence shows only when a late packet meets a certain moment.
bool is_tree_race(const std::string& rule) {
  for (const char* name : {"done_report", "report_stop", "old_result", "has_retract"})
    if (rule == name) return true;
  return false;
}

/// A root, and below it leaves, or other switches with leaves. Workers are at leaves, mostly.
void draw_tree(Scenario& s, Dice& dice, uint64_t most_children, double deep) {
  s.parents = {0};
  const uint64_t children = dice.chance(0.1) ? 0 : dice.between(1, most_children);
  std::vector<uint32_t> leaves;
  for (uint64_t i = 0; i < children; ++i) {
    const auto child = static_cast<uint32_t>(s.parents.size());
    s.parents.push_back(0);
    if (!dice.chance(deep)) {
      leaves.push_back(child);
      continue;
    }
    for (uint64_t n = dice.between(1, 2); n != 0; --n) {
      leaves.push_back(static_cast<uint32_t>(s.parents.size()));
      s.parents.push_back(child);
    }
  }
  for (JobPlan& job : s.jobs)
    for (uint32_t rank = 0; rank < job.workers; ++rank) {
      const bool anywhere = leaves.empty() || dice.chance(0.1);
      job.at.push_back(anywhere ? static_cast<uint32_t>(dice.upto(s.parents.size() - 1))
                                : leaves[dice.upto(leaves.size() - 1)]);
    }
}

/// The switches of a tree, and the faults between them. `dense`: everything happens often, and is
/// over soon.
Scenario begin_tree(uint64_t seed, Dice& dice, bool dense) {
  Scenario s;
  s.seed = seed;
  s.home = Home::kTree;
  s.policy.kind = dice.chance(0.3) ? scheduler::PolicyKind::kFcfs : scheduler::PolicyKind::kEsa;
  s.policy.residual = dice.chance(0.5);
  s.policy.ways = dice.chance(0.7) ? 1 : 4;
  s.lanes = dice.chance(0.8) ? 1 : 2;
  s.slots = dice.log_between(1, 64);
  s.ecn = dice.chance(0.2);
  s.floats_only = dense || dice.chance(0.5);
  s.rto_min_ns = dense ? 50'000 : 200'000;
  s.attach_ns = static_cast<Nanos>(dense ? dice.between(40, 400) : dice.between(100, 5'000)) * 1000;
  s.faults.loss = dice.chance(0.2) ? 0 : dice.real(0.3);
  s.faults.duplicate = dice.chance(0.5) ? 0 : dice.real(0.9);
  s.faults.reorder = dice.chance(0.4) ? 0 : dice.real(0.9);
  s.faults.reorder_delay_ns = static_cast<Nanos>(dice.between(50, dense ? 400 : 1000)) * 1000;
  s.faults.spike = dice.chance(dense ? 0.2 : 0.5) ? 0 : dice.real(0.3);
  s.faults.spike_ns = static_cast<Nanos>(dice.between(100, dense ? 1'500 : 8'000)) * 1000;
  s.faults_end_ns = static_cast<Nanos>(dice.between(20, dense ? 60 : 120)) * kMs;
  return s;
}

void draw_tree_events(Scenario& s, Dice& dice, bool dense) {
  const auto add = [&](Event::Kind kind, double probability, uint64_t most) {
    if (!dice.chance(probability)) return;
    for (uint64_t n = dice.between(1, most); n != 0; --n) {
      Event event;
      event.kind = kind;
      event.at = static_cast<Nanos>(dice.between(50, dense ? 40'000 : 60'000)) * 1000;
      event.length_ns = static_cast<Nanos>(dice.between(1, dense ? 400 : 10'000)) * 1000;
      event.job = static_cast<uint32_t>(dice.upto(s.jobs.size() - 1));
      event.worker = static_cast<uint32_t>(dice.upto(s.jobs[event.job].workers - 1));
      event.direction = static_cast<uint32_t>(dice.upto(2));
      event.at_switch = static_cast<uint32_t>(dice.upto(s.parents.size() - 1));
      if (kind != Event::Kind::kCutLink || event.at_switch != 0) s.events.push_back(event);
    }
  };
  add(Event::Kind::kSwitchRestart, dense ? 1 : 0.7, dense ? 60 : 4);
  add(Event::Kind::kPauseWorker, 0.3, 4);
  add(Event::Kind::kCut, dense ? 0.7 : 0.25, dense ? 40 : 4);
  add(Event::Kind::kCutLink, dense ? 0.7 : 0.3, dense ? 40 : 4);
  add(Event::Kind::kKillJob, 0.08, 1);
  std::stable_sort(s.events.begin(), s.events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
}

/// More ranks than a switch has bits for.
void widen_tree(Scenario& s, Dice& dice) {
  s.parents = {0, 0, 0, 0};
  s.jobs.resize(1);
  JobPlan& job = s.jobs[0];
  job.workers = static_cast<uint32_t>(dice.between(kMaxWorkers + 1, 3 * kMaxWorkers));
  job.operations = 2;
  job.max_fragments = 6;
  job.at.clear();
  for (uint32_t rank = 0; rank < job.workers; ++rank) job.at.push_back(1 + rank % 3);
}

/// Straggler help. `keepers`: workers may keep what is parked.
void draw_help(JobPlan& job, Dice& dice, bool keepers) {
  job.in_switch = static_cast<uint32_t>(dice.between(1, job.window));
  job.park_after = static_cast<uint32_t>(dice.between(1, job.in_switch));
  if (keepers && dice.chance(0.7)) job.park_room = dice.log_between(1, 2 * job.window);
  if (dice.chance(0.3)) job.park_pressure = static_cast<uint32_t>(dice.upto(job.in_switch));
  if (dice.chance(0.5)) job.park_patience = static_cast<Nanos>(dice.upto(2'000)) * 1000;
}

/// Jobs in a tree of switches that start again. `rule`: moments of the kind that it is for; empty:
/// of any.
Scenario make_tree(uint64_t seed, const std::string& rule) {
  Dice dice(seed * 0xd6e8feb86659fd93 + 17);
  const bool race = is_tree_race(rule);
  const bool dense = race || (rule.empty() && dice.chance(0.4));
  Scenario s = begin_tree(seed, dice, dense);
  // A result that one rank alone gets is lost with its switch, mostly.
  const bool to_one = rule == "bare_again" || rule == "has_retract";
  const bool collectives = to_one || (!race && dice.chance(0.6));
  for (uint64_t i = dense ? 1 : dice.between(1, 2); i != 0; --i) {
    JobPlan job;
    job.workers = static_cast<uint32_t>(dense ? dice.between(2, 5) : dice.between(2, 9));
    job.window = static_cast<uint32_t>(dice.between(1, dense ? 4 : 16));
    job.operations = static_cast<uint32_t>(dense ? 12 : dice.between(2, 6));
    job.max_fragments = dense ? 8 : 40;
    job.depth = static_cast<uint32_t>(dice.between(1, 3));
    job.think_ns = dice.chance(0.5) ? 0 : static_cast<Nanos>(dice.upto(kMs));
    job.lossy_link = dice.chance(0.5);
    if (collectives) job.collectives = all_collectives();
    if (to_one) std::erase_if(job.collectives, [](Collective c) { return !has_closing(c); });
    s.jobs.push_back(std::move(job));
  }
  draw_tree(s, dice, dense ? 2 : 3, rule == "has_retract" ? 1 : 0.3);
  if (rule.empty() && dice.chance(0.02)) widen_tree(s, dice);
  s.together = rule.empty() && dice.chance(0.25);
  draw_tree_events(s, dice, dense);
  if (rule.empty() && dice.chance(0.3))
    for (JobPlan& job : s.jobs) draw_help(job, dice, false);
  return s;
}

// Each of them may send to each other one, which many small windows take long for.
constexpr uint32_t kMostRedistributing = 16;

/// Rules of Schedules, such as redistributions are.
bool is_schedule_rule(const std::string& rule) {
  return rule == "stage_order";
}

/// Many short operations whose results go to some, or whose payloads come from one, at small
/// windows: workers still need fragments that another one is done with.
Scenario make_exchange(uint64_t seed, const std::string& rule) {
  Dice dice(seed * 0xd6e8feb86659fd93 + 11);
  Scenario s;
  s.seed = seed;
  s.policy.kind = scheduler::kPolicyNames[dice.upto(scheduler::kPolicies - 1)].value;
  s.policy.residual = dice.chance(0.8);
  s.home = kHomeNames[dice.upto(2)].value;
  s.rto_min_ns = 50'000;
  s.slots = dice.log_between(1, 64);
  const bool moved = rule == "all_marks" || rule == "run_window" || rule == "run_closing" ||
                     is_agreement_rule(rule);
  for (uint64_t i = dice.between(1, 2); i != 0; --i) {
    JobPlan job;
    job.workers = static_cast<uint32_t>(dice.between(2, 4));
    job.window = static_cast<uint32_t>(dice.between(1, 6));
    job.operations = 10;
    job.max_fragments = 8;
    job.depth = static_cast<uint32_t>(dice.between(1, 4));
    job.think_ns = dice.chance(0.5) ? 0 : static_cast<Nanos>(dice.upto(kMs));
    for (const Collective collective : kCollectives)
      if (moved ? is_moved(collective) : has_closing(collective))
        job.collectives.push_back(collective);
    s.jobs.push_back(std::move(job));
  }
  if (!scheduler::traits(s.policy.kind).hashed) {
    s.slots = 0;
    for (const JobPlan& job : s.jobs) s.slots += 2 * job.window;
  }
  s.faults.loss = dice.real(0.3);
  s.faults.duplicate = dice.chance(0.5) ? 0 : dice.real(0.5);
  s.faults.reorder = dice.chance(0.5) ? 0 : dice.real(0.5);
  s.faults.reorder_delay_ns = static_cast<Nanos>(dice.between(50, 1000)) * 1000;
  s.faults_end_ns = 60 * kMs;
  const auto add = [&](Event::Kind kind, uint64_t most) {
    for (uint64_t n = dice.upto(most); n != 0; --n) {
      Event event;
      event.kind = kind;
      event.at = static_cast<Nanos>(dice.between(10, 20'000)) * 1000;
      event.length_ns = static_cast<Nanos>(dice.between(1, 5'000)) * 1000;
      event.job = static_cast<uint32_t>(dice.upto(s.jobs.size() - 1));
      event.worker = static_cast<uint32_t>(dice.upto(s.jobs[event.job].workers - 1));
      s.events.push_back(event);
    }
  };
  add(Event::Kind::kPauseWorker, 6);
  if (dice.chance(0.5)) add(Event::Kind::kSwitchRestart, 4);
  std::stable_sort(s.events.begin(), s.events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  return s;
}

/// Windows of which a quarter is more than one, and operations that are longer than that. Jobs die,
/// and others get their places.
Scenario make_joining(uint64_t seed, const std::string& rule) {
  Scenario s = make_exchange(seed, rule);
  Dice dice(seed * 0xd6e8feb86659fd93 + 13);
  const bool prompt = rule == "join_prompt";
  s.ecn = prompt || dice.chance(0.3);
  s.rto_min_ns = 500'000;
  s.faults.loss = dice.chance(0.5) ? 0 : dice.real(0.05);
  for (JobPlan& job : s.jobs) {
    job.window = static_cast<uint32_t>(prompt ? 64 : dice.between(8, 64));
    job.max_fragments = 150;
    job.aggregator_window = prompt || dice.chance(0.3);
    job.lossy_link = dice.chance(0.5);
    job.join_patience = static_cast<Nanos>(dice.between(1, 300)) * 1000;
  }
  if (!scheduler::traits(s.policy.kind).hashed) {
    s.slots = 0;
    for (const JobPlan& job : s.jobs) s.slots += 2 * job.window;
  }
  for (int i = 0; i < 4; ++i) {
    Event event;
    event.kind = Event::Kind::kKillJob;
    event.at = static_cast<Nanos>(dice.between(100, 10'000)) * 1000;
    event.job = static_cast<uint32_t>(dice.upto(s.jobs.size() - 1));
    s.events.push_back(event);
  }
  std::stable_sort(s.events.begin(), s.events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  return s;
}

/// How long bare results wait for others. From dice of its own, like collectives.
void choose_joining(Scenario& scenario) {
  Dice dice(scenario.seed * 0x2545f4914f6cdd1d + 7);
  for (JobPlan& job : scenario.jobs)
    if (!job.collectives.empty() && job.join_patience == 0 && dice.chance(0.7))
      job.join_patience = static_cast<Nanos>(dice.log_between(1, 4'000)) * 1000;
}

/// Chooses operations besides all-reduces. From dice of its own, so that the rest of a seed's
/// meaning stays.
void choose_collectives(Scenario& scenario, const Restrictions& restrictions) {
  Dice dice(scenario.seed * 0x2545f4914f6cdd1d + 3);
  const bool some = !restrictions.plain && restrictions.profile.empty() && !restrictions.small &&
                    restrictions.loss < 0 && dice.chance(0.6);
  for (JobPlan& job : scenario.jobs) {
    if (!restrictions.collectives.empty())
      job.collectives = restrictions.collectives;
    else if (some && dice.chance(0.4))
      job.collectives = {kCollectives[dice.upto(std::size(kCollectives) - 1)]};
    else if (some && dice.chance(0.9))
      job.collectives = all_collectives();
  }
}

/// Some have redistributions among their operations, or nothing else. Likewise.
void choose_redistributions(Scenario& scenario, const Restrictions& restrictions) {
  Dice dice(scenario.seed * 0x2545f4914f6cdd1d + 11);
  const bool all = restrictions.redistributions || is_schedule_rule(restrictions.profile);
  const bool some = !restrictions.plain && restrictions.profile.empty() && !restrictions.small &&
                    restrictions.loss < 0 && restrictions.collectives.empty() &&
                    !restrictions.reproducible && dice.chance(0.2);
  for (JobPlan& job : scenario.jobs) {
    if (job.workers > kMostRedistributing) continue;
    if (all)
      job.redistributions = 100;
    else if (some && dice.chance(0.7))
      job.redistributions = dice.chance(0.5) ? 100 : 40;
  }
}

/// Rules of Schedules whose stages begin with a receipt, such as those of hierarchies.
bool is_hierarchy_rule(const std::string& rule) {
  return rule == "receipt_whole";
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

/// Restarts with another policy, mostly of the other kind. All workers know it when the switch goes
/// on, so that one with shared slots is as good as one with pools of its own. Likewise.
void choose_policies(Scenario& scenario, const Restrictions& restrictions) {
  Dice dice(scenario.seed * 0x2545f4914f6cdd1d + 13);
  const bool all = restrictions.policy_changes;
  if (!all && (restrictions.plain || restrictions.small || !restrictions.profile.empty() ||
               restrictions.policy || restrictions.loss >= 0 || !dice.chance(0.2)))
    return;
  if (all)
    for (uint64_t n = dice.between(1, 4); n != 0; --n)
      scenario.events.push_back({.kind = Event::Kind::kSwitchRestart,
                                 .at = static_cast<Nanos>(dice.between(10, 20'000)) * 1000,
                                 .length_ns = static_cast<Nanos>(dice.between(1, 5'000)) * 1000});
  std::stable_sort(scenario.events.begin(), scenario.events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  bool changes = false;
  for (Event& event : scenario.events)
    if (event.kind == Event::Kind::kSwitchRestart && (all || dice.chance(0.7))) {
      event.policy = choose_policy(dice);
      changes = true;
    }
  if (!changes) return;
  // The pools must fit, or the switch would not have let the jobs go on.
  uint32_t pools = 0;
  for (const JobPlan& job : scenario.jobs)
    pools += 2 * ((job.window + scenario.lanes - 1) / scenario.lanes) * scenario.lanes;
  scenario.slots = std::max(scenario.slots, pools);
}

bool is_restricted(const Restrictions& restrictions) {
  return restrictions.plain || restrictions.redistributions || restrictions.reproducible ||
         restrictions.hierarchies || restrictions.policy_changes || !restrictions.profile.empty() ||
         restrictions.small || restrictions.policy || restrictions.home || restrictions.loss >= 0 ||
         restrictions.slots != 0 || restrictions.residual >= 0 || !restrictions.collectives.empty();
}

/// Some have reproducible reductions among their operations, or nothing else. Likewise.
void choose_reproducible(Scenario& scenario, const Restrictions& restrictions) {
  Dice dice(scenario.seed * 0x2545f4914f6cdd1d + 15);
  const bool some = !is_restricted(restrictions) && !restrictions.mismatch && dice.chance(0.1);
  for (JobPlan& job : scenario.jobs) {
    if (!restrictions.reproducible && !(some && dice.chance(0.7))) continue;
    job.reproducible = restrictions.reproducible || dice.chance(0.5) ? 100 : 40;
    job.chunk_bytes = dice.log_between(16, 4096);
  }
}

/// Some seeds are long operations in large windows, of jobs that die. From dice of its own.
std::optional<Scenario> choose_long(uint64_t seed, const Restrictions& restrictions) {
  Dice dice(seed * 0x2545f4914f6cdd1d + 9);
  if (is_restricted(restrictions) || !dice.chance(0.03)) return std::nullopt;
  return make_joining(seed, dice.chance(0.5) ? "join_prompt" : "join_forget");
}

/// Jobs of a hierarchy, at small windows.
void add_hierarchy(Scenario& scenario, Dice& dice) {
  static const std::vector<std::vector<uint32_t>> kShapes = {{2, 2}, {2, 3}, {3, 2},
                                                             {4, 2}, {4},    {2, 2, 2}};
  HierarchyPlan hierarchy;
  hierarchy.sizes = kShapes[dice.upto(kShapes.size() - 1)];
  hierarchy.first_job = static_cast<uint32_t>(scenario.jobs.size());
  hierarchy.groups = static_cast<uint32_t>(dice.between(1, 4));
  hierarchy.depth = static_cast<uint32_t>(dice.between(1, 2));
  hierarchy.max_fragments = static_cast<uint32_t>(dice.between(4, 40));
  if (dice.chance(0.7)) hierarchy.jitter_ns = static_cast<Nanos>(dice.upto(3 * kMs));
  const uint32_t window = dice.log_between(1, 16);
  for (const uint32_t workers : jobs_of(hierarchy)) {
    JobPlan job;
    job.workers = workers;
    job.window = window;
    job.operations = 0;
    if (dice.chance(0.5)) job.join_patience = static_cast<Nanos>(dice.log_between(1, 4'000)) * 1000;
    scenario.jobs.push_back(std::move(job));
    ++hierarchy.jobs;
    if (!scheduler::traits(scenario.policy.kind).hashed)
      scenario.slots += 2 * ((window + scenario.lanes - 1) / scenario.lanes) * scenario.lanes;
  }
  scenario.hierarchies.push_back(std::move(hierarchy));
}

/// Some have a hierarchy beside their jobs, or nothing else. Likewise.
void choose_hierarchies(Scenario& scenario, const Restrictions& restrictions) {
  Dice dice(scenario.seed * 0x2545f4914f6cdd1d + 17);
  const bool alone = restrictions.hierarchies || is_hierarchy_rule(restrictions.profile);
  if (!alone && (is_restricted(restrictions) || restrictions.mismatch || !dice.chance(0.1))) return;
  if (alone) {
    scenario.jobs.clear();
    if (!scheduler::traits(scenario.policy.kind).hashed) scenario.slots = 0;
  }
  const auto others = static_cast<uint32_t>(scenario.jobs.size());
  add_hierarchy(scenario, dice);
  // Half of the others' faults are the hierarchy's.
  for (Event& event : scenario.events) {
    if (others != 0 && dice.chance(0.5)) continue;
    const HierarchyPlan& hierarchy = scenario.hierarchies.back();
    event.job = hierarchy.first_job + static_cast<uint32_t>(dice.upto(hierarchy.jobs - 1));
    event.worker = static_cast<uint32_t>(dice.upto(scenario.jobs[event.job].workers - 1));
  }
}

/// A search in which restarts are few and far between meets none of the races between an old life's
/// packets and a new one's. So some seeds are nothing else.
std::optional<Scenario> choose_race(uint64_t seed, const Restrictions& restrictions) {
  if (is_restricted(restrictions)) return std::nullopt;
  if (Dice(seed * 0x2545f4914f6cdd1d + 19).chance(0.02)) return make_race(seed, "result_origin");
  Dice dice(seed * 0x2545f4914f6cdd1d + 5);
  if (!dice.chance(0.1)) return std::nullopt;
  constexpr const char* kRaces[] = {"epoch_check", "one_epoch", "one_epoch", "instance",
                                    "epoch_bump"};
  Scenario race = make_race(seed, kRaces[dice.upto(std::size(kRaces) - 1)]);
  if (dice.chance(0.3))
    for (JobPlan& job : race.jobs) job.collectives = all_collectives();
  return race;
}

/// Some seeds are jobs in trees of switches, mostly such as show the absence of their rarest rules.
/// From dice of its own.
std::optional<Scenario> choose_tree(uint64_t seed, const Restrictions& restrictions) {
  Dice dice(seed * 0x2545f4914f6cdd1d + 23);
  std::string rule = restrictions.profile;
  if (!restrictions.trees && !is_tree_rule(rule)) {
    if (is_restricted(restrictions) || restrictions.mismatch || !dice.chance(0.12))
      return std::nullopt;
    if (dice.chance(0.6)) rule = dice.chance(0.3) ? "has_retract" : "report_stop";
  }
  Scenario tree = make_tree(seed, rule);
  choose_joining(tree);
  return tree;
}

/// In some, one worker calls something else. Likewise.
void choose_mismatch(Scenario& scenario, const Restrictions& restrictions) {
  Dice dice(scenario.seed * 0x2545f4914f6cdd1d + 21);
  const bool some = !is_restricted(restrictions) && scenario.hierarchies.empty() &&
                    scenario.jobs[0].reproducible == 0 && dice.chance(0.03);
  scenario.mismatch = restrictions.mismatch || is_agreement_rule(restrictions.profile) || some;
}

/// The switch and its policy.
void draw_switch(Scenario& s, Dice& dice, const Restrictions& restrictions) {
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
}

void draw_jobs(Scenario& s, Dice& dice) {
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
}

/// Restrictions::small, in place of most of the above.
void make_small(Scenario& s, const Restrictions& restrictions) {
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

/// Floors and ceilings of slots.
void draw_quotas(Scenario& s, Dice& dice) {
  uint32_t left = s.slots / s.lanes;
  for (JobPlan& job : s.jobs) {
    job.quota.floor = static_cast<uint32_t>(dice.upto(left / 2)) * s.lanes;
    left -= job.quota.floor / s.lanes;
    if (dice.chance(0.5))
      job.quota.ceiling =
          std::max(s.lanes, job.quota.floor + static_cast<uint32_t>(dice.upto(s.slots)));
  }
}

void draw_faults(Scenario& s, Dice& dice) {
  if (dice.chance(0.7)) s.faults.loss = dice.chance(0.5) ? dice.real(0.3) : dice.real(0.02);
  if (dice.chance(0.2)) s.faults.burst = dice.real(0.01);
  if (dice.chance(0.4)) s.faults.duplicate = dice.real(0.5);
  if (dice.chance(0.4)) s.faults.reorder = dice.real(0.5);
  if (dice.chance(0.2)) s.faults.reorder_delay_ns = 5 * kMs;
  if (dice.chance(0.2)) s.faults.corrupt = dice.real(0.1);
  if (dice.chance(0.3)) s.faults.spike = dice.real(0.05);
}

void draw_events(Scenario& s, Dice& dice) {
  const auto add = [&](Event::Kind kind, double probability, uint64_t most) {
    if (!dice.chance(probability)) return;
    for (uint64_t n = dice.between(1, most); n != 0; --n) {
      Event event;
      event.kind = kind;
      event.at = static_cast<Nanos>(dice.upto(60)) * kMs + 50'000;
      event.length_ns = static_cast<Nanos>(dice.between(1, 30)) * kMs;
      event.job = static_cast<uint32_t>(dice.upto(s.jobs.size() - 1));
      event.worker = static_cast<uint32_t>(dice.upto(s.jobs[event.job].workers - 1));
      event.direction = static_cast<uint32_t>(dice.upto(2));
      s.events.push_back(event);
    }
  };
  add(Event::Kind::kSwitchRestart, 0.25, 3);
  if (s.home != Home::kWorkers) add(Event::Kind::kFallbackRestart, 0.3, 3);
  add(Event::Kind::kPauseWorker, 0.3, 4);
  add(Event::Kind::kCut, 0.25, 4);
  add(Event::Kind::kKillJob, 0.08, 1);
}

/// Straggler help.
void draw_parking(Scenario& s, Dice& dice) {
  if (scheduler::traits(s.policy.kind).hashed && dice.chance(0.5))
    for (JobPlan& job : s.jobs) draw_help(job, dice, true);
  for (JobPlan& job : s.jobs) job.park_if_it_pays = job.park_after != 0 && dice.chance(0.5);
}

/// The meaning of a seed apart from races and collectives. The order of the draws is part of it.
Scenario make_plain(uint64_t seed, const Restrictions& restrictions) {
  Dice dice(seed * 0x9e3779b97f4a7c15 + 1);
  Scenario s;
  s.seed = seed;
  draw_switch(s, dice, restrictions);
  draw_jobs(s, dice);
  if (restrictions.small) make_small(s, restrictions);
  if (restrictions.slots != 0) s.slots = restrictions.slots;
  if (restrictions.residual >= 0) s.policy.residual = restrictions.residual != 0;
  if (!scheduler::traits(s.policy.kind).hashed) {
    // The pools must fit, or the jobs would not have been admitted.
    s.slots = 0;
    for (const JobPlan& job : s.jobs)
      s.slots += 2 * ((job.window + s.lanes - 1) / s.lanes) * s.lanes;
  } else if (!restrictions.small && dice.chance(0.4)) {
    draw_quotas(s, dice);
  }
  s.faults_end_ns = static_cast<Nanos>(dice.between(20, 300)) * kMs;
  if (restrictions.loss >= 0) {
    s.faults.loss = restrictions.loss;
    s.faults_end_ns = INT64_MAX;
    return s;
  }
  draw_faults(s, dice);
  draw_events(s, dice);
  for (JobPlan& job : s.jobs) job.lossy_link = dice.chance(0.5);
  draw_parking(s, dice);
  std::stable_sort(s.events.begin(), s.events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  return s;
}

std::string operations_of(const JobPlan& job) {
  if (job.redistributions == 100) return ":redistributions";
  if (job.redistributions != 0) return ":with-redistributions";
  if (job.reproducible == 100) return ":reproducible";
  if (job.reproducible != 0) return ":with-reproducible";
  if (job.collectives.empty()) return {};
  if (job.collectives.size() == 1) return fmt::format(":{}", name(job.collectives[0]));
  return job.collectives.size() == std::size(kCollectives) ? ":mixed" : ":some";
}

}  // namespace

Scenario make_scenario(uint64_t seed, const Restrictions& restrictions) {
  if (const auto tree = choose_tree(seed, restrictions)) return *tree;
  if (const auto race = choose_race(seed, restrictions)) return *race;
  if (const auto operations = choose_long(seed, restrictions)) return *operations;
  Scenario scenario =
      is_race(restrictions.profile) && restrictions.loss < 0 ? make_race(seed, restrictions.profile)
      : is_collective_rule(restrictions.profile) || is_schedule_rule(restrictions.profile) ||
              is_hierarchy_rule(restrictions.profile) || is_agreement_rule(restrictions.profile)
          ? make_exchange(seed, restrictions.profile)
      : is_joining_rule(restrictions.profile) ? make_joining(seed, restrictions.profile)
                                              : make_plain(seed, restrictions);
  choose_collectives(scenario, restrictions);
  choose_joining(scenario);
  choose_redistributions(scenario, restrictions);
  choose_reproducible(scenario, restrictions);
  choose_hierarchies(scenario, restrictions);
  choose_policies(scenario, restrictions);
  choose_mismatch(scenario, restrictions);
  return scenario;
}

std::vector<Collective> all_collectives() {
  return {std::begin(kCollectives), std::end(kCollectives)};
}

std::string describe(const Scenario& s) {
  std::string text = fmt::format(
      "seed={} policy={}{} ways={} home={} slots={} lanes={} loss={:.3f} burst={:.3f} dup={:.2f} "
      "reorder={:.2f} corrupt={:.2f} spike={:.3f} events={} jobs=",
      s.seed, name(s.policy.kind), s.policy.residual ? "" : "-residual", s.policy.ways,
      name(s.home), s.slots, s.lanes, s.faults.loss, s.faults.burst, s.faults.duplicate,
      s.faults.reorder, s.faults.corrupt, s.faults.spike, s.events.size());
  for (size_t i = 0; i < s.jobs.size(); ++i)
    text += fmt::format("{}{}x{}w{}", i ? "," : "", s.jobs[i].workers, s.jobs[i].window,
                        operations_of(s.jobs[i]));
  if (s.is_tree())
    text += fmt::format(" parents={}{}", fmt::join(s.parents, ","), s.together ? " together" : "");
  for (const HierarchyPlan& hierarchy : s.hierarchies)
    text += fmt::format(" hierarchy={} from job {}, groups={}, depth={}, jitter={}ns",
                        fmt::join(hierarchy.sizes, "x"), hierarchy.first_job, hierarchy.groups,
                        hierarchy.depth, hierarchy.jitter_ns);
  return text;
}

}  // namespace ina::sim
