// The requests of administrators and of other threads to a running switch, and the queue by which
// threads hand them to the conductor.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <tl/expected.hpp>
#include <variant>

#include "common/fd.h"
#include "common/json/json.h"
#include "control/messages.h"
#include "wire/types.h"

namespace ina::admin {

using control::request::AbortJob;
using control::request::CreateJob;
using control::request::Drain;
using control::request::GetDrain;
using control::request::GetPolicy;
using control::request::GetSlots;
using control::request::KickWorker;
using control::request::kMaxTtlNs;
using control::request::Reload;
using control::request::SetPolicy;
using control::request::Undrain;

/// Answer: the JSON that `inactl status --json` prints.
struct GetStatus {};
/// Answer: as GetStatus, without the fragments that jobs wait for; to be asked often.
struct GetCounters {};
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
