#include "switchd/jobs/departures.h"

#include <fmt/format.h>

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
  if (leave.operations) tell_others(client, *leave.operations);
  if (job.leaving_or_gone() == job.all()) end_well(job);
}

/// Their calls beyond `operations` cannot complete. Workers that leave call nothing more.
void Departures::tell_others(const Client& client, uint32_t operations) {
  for (const Job::Worker& member : client.job->members)
    if (member.client && member.client->state != Client::State::kLeaving)
      connections_.send(*member.client, answer::PeerLeft{value(client.rank), operations});
}

void Departures::end_well(Job& job) {
  records_.forget(job);
  for (Job::Worker& member : job.members) {
    if (!member.client) continue;
    connections_.send(*member.client, answer::Left{});
    ending_.leave(*member.client);
    member.client = nullptr;
  }
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
