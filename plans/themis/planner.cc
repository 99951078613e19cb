#include "plans/themis/planner.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <utility>

#include "plans/themis/chunks.h"
#include "plans/themis/search.h"

namespace ina::themis {
namespace {

/// Requests by their start; of those that begin at the same time the first one first.
std::vector<uint32_t> by_start(const std::vector<Request>& requests) {
  std::vector<uint32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](uint32_t r) { return requests[r].issue_ps; });
  return order;
}

/// One plan in the making.
class Planner {
 public:
  Planner(const Topology& topology, const std::vector<Request>& requests,
          const PlanOptions& options)
      : topology_(topology), requests_(requests), options_(options) {
    for (uint32_t r = 0; r < requests.size(); ++r)
      for (const uint64_t bytes :
           cut(requests[r].bytes, options.chunks, topology.participants(), element_bytes_of(r)))
        pieces_.push_back({.request = r, .bytes = bytes});
  }

  Planned plan() const {
    if (options_.scheduler == Scheduler::kSearch) return searched();
    std::vector<Candidate> found = candidates(options_.scheduler, {default_discipline()});
    if (options_.scheduler == Scheduler::kThemis && options_.or_baseline)
      for (Candidate& candidate : candidates(Scheduler::kBaseline, {Discipline::kFifo}))
        found.push_back(std::move(candidate));
    return planned(best_of(std::move(found)));
  }

 private:
  Discipline default_discipline() const {
    const bool is_baseline = options_.scheduler == Scheduler::kBaseline;
    return options_.discipline.value_or(is_baseline ? Discipline::kFifo
                                                    : Discipline::kSmallestFirst);
  }

  uint32_t element_bytes_of(uint32_t request) const {
    const uint32_t own = requests_[request].element_bytes;
    return own != 0 ? own : options_.element_bytes;
  }

  Planned searched() const {
    std::vector<Discipline> disciplines = {Discipline::kSmallestFirst, Discipline::kFifo,
                                           Discipline::kLongestRemaining};
    if (options_.discipline) disciplines = {*options_.discipline};
    std::vector<Candidate> starts;
    for (const Scheduler scheduler : {Scheduler::kThemis, Scheduler::kBaseline})
      for (const InNetwork in_network : uses_of_network())
        starts.push_back(best_of(candidates(scheduler, in_network, disciplines)));
    SearchLimits limits{.evaluations = options_.evaluations,
                        .seed = options_.seed,
                        .granule_bytes = {},
                        .may_aggregate = false,
                        .may_change_discipline = !options_.discipline};
    for (uint32_t r = 0; r < requests_.size(); ++r)
      limits.granule_bytes.push_back(topology_.participants() * element_bytes_of(r));
    if (uses_of_network().size() > 1) {
      // Half of it without aggregating switches: the plan that it finds is a start like the others.
      limits.evaluations = (options_.evaluations + 1) / 2;
      starts.push_back(search(topology_, requests_, without_network(starts), limits));
      limits.evaluations = options_.evaluations / 2;
      limits.may_aggregate = true;
    }
    return planned(search(topology_, requests_, starts, limits));
  }

  /// Candidates in which no chunk is aggregated.
  static std::vector<Candidate> without_network(const std::vector<Candidate>& candidates) {
    std::vector<Candidate> found;
    for (const Candidate& candidate : candidates)
      if (std::ranges::all_of(candidate.ways, [](const Way& way) { return way.in_network == 0; }))
        found.push_back(candidate);
    return found;
  }

  /// Plans without any search: one for each discipline, and for each use of aggregating switches.
  std::vector<Candidate> candidates(Scheduler scheduler,
                                    const std::vector<Discipline>& disciplines) const {
    std::vector<Candidate> found;
    for (const InNetwork in_network : uses_of_network())
      for (Candidate& candidate : candidates(scheduler, in_network, disciplines))
        found.push_back(std::move(candidate));
    return found;
  }

  std::vector<Candidate> candidates(Scheduler scheduler, InNetwork in_network,
                                    const std::vector<Discipline>& disciplines) const {
    std::vector<Candidate> found;
    for (const bool carry_loads : uses_of_loads(scheduler)) {
      const std::vector<Way> ways = ways_of(scheduler, in_network, carry_loads);
      for (const Discipline discipline : disciplines) found.push_back({pieces_, ways, discipline});
    }
    return found;
  }

  std::vector<bool> uses_of_loads(Scheduler scheduler) const {
    if (options_.carry_loads) return {*options_.carry_loads};
    if (requests_.size() == 1 || scheduler == Scheduler::kBaseline) return {false};
    return {false, true};
  }

  std::vector<InNetwork> uses_of_network() const {
    if (std::ranges::none_of(topology_.dimensions, &Dimension::aggregates))
      return {InNetwork::kNever};
    if (options_.in_network != InNetwork::kByLoad) return {options_.in_network};
    return {InNetwork::kNever, InNetwork::kByLoad, InNetwork::kAlways};
  }

  std::vector<Way> ways_of(Scheduler scheduler, InNetwork in_network, bool carry_loads) const {
    Balancer balancer(topology_, in_network);
    std::vector<Way> ways(pieces_.size());
    for (const uint32_t request : by_start(requests_)) {
      const Collective collective = requests_[request].collective;
      balancer.begin(collective, carry_loads);
      // clang 14 does not take std::ranges::equal_range of GCC 12's library.
      const auto first = std::ranges::lower_bound(pieces_, request, {}, &Piece::request);
      for (auto piece = first; piece != pieces_.end() && piece->request == request; ++piece)
        ways[static_cast<size_t>(piece - pieces_.begin())] =
            scheduler == Scheduler::kThemis
                ? balancer.next(piece->bytes)
                : balancer.next_in_order(piece->bytes, baseline_order(topology_, collective));
    }
    return ways;
  }

  Candidate best_of(std::vector<Candidate> candidates) const {
    Simulator simulator(topology_, requests_);
    size_t best = 0;
    Picos best_ps = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Picos end_ps = simulator.end_ps(chunks_of(topology_, requests_, candidates[i]),
                                            candidates[i].discipline);
      if (i > 0 && end_ps >= best_ps) continue;
      best = i;
      best_ps = end_ps;
    }
    return std::move(candidates[best]);
  }

  Planned planned(const Candidate& candidate) const {
    Planned done;
    done.plan.topology = topology_;
    done.plan.requests = requests_;
    done.plan.chunks = chunks_of(topology_, requests_, candidate);
    done.timeline = Simulator(topology_, requests_).run(done.plan.chunks, candidate.discipline);
    done.plan.order = order_of(done.timeline);
    return done;
  }

  const Topology& topology_;
  const std::vector<Request>& requests_;
  const PlanOptions& options_;
  std::vector<Piece> pieces_;
};

Result<void> validate(const std::vector<Request>& requests) {
  if (requests.empty() || requests.size() > kMostRequests)
    return fail(INA_ERR_INVALID, "1 to " + std::to_string(kMostRequests) +
                                     " collectives are planned at once, not " +
                                     std::to_string(requests.size()));
  uint64_t bytes = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string name = "collective " + std::to_string(i + 1);
    if (requests[i].bytes == 0 || requests[i].bytes > kMostBytes)
      return fail(INA_ERR_INVALID, name + " has " + std::to_string(requests[i].bytes) +
                                       " bytes; 1 to 2^40 can be planned");
    if (requests[i].element_bytes > kMostElementBytes)
      return fail(INA_ERR_INVALID, name + " has elements of " +
                                       std::to_string(requests[i].element_bytes) +
                                       " bytes; 64 is the most");
    if (requests[i].issue_ps < 0 || requests[i].issue_ps > kMostIssuePs)
      return fail(INA_ERR_INVALID, name + " begins before the plan, or more than a day after it");
    bytes += requests[i].bytes;
    if (bytes > kMostBytes)
      return fail(INA_ERR_INVALID, "collectives 1 to " + std::to_string(i + 1) +
                                       " have more than 2^40 bytes together");
  }
  return {};
}

Result<void> validate(const PlanOptions& options) {
  if (options.chunks == 0 || options.chunks > kMostChunks)
    return fail(INA_ERR_INVALID, "a collective is cut into 1 to " + std::to_string(kMostChunks) +
                                     " chunks, not " + std::to_string(options.chunks));
  if (options.element_bytes == 0 || options.element_bytes > kMostElementBytes)
    return fail(INA_ERR_INVALID, "an element has 1 to " + std::to_string(kMostElementBytes) +
                                     " bytes, not " + std::to_string(options.element_bytes));
  return {};
}

Result<void> validate(const Topology& topology, const std::vector<Request>& requests,
                      const PlanOptions& options) {
  if (const auto valid = validate(topology); !valid) return valid;
  if (const auto valid = validate(requests); !valid) return valid;
  return validate(options);
}

Planned together(const Topology& topology, const std::vector<Request>& requests,
                 const PlanOptions& options) {
  return Planner(topology, requests, options).plan();
}

/// Plans of single collectives. Of those that are alike one is made.
class Alone {
 public:
  Alone(const Topology& topology, const PlanOptions& options)
      : topology_(topology), options_(options) {}

  const Planned& operator()(Request request) {
    request.issue_ps = 0;
    const auto known = std::ranges::find(
        made_, request, [](const auto& made) { return made->plan.requests.front(); });
    if (known != made_.end()) return **known;
    made_.push_back(std::make_unique<Planned>(together(topology_, {request}, options_)));
    return *made_.back();
  }

 private:
  const Topology& topology_;
  const PlanOptions& options_;
  std::vector<std::unique_ptr<Planned>> made_;
};

/// Each collective as if it was alone, and in each dimension one collective's operations after
/// another's, in the order of their start. A dimension that one does not need any more serves the
/// next one already. So no operation begins later than if each collective waited for the end of
/// those before it.
Planned in_turn(const Topology& topology, const std::vector<Request>& requests,
                const PlanOptions& options) {
  Alone alone(topology, options);
  Planned done;
  done.plan.topology = topology;
  done.plan.requests = requests;
  done.plan.order.resize(topology.dimensions.size());
  std::vector<uint32_t> first_chunk;
  for (uint32_t request = 0; request < requests.size(); ++request) {
    first_chunk.push_back(static_cast<uint32_t>(done.plan.chunks.size()));
    for (Chunk chunk : alone(requests[request]).plan.chunks) {
      chunk.request = request;
      done.plan.chunks.push_back(std::move(chunk));
    }
  }
  for (const uint32_t request : by_start(requests)) {
    const Plan& own = alone(requests[request]).plan;
    for (size_t d = 0; d < own.order.size(); ++d)
      for (const OperationId& id : own.order[d])
        done.plan.order[d].push_back({first_chunk[request] + id.chunk, id.stage});
  }
  done.timeline = replay(done.plan).value();
  return done;
}

}  // namespace

Result<Planned> make_plan(const Topology& topology, const std::vector<Request>& requests,
                          const PlanOptions& options) {
  if (const auto valid = validate(topology, requests, options); !valid)
    return tl::unexpected(valid.error());
  Planned planned = together(topology, requests, options);
  const bool compares = options.scheduler == Scheduler::kSearch ||
                        (options.scheduler == Scheduler::kThemis && options.or_baseline);
  if (requests.size() == 1 || !compares) return planned;
  Planned turns = in_turn(topology, requests, options);
  return turns.timeline.end_ps < planned.timeline.end_ps ? std::move(turns) : std::move(planned);
}

Result<Picos> one_after_another_ps(const Topology& topology, const std::vector<Request>& requests,
                                   const PlanOptions& options) {
  if (const auto valid = validate(topology, requests, options); !valid)
    return tl::unexpected(valid.error());
  Alone alone(topology, options);
  Picos end_ps = 0;
  for (const uint32_t request : by_start(requests))
    end_ps =
        std::max(end_ps, requests[request].issue_ps) + alone(requests[request]).timeline.end_ps;
  return end_ps;
}

}  // namespace ina::themis
