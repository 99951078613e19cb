// The part of the control messages that concerns frames, for workers that join over an Ethernet
// port.
#pragma once

#include "control/messages.h"
#include "transport/frame_transport.h"

namespace ina::membership {

/// Where the switch finds a transport; from its URL.
struct FramePlace {
  std::string port;        ///< name of the switch's port; empty: the switch finds it
  uint32_t interface = 0;  ///< of memif
};
Result<FramePlace> frame_place_of(const client::Url& url);

/// How `frames` is reached, for a request to join.
control::request::Reach reach_of(const client::FrameTransport& frames, const FramePlace& place);

/// Has `frames`, opened by `url`, speak to the switch as the answer to that says.
Result<void> bind_frames(const control::answer::Place& place, const std::string& url,
                         client::FrameTransport& frames);

}  // namespace ina::membership
