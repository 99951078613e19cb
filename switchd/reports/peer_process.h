// The kernel's view of a worker's process. It distinguishes a rank that has not called from a rank
// that cannot run.
#pragma once

#include <string>
#include <string_view>

#include "control/socket.h"

namespace ina::switchd {

/// The state in the text of /proc/PID/status: "stopped" (a signal or a debugger), "ended" (a
/// zombie), "blocked" (it waits within the kernel, for a disk or a driver), "runs", or nothing if
/// the text does not say.
std::string_view process_state(std::string_view proc_status);

/// The state of a peer on this host, or "frozen" (by its control group); nothing of others. Some
/// small reads of /proc and /sys: not for the packet path. `root`: the folder that has both.
std::string process_state(const control::PeerCredentials& peer, const std::string& root = "/");

}  // namespace ina::switchd
