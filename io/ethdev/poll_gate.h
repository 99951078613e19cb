// Keeps a poller out of a memif device while DPDK tears its connection down.
//
// When a memif peer dies, DPDK's interrupt thread unmaps the shared memory although another thread
// may be polling it, which crashes the process (DPDK 22.11). The driver offers no hook, but it logs
// a debug line whenever a control message or the end of the connection has arrived, from the
// interrupt thread, before it acts. That line closes the gate: the interrupt thread waits until no
// poller is inside, and the gate opens by an alarm, which runs in the same thread and hence after
// the driver has finished.
#pragma once

#include <atomic>
#include <cstdint>

namespace ina::io {

class PollGate {
 public:
  PollGate();   ///< takes a place; not on the packet path
  ~PollGate();  ///< gives it back
  PollGate(const PollGate&) = delete;
  PollGate& operator=(const PollGate&) = delete;

  /// False: a connection is being torn down; do not touch the device now.
  bool enter() {
    inside_->store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!closed_.load(std::memory_order_acquire)) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() { inside_->store(0, std::memory_order_release); }

  /// Called once DPDK runs: makes the driver log.
  static void install();
  /// Called by the log stream for each message, with its log type.
  static void on_driver_log(int log_type);

 private:
  static std::atomic<bool> closed_;  ///< written by DPDK's interrupt thread, read by pollers
  std::atomic<uint32_t>* inside_;    ///< written by the poller, read by the interrupt thread
};

}  // namespace ina::io
