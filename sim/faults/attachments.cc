#include "sim/faults/attachments.h"

#include <algorithm>
#include <utility>

namespace ina::sim::world {

namespace {

/// True if the switch is `above`, or below it.
bool is_below(const Scenario& scenario, uint32_t at_switch, uint32_t above) {
  while (at_switch > above) at_switch = scenario.parents[at_switch];
  return at_switch == above;
}

uint32_t switch_of(const Job& job, const Worker& worker) {
  return job.config.at.empty() ? 0 : job.config.at[value(worker.rank)];
}

void make_place(const Scenario& scenario, Job& job, uint32_t at_switch) {
  const auto below = [&](const Worker& worker) {
    return is_below(scenario, switch_of(job, worker), at_switch);
  };
  auto& place = job.places.emplace_back();
  if (std::ranges::none_of(job.workers, below)) return;
  place = std::make_unique<Place>();
  place->job = &job;
  place->at = at_switch;
  place->daemon = scenario.together ? 0 : at_switch;
  place->index = static_cast<io::JobIndex>(
      job.index + (scenario.together ? at_switch * scenario.jobs.size() : 0));
  for (Worker& worker : job.workers) {
    if (switch_of(job, worker) != at_switch) continue;
    worker.place = place.get();
    worker.member = Rank{static_cast<uint8_t>(place->members.size())};
    place->members.emplace_back().worker = &worker;
  }
  if (at_switch == 0) return;
  place->parent = job.places[scenario.parents[at_switch]].get();
  place->number = static_cast<uint32_t>(place->parent->members.size());
  place->parent->members.emplace_back().child = place.get();
}

}  // namespace

void make_places(const Scenario& scenario, Job& job) {
  for (uint32_t at = 0; at < scenario.switches(); ++at) make_place(scenario, job, at);
  for (const auto& place : job.places) {
    if (!place) continue;
    place->member_of.assign(job.workers.size(), aggregator::TreePlace::kElsewhere);
    for (size_t m = 0; m < place->members.size(); ++m)
      for (const Worker& worker : job.workers) {
        const Member& member = place->members[m];
        if (member.worker ? member.worker == &worker
                          : is_below(scenario, worker.place->at, member.child->at))
          place->member_of[value(worker.rank)] = static_cast<uint8_t>(m);
      }
  }
}

Seq results_end(const Place& place) {
  Seq end;
  for (const Member& member : place.members) end = std::max(end, member.results_end);
  return end;
}

Attachments::Attachments(const Scenario& scenario, const io::sim::SimNetwork& network,
                         std::mt19937_64& random, const Jobs& jobs, const Lanes& lanes, Hooks hooks)
    : scenario_(scenario),
      network_(network),
      random_(random),
      jobs_(jobs),
      lanes_(lanes),
      hooks_(std::move(hooks)),
      up_at_(scenario.switches(), 0) {}

void Attachments::restart(uint32_t at_switch, Nanos up_at) {
  up_at_[at_switch] = up_at;
  for (const auto& job : jobs_) {
    Place* const place = job->places[at_switch].get();
    if (!place) continue;
    ++place->epoch;
    place->ready = false;
    place->attached = {};
    for (Member& member : place->members) {
      member.answer_at = member.told_at = INT64_MAX;
      // A child that is not served itself attaches once it is.
      const bool is_there = member.worker || member.child->ready;
      member.report_at = is_there ? up_at + soon(scenario_.attach_ns) : INT64_MAX;
    }
    if (!place->parent) continue;
    // The switch above has lost this member, until it attaches in its new life.
    Member& above = place->parent->members[place->number];
    above.report_at = above.answer_at = above.told_at = INT64_MAX;
    if (!place->parent->ready)
      place->parent->attached.erase(Rank{static_cast<uint8_t>(place->number)});
  }
}

void Attachments::step() {
  const Nanos now = network_.now();
  for_each_member([&](Place& place, Member& member) {
    if (now >= member.report_at) report(member);
    if (now >= member.answer_at) attach(place, member);
    if (now >= member.told_at) tell(member);
  });
}

/// From now on the member takes nothing from the switch's earlier life: it would not be in the
/// report.
void Attachments::report(Member& member) {
  member.report_at = INT64_MAX;
  member.answer_at = network_.now() + soon(scenario_.attach_ns / 4);
  member.silent = rule(Rule::kReportStop);
  report_results(member);
}

void Attachments::report_results(Member& member) const {
  member.held.clear();
  const auto add = [&](Seq seq) { member.held.push_back(seq); };
  if (member.worker) {
    member.results_end = member.worker->engine->standing().results_end;
    return member.worker->engine->for_each_held(add);
  }
  const auto index = member.child->index;
  member.results_end = Seq{};
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
    aggregator::Aggregator& below = aggregator(*member.child, lane);
    below.set_parent_epoch(index, 0);
    below.for_each_held(index, add);
    member.results_end = std::max(member.results_end, below.results_end(index));
  }
}

void Attachments::attach(Place& place, Member& member) {
  member.answer_at = INT64_MAX;
  if (member.child && !scenario_.together) {  // what its earlier lives sent is refused
    member.key = random_();
    hooks_.bind(place);
    hooks_.bind(*member.child);
  }
  place.attached.insert(Rank{static_cast<uint8_t>(&member - place.members.data())});
  if (place.ready) {
    hold(place, member);
    member.told_at = network_.now() + soon(scenario_.attach_ns / 4);
  } else if (place.attached.size() == place.members.size()) {
    begin(place);
  }
}

/// A switch serves nobody until all its members have attached; then it attaches to the one above.
void Attachments::begin(Place& place) {
  place.ready = true;
  hooks_.serve(place);
  for (Member& member : place.members) {
    hold(place, member);
    member.told_at = network_.now() + soon(scenario_.attach_ns / 4);
  }
  if (place.parent)
    place.parent->members[place.number].report_at =
        std::max(network_.now(), up_at_[place.parent->at]) + soon(scenario_.attach_ns);
}

void Attachments::hold(const Place& place, const Member& member) {
  const auto index = place.index;
  const Rank rank{static_cast<uint8_t>(&member - place.members.data())};
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane)
    aggregator(place, lane).set_held(index, rank, member.held);
}

void Attachments::tell(Member& member) {
  member.told_at = INT64_MAX;
  member.silent = false;
  if (member.worker)
    hooks_.come_back(*member.worker);
  else
    hooks_.ascend(*member.child);
}

}  // namespace ina::sim::world
