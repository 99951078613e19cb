// The counters of a shard.
#pragma once

#include <cstdint>
#include <iterator>

#include "wire/counter_field.h"
#include "wire/drop_reason.h"

namespace ina::aggregator {

/// Written by the shard's thread only. The table below says what each counter is. Contributions
/// accepted (absorbed + bypassed) = held in slots + the three `contributions_` (I5).
struct Counters {
  uint64_t packets = 0;
  uint64_t absorbed = 0;
  uint64_t absorbed_bytes = 0;
  uint64_t spill_packets = 0;  ///< of `packets`, those of fallbacks within the lane
  uint64_t run_packets = 0;    ///< of `packets`, marks of a run beyond its first
  uint64_t marks = 0;          ///< of workers that add nothing to a fragment
  uint64_t groups = 0;
  uint64_t grouped = 0;
  uint64_t forwarded = 0;
  uint64_t bypassed = 0;
  uint64_t bypassed_bytes = 0;
  uint64_t results = 0;
  uint64_t results_again = 0;  ///< from slot or ring
  uint64_t asked_again = 0;    ///< questions answered by asking others for contributions again
  uint64_t fallback_results = 0;
  uint64_t preemptions = 0;
  uint64_t parts = 0;
  uint64_t part_bytes = 0;
  uint64_t parked = 0;  ///< at a worker or not
  uint64_t parker_results = 0;
  uint64_t reminders = 0;
  uint64_t contributions_in_results = 0;
  uint64_t contributions_moved = 0;
  uint64_t contributions_discarded = 0;
  uint64_t slots_used = 0;
  uint64_t slots_used_peak = 0;
  DropCounters drops;

  uint64_t dropped() const {
    uint64_t sum = 0;
    for (const uint64_t count : drops.count) sum += count;
    return sum;
  }
};

inline constexpr CounterMetric kContributionsMetric{
    "ina_contributions_total", "fate", "Contributions of workers; bypassed: they found no slot."};
inline constexpr CounterMetric kFragmentsMetric{
    "ina_fragments_total", "decided_by",
    "Fragments whose result went out, by where the sum was completed."};

inline constexpr CounterField<Counters> kCounterFields[] = {
    {&Counters::packets, {"packets", "messages", "Messages of workers and fallbacks."}},
    {&Counters::absorbed,
     {"absorbed", "contributions", "Contributions that were added in a slot.",
      kContributionsMetric.of("absorbed")}},
    {&Counters::absorbed_bytes,
     {"absorbed_bytes", "bytes", "Payload of the contributions that were added in a slot."}},
    {&Counters::groups,
     {"groups", "sums", "Sums of several contributions that were made in one pass."}},
    {&Counters::grouped,
     {"grouped", "contributions", "Contributions in the sums that were made in one pass."}},
    {&Counters::forwarded,
     {"forwarded", "messages",
      "Messages passed on to fallbacks, with the contributions that found no slot."}},
    {&Counters::bypassed,
     {"bypassed", "contributions",
      "Contributions that found no slot, and went to the fallback alone.",
      kContributionsMetric.of("bypassed")}},
    {&Counters::bypassed_bytes,
     {"bypassed_bytes", "bytes", "Payload of the contributions that found no slot."}},
    {&Counters::results,
     {"results", "fragments", "Fragments that were completed in a slot.",
      kFragmentsMetric.of("slot")}},
    {&Counters::results_again,
     {"results_again",
      "results",
      "Results sent again because a worker asked.",
      {"ina_repeated_results_total"}}},
    {&Counters::fallback_results,
     {"fallback_results", "fragments", "Fragments that the fallback completed.",
      kFragmentsMetric.of("fallback")}},
    {&Counters::preemptions,
     {"preemptions",
      "slots",
      "Slots taken over by a more urgent fragment.",
      {"ina_preemptions_total"}}},
    {&Counters::parts,
     {"parts", "partial sums", "Partial sums sent to the fallback.", {"ina_partial_sums_total"}}},
    {&Counters::part_bytes,
     {"part_bytes", "bytes", "Payload of the partial sums sent to the fallback."}},
    {&Counters::parked,
     {"parked",
      "partial sums",
      "Partial sums put aside because a worker was slow.",
      {"ina_parked_fragments_total"}}},
    {&Counters::parker_results,
     {"parker_results", "fragments",
      "Fragments that were completed by workers, which kept a parked sum.",
      kFragmentsMetric.of("worker")}},
    {&Counters::reminders,
     {"reminders",
      "questions",
      "Reminders of the fallback that found their fragment in a slot.",
      {"ina_reminders_total"}}},
    {&Counters::contributions_in_results,
     {"contributions_in_results", "contributions",
      "Contributions, absorbed or bypassed, that are in results of the switch."}},
    {&Counters::contributions_moved,
     {"contributions_moved", "contributions",
      "Contributions, absorbed or bypassed, that went to the fallback."}},
    {&Counters::contributions_discarded,
     {"contributions_discarded", "contributions",
      "Contributions superseded by a result, or of a job that ended."}},
    {&Counters::slots_used,
     {"slots_used", "slots", "Slots that hold contributions now.", {}, CounterKind::kLevel}},
    {&Counters::slots_used_peak,
     {"slots_used_peak",
      "slots",
      "Most slots that held contributions at once.",
      {},
      CounterKind::kLevel}},
};

/// For tests and measurements: the status does not have them.
inline constexpr uint64_t Counters::*kUntoldCounters[] = {
    &Counters::spill_packets, &Counters::run_packets, &Counters::marks, &Counters::asked_again};
static_assert(sizeof(Counters) == bytes_of(kCounterFields) +
                                      std::size(kUntoldCounters) * sizeof(uint64_t) +
                                      sizeof(DropCounters),
              "a counter needs a row in kCounterFields");

/// Counters of one job in this shard.
struct JobCounters {
  uint64_t slots_held = 0;
  uint64_t slots_held_peak = 0;
  uint64_t absorbed = 0;
  uint64_t bypassed = 0;
  uint64_t preempted = 0;
  uint64_t results = 0;
  uint64_t fallback_results = 0;
  uint64_t parked = 0;
  uint64_t parked_now = 0;  ///< this and the peak need JobSpec::parked_at
  uint64_t parked_now_peak = 0;
  uint64_t parker_results = 0;
};

inline constexpr CounterMetric kJobFragmentsMetric{
    "ina_job_fragments_total", "decided_by",
    "Fragments of a job whose result went out, by where the sum was completed."};

inline constexpr CounterField<JobCounters> kJobCounterFields[] = {
    {&JobCounters::slots_held,
     {"slots_held", "slots", "Slots that a job holds.", {"ina_job_slots"}, CounterKind::kLevel}},
    {&JobCounters::slots_held_peak,
     {"slots_held_peak", "slots", "Most slots that a job held at once.", {}, CounterKind::kLevel}},
    {&JobCounters::absorbed,
     {"absorbed", "contributions", "Contributions of a job that were added in a slot."}},
    {&JobCounters::bypassed,
     {"bypassed", "contributions", "Contributions of a job that found no slot."}},
    {&JobCounters::preempted,
     {"preempted",
      "slots",
      "Slots that a job lost to more urgent fragments.",
      {"ina_job_preemptions_total"}}},
    {&JobCounters::results,
     {"results", "fragments", "Fragments of a job that were completed in a slot.",
      kJobFragmentsMetric.of("slot")}},
    {&JobCounters::fallback_results,
     {"fallback_results", "fragments", "Fragments of a job that the fallback completed.",
      kJobFragmentsMetric.of("fallback")}},
};
/// The counters that jobs with straggler help have besides.
inline constexpr CounterField<JobCounters> kJobParkingFields[] = {
    {&JobCounters::parked,
     {"parked", "partial sums", "Partial sums of a job put aside because a worker was slow."}},
    {&JobCounters::parked_now,
     {"parked_now",
      "partial sums",
      "Partial sums put aside because a worker of the job is slow.",
      {"ina_job_parked_fragments"},
      CounterKind::kLevel}},
    {&JobCounters::parked_now_peak,
     {"parked_now_peak",
      "partial sums",
      "Most partial sums of a job that were put aside at once.",
      {},
      CounterKind::kLevel}},
    {&JobCounters::parker_results,
     {"parker_results", "fragments",
      "Fragments of a job that were completed by workers, which kept a parked sum.",
      kJobFragmentsMetric.of("worker")}},
};

static_assert(sizeof(JobCounters) == bytes_of(kJobCounterFields) + bytes_of(kJobParkingFields),
              "a counter needs a row in kJobCounterFields or kJobParkingFields");

}  // namespace ina::aggregator
