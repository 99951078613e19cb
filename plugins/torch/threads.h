// Threads of the backend's own.
#pragma once

#include <chrono>
#include <functional>

namespace ina::plugin {

/// Runs `task` on a thread that ends with it, for which only group_left() waits. Signals are for
/// the threads of the program: this one blocks them.
void run_detached(std::function<void()> task);

/// A process group begins to use such threads.
void group_made();
/// A process group needs them no more. After the last one, threads without work end at once, and
/// the call waits for them, at most `timeout`.
void group_left(std::chrono::milliseconds timeout);
/// True if no group is left: threads without work should end.
bool no_group();

/// Has `wake` called when the last group has left, to wake threads that look at no_group().
void on_last_group(std::function<void()> wake);

}  // namespace ina::plugin
