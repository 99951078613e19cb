// The switch of tests/switchd/switch_process.cc, to be killed and started again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "control/client.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace ina::test {

class SwitchProcess {
 public:
  /// `program`: path of switch_process.
  explicit SwitchProcess(const std::string& program, int64_t rejoin_timeout_ms = 10'000,
                         int lanes = 1, const std::string& policy = "static",
                         const std::string& home = "workers", const std::string& help = "")
      : arguments_{
            program, folder_ / "", std::to_string(rejoin_timeout_ms), std::to_string(lanes), policy,
            home,    help} {
    start();
  }

  void start() { process_ = std::make_unique<Process>(arguments_); }
  /// Ends it by `signal` and waits until it is gone. Minus the signal, or its exit code.
  int kill(int signal) {
    process_->kill(signal);
    return process_->wait();
  }

  std::string socket() const { return folder_ / "switch.sock"; }
  std::string state_path() const { return socket() + ".state"; }
  std::string url() const { return "shm:" + socket(); }
  /// Waits until it answers.
  control::Json status() const {
    auto status = control::query_status(socket(), 10'000'000'000);
    return status ? *status : control::Json::object();
  }

 private:
  TempDir folder_;
  std::vector<std::string> arguments_;
  std::unique_ptr<Process> process_;
};

}  // namespace ina::test
