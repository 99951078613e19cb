#include "sim/faults/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace ina::sim::world {

void Judge::violate(const std::string& text) {
  if (outcome_.violations.size() < 8) outcome_.violations.push_back(text);
}

void Judge::after_burst(const aggregator::Aggregator& aggregator) {
  check_given_out();
  check_quotas(aggregator);
}

void Judge::at_the_end() {
  for (const auto& job : jobs_) {
    count_up(*job);
    if (scenario_.mismatch && job->index == 0) continue;
    check_results(*job);
    for (const Worker& worker : job->workers) check_payload(*job, worker);
  }
}

void Judge::check_results(const Job& job) {
  for (size_t p = 0; p < job.plans.size(); ++p) {
    const PlannedOperation& plan = job.plans[p];
    for (const Worker& worker : job.workers) {
      if (!worker.done()) continue;
      const auto& got = worker.got[p];
      const auto say = [&](const char* what, const std::string& how) {
        violate(fmt::format("{}: job {} operation {} ({}) at rank {}: {}", what, job.index, p,
                            name(plan.collective), value(worker.rank), how));
      };
      // Moved data is compared byte by byte below, and other sums have one receiver.
      if (plan.collective == Collective::kAllReduce && job.workers[0].done() &&
          got != job.workers[0].got[p])
        say("I2", "differs from rank 0");
      if (const auto wrong = plan.wrong(value(worker.rank), got)) say("I1", *wrong);
    }
  }
}

/// A worker gets each byte once, and sends it once where nothing was lost.
void Judge::check_payload(const Job& job, const Worker& worker) {
  if (!worker.done()) return;
  uint64_t up = 0;
  uint64_t down = 0;
  for (const PlannedOperation& plan : job.plans) {
    if (plan.reproducible) return;  // how much that is depends on its values
    up += plan.payload_up(value(worker.rank));
    down += plan.payload_down(value(worker.rank));
  }
  if (worker.hierarchical)
    std::tie(up, down) = worker.hierarchical->payload(worker.hierarchical_channel);
  const client::EngineCounters& c = worker.engine->counters();
  if (c.bytes_received != down)
    violate(fmt::format("payload: job {} rank {} got {} bytes instead of {}", job.index,
                        value(worker.rank), c.bytes_received, down));
  if (c.fragments_resent == 0 && c.bytes_sent != up)
    violate(fmt::format("payload: job {} rank {} sent {} bytes instead of {}", job.index,
                        value(worker.rank), c.bytes_sent, up));
}

void Judge::count_up(const Job& job) {
  for (const Worker& worker : job.workers) {
    const client::EngineCounters& c = worker.engine->counters();
    outcome_.contributions += c.fragments_sent - c.fragments_resent;
    outcome_.resent += c.fragments_resent;
    outcome_.raws += c.raws_sent;
    outcome_.queries += c.queries;
    if (value(worker.rank) == 0) {
      outcome_.fragments += c.results;
      outcome_.fallback_fragments += c.results_from_fallback;
    }
    if (const auto* fallback = worker.engine->fallback())
      outcome_.reminders += fallback->counters().reminds;
    if (worker.engine->mismatch() && !scenario_.mismatch)
      violate(fmt::format("I1: job {} rank {} sees a mismatch", job.index, value(worker.rank)));
    if (!worker.redistributions->disagreement().empty() && !scenario_.mismatch)
      violate(fmt::format("I1: job {} rank {}: {}", job.index, value(worker.rank),
                          worker.redistributions->disagreement()));
  }
  for (const auto& lives : {&job.fallbacks, &job.old_lives})
    for (const auto& fallback : *lives) {
      outcome_.reminders += fallback->counters().reminds;
      if (fallback->mismatch() && !scenario_.mismatch) violate("I1: a fallback sees a mismatch");
    }
}

/// Checks the messages that a burst gave out, in any order.
void Judge::check_given_out() {
  for (const bool bare : {false, true})
    for (const GivenOut& given : given_out_)
      if (given.message.bare() == bare) check_given_out(*given.job, given.first, given.message);
  given_out_.clear();
}

/// A bare result stands for fragments of which some worker was given the bytes.
void Judge::check_given_out(Job& job, Seq first, const wire::Message& message) {
  if (!message.bare()) {
    job.given_out.resize(std::max<size_t>(job.given_out.size(), first.value + 1));
    job.given_out[first.value] = true;
    return check_sent_by_all(job, first);
  }
  for (uint32_t nth = 0; nth < message.elements; ++nth) {
    const Seq seq = first + uint64_t{nth} * scenario_.lanes;
    check_sent_by_all(job, seq);
    if (seq.value < job.given_out.size() && job.given_out[seq.value]) continue;
    // Its receiver may have had it from its own fallback.
    if (std::ranges::all_of(job.workers,
                            [&](const Worker& worker) { return worker.engine->awaits(seq); }))
      violate(fmt::format("C2: job {}: {} is said to be decided, and nobody has its result",
                          job.index, seq.value));
  }
}

/// C2: a result is given out when all workers have sent its fragment, and so have the result of the
/// fragment a window behind it.
void Judge::check_sent_by_all(const Job& job, Seq seq) {
  for (const Worker& worker : job.workers) {
    const client::Standing standing = worker.engine->standing();
    if (seq >= standing.next || seq >= standing.low + job.window)
      violate(fmt::format(
          "C2: job {}: the result of {} is given out; rank {} has sent up to {} and "
          "waits for {}",
          job.index, seq.value, value(worker.rank), standing.next.value, standing.low.value));
  }
}

/// I3: no worker with a full window waits for the switch to join bare results: another of its
/// fragments is missing.
void Judge::check_joining() {
  for (const auto& job : jobs_) {
    if (job->config.join_patience == 0) continue;
    for (const Worker& worker : job->workers) {
      if (!worker.engine->held_up_by_window()) continue;
      const client::Standing standing = worker.engine->standing();
      uint64_t kept = 0;
      Seq seq = standing.low;
      for (; seq < standing.next; ++seq) {
        if (!worker.engine->awaits(seq)) continue;
        const size_t at = worker.place->daemon * scenario_.lanes +
                          static_cast<size_t>(seq.value % scenario_.lanes);
        const aggregator::Aggregator& lane = *lanes_[at]->aggregator;
        // A run goes on over fragments whose bytes are on their way to the worker.
        if (!worker.engine->awaits_bare(seq) ||
            !lane.bare_results().keeps(worker.place->index, worker.member, seq.low()))
          break;
        ++kept;
      }
      if (kept != 0 && seq == standing.next)
        violate(fmt::format("I3: job {} rank {} waits at {} for {} bare results that are kept",
                            job->index, value(worker.rank), standing.low.value, kept));
    }
  }
}

/// I4: a job that holds less than its floor finds as many slots empty as it lacks, even if others
/// take all they can. No job holds more than its ceiling.
void Judge::check_quotas(const aggregator::Aggregator& aggregator) {
  uint64_t short_of_floors = 0;
  for (const auto& job : jobs_) {
    const auto index = static_cast<io::JobIndex>(job->index);
    const scheduler::Quota& quota = aggregator.spec(index).quota;
    const uint64_t held = aggregator.job_counters(index).slots_held;
    if (held < quota.floor) short_of_floors += quota.floor - held;
    if (held > quota.ceiling)
      violate(fmt::format("I4: job {} holds {} slots, its ceiling is {}", job->index, held,
                          quota.ceiling));
  }
  const uint64_t empty = aggregator.shape().slots - aggregator.counters().slots_used;
  if (empty < short_of_floors)
    violate(fmt::format("I4: {} slots are empty, jobs below their floors lack {}", empty,
                        short_of_floors));
}

void Judge::check_ledgers(uint32_t daemon) {
  for (uint32_t i = 0; i < scenario_.lanes; ++i) {
    const auto& lane = lanes_[daemon * scenario_.lanes + i];
    const aggregator::Counters& c = lane->aggregator->counters();
    outcome_.preemptions += c.preemptions;
    if (scenario_.is_tree()) outcome_.ascents += c.parts;
    outcome_.groups += c.groups;
    outcome_.grouped += c.grouped;
    outcome_.parked += c.parked;
    outcome_.parker_results += c.parker_results;
    uint64_t port_drops = 0;
    for (const uint64_t count : lane->port.counters().drops.count) port_drops += count;
    port_drops -= lane->port_drops_before;
    const uint64_t received = lane->port.counters().rx_packets - lane->port_packets_before;
    const uint64_t handled = c.packets - c.spill_packets - c.run_packets - lane->domains->packets();
    if (received != port_drops + handled)
      violate(fmt::format("I5: {} packets came, {} dropped by the port, {} handled", received,
                          port_drops, handled));
    if (c.packets != c.absorbed + c.marks + c.forwarded + c.dropped())
      violate(fmt::format("I5: {} packets, {} absorbed, {} marks, {} forwarded, {} dropped",
                          c.packets, c.absorbed, c.marks, c.forwarded, c.dropped()));
    const uint64_t held = lane->aggregator->contributions_held();
    if (c.absorbed + c.bypassed !=
        held + c.contributions_in_results + c.contributions_moved + c.contributions_discarded)
      violate(
          fmt::format("I5: {} contributions accepted, {} held, {} in results, {} moved, {} "
                      "discarded",
                      c.absorbed + c.bypassed, held, c.contributions_in_results,
                      c.contributions_moved, c.contributions_discarded));
  }
}

}  // namespace ina::sim::world
