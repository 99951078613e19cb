// ina-memif: lets workers on memif take part in the jobs of a switch on this host, which it reaches
// over shared memory. DPDK's memif driver runs here, and crashes here if a worker's death crashes
// it.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "common/command_line.h"
#include "common/logging/record.h"
#include "common/logging/stderr_log.h"
#include "common/process_limits.h"
#include "common/standard_error.h"
#include "control/client.h"
#include "io/ethdev/eal.h"
#include "programs/memif/server.h"
#include "transport/url.h"

namespace ina::memif {
namespace {

Server* signalled = nullptr;

void on_signal(int number) {
  if (!signalled) return;
  if (number == SIGUSR1)
    signalled->request_report();
  else
    signalled->stop();
}

/// The problem of the options together; empty: none.
std::string problem_of(const ServerConfig& config) {
  if (config.memif_socket.find(',') != std::string::npos || config.memif_socket.size() > 107)
    return "--memif: the path must have at most 107 characters, and no comma";
  if (config.mode && (*config.mode & 077) != 0 && ::geteuid() == 0)
    return "--mode would let others join in the name of root, who may join any job of the switch: "
           "run ina-memif as another user";
  return {};
}

Result<io::Eal> start_dpdk(const ServerConfig& config) {
  io::EalConfig eal;
  eal.huge = HugePages::kNo;
  eal.memory_bytes = packet_memory_bytes(config);
  eal.lcores = 0;
  eal.log = [](io::EalLogLevel, std::string_view line) { logging::error("dpdk")("text", line); };
  eal.log_level = io::EalLogLevel::kError;
  return io::Eal::start(eal);
}

Result<void> serve(const ServerConfig& config) {
  ::signal(SIGPIPE, SIG_IGN);
  auto doorman = control::Doorman::start();
  if (!doorman) return tl::unexpected(doorman.error());
  auto eal = start_dpdk(config);
  if (!eal) return tl::unexpected(eal.error());
  eal->remove_runtime_folder();  // now: a killed process removes nothing
  // For both sockets: a connection to memif's may crash the driver. Not for DPDK's folders, in
  // which only root could write then.
  ::umask(~config.mode.value_or(0600) & 0777);
  Server server(config, doorman->get());
  if (auto opened = server.open(); !opened) return opened;
  signalled = &server;
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) ::sigaction(number, &action, nullptr);
  server.run();
  signalled = nullptr;
  logging::info("stopped");
  return {};
}

struct Options {
  Options() {
    config.switch_socket = control::kDefaultSocket;
    config.socket = "/run/ina/memif-control.sock";
    config.memif_socket = "/run/ina/memif.sock";
  }

  ServerConfig config;
  std::string mode;
  std::string ip = "10.0.0.1";
  LogFormat format = LogFormat::kText;
};

void add_options(command_line::App& app, Options& options) {
  ServerConfig& config = options.config;
  app.add_option("--switch", config.switch_socket,
                 "The switch's control socket, of root, of this user, of a service in\n"
                 "/run/NAME, or of the user INA_SWITCH_USER")
      ->envname("INA_SOCKET")
      ->capture_default_str();
  app.add_option("--socket", config.socket,
                 "Control socket of this program: control= of its workers")
      ->capture_default_str();
  app.add_option("--memif", config.memif_socket, "Socket of the memif interfaces")
      ->capture_default_str();
  app.add_option("--workers", config.interfaces,
                 "Memif interfaces, numbered from 0 (id= of a worker); each serves one worker")
      ->check(command_line::between(1, 32))
      ->capture_default_str();
  app.add_option("--mtu", config.mtu, "Largest IPv4 packet: 100 bytes more than the switch's slots")
      ->check(command_line::between(576, 16000))
      ->capture_default_str();
  app.add_option("--ip", options.ip, "Address of the interfaces; any that no worker has")
      ->capture_default_str();
  app.add_option("--mode", options.mode,
                 "Permissions of both sockets, e.g. 0660: who may write to them joins in\n"
                 "the name of this program's user. Without it: this user and root")
      ->check(command_line::Validator([](const std::string& text) {
        const bool octal = !text.empty() && text.size() <= 4 &&
                           text.find_first_not_of("01234567") == std::string::npos;
        return octal ? "" : "'" + text + "' is not an octal number such as 0660";
      }));
  command_line::add_choice(app, "--idle", config.idle,
                           {{"auto", IdleMode::kAuto},
                            {"spin", IdleMode::kSpin},
                            {"yield", IdleMode::kYield},
                            {"backoff", IdleMode::kBackoff},
                            {"interrupt", IdleMode::kInterrupt}},
                           "What to do without packets");
  command_line::add_choice(app, "--log-format", options.format, kLogFormatNames,
                           "Form of the log: lines, JSON, or fields of journald");
}

int run(int argc, char** argv) {
  command_line::App app(
      "Lets workers on memif join the jobs of an aggregation switch on this host.", "ina-memif");
  app.set_version_flag("--version", INA_PROJECT_VERSION);
  Options options;
  add_options(app, options);
  if (const auto status = command_line::parse(app, argc, argv)) return *status;
  ServerConfig& config = options.config;
  if (!options.mode.empty())
    config.mode = static_cast<mode_t>(std::stoul(options.mode, nullptr, 8));

  prepare_limits();
  if (const std::string low = low_limits_text(
          "ina-memif",
          {.open_files = 32, .file_bytes = 1 << 20, .stack_bytes = 1 << 18, .threads = 2});
      !low.empty()) {
    tell_stderr("ina-memif", low);
    return EXIT_FAILURE;
  }
  if (const auto log = logging::log_to_stderr(options.format); !log) {
    tell_stderr("ina-memif", log.error().text);
    return EXIT_FAILURE;
  }
  const auto address = client::parse_ipv4(options.ip);
  const auto user = control::own_switch_user(::getenv);
  std::string problem = address ? problem_of(config) : "--ip: " + address.error().text;
  if (!user) problem = user.error().text;
  if (!problem.empty()) {
    logging::critical("cannot start")("text", problem);
    return command_line::kExitUsage;
  }
  config.ip = *address;
  config.trust.user = *user;
  if (const auto served = serve(config); !served) {
    logging::critical("cannot serve")("text", served.error().text);
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace ina::memif

int main(int argc, char** argv) {
  try {
    return ina::memif::run(argc, argv);
  } catch (const std::exception& e) {
    ina::tell_stderr("ina-memif", e.what());
    return EXIT_FAILURE;
  }
}
