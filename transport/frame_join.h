// What is said on the control connection about frames, for whoever joins over an Ethernet port.
#pragma once

#include "control/socket.h"
#include "transport/frame_transport.h"

namespace ina::client {

/// Where the switch finds a transport; from its URL.
struct FramePlace {
  std::string port;        ///< name of the switch's port; empty: the switch finds it
  uint32_t interface = 0;  ///< of memif
};
Result<FramePlace> frame_place_of(const Url& url);

/// Adds to a request to join how `frames` is reached.
void add_frames(control::Json& request, const FrameTransport& frames, const FramePlace& place);

/// Throws control::Json::exception if something is missing.
wire::Address address_of(const control::Json& address);

/// Has `frames`, opened by `url`, speak to the switch as its `joined` says. Throws
/// control::Json::exception if that lacks something.
Result<void> bind_frames(const control::Json& joined, const std::string& url,
                         FrameTransport& frames);

}  // namespace ina::client
