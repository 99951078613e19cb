#include "plugins/torch/threads.h"

#include <signal.h>

#include <thread>
#include <utility>

namespace ina::plugin {

void run_detached(std::function<void()> task) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(task)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace ina::plugin
