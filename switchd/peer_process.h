// The kernel's view of a worker's process. It distinguishes a rank that has not called from a rank
// that cannot run.
#pragma once

#include <string>
#include <string_view>

#include "control/socket.h"

namespace ina::switchd {

/// Of the text of /proc/PID/status: "stopped" (a signal or a debugger), "ended" (a zombie), "runs",
/// or nothing if it does not say.
std::string_view process_state(std::string_view proc_status);

/// The same of a peer on this host; nothing of others. One small read of /proc: not for the packet
/// path.
std::string process_state(const control::PeerCredentials& peer);

}  // namespace ina::switchd
