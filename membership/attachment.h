// How a member's packets reach its switch: in shared memory, which the switch's answer describes,
// or in frames, whose address the switch is told. Workers and fallback servers attach by it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "control/client.h"
#include "membership/frame_join.h"
#include "transport/shm_transport.h"

namespace ina::membership {

/// `url` names an Ethernet port, or memif.
bool carries_frames(const client::Url& url);

class Attachment {
 public:
  /// `copier`: of payloads to and from shared memory. It must outlive this, and its transports.
  explicit Attachment(client::BulkCopier& copier) : copier_(copier) {}

  /// Opens the frames of `url`, before the switch is asked for a place. They must outlive this, as
  /// must those of share(). INA_ERR_REFUSED: who serves the memif socket is not to be trusted.
  Result<std::unique_ptr<client::FrameTransport>> open(const client::Url& url,
                                                       const control::Trust& trust,
                                                       Nanos timeout_ns);
  /// Opens frames by the way of `other`'s, for a group of the same member. Only if that has frames.
  Result<std::unique_ptr<client::FrameTransport>> share(const Attachment& other);
  /// nullptr: packets go through shared memory.
  client::FrameTransport* frames() const { return frames_; }
  /// Opens the frames anew, if there are any: the switch was restarted.
  Result<void> reopen(Nanos timeout_ns);

  /// Copies in shared memory leave a core for each of the switch's packet loops.
  void leave_cores_to(uint32_t lanes) {
    if (!frames_) copier_.leave_cores_to(lanes);
  }
  /// For a request to join.
  control::request::Reach reach() const;
  /// Makes the shared memory that `place`, of `heard`, describes, or has the frames speak to the
  /// switch as that says; then nullptr. The switch is still to be told (request::Attach), with
  /// descriptors().
  Result<std::unique_ptr<client::ShmTransport>> take(const control::answer::Place& place,
                                                     control::Heard& heard);
  /// Those that go to the switch. `made`: by take().
  static std::vector<int> descriptors(const client::ShmTransport* made);

 private:
  client::BulkCopier& copier_;
  client::FrameTransport* frames_ = nullptr;
  FramePlace frame_place_;
  std::string url_;  ///< of frames_
};

}  // namespace ina::membership
