// Traces of packets, for administrators and owners of jobs: one at a time, over all lanes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "switchd/admin_answer.h"
#include "switchd/conductor_config.h"
#include "switchd/jobs/job_table.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

class Tracing {
 public:
  static constexpr uint32_t kMostPackets = 4096;
  /// A client that does not ask for its trace for so long has forgotten it.
  static constexpr Nanos kForgottenNs = 5'000'000'000;

  /// All of them must outlive it, and the lanes must have ended before it does.
  Tracing(const ConductorConfig& config, Lanes& lanes, const JobTable& jobs)
      : config_(config), lanes_(lanes), jobs_(jobs) {}

  /// Has the lanes write down the next packets of a job and their verdicts; `packets`:
  /// 1..kMostPackets, of all lanes together. Returns the trace's number. One job is traced at a
  /// time: kBusy meanwhile. `who`: asks, for the log. `source`: of an owner
  /// (PeerCredentials::source()), by which its lines in the log are limited; empty: an
  /// administrator asks. The trace of an owner gives way: an administrator's may begin meanwhile,
  /// and ends it.
  tl::expected<uint64_t, AdminError> begin(const Job& job, uint32_t packets, const std::string& who,
                                           Nanos now, const std::string& source = {});
  /// The state of a trace, to be asked every second at least. `ends`: the packets so far will do.
  /// Answer: done; with it, and then the trace is no more: job, id, wanted, complete (as many as
  /// wanted), job_ended, packets (docs/administration.md has their fields).
  AdminAnswer get(uint64_t number, bool ends, Nanos now);

 private:
  /// A domain of the job, and the ranks of its members.
  struct TracedDomain {
    aggregator::JobIndex index = 0;
    std::vector<uint32_t> ranks;
  };
  struct Trace {
    uint64_t number = 0;
    std::string who;
    std::string label;  ///< of the job: "OWNER/NAME"
    JobId job{};
    std::vector<TracedDomain> domains;
    uint32_t packets = 0;
    bool gives_way = false;
    Nanos began = 0;
    Nanos asked = 0;
    std::vector<std::unique_ptr<PacketTrace>> lanes;
  };

  bool has_ended(const Trace& trace) const;
  void end();
  control::Json packets_json(const Trace& trace) const;
  std::string port_name(uint16_t port) const;

  const ConductorConfig& config_;
  Lanes& lanes_;
  const JobTable& jobs_;
  uint64_t next_ = 1;
  std::optional<Trace> trace_;
};

}  // namespace ina::switchd
