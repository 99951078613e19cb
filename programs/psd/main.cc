// ina-psd: the fallback server of a switch with fallback.home dedicated. For all jobs of the
// switch, it completes sums that found no slot, and recovers lost results.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "common/command_line.h"
#include "common/logging/record.h"
#include "common/logging/stderr_log.h"
#include "common/process_limits.h"
#include "common/standard_error.h"
#include "control/client.h"
#include "control/tokens.h"
#include "programs/psd/server.h"

namespace {

ina::psd::Server* signalled = nullptr;

void on_signal(int) {
  if (signalled) signalled->stop();
}

/// The exit status, if the program ends here.
std::optional<int> parse_options(int argc, char** argv, ina::psd::ServerConfig& config,
                                 ina::LogFormat& format) {
  ina::command_line::App app(
      "The fallback server of an aggregation switch with fallback.home: dedicated.", "ina-psd");
  app.set_version_flag("--version", INA_PROJECT_VERSION);
  config.socket = ina::control::kDefaultSocket;
  config.trust.tls.files = ina::control::own_tls_files(::getenv);
  app.add_option("--socket", config.socket,
                 "The switch's control socket, of root, of this user, of a service in /run/NAME, "
                 "or of the user INA_SWITCH_USER")
      ->envname("INA_SOCKET")
      ->capture_default_str();
  app.add_option("--url", config.url,
                 "An Ethernet port instead of shared memory: udp:ADDRESS?control=SOCKET&port=NAME");
  ina::command_line::add_choice(app, "--idle", config.idle,
                                {{"auto", ina::IdleMode::kAuto},
                                 {"spin", ina::IdleMode::kSpin},
                                 {"yield", ina::IdleMode::kYield},
                                 {"backoff", ina::IdleMode::kBackoff},
                                 {"interrupt", ina::IdleMode::kInterrupt}},
                                "What a job's thread does without packets");
  ina::command_line::add_choice(app, "--log-format", format, ina::kLogFormatNames,
                                "Form of the log: lines, JSON, or fields of journald");
  return ina::command_line::parse(app, argc, argv);
}

/// Raises the process's limits and starts the log.
bool prepare(ina::LogFormat format) {
  // Each job and group takes some descriptors, and a shell's limit is for programs that use
  // select().
  ina::prepare_limits();
  if (const std::string low = ina::low_limits_text(
          "ina-psd",
          {.open_files = 32, .file_bytes = 1 << 20, .stack_bytes = 1 << 18, .threads = 4});
      !low.empty()) {
    ina::tell_stderr("ina-psd", low);
    return false;
  }
  if (const auto log = ina::logging::log_to_stderr(format); !log) {
    ina::tell_stderr("ina-psd", log.error().text);
    return false;
  }
  return true;
}

int serve(ina::psd::ServerConfig& config) {
  const auto user = ina::control::own_switch_user(::getenv);
  if (!user) {
    ina::logging::critical("cannot start")("text", user.error().text);
    return ina::command_line::kExitUsage;
  }
  config.trust.user = *user;
  try {
    ina::psd::Server server(config);
    signalled = &server;
    struct sigaction action {};
    action.sa_handler = on_signal;
    ::sigaction(SIGTERM, &action, nullptr);
    ::sigaction(SIGINT, &action, nullptr);
    const auto served = server.run();
    signalled = nullptr;
    if (served) return EXIT_SUCCESS;
    ina::logging::critical("the server ends")("text", served.error().text);
  } catch (const std::exception& e) {
    ina::tell_stderr("ina-psd", e.what());
  }
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  ina::psd::ServerConfig config;
  auto format = ina::LogFormat::kText;
  if (const auto status = parse_options(argc, argv, config, format)) return *status;
  return prepare(format) ? serve(config) : EXIT_FAILURE;
}
