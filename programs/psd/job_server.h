// The fallback of one job: the state machine, the port over which the switch reaches it, and the
// thread that drives both.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>

#include "aggregator/fallback.h"
#include "common/idle.h"
#include "control/client.h"
#include "programs/psd/core_share.h"
#include "transport/bulk_copy.h"
#include "transport/frame_transport.h"
#include "transport/url.h"

namespace ina::psd {

namespace request = control::request;
namespace answer = control::answer;

/// How a fallback server reaches its switch.
struct Way {
  std::string socket;              ///< of the control connection
  std::optional<client::Url> url;  ///< of an Ethernet port; none: the shm port
};

class JobServer {
 public:
  /// Joins job `id` and begins to serve it. Nothing: the job has ended. Waits for each answer of
  /// the switch, but not for a switch that is not there.
  static Result<std::unique_ptr<JobServer>> start(const Way& way, uint32_t id, IdleMode idle,
                                                  Nanos timeout_ns,
                                                  std::shared_ptr<CoreShare> share);
  ~JobServer();

  /// The connection on which the switch says that the job has ended.
  const control::Connection& control() const { return control_; }

 private:
  explicit JobServer(std::shared_ptr<CoreShare> share) : share_(std::move(share)) {}
  Result<void> join(const Way& way, Nanos timeout_ns);
  Result<request::JoinFallback> join_message(const Way& way, Nanos timeout_ns);
  Result<void> attach(const answer::FallbackJoined& joined, control::Heard& heard, const Way& way);
  Result<void> attach_shm(const answer::Place& place, control::Heard& joined);
  void run(IdleMode mode);
  bool work();
  bool progress();
  Nanos sleep_ns(const IdleStrategy& idle) const;
  void report_mismatch();

  const std::shared_ptr<CoreShare> share_;  ///< of the job's owner
  uint32_t id_ = 0;
  control::Connection control_;
  client::BulkCopier copier_{1, 1};
  std::unique_ptr<client::Transport> transport_;
  client::FrameTransport* frames_ = nullptr;  ///< transport_, if it is such a one
  std::optional<aggregator::Fallback> fallback_;
  bool mismatch_reported_ = false;
  std::atomic<bool> stopping_{false};
  std::binary_semaphore ended_{0};
  std::thread thread_;
};

}  // namespace ina::psd
