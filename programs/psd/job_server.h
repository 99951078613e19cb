// The fallback of one job: the state machine, and the port over which the switch reaches it. A
// ServingLoop drives both.
#pragma once

#include <memory>
#include <optional>

#include "aggregator/fallback.h"
#include "control/client.h"
#include "membership/attachment.h"
#include "transport/bulk_copy.h"
#include "transport/shm_transport.h"
#include "transport/url.h"

namespace ina::psd {

namespace request = control::request;
namespace answer = control::answer;

/// How a fallback server reaches its switch.
struct Way {
  std::string socket;              ///< of the control connection
  control::Trust trust{};          ///< of the switch there
  std::optional<client::Url> url;  ///< of an Ethernet port; none: the shm port
};

class JobServer {
 public:
  /// Joins job `id`. Nothing: the job has ended. Waits for each answer of the switch, but not for a
  /// switch that is not there.
  static Result<std::unique_ptr<JobServer>> join(const Way& way, uint32_t id, Nanos timeout_ns);

  /// The connection on which the switch says that the job has ended.
  const control::Connection& control() const { return control_; }

  // ---- for the thread that serves the job

  /// True if there was something to receive or to send.
  bool progress();
  /// The transport did not take all.
  bool has_unsent() const { return fallback_->has_output(); }
  client::Transport& transport() { return *transport_; }
  /// The transport, if it is one over shared memory; null: it is an Ethernet port.
  client::ShmTransport* shm() const { return shm_; }

 private:
  JobServer() = default;
  Result<void> ask_to_join(const Way& way, uint32_t id, Nanos timeout_ns);
  Result<request::JoinFallback> join_message(const Way& way, uint32_t id, Nanos timeout_ns);
  Result<void> attach(const answer::FallbackJoined& joined, control::Heard& heard);
  void report_mismatch();

  control::Connection control_;
  client::BulkCopier copier_{1, 1};
  membership::Attachment attachment_{copier_};
  std::unique_ptr<client::Transport> transport_;
  client::ShmTransport* shm_ = nullptr;  ///< transport_, if it is over shared memory
  std::optional<aggregator::Fallback> fallback_;
  bool mismatch_reported_ = false;
};

}  // namespace ina::psd
