// Memory on the direct path of the shm port: what workers register, so that the lanes add straight
// from it, and the result buffers of a job, into which results are written once for all workers.
// See docs/protocol.md, "Registered memory and result buffers".

#include <algorithm>

#include "logging/record.h"
#include "switchd/conductor_state.h"

namespace ina::switchd {

namespace {

using io::shm::kMaxRegions;

/// First unit of a gap for `units`, of buffers that are sorted; nothing if there is none.
template <class Buffers>
std::optional<uint32_t> find_gap(const Buffers& buffers, uint64_t units) {
  uint64_t first = 0;
  for (const auto& buffer : buffers) {
    if (buffer.first_unit - first >= units) break;
    first = buffer.first_unit + uint64_t{buffer.units};
  }
  if (first + units > wire::kMaxTargetUnits) return std::nullopt;
  return static_cast<uint32_t>(first);
}

}  // namespace

// ---- registered memory

/// A worker's own memory file. Registered before `attach` (a worker that comes back) it reaches the
/// lanes with the worker.
void Conductor::on_register(Client& client, control::Received& received) {
  if (!client.job) return;  // the job has ended meanwhile
  Job& job = *client.job;
  const auto number = received.body.at("number").get<uint32_t>();
  const auto bytes = received.body.at("bytes").get<uint64_t>();
  Job::Worker& worker = job.members[value(client.rank)];
  const auto answer = [&](ina_status status, const std::string& text) {
    Json body = {{"type", "registered"}, {"number", number}, {"status", status}};
    if (status != INA_OK) body["text"] = text;
    send(client, body);
  };
  if (!worker.session || number == 0 || number >= kMaxRegions ||
      worker.session->registered[number] || received.fds.size() != 1 || bytes == 0)
    return answer(INA_ERR_INVALID,
                  fmt::format("memory is registered over the shm port with one descriptor and an "
                              "unused number in 1..{}",
                              kMaxRegions - 1));
  auto memory = io::shm::map_peer_region(received.fds[0], bytes, "registered memory");
  if (!memory) return answer(memory.error().status, memory.error().text);
  worker.session->registered[number] = std::move(*memory);
  if (worker.attached && job.state != Job::State::kRejoining)
    on_lanes(LaneCommand::Kind::kSetRegistered, [&](LaneCommand& command, uint32_t) {
      command.job = job.index;
      command.rank = client.rank;
      command.number = number;
      command.memory = {worker.session->registered[number].data(), bytes};
    });
  answer(INA_OK, "");
}

void Conductor::on_unregister(Client& client, const Json& body) {
  if (!client.job) return;
  Job& job = *client.job;
  const auto number = body.at("number").get<uint32_t>();
  Job::Worker& worker = job.members[value(client.rank)];
  if (!worker.session || number == 0 || number >= kMaxRegions) return;
  on_lanes(LaneCommand::Kind::kSetRegistered, [&](LaneCommand& command, uint32_t) {
    command.job = job.index;
    command.rank = client.rank;
    command.number = number;
  });
  // No lane has it any more.
  worker.session->registered[number].reset();
}

// ---- result buffers

/// Collective: happens once all workers have asked.
void Conductor::on_share_results(Client& client, const Json& body) {
  if (!client.job || client.job->state == Job::State::kRejoining) return;
  Job& job = *client.job;
  job.members[value(client.rank)].wants_results = body.at("bytes").get<uint64_t>();
  if (std::ranges::all_of(
          job.members, [](const Job::Worker& worker) { return worker.wants_results.has_value(); }))
    share_results(job);
}

void Conductor::share_results(Job& job) {
  const uint64_t wanted = *job.members[0].wants_results;
  bool everyone_shares_memory = true;
  for (Job::Worker& member : job.members) {
    if (*member.wants_results != wanted)
      return end_job(
          job, INA_ERR_MISMATCH,
          fmt::format("workers of job '{}' disagree: rank 0 asked for a result buffer of {} bytes, "
                      "rank {} for one of {}",
                      job.name, wanted, &member - job.members.data(), *member.wants_results));
    everyone_shares_memory = everyone_shares_memory && member.takes_buffers;
  }
  for (Job::Worker& member : job.members) member.wants_results.reset();
  const auto tell_all = [&](const Json& body, const std::vector<int>& fds = {}) {
    for (Job::Worker& member : job.members)
      if (member.client) send(*member.client, body, fds);
  };
  const auto refuse_all = [&](ina_status status, const std::string& text) {
    tell_all({{"type", "results"}, {"status", status}, {"text", text}});
  };
  // Where the switch cannot write a worker's memory, and where a fragment is no whole number of
  // units, everyone takes memory of its own and results are copied.
  if (!everyone_shares_memory || config_.slot_bytes % (4 * wire::kTargetUnitBytes) != 0)
    return tell_all({{"type", "results"}, {"status", INA_OK}, {"first_unit", nullptr}});

  const uint64_t units = (wanted + wire::kTargetUnitBytes - 1) / wire::kTargetUnitBytes;
  const auto first = find_gap(job.result_buffers, units);
  if (!first || job.result_buffers.size() == aggregator::kMaxResultBuffers)
    return refuse_all(
        INA_ERR_REFUSED,
        fmt::format("a job may have {} result buffers and {} MiB of them together; free some",
                    aggregator::kMaxResultBuffers,
                    uint64_t{wire::kMaxTargetUnits} * wire::kTargetUnitBytes >> 20));
  Job::ResultBuffer buffer{{}, *first, static_cast<uint32_t>(units)};
  if (auto taken = admission_.take_memory(job.owner(), job.grant, buffer.bytes()); !taken)
    return refuse_all(INA_ERR_REFUSED, taken.error());
  auto region = io::shm::make_region("ina-shared-results", buffer.bytes());
  if (!region) {
    admission_.give_back_memory(job.owner(), job.grant, buffer.bytes());
    return refuse_all(region.error().status, region.error().text);
  }
  buffer.region = std::move(*region);
  on_lanes(LaneCommand::Kind::kAddResultBuffer, [&](LaneCommand& command, uint32_t) {
    command.job = job.index;
    command.result_buffer = {buffer.first_unit, buffer.units, buffer.region.map.data()};
  });
  tell_all({{"type", "results"},
            {"status", INA_OK},
            {"first_unit", buffer.first_unit},
            {"bytes", buffer.bytes()}},
           {buffer.region.fd.get()});
  logging::info("result buffer made", job.owner())("job", job.name)("id", value(job.id))(
      "bytes", buffer.bytes())("first_unit", buffer.first_unit);
  job.result_buffers.insert(std::ranges::upper_bound(job.result_buffers, buffer.first_unit, {},
                                                     &Job::ResultBuffer::first_unit),
                            std::move(buffer));
}

/// Collective, too; not answered. A buffer that only some have freed stays.
void Conductor::on_free_results(Client& client, const Json& body) {
  if (!client.job || client.job->state == Job::State::kRejoining) return;
  Job& job = *client.job;
  const auto first_unit = body.at("first_unit").get<uint32_t>();
  const auto buffer =
      std::ranges::find(job.result_buffers, first_unit, &Job::ResultBuffer::first_unit);
  if (buffer == job.result_buffers.end()) return;
  buffer->freed |= bit_of(client.rank);
  if (buffer->freed != full_bitmap(job.workers)) return;
  on_lanes(LaneCommand::Kind::kRemoveResultBuffer, [&](LaneCommand& command, uint32_t) {
    command.job = job.index;
    command.result_buffer.first_unit = first_unit;
  });
  admission_.give_back_memory(job.owner(), job.grant, buffer->bytes());
  job.result_buffers.erase(buffer);
}

}  // namespace ina::switchd
