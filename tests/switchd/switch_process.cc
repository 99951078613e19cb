// A switch in a process of its own, without DPDK, for tests that kill it.
//   switch_process FOLDER [REJOIN_TIMEOUT_MS [LANES [POLICY [HOME [HELP]]]]]
// Policies other than static have so few slots that jobs need their fallback.
// HELP: leader or fallback, straggler help. Its socket is FOLDER/switch.sock. SIGTERM stops it as
// it stops the daemon.
#include <signal.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <string>

#include "tests/support/switch_fixture.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves nothing behind
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);  // for the threads below, too
  ina::test::SwitchOptions options;
  if (argc > 2) options.rejoin_timeout_ns = std::atoll(argv[2]) * 1'000'000;
  if (argc > 3) options.lanes = static_cast<uint32_t>(std::atoi(argv[3]));
  const std::string policy = argc > 4 ? argv[4] : "static";
  const std::string home = argc > 5 ? argv[5] : "workers";
  const std::string help = argc > 6 ? argv[6] : "";
  if (policy != "static") options.slots = 32;
  options.conductor = [&](ina::switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = ina::value_in(ina::scheduler::kPolicyNames, policy).value();
    for (const ina::Home known : {ina::Home::kWorkers, ina::Home::kDedicated, ina::Home::kSpill})
      if (ina::name(known) == home) config.rules.home = known;
    config.jobs.window_bytes = 128 * 1024;
    if (help.empty()) return;
    const uint64_t park_bytes = help == "leader" ? 1 << 20 : 0;
    config.straggler = {ina::config::Help::kLeader, 2 << 20, park_bytes, 1'000'000};
  };
  ina::test::TestSwitch sw(options, argv[1]);
  int signal = 0;
  ::sigwait(&signals, &signal);
  sw.stop();
  return 0;
}
