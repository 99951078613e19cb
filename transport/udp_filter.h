// A filter by which the kernel drops strangers' packets to a worker's UDP socket, before they take
// room in the socket's buffer from results, or wake a thread.
#pragma once

#include "transport/frame_transport.h"

namespace ina::client {

/// From now on the socket takes only datagrams from the switch's address and ports that carry the
/// job's id and key. Best effort: the reader of the socket checks all of that, and more, itself.
void filter_strangers(int socket, const FrameBinding& binding);

}  // namespace ina::client
