#include "switchd/jobs/departures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/logging/record.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

void Departures::on_leave(Client& client, const request::Leave& leave) {
  if (client.state != Client::State::kAttached)
    return connections_.refuse(client, INA_ERR_INVALID, "leave without attach");
  Job& job = *client.job;
  if (job.state == Job::State::kRejoining)
    return connections_.refuse(client, INA_ERR_INVALID, "leave before the job was ready again");
  client.state = Client::State::kLeaving;
  if (job.state == Job::State::kJoining) {
    connections_.send(client, answer::Left{});
    return on_gone(client);
  }
  job.state = Job::State::kLeaving;
  splits_.refuse(job);
  member_groups_.refuse(job);
  if (leave.operations) tell_others(job, &client, {value(client.rank), *leave.operations});
  look(job);
}

void Departures::look(Job& job) {
  const RankSet left = job.leaving_or_gone();
  if (left == job.all()) return end_well(job);
  // Nobody is left at this switch or below it: the one above says when all have left.
  const bool nobody_is_here = std::ranges::all_of(job.members, [](const Job::Worker& worker) {
    return worker.elsewhere || !worker.client || worker.client->state == Client::State::kLeaving;
  });
  const bool nobody_is_below = std::ranges::all_of(job.below, [](const auto& one) {
    return !one->place.client || one->place.client->state == Client::State::kLeaving;
  });
  if (job.above && nobody_is_here && nobody_is_below && !std::exchange(job.above->has_left, true))
    job.above->say(request::Leave{});
}

void Departures::tell_others(Job& job, const Client* teller, const answer::PeerLeft& left) {
  tell_here(job, teller, left);
  if (job.above) job.above->say(request::PeerLeft{left.rank, left.operations});
}

void Departures::tell_here(Job& job, const Client* teller, const answer::PeerLeft& left) {
  job.for_each_client([&](Client& client) {
    if (&client != teller && client.state != Client::State::kLeaving)
      connections_.send(client, left);
  });
}

void Departures::end_well(Job& job) {
  records_.forget(job);
  job.for_each_place([&](Rank, Job::Worker& member) {
    if (!member.client) return;
    connections_.send(*member.client, answer::Left{});
    ending_.leave(*member.client);
    member.client = nullptr;
  });
  logging::info("job ended", job.owner())("job", job.name)("id", value(job.id));
  ending_.remove(job);
}

void Departures::on_gone(Client& client) {
  Job& job = *client.job;
  Job::Worker& worker = job.members[value(client.rank)];
  const bool leaving = client.state == Client::State::kLeaving;
  ending_.leave(client);
  worker.client = nullptr;
  if (job.is_group() && job.state == Job::State::kJoining)
    return ending_.end(
        job, INA_ERR_PEER_LOST,
        fmt::format("rank {} ({}) of group '{}' died or left while the group was made",
                    value(client.rank), client.peer.text(), job.name));
  if (job.state == Job::State::kJoining || job.state == Job::State::kRejoining) {
    if (worker.attached && job.state == Job::State::kJoining) lane_jobs_.detach(job, client.rank);
    resources_.drop_worker(job, client.rank);
    return gathering_.tell_missing(job);
  }
  // If it said goodbye and did not wait for the others, they need nothing more from it.
  if (leaving) return;
  ending_.end(job, INA_ERR_PEER_LOST,
              fmt::format("rank {} ({}) of job '{}' died or left without ina_finalize",
                          value(client.rank), client.peer.text(), job.name));
}

void Departures::on_abort(Client& client, const request::Abort& abort) {
  if (!client.job) return;  // the abort of another worker crossed this one
  Job& job = *client.job;
  if (client.role == Client::Role::kSwitch)
    return ending_.end(job, abort.status.value_or(INA_ERR_ABORTED), abort.text.substr(0, 4096));
  if (abort.lost == value(client.rank))
    return ending_.end(job, INA_ERR_PEER_LOST,
                       fmt::format("rank {} of job '{}' left before its operations were complete: "
                                   "{}",
                                   value(client.rank), job.name, abort.text.substr(0, 1024)));
  if (abort.lost)
    return ending_.end(job, INA_ERR_PEER_LOST,
                       fmt::format("rank {} of job '{}' waits in vain: {}", value(client.rank),
                                   job.name, abort.text.substr(0, 1024)));
  std::string text = fmt::format("rank {} of job '{}' gave up: {}", value(client.rank), job.name,
                                 abort.text.substr(0, 1024));
  // It may have asked for the reasons before it gave up.
  if (const std::string why = status_.why(job); text.find(why) == std::string::npos)
    text += "; " + why;
  ending_.end(job, INA_ERR_ABORTED, text);
}

}  // namespace ina::switchd
