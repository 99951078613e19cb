// DPDK's interrupt thread, in which drivers handle events of their control sockets.
#pragma once

namespace ina::io {

/// Runs `work(argument)` in the interrupt thread and waits for its end, so that it cannot overlap
/// with a driver's handler. Called without any effect of its own it waits for the handlers that
/// run. Not to be called from that thread. Should the thread not answer for seconds, `work` is run
/// by the caller after all.
void run_in_interrupt_thread(void (*work)(void*), void* argument);

}  // namespace ina::io
