#include "switchd/memory/result_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/logging/record.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

namespace {

/// Limit of all result buffers of a job together.
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

/// True if all workers have asked for the next buffer.
bool all_ask(const Job& job) {
  return std::ranges::all_of(
      job.members, [](const Job::Worker& worker) { return worker.wants_results.has_value(); });
}

}  // namespace

void ResultBuffers::on_share(Client& client, const request::ShareResults& message) {
  if (!client.job || client.job->state == Job::State::kRejoining) return;
  Job& job = *client.job;
  // Its workers have no memory in common, and each takes its own.
  if (job.spread) return connections_.send(client, answer::Results{});
  job.members[value(client.rank)].wants_results = message.bytes;
  if (job.making) return;  // one after the other
  if (all_ask(job)) share(job);
}

void ResultBuffers::share(Job& job) {
  const uint64_t wanted = *job.members[0].wants_results;
  // The domains of a wide job have no memory in common.
  bool everyone_shares_memory = !job.is_wide();
  for (Job::Worker& member : job.members) {
    if (*member.wants_results != wanted)
      return ending_.end_mismatched(
          job, fmt::format("rank 0 asked for a result buffer of {} bytes, rank {} for one of {}",
                           wanted, &member - job.members.data(), *member.wants_results));
    const ShmWay* const shm = member.way.shm();
    everyone_shares_memory = everyone_shares_memory && shm && shm->takes_buffers;
  }
  for (Job::Worker& member : job.members) member.wants_results.reset();
  if (wanted == 0 || wanted > kMostBytes)
    return tell(job, {.status = INA_ERR_INVALID,
                      .text = fmt::format("a result buffer of {} bytes cannot be: it may have 1 to "
                                          "{} bytes",
                                          wanted, kMostBytes)});
  // Where the switch cannot write a worker's memory, and where a fragment is no whole number of
  // units, everyone takes memory of its own and results are copied.
  if (!everyone_shares_memory || config_.slot_bytes % (4 * wire::kTargetUnitBytes) != 0)
    return tell(job, {});
  make(job, wanted);
}

void ResultBuffers::make(Job& job, uint64_t bytes) {
  const uint64_t units = (bytes + wire::kTargetUnitBytes - 1) / wire::kTargetUnitBytes;
  const auto first = find_gap(job.result_buffers, units);
  if (!first || job.result_buffers.size() == aggregator::kMaxResultBuffers)
    return tell(job, {.status = INA_ERR_REFUSED,
                      .text = fmt::format("a job may have {} result buffers and {} MiB of them "
                                          "together; free some",
                                          aggregator::kMaxResultBuffers, kMostBytes >> 20)});
  Job::ResultBuffer buffer{{}, *first, static_cast<uint32_t>(units), {}, {}};
  if (auto taken = resources_.take(job, buffer); !taken)
    return tell(job, {.status = taken.error().status, .text = taken.error().text});
  forget_ended();
  const uint64_t token = resources_.mapper().new_token();
  making_[token].job = job.id;
  if (job.tenant.empty()) making_[token].user = job.uid;
  resources_.mapper().make(job.owner(), token, "ina-shared-results", buffer.bytes());
  job.making.emplace(std::move(buffer));
}

void ResultBuffers::on_made(Mapper::Done& done) {
  const auto found = making_.extract(done.token);
  if (!found) return;
  Job* job = maker(found.mapped());
  if (!job) {
    if (found.mapped().user) connections_.charge_time({.uid = *found.mapped().user}, done.spent);
    return;
  }
  for (Job::Worker& member : job->members)
    if (member.client) connections_.charge_time(member.client->peer, done.spent / job->workers);
  add(*job, done.region);
}

/// The job for which a result buffer is being made; nullptr: it has ended.
Job* ResultBuffers::maker(const Making& making) const {
  Job* job = jobs_.find(making.job);
  return job && job->making ? job : nullptr;
}

/// Takes back what waits to be made for jobs that have ended: a user whose jobs come and go leaves
/// no more of it than others.
void ResultBuffers::forget_ended() {
  std::erase_if(making_, [this](const auto& entry) {
    return !maker(entry.second) && resources_.mapper().withdraw(entry.first);
  });
}

void ResultBuffers::add(Job& job, Result<io::shm::Region>& region) {
  Job::ResultBuffer buffer = std::move(*job.making);
  job.making.reset();
  if (!region) {
    resources_.give_back(job, buffer);
    tell(job, {.status = region.error().status, .text = region.error().text});
  } else {
    buffer.region = std::move(*region);
    lanes_.run(command::AddResultBuffer{
        job.index(), {buffer.first_unit, buffer.units, buffer.region.map.data()}});
    tell(job, {.first_unit = buffer.first_unit, .bytes = buffer.bytes()}, {buffer.region.fd.get()});
    logging::info("result buffer made", job.owner())("job", job.name)("id", value(job.id))(
        "bytes", buffer.bytes())("first_unit", buffer.first_unit);
    job.result_buffers.insert(std::ranges::upper_bound(job.result_buffers, buffer.first_unit, {},
                                                       &Job::ResultBuffer::first_unit),
                              std::move(buffer));
  }
  // Others may have asked for the next one meanwhile.
  if (all_ask(job)) share(job);
}

void ResultBuffers::tell(Job& job, const answer::Results& results, const std::vector<int>& fds) {
  for (Job::Worker& member : job.members)
    if (member.client) connections_.send(*member.client, results, fds);
}

void ResultBuffers::on_free(Client& client, const request::FreeResults& message) {
  if (!client.job || client.job->state == Job::State::kRejoining) return;
  Job& job = *client.job;
  const uint32_t first_unit = message.first_unit;
  const auto buffer =
      std::ranges::find(job.result_buffers, first_unit, &Job::ResultBuffer::first_unit);
  if (buffer == job.result_buffers.end()) return;
  buffer->freed.insert(client.rank);
  if (buffer->freed != job.all()) return;
  lanes_.run(command::RemoveResultBuffer{job.index(), first_unit});
  resources_.give_back(job, *buffer);
  job.result_buffers.erase(buffer);
}

}  // namespace ina::switchd
