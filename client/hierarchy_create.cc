// The creation of a hierarchy. First all ranks tell each other their topology, or that they have
// none, so that all learn of a wrong one.
#include <algorithm>
#include <utility>

#include "client/collective_call.h"
#include "client/hierarchy.h"
#include "wire/rank_set.h"
#include "wire/text.h"

namespace ina::client {

namespace {

using themis::Topology;

/// Refuses arguments that this rank cannot go on with.
Result<void> check_fits(const Context& context, const Topology& topology,
                        std::span<const std::shared_ptr<Context>> rails) {
  const Settings& job = context.settings();
  if (auto valid = themis::validate(topology); !valid) return valid;
  if (topology.participants() != job.world_size) {
    std::string sizes;
    for (const themis::Dimension& dimension : topology.dimensions)
      sizes += (sizes.empty() ? "" : " x ") + std::to_string(dimension.size);
    return fail(INA_ERR_INVALID, "the topology's dimensions have " + sizes + " = " +
                                     std::to_string(topology.participants()) +
                                     " participants, the job has " +
                                     std::to_string(job.world_size) + " ranks");
  }
  if (!rails.empty() && rails.size() != topology.dimensions.size())
    return fail(INA_ERR_INVALID, std::to_string(rails.size()) + " rails are given for " +
                                     std::to_string(topology.dimensions.size()) + " dimensions");
  for (size_t i = 0; i < rails.size(); ++i)
    if (rails[i]->settings().rank != job.rank || rails[i]->settings().world_size != job.world_size)
      return fail(INA_ERR_INVALID,
                  "rails[" + std::to_string(i) + "] is a context of rank " +
                      std::to_string(rails[i]->settings().rank) + " of " +
                      std::to_string(rails[i]->settings().world_size) +
                      "; a rail has the same ranks as the job, in which this is rank " +
                      std::to_string(job.rank) + " of " + std::to_string(job.world_size));
  return {};
}

/// One number of each rank.
Result<std::vector<int64_t>> tell(Context& all, int64_t own) {
  std::vector<int64_t> told(all.settings().world_size);
  CollectiveCall call;
  call.function = "ina_hierarchy_create";
  call.collective = Collective::kAllGather;
  call.send = &own;
  call.recv = told.data();
  call.dtype_number = static_cast<int>(DType::kInt64);
  call.set_even(all.settings().world_size, 1);
  const auto started = all.start(call);
  if (!started) return tl::unexpected(started.error());
  if (const int status = all.wait(*started, 0, true).status; status != INA_OK)
    return fail(static_cast<ina_status>(status), all.last_error());
  return told;
}

/// 0: none.
int64_t fingerprint(const Topology& topology) {
  const themis::Plan plan{.topology = topology, .requests = {}, .chunks = {}, .order = {}};
  return std::max<int64_t>(static_cast<int64_t>(themis::hash_of(plan) >> 1), 1);
}

/// The verdict, the same on all ranks, from the fingerprints of all.
Result<void> compare(const std::vector<int64_t>& told, const Error& own) {
  if (own.status != INA_OK) return tl::unexpected(own);
  const auto ranks_with = [&](int64_t number) {
    RankSet with;
    for (const Rank rank : RankSet::first(static_cast<uint32_t>(told.size())))
      if (told[value(rank)] == number) with.insert(rank);
    return wire::ranks_text(with);
  };
  if (std::ranges::find(told, 0) != told.end())
    return fail(INA_ERR_MISMATCH, ranks_with(0) + " gave no topology that fits the job");
  for (const int64_t other : told)
    if (other != told[0])
      return fail(INA_ERR_MISMATCH, "the ranks have different topologies: " + ranks_with(told[0]) +
                                        ", and " + ranks_with(other));
  return {};
}

}  // namespace

Result<std::shared_ptr<Hierarchy>> Hierarchy::create(
    const std::shared_ptr<Context>& context, const Result<Topology>& topology,
    std::span<const std::shared_ptr<Context>> rails) {
  Error own{INA_OK, ""};
  if (!topology) own = topology.error();
  if (topology)
    if (auto fits = check_fits(*context, *topology, rails); !fits) own = fits.error();
  const auto rank = static_cast<int32_t>(context->settings().rank);
  std::vector<std::shared_ptr<Context>> made;
  const auto give_up = [&](const Error& error) {
    for (const auto& one : made) one->close();
    return tl::unexpected(error);
  };
  auto all = context->split(0, rank);
  if (!all) return tl::unexpected(all.error());
  made.push_back(*all);
  const auto told = tell(**all, own.status == INA_OK ? fingerprint(*topology) : 0);
  if (!told) return give_up(own.status != INA_OK ? own : told.error());
  if (auto same = compare(*told, own); !same) {
    (*all)->leave(0);  // all do, and nobody hears of an end in between
    return give_up(same.error());
  }
  int32_t step = 1;
  for (size_t i = 0; i < topology->dimensions.size(); ++i) {
    const auto size = static_cast<int32_t>(topology->dimensions[i].size);
    const int32_t coordinate = rank / step % size;
    Context& rail = rails.empty() ? *context : *rails[i];
    auto group = rail.split(rank - coordinate * step, coordinate);
    if (!group) return give_up(group.error());
    made.insert(made.end() - 1, *group);
    step *= size;
  }
  std::shared_ptr<Hierarchy> hierarchy(new Hierarchy(context, *topology, std::move(made)));
  std::vector<Session*> sessions;
  for (const auto& one : hierarchy->contexts_) {
    Session* const session = one->session().get();
    if (std::ranges::find(sessions, session) != sessions.end()) continue;
    sessions.push_back(session);
    session->add(std::static_pointer_cast<Follower>(hierarchy));
  }
  return hierarchy;
}

}  // namespace ina::client
