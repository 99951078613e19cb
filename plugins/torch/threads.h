// Threads of the backend's own.
#pragma once

#include <functional>

namespace ina::plugin {

/// Runs `task` on a thread for which nobody waits. Signals are for the threads of the program: this
/// one blocks them.
void run_detached(std::function<void()> task);

}  // namespace ina::plugin
