// What a worker's protocol counts.
#pragma once

#include <cstdint>

namespace ina::client {

struct EngineCounters {
  uint64_t operations = 0;
  uint64_t fragments_sent = 0;
  uint64_t fragments_resent = 0;
  uint64_t marks_sent = 0;      ///< fragments to which this worker adds nothing
  uint64_t mark_runs_sent = 0;  ///< and the messages that said so
  uint64_t results = 0;
  uint64_t results_from_fallback = 0;  ///< of these, decided by the fallback
  uint64_t results_ignored = 0;  ///< duplicates, strays, and results refused by a bound worker
  uint64_t parked = 0;           ///< fragments that left their slots because somebody is slow
  uint64_t parks = 0;            ///< partial sums and later parts, taken for the switch
  uint64_t parks_lost = 0;       ///< that could not be: the fallback finds out
  uint64_t park_results = 0;     ///< completed here
  uint64_t queries = 0;          ///< results asked for
  uint64_t quick_queries = 0;    ///< of these, so that the switch may answer
  uint64_t raws_sent = 0;        ///< contributions sent to the fallback again
  uint64_t answers_lost = 0;     ///< questions that came faster than they could be answered
  uint64_t bytes_sent = 0;       ///< payload of contributions
  uint64_t bytes_received = 0;
  uint64_t bytes_by_fallback = 0;  ///< of these, of results that another than the switch completed
  uint64_t bytes_copied = 0;       ///< of these, moved to where their users want them
  uint64_t priority = 0;           ///< of the operation submitted last
  uint64_t overflows = 0;
  uint64_t ecn_marks = 0;
  uint64_t packets_sent = 0;  ///< of all kinds, with payload and without
  uint64_t packets_received = 0;
  uint64_t payloads_sent = 0;  ///< packets with payload of contributions; again where sent again
  uint64_t payloads_received = 0;  ///< and of results that were taken
};

}  // namespace ina::client
