#include "sim/job_tree.h"

namespace ina::sim {

struct JobTree::Place {
  Switch* at = nullptr;
  io::JobIndex index{};
  JobId id{};
  Place* above = nullptr;
  Rank member{};                ///< of the place above
  std::vector<uint32_t> hosts;  ///< of the members
  std::vector<uint8_t> member_of;
  Lines results;
  std::vector<WorkerSet> seen;
  std::vector<aggregator::GivenResult> given;
  std::vector<aggregator::TreeRow> rows;

  bool is_domain() const { return above && above->at == at; }
};

JobTree::JobTree(const JobTreeSpec& spec) : spec_(spec) {}

JobTree::~JobTree() = default;

uint32_t JobTree::add_place(Switch& at, io::JobIndex index, std::optional<uint32_t> above) {
  auto place = std::make_unique<Place>();
  place->at = &at;
  place->index = index;
  place->member_of.assign(spec_.ranks, aggregator::TreePlace::kElsewhere);
  if (above) {
    Place& parent = *places_[*above];
    place->above = &parent;
    place->member = next_member(*above);
    parent.hosts.push_back(at.host());
  }
  // Of one id, the fragments of all domains with the same number would share few slots.
  place->id = spec_.id;
  if (place->is_domain()) place->id = JobId{value(spec_.id) + value(place->member) + 1};
  places_.push_back(std::move(place));
  return static_cast<uint32_t>(places_.size() - 1);
}

JobId JobTree::id(uint32_t place) const {
  return places_[place]->id;
}

Rank JobTree::next_member(uint32_t place) const {
  return Rank{static_cast<uint16_t>(places_[place]->hosts.size())};
}

void JobTree::add_rank(uint32_t place, uint32_t rank, uint32_t host) {
  Place& own = *places_[place];
  own.member_of[rank] = static_cast<uint8_t>(value(next_member(place)));
  own.hosts.push_back(host);
  for (const Place* below = &own; below->above; below = below->above)
    below->above->member_of[rank] = static_cast<uint8_t>(value(below->member));
}

void JobTree::begin() {
  for (const auto& place : places_) bind(*place);
  for (const auto& place : places_) add_to_switch(*place);
}

void JobTree::end() {
  for (const auto& place : places_) place->at->aggregator().remove_job(place->index);
}

/// What goes between a domain and its root comes from no port.
void JobTree::bind(const Place& place) const {
  std::vector<uint32_t> hosts;
  for (const uint32_t host : place.hosts)
    if (host != place.at->host()) hosts.push_back(host);
  const auto members = static_cast<uint32_t>(hosts.size());
  if (place.above && !place.is_domain()) hosts.push_back(place.above->at->host());
  place.at->bind(place.index, place.id, spec_.key, hosts, members);
}

void JobTree::add_to_switch(Place& place) const {
  const size_t words = aggregator::JobSpec::seen_words(spec_.window, 1);
  place.results = lines_of(2 * size_t{spec_.window} * spec_.slot_bytes);
  place.seen.assign(words, {});
  place.given.assign(words, aggregator::GivenResult{});
  place.rows.assign(words, aggregator::TreeRow{});
  aggregator::JobSpec job;
  job.id = place.id;
  job.epoch = kEpoch;
  job.workers = static_cast<uint32_t>(place.hosts.size());
  job.window = spec_.window;
  job.rules.home = Home::kTree;
  job.rules.rto_min_ns = spec_.rto_min_ns;
  job.results = data(place.results);
  job.seen = place.seen.data();
  job.given = place.given.data();
  job.tree = {.rows = place.rows.data(),
              .member_of = place.member_of.data(),
              .ranks = spec_.ranks,
              .has_parent = place.above != nullptr,
              .parent_epoch = place.above ? kEpoch : 0};
  if (spec_.help) {
    job.park_by(spec_.help->in_switch, spec_.help->slots);
    job.park_patience = spec_.help->patience_ns;
    job.park_if_it_pays = !spec_.help->always;
  }
  place.at->add_job(place.index, job);
  if (place.is_domain()) place.at->link(place.index, place.above->index, place.member);
}

}  // namespace ina::sim
