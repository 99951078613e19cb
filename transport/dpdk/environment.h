// DPDK in a foreign process: started once, when the first transport needs it, and never stopped,
// since it can be started only once. It leaves the host program's threads alone.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/result.h"
#include "io/ethdev/device.h"

namespace ina::client {

/// Runs `work` in a thread of its own in which all signals are blocked. DPDK changes the affinity
/// of the thread that starts it and the threads it makes inherit the signal mask; memif writes to
/// its socket without caring for SIGPIPE. All below is to be called in such a thread.
template <class Work>
void run_apart(Work&& work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::exception_ptr no_thread;
  try {
    thread = std::thread(std::forward<Work>(work));
  } catch (...) {
    no_thread = std::current_exception();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (no_thread) std::rethrow_exception(no_thread);
  thread.join();
}

/// Starts DPDK if it does not run yet. `pci`: the device about to be opened, with its arguments, if
/// it is a PCI device; empty otherwise.
Result<void> start_dpdk(const std::string& pci);
/// A number that no other device of this process has, for names such as net_memif0.
uint32_t new_device_number();

Result<std::unique_ptr<io::Device>> open_device(const io::DeviceConfig& config);
void close_device(std::unique_ptr<io::Device>& device);

}  // namespace ina::client
