// Traces of packets, requested over the control socket: each user or tenant gets traces of its own
// jobs.
#pragma once

#include <optional>
#include <string>

#include "control/work_budget.h"
#include "switchd/connections.h"
#include "switchd/jobs/job_table.h"
#include "switchd/reports/status_answers.h"
#include "switchd/reports/tracing.h"

namespace ina::switchd {

/// While a trace lasts, the lanes take the packets of all jobs one by one. So what an owner may
/// trace is bounded, and gives way to administrators.
class TraceAnswers {
 public:
  /// Longest trace of an owner, and of an administrator.
  static constexpr Nanos kLongestNs = 10'000'000'000;
  static constexpr Nanos kLongestTrustedNs = 60'000'000'000;

  /// All of them must outlive it.
  TraceAnswers(Tracing& tracing, const JobTable& jobs, StatusAnswers& status,
               Connections& connections)
      : tracing_(tracing), jobs_(jobs), status_(status), connections_(connections) {}

  void on_trace(Client& client, const control::request::Trace& asked, Nanos now);
  /// Its connection is gone.
  void forget(const Client& client, Nanos now);
  /// Answers what is complete. To be called as often as next() says.
  void turn(Nanos now);
  /// When the next turn is due, at `until` the latest.
  Nanos next(Nanos until) const;

 private:
  struct Asked {
    Client* client = nullptr;
    uint64_t trace = 0;
    Nanos began = 0;
    Nanos until = 0;
    Nanos look = 0;  ///< whether it is complete
  };
  tl::expected<const Job*, AdminError> find(const Client& client,
                                            const control::request::Trace& asked) const;
  std::string too_much_text(const Client& client, Nanos now);
  void end(Nanos now);

  Tracing& tracing_;
  const JobTable& jobs_;
  StatusAnswers& status_;
  Connections& connections_;
  std::optional<Asked> asked_;  ///< there is one trace at a time
  /// Limits the time of the lanes that each peer's traces take.
  control::WorkBudget budget_{{.burst_ns = kLongestNs}};
};

}  // namespace ina::switchd
