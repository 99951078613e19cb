// Whom memory is charged to, and for how long: from when it is made until nobody has it any more.
#include <fmt/format.h>

#include "switchd/conductor_state.h"

namespace ina::switchd {

namespace {

// Pieces of held memory that are looked at in one turn.
constexpr size_t kLookedAt = 1'000;
constexpr Nanos kLookAgainNs = 1'000'000'000;
/// Tables from here on are mappings of their own; each lane has so many of a job.
constexpr uint64_t kLargeTableBytes = 64 * 1024;
constexpr uint64_t kTables = 3;

}  // namespace

/// Memory for a job that was admitted.
Result<void> Conductor::charge(Job& job, uint64_t bytes) {
  auto taken = admission_.take_memory(job.owner(), job.grant, bytes);
  if (!taken && held_.count() != 0) {
    credit_held(held_.count());
    taken = admission_.take_memory(job.owner(), job.grant, bytes);
  }
  if (taken) return {};
  std::string text = taken.error();
  if (held_.count() != 0)
    text += fmt::format(
        "; {} bytes are memory of ended jobs that processes still have "
        "(memory_held_bytes)",
        held_.bytes());
  return fail(INA_ERR_REFUSED, text);
}

/// What a job needs of the process beside its workers.
Result<void> Conductor::take_handles(Job& job) {
  const auto lanes = static_cast<uint32_t>(lanes_.size());
  const uint64_t words = aggregator::JobSpec::seen_words(job.grant.window, lanes);
  const bool large = words * sizeof(Bitmap) >= kLargeTableBytes || config_.home == Home::kSpill;
  const uint64_t mappings = 1 + (large ? kTables * lanes : 0);
  auto share = handles_.take(job.owner(), {mappings, 1}, mapper_.leaving());
  if (!share) return tl::unexpected(share.error());
  job.share = std::move(*share);
  return {};
}

/// The switch's part of a worker's place.
Result<void> Conductor::make_session(Job& job, Rank rank) {
  if (!admission_.within(job.owner())) credit_held(held_.count());
  if (!admission_.within(job.owner()))
    return fail(
        INA_ERR_REFUSED,
        fmt::format("no memory for another worker of '{}': processes still have {} bytes of "
                    "places that were left (memory_held_bytes); end them",
                    job.owner(), held_.bytes()));
  auto share = handles_.take(job.owner(), {2, 1 + lanes_.size()}, mapper_.leaving());
  if (!share) return tl::unexpected(share.error());
  auto session = io::shm::WorkerSession::create(job.geometry, job.results.map.data());
  if (!session) return tl::unexpected(session.error());
  Job::Worker& worker = job.at(rank);
  worker.session = std::move(*session);
  worker.share = std::move(*share);
  return {};
}

/// Empties a worker's place, of which the lanes have nothing any more.
void Conductor::drop_worker(Job& job, Rank rank) {
  Job::Worker& worker = job.at(rank);
  if (worker.session) {
    mapper_.discard(std::move(worker.session->worker_region));
    for (Mapping& memory : worker.session->registered) mapper_.discard(std::move(memory));
    hold(job.owner(), std::move(worker.session->switch_region));
  }
  worker = Job::Worker{};
}

/// Memory that workers were given, and for which nobody is charged any more: stays charged until
/// they have given it back.
void Conductor::hold(const std::string& owner, io::shm::Region region) {
  const uint64_t bytes = region.map.size();
  if (bytes == 0) return;
  admission_.keep_memory(owner, bytes);
  held_.add(owner, bytes, std::move(region), handles_.keep(owner, {.descriptors = 1}));
  // Most often those who had it are dead.
  held_.look_at_last([this](const std::string& whose, uint64_t freed) {
    admission_.give_back_kept(whose, freed);
  });
}

void Conductor::credit_held(size_t most) {
  held_.look(
      [this](const std::string& owner, uint64_t bytes) { admission_.give_back_kept(owner, bytes); },
      most);
}

/// Once a second or so.
void Conductor::look_after_memory(Nanos now) {
  if (doorman_) doorman_->turn();
  if (now < look_again_) return;
  look_again_ = now + kLookAgainNs;
  credit_held(kLookedAt);
}

}  // namespace ina::switchd
