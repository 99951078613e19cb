// Memory on the direct path of the shm port: what workers register, so that the lanes add straight
// from it, and the result buffers of a job, into which results are written once for all workers.
// See docs/protocol.md, "Registered memory and result buffers".

#include <algorithm>

#include "common/logging/record.h"
#include "switchd/conductor_state.h"

namespace ina::switchd {

namespace {

using io::shm::kMaxRegions;

/// Of all result buffers of a job.
constexpr uint64_t kMostBytes = uint64_t{wire::kMaxTargetUnits} * wire::kTargetUnitBytes;

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

void Conductor::answer_register(Client& client, const Json& body, ina_status status,
                                const std::string& text) {
  Json answer = {{"type", "registered"}, {"number", body.value("number", 0u)}, {"status", status}};
  if (status != INA_OK) answer["text"] = text;
  send(client, answer);
}

/// A worker's own memory file is mapped, or cannot be. Registered before `attach` (a worker that
/// comes back) it reaches the lanes with the worker.
void Conductor::on_registered(Client& client, const Json& body, Result<io::shm::Region>& region) {
  Job& job = *client.job;
  Job::Worker& worker = job.at(client.rank);
  const auto number = body.at("number").get<uint32_t>();
  if (!region) {
    worker.registered.erase(number);
    return answer_register(client, body, region.error().status, region.error().text);
  }
  Mapping& memory = worker.session->registered[number];
  memory = std::move(region->map);
  if (worker.attached && job.state != Job::State::kRejoining)
    on_lanes(LaneCommand::Kind::kSetRegistered, [&](LaneCommand& command, uint32_t) {
      command.job = job.index;
      command.rank = client.rank;
      command.number = number;
      command.memory = {memory.data(), memory.size()};
    });
  answer_register(client, body, INA_OK, "");
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
  mapper_.discard(std::move(worker.session->registered[number]));
  worker.registered.erase(number);
}

// ---- result buffers

/// Collective: happens once all workers have asked.
void Conductor::on_share_results(Client& client, const Json& body) {
  if (!client.job || client.job->state == Job::State::kRejoining) return;
  Job& job = *client.job;
  job.members[value(client.rank)].wants_results = body.at("bytes").get<uint64_t>();
  if (job.making) return;  // one after the other
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
  const auto refuse_all = [&](ina_status status, const std::string& text) {
    tell_results(job, {{"status", status}, {"text", text}});
  };
  if (wanted == 0 || wanted > kMostBytes)
    return refuse_all(INA_ERR_INVALID, fmt::format("a result buffer of {} bytes cannot be: it may "
                                                   "have 1 to {} bytes",
                                                   wanted, kMostBytes));
  // Where the switch cannot write a worker's memory, and where a fragment is no whole number of
  // units, everyone takes memory of its own and results are copied.
  if (!everyone_shares_memory || config_.slot_bytes % (4 * wire::kTargetUnitBytes) != 0)
    return tell_results(job, {{"status", INA_OK}, {"first_unit", nullptr}});

  const uint64_t units = (wanted + wire::kTargetUnitBytes - 1) / wire::kTargetUnitBytes;
  const auto first = find_gap(job.result_buffers, units);
  if (!first || job.result_buffers.size() == aggregator::kMaxResultBuffers)
    return refuse_all(
        INA_ERR_REFUSED,
        fmt::format("a job may have {} result buffers and {} MiB of them together; free some",
                    aggregator::kMaxResultBuffers, kMostBytes >> 20));
  Job::ResultBuffer buffer{{}, *first, static_cast<uint32_t>(units), {}, 0};
  auto share = handles_.take(job.owner(), {1, 1}, mapper_.leaving());
  if (!share) return refuse_all(share.error().status, share.error().text);
  buffer.share = std::move(*share);
  if (auto taken = charge(job, buffer.bytes()); !taken)
    return refuse_all(taken.error().status, taken.error().text);
  const uint64_t token = ++last_token_;
  making_[token] = value(job.id);
  mapper_.make(token, "ina-shared-results", buffer.bytes());
  job.making.emplace(std::move(buffer));
}

/// For which a result buffer is being made; nullptr: it has ended.
Conductor::Job* Conductor::making(uint64_t token) {
  const auto found = making_.extract(token);
  if (!found) return nullptr;
  const auto job = std::ranges::find_if(
      jobs_, [&](const auto& one) { return one && value(one->id) == found.mapped(); });
  return job == jobs_.end() || !(*job)->making ? nullptr : job->get();
}

void Conductor::on_results_made(Job& job, Result<io::shm::Region>& region) {
  Job::ResultBuffer buffer = std::move(*job.making);
  job.making.reset();
  if (!region) {
    admission_.give_back_memory(job.owner(), job.grant, buffer.bytes());
    tell_results(job, {{"status", region.error().status}, {"text", region.error().text}});
  } else {
    buffer.region = std::move(*region);
    on_lanes(LaneCommand::Kind::kAddResultBuffer, [&](LaneCommand& command, uint32_t) {
      command.job = job.index;
      command.result_buffer = {buffer.first_unit, buffer.units, buffer.region.map.data()};
    });
    tell_results(job,
                 {{"status", INA_OK}, {"first_unit", buffer.first_unit}, {"bytes", buffer.bytes()}},
                 {buffer.region.fd.get()});
    logging::info("result buffer made", job.owner())("job", job.name)("id", value(job.id))(
        "bytes", buffer.bytes())("first_unit", buffer.first_unit);
    job.result_buffers.insert(std::ranges::upper_bound(job.result_buffers, buffer.first_unit, {},
                                                       &Job::ResultBuffer::first_unit),
                              std::move(buffer));
  }
  // Others may have asked for the next one meanwhile.
  if (std::ranges::all_of(
          job.members, [](const Job::Worker& worker) { return worker.wants_results.has_value(); }))
    share_results(job);
}

void Conductor::tell_results(Job& job, const Json& body, const std::vector<int>& fds) {
  Json message = body;
  message["type"] = "results";
  for (Job::Worker& member : job.members)
    if (member.client) send(*member.client, message, fds);
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
  hold(job.owner(), std::move(buffer->region));
  job.result_buffers.erase(buffer);
}

}  // namespace ina::switchd
