// The requests of administrators to a running switch, and the queue by which other threads hand
// them to the conductor. Nothing here depends on gRPC.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "common/fd.h"
#include "common/json/json.h"
#include "wire/types.h"

namespace ina::admin {

/// Longest life of a ticket whose workers do not come.
inline constexpr Nanos kMaxTtlNs = 7 * 86'400 * Nanos{1'000'000'000};

/// Makes a job whose places, slots and memory are reserved until its workers come, at most for
/// `ttl_ns`. Answer: name, ticket, job_id, workers, tenant, window, slots_floor, slots_ceiling,
/// priority_max, memory_bytes, expires_in_s.
struct CreateJob {
  std::string name;
  uint32_t workers = 0;
  std::string tenant;          ///< of a token or certificate, or "uid:1000"
  uint32_t slots_floor = 0;    ///< of the whole array, here and below; 0: as configured
  uint32_t slots_ceiling = 0;  ///< likewise
  uint8_t priority_max = 255;
  uint64_t window_bytes = 0;  ///< 0: as configured
  Nanos ttl_ns = 0;
};
/// Ends a job for all its workers. Where jobs of several owners have the name, `owner` ("uid:1000",
/// or a tenant) says whose is meant, or the name does: "uid:1000/train".
struct AbortJob {
  std::string name;
  std::string reason;
  std::string owner = {};
};
/// Sends one worker away. That ends a job that has begun.
struct KickWorker {
  std::string job;
  uint32_t rank = 0;
  std::string reason;
  std::string owner = {};  ///< as for AbortJob
};
/// No new jobs from now on; those that there are go on. Answer: as GetDrain.
struct Drain {};
struct Undrain {};
/// Answer: draining, jobs (name and owner of those that there are).
struct GetDrain {};
/// Answer: the JSON that `inactl status --json` prints.
struct GetStatus {};
/// Answer: as GetStatus, without the fragments that jobs wait for; to be asked often.
struct GetCounters {};
/// Answer: the slots that hold something, of a sample that is bounded (switchd/slot_map.h).
struct GetSlots {};
/// Most packets of a trace.
inline constexpr uint32_t kMaxTracedPackets = 4096;
/// Has the lanes write down the next packets of a job and their verdicts. `job`, `owner`: as for
/// AbortJob. Answer: trace (its number). One job is traced at a time: kBusy meanwhile.
struct BeginTrace {
  std::string job;
  std::string owner = {};
  uint32_t packets = 0;  ///< 1..kMaxTracedPackets, of all lanes together
};
/// The state of the trace, to be asked every second at least; `end`: the packets so far will do.
/// Answer: done; with it, and then the trace is no more: job, id, wanted, complete (as many as
/// wanted), job_ended, packets (docs/administration.md has their fields).
struct GetTrace {
  uint64_t trace = 0;
  bool end = false;
};
/// Reads the configuration, the token file and the certificates of control.listen again, and opens
/// the log again. Where the switch must start again for it, it does, with its jobs, once this was
/// answered. Answer: changes (each key, before, after, in_place, text), restart, jobs_lost (name,
/// owner and text of those that could not go on), applied, starts (of the switch, so far), tokens
/// (how many there are).
struct Reload {
  bool check = false;  ///< only say what would happen
  bool force = false;  ///< end the jobs that could not go on; otherwise nothing is changed then
};

/// Answer: policy (in force), keys (its: key, value, in_file), policies (all: name, summary), file
/// (the configuration's path; empty: none), file_error (why it cannot be read now). With an error,
/// or without a file, in_file has the switch's first values.
struct GetPolicy {};
/// Another policy, as if the file named it. The file is not changed: the next reload or start takes
/// the file's policy again. Answer: as Reload, without tokens, and the members keys, file and
/// file_error of GetPolicy, of the policy that was set.
struct SetPolicy {
  std::string name;  ///< empty: the one in force
  /// Further keys of the policy and their values, as in the file: "aggregator.ways", "2".
  std::vector<std::pair<std::string, std::string>> settings = {};
  bool check = false;  ///< as of Reload
  bool force = false;  ///< likewise
};

using Request =
    std::variant<CreateJob, AbortJob, KickWorker, Drain, Undrain, GetDrain, GetStatus, GetCounters,
                 GetSlots, BeginTrace, GetTrace, Reload, GetPolicy, SetPolicy>;

struct Error {
  enum class Code {
    kInvalid,      ///< the request makes no sense in any state of the switch
    kNotFound,     ///< there is no such job or worker
    kExists,       ///< there is such a job already
    kBusy,         ///< too many ask at once; again later
    kNoRoom,       ///< it does not fit; the text says by how much
    kUnavailable,  ///< the switch drains, or stops
    kTimeout,      ///< the conductor did not get round to it in time, and will not
    kInternal,
  };
  Code code = Code::kInternal;
  std::string text;
};

using Answer = tl::expected<nlohmann::json, Error>;

/// Requests on their way to the conductor. The thread that asks waits; the conductor never does.
class Queue {
 public:
  /// More are turned away: somebody asks faster than the switch can answer.
  static constexpr size_t kMaxWaiting = 64;

  Queue();

  /// From any thread but the conductor's. `who`: for the log. Waits at most `timeout_ns`; a request
  /// that the conductor has not begun by then is not carried out.
  Answer ask(Request request, std::string who, Nanos timeout_ns);

  // The conductor's side.
  /// Readable when something waits.
  int event_fd() const { return event_.get(); }
  using Handler = std::function<Answer(const Request&, const std::string& who)>;
  /// Answers what waits.
  void serve(const Handler& handler);
  /// Turns away waiting requests and all later ones.
  void close();

 private:
  struct Call {
    Request request;
    std::string who;
    std::promise<Answer> answer;
  };

  Fd event_;
  std::mutex mutex_;  ///< of the following
  std::deque<std::shared_ptr<Call>> waiting_;
  bool closed_ = false;
};

}  // namespace ina::admin
