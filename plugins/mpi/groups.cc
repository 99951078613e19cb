#include "plugins/mpi/groups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <functional>
#include <utility>

#include "plugins/mpi/collectives.h"
#include "plugins/mpi/requests.h"
#include "plugins/mpi/world.h"

namespace ina::mpi {

namespace {

/// Free groups of which the ranks choose one. They may have freed their communicators in different
/// orders, but hardly in very different ones.
constexpr size_t kMostOffers = 16;
/// Time to join a group's own job, which it has where there are more processes than a job may have:
/// one of them may have no switch.
constexpr int64_t kJoinUs = 30'000'000;
constexpr const char* kNone = "no group of the switch";

}  // namespace

int Group::complain(int status) {
  const bool ours = status == kElementTooLarge;
  if (!ours) failed_ = true;
  if (status == INA_ERR_MISMATCH) disagreed_ = true;
  std::fprintf(stderr, "ina: rank %d: %s: %s\n", rank_,
               ours ? "wrong arguments" : ina_status_name(status),
               ours ? "an element has more than 2 GiB" : ina_last_error(context_));
  // Messages that differ in length are the most frequent reason for a mismatch.
  return ours ? MPI_ERR_COUNT : status == INA_ERR_MISMATCH ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
}

Way Group::next() {
  if (!disagreed_) return ++calls_, Way::kSwitch;
  tell();
  if (!mpis_) mpis_ = World::of_process().most_calls(ranks_, tag_);
  return calls_ >= *mpis_ ? Way::kMpi : (++calls_, Way::kNobody);
}

void Group::tell() {
  if (disagreed_ && !std::exchange(told_, true))
    World::of_process().tell_calls(ranks_, tag_, calls_);
}

void Group::started(std::shared_ptr<Request> request) {
  const std::lock_guard lock(mutex_);
  running_.push_back(std::move(request));
}

void Group::completed(const Request* request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [&](const auto& one) { return one.get() == request; });
}

void Group::abandon() {
  std::vector<std::shared_ptr<Request>> running;
  {
    const std::lock_guard lock(mutex_);
    running = running_;
  }
  for (const auto& request : running) request->abandon();
}

Groups& Groups::of_process() {
  static auto* const groups = new Groups;
  return *groups;
}

std::shared_ptr<Group> Groups::whole(ina_context* job, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  return all_.emplace_back(std::make_shared<Group>(job, ranks, 0, World::of_process().rank()));
}

/// Rank 0 offers some of its free groups; the first that all have free is taken, and without one a
/// new one is made.
std::shared_ptr<Group> Groups::take(MPI_Comm comm, const std::vector<int>& ranks,
                                    std::string& why_not) {
  // The tag of a new one, and those that are offered.
  std::array<uint64_t, 1 + kMostOffers> tags{};
  const bool leads = ranks.front() == World::of_process().rank();
  Free reserved;
  if (leads) {
    reserved = reserve(ranks, kMostOffers);
    const std::lock_guard lock(mutex_);
    tags[0] = static_cast<uint64_t>(ranks.front() + 1) << 40 | ++made_;
    std::ranges::transform(reserved, tags.begin() + 1, [](const auto& one) { return one->tag(); });
  }
  PMPI_Bcast(tags.data(), static_cast<int>(sizeof tags), MPI_BYTE, 0, comm);
  if (!leads) reserved = reserve(ranks, tags.data() + 1, kMostOffers);
  // Bit 0: a new one would do, too.
  uint64_t own = can_make_ ? 1 : 0, common = 0;
  for (size_t i = 1; i < tags.size(); ++i)
    if (std::ranges::any_of(reserved, [&](const auto& one) { return one->tag() == tags[i]; }))
      own |= uint64_t{1} << i;
  PMPI_Allreduce(&own, &common, 1, MPI_UINT64_T, MPI_BAND, comm);
  const uint64_t free = common & ~uint64_t{1};
  const auto chosen = static_cast<size_t>(free != 0 ? std::countr_zero(free) : 0);
  std::shared_ptr<Group> taken;
  for (auto& one : reserved) {
    if (!taken && one->tag() == tags[chosen])
      taken = std::move(one);
    else
      give_back(one);
  }
  if (taken) return taken;
  if (common & 1) return make(comm, ranks, tags[0], why_not);
  why_not = kNone;
  return nullptr;
}

Groups::Free Groups::reserve(const std::vector<int>& ranks, size_t most) {
  const std::lock_guard lock(mutex_);
  Free& free = free_[ranks];
  const auto end = free.begin() + static_cast<std::ptrdiff_t>(std::min(most, free.size()));
  Free reserved(free.begin(), end);
  free.erase(free.begin(), end);
  return reserved;
}

Groups::Free Groups::reserve(const std::vector<int>& ranks, const uint64_t* tags, size_t count) {
  const std::lock_guard lock(mutex_);
  Free& free = free_[ranks];
  const auto offered = [&](const auto& one) {
    return std::find(tags, tags + count, one->tag()) != tags + count;
  };
  const auto rest = std::stable_partition(free.begin(), free.end(), std::not_fn(offered));
  Free reserved(rest, free.end());
  free.erase(rest, free.end());
  return reserved;
}

void Groups::give_back(const std::shared_ptr<Group>& group) {
  // Where one rank does not offer it, no rank takes it.
  if (group->failed()) return;
  const std::lock_guard lock(mutex_);
  Free& free = free_[group->ranks()];
  const auto place =
      std::ranges::upper_bound(free, group->tag(), {}, [](const auto& one) { return one->tag(); });
  free.insert(place, group);
}

/// All ranks have come.
std::shared_ptr<Group> Groups::make(MPI_Comm comm, const std::vector<int>& ranks, uint64_t tag,
                                    std::string& why_not) {
  ina_context* made = nullptr;
  std::string text;
  const World& world = World::of_process();
  const int status = create(ranks, tag, &made, text);
  int has = status == INA_OK, all_have = 0;
  PMPI_Allreduce(&has, &all_have, 1, MPI_INT, MPI_MIN, comm);
  const std::lock_guard lock(mutex_);
  if (all_have) return all_.emplace_back(std::make_shared<Group>(made, ranks, tag, world.rank()));
  why_not = kNone;
  if (made) ina_finalize(made, 1);
  // A job of its own waits long for a switch that is not there. Groups may be freed meanwhile.
  if (!world.job()) can_make_ = false;
  if (!has && ranks.front() == world.rank() && !std::exchange(said_, true))
    std::fprintf(stderr,
                 "ina: MPI goes on without the switch for a communicator, and others without a "
                 "word: %s: %s\n",
                 ina_status_name(status), text.c_str());
  return nullptr;
}

int Groups::create(const std::vector<int>& ranks, uint64_t tag, ina_context** made,
                   std::string& text) {
  const World& world = World::of_process();
  if (world.job()) {
    const int status = world.wait(
        [&] { return ina_create_group(world.job(), ranks.data(), ranks.size(), tag, made); }, text);
    if (status != INA_OK) text = ina_last_error(world.job());
    return status;
  }
  const std::string name = world.name() + "-" + std::to_string(tag);
  ina_config config;
  ina_config_init(&config);
  config.job = name.c_str();
  config.rank = static_cast<int32_t>(std::ranges::find(ranks, world.rank()) - ranks.begin());
  config.world_size = static_cast<int32_t>(ranks.size());
  config.timeout_us = kJoinUs;
  return world.wait([&] { return ina_init(&config, made); }, text);
}

std::vector<ina_context*> Groups::abandon() {
  const std::lock_guard lock(mutex_);
  std::ranges::sort(all_, {}, [](const auto& group) { return group->tag(); });
  std::vector<ina_context*> contexts;
  for (const auto& group : all_) {
    group->abandon();
    contexts.push_back(group->context());
  }
  return contexts;
}

}  // namespace ina::mpi
