#include "switchd/jobs/placement.h"

#include <fmt/format.h>

#include "switchd/random.h"
#include "wire/group.h"

namespace ina::switchd {

namespace answer = control::answer;

void Placement::place(Client& client, Job& job, Rank rank, const MemberTransport& transport) {
  if (!client.carrier)
    if (const std::string text = crowded_text(job); !text.empty())
      return connections_.refuse_for_now(client, text);
  if (auto taken = take(client, job, rank, transport); !taken)
    connections_.refuse(client, taken.error());
}

Result<void> Placement::take(Client& client, Job& job, Rank rank,
                             const MemberTransport& transport) {
  Job::Worker& worker = job.members[value(rank)];
  answer::Joined reply{
      .place = common(job), .rules = rules_.rules_of(job), .instance = job.instance};
  if (job.grant.in_switch != 0) reply.help = answer::Help{job.grant.in_switch, job.grant.park_room};
  reply.place.library = INA_PROJECT_VERSION;
  const auto fds = give(job, rank, transport, reply.place);
  if (!fds) return tl::unexpected(fds.error());
  worker.client = &client;
  worker.parks = transport.parks;
  client.account = job.owner();
  client.job = &job;
  client.rank = rank;
  client.state = Client::State::kJoined;
  if (!client.carrier) client.joined = job.id;
  connections_.send(client, reply, *fds);
  return {};
}

answer::Place Placement::common(const Job& job) const {
  return {.job_id = value(job.id),
          .job_key = job.key,
          .epoch = job.epoch,
          .window = job.grant.window,
          .slot_bytes = config_.aggregator.slot_bytes,
          .lanes = job.geometry.lanes};
}

Result<std::vector<int>> Placement::give(Job& job, Rank rank, const MemberTransport& transport,
                                         answer::Place& place) {
  Job::Worker& worker = job.at(rank);
  if (!transport.shm) {
    give_frame(job, worker, transport, place);
    return std::vector<int>();
  }
  auto fds = give_shm(job, rank, place);
  if (fds) worker.takes_buffers = transport.takes_buffers;
  return fds;
}

Result<std::vector<int>> Placement::give_shm(Job& job, Rank rank, answer::Place& place) {
  if (auto made = resources_.make_session(job, rank); !made) return tl::unexpected(made.error());
  place.shm = answer::ShmEnd{.layout = io::shm::kLayoutVersion,
                             .tx_depth = job.geometry.tx_depth,
                             .rx_depth = job.geometry.rx_depth,
                             .result_rows = job.geometry.result_rows,
                             .side_rows = job.geometry.side_rows};
  const io::shm::WorkerSession& session = *job.at(rank).session;
  std::vector<int> fds = {session.switch_region.fd.get(), job.results.fd.get()};
  for (const Fd& event : session.wake_events) fds.push_back(event.get());
  return fds;
}

void Placement::give_frame(const Job& job, Job::Worker& worker, const MemberTransport& transport,
                           answer::Place& place) const {
  worker.address = transport.address;
  worker.frame_port = transport.frame_port;
  worker.multicast = transport.multicast;
  const wire::Address& ours = config_.frame_ports[transport.frame_port].address;
  place.address = ours;
  if (worker.multicast) place.group = wire::group_of(job.id, ours.udp_port);
  worker.tag_keys.reset();
  if (!config_.security.tags()) return;
  worker.tag_keys = {{random_u64(), random_u64()}, job.payload_key};
  place.tag = answer::Tag{.key = worker.tag_keys->frame, .payload_key = worker.tag_keys->payload};
}

/// Why no more workers' connections are taken for the job's owner; empty if they are. A worker has
/// one, and may be slow to close that of a job that has ended.
std::string Placement::crowded_text(const Job& job) const {
  const uint64_t most = 2 * uint64_t{resources_.admission().quota(job.owner()).workers_max};
  const uint32_t open = connections_.count(
      [owner = job.owner()](const Client& client) { return client.account == owner; });
  if (most == 0 || open < most) return {};
  return fmt::format(
      "tenant '{}' has {} connections open, twice as many as it may have workers "
      "(tenants: workers_max); close those whose jobs have ended",
      job.owner(), open);
}

}  // namespace ina::switchd
