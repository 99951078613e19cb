// inactl: asks a running switch how it is, and administers it.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/command_line.h"
#include "common/process_limits.h"
#include "common/standard_error.h"
#include "common/text_table.h"
#include "control/absence.h"
#include "control/client.h"
#include "control/diagnosis/why.h"
#include "control/tokens.h"
#include "programs/inactl/admin_commands.h"
#include "programs/inactl/common.h"
#include "programs/inactl/show.h"
#include "programs/inactl/status_format.h"
#include "programs/inactl/top.h"

namespace ina::cli {
namespace {

/// Without --timeout.
constexpr Nanos kAnswerTimeoutNs = 10'000'000'000;
constexpr auto kWatchInterval = std::chrono::seconds(1);
constexpr auto kLookInterval = std::chrono::milliseconds(80);  // of `why`: all within a second
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

/// Asks the switch once.
Result<nlohmann::json> ask_status(const Common& common) {
  const auto token = control::own_token(::getenv);
  if (!token) return tl::unexpected(token.error());
  const auto trust = trust_of(common);
  if (!trust) return tl::unexpected(trust.error());
  const bool patient = common.timeout_s.has_value();
  const Nanos timeout_ns =
      patient ? static_cast<Nanos>(std::min<uint64_t>(*common.timeout_s, 1 << 30)) * kSecondNs
              : kAnswerTimeoutNs;
  return control::query_status(common.socket, timeout_ns, *token, *trust,
                               patient ? timeout_ns : control::kAbsentNs);
}

int complain(const Common& common, const Error& error) {
  return complain(common, exit_of(error.status), error.text);
}

/// Prints the status once; the reason, if there is none.
int print_status(const Common& common, bool watch) {
  const auto status = ask_status(common);
  if (!status) return complain(common, status.error());
  // Under --watch one line an object, for programs that read along.
  const std::string text =
      common.json ? json_text(*status, watch ? -1 : 2) : format_status(*status, terminal_width());
  if (watch && !common.json) fmt::print("{}", kClearScreen);
  fmt::print("{}", text);
  return kDone;
}

int run_status(const Common& common, bool watch) {
  for (;;) {
    if (const int status = print_status(common, watch); status != kDone || !watch) return status;
    if (std::fflush(stdout) != 0) return kRefused;
    std::this_thread::sleep_for(kWatchInterval);
  }
}

int run_why(const Common& common, const std::string& job) {
  std::vector<nlohmann::json> looks;
  for (size_t i = 0; i < diagnosis::kLooks; ++i) {
    if (i != 0) std::this_thread::sleep_for(kLookInterval);
    auto status = ask_status(common);
    if (!status) return complain(common, status.error());
    looks.push_back(std::move(*status));
  }
  const auto verdict = diagnosis::why(looks, job);
  if (!verdict) return complain(common, verdict.error());
  fmt::print("{}", common.json ? json_text(diagnosis::verdict_json(*verdict), 2)
                               : wrapped(diagnosis::format_verdict(*verdict), terminal_width()));
  return kDone;
}

int run_top(const Common& common, bool once) {
  constexpr size_t kMostJobs = 20;
  std::optional<nlohmann::json> before;
  for (;;) {
    auto now = ask_status(common);
    if (!now) return complain(common, now.error());
    if (before) {
      const Top seen = top(*before, *now);
      if (!once && !common.json) fmt::print("{}", kClearScreen);
      fmt::print("{}", common.json ? json_text(top_json(seen), once ? 2 : -1)
                                   : format_top(seen, kMostJobs, terminal_width()));
      if (once) return kDone;
      if (std::fflush(stdout) != 0) return kRefused;
    }
    before = std::move(*now);
    std::this_thread::sleep_for(kWatchInterval);
  }
}

int run_job_show(const Common& common, const std::string& name) {
  const auto status = ask_status(common);
  if (!status) return complain(common, status.error());
  const auto job = find_job(*status, name);
  if (!job) return complain(common, job.error());
  fmt::print("{}", common.json ? json_text({{"job", *job}}, 2)
                               : wrapped(format_job(*job), terminal_width()));
  return kDone;
}

int run_port_show(const Common& common, const std::string& name) {
  const auto status = ask_status(common);
  if (!status) return complain(common, status.error());
  const auto ports = find_ports(*status, name);
  if (!ports) return complain(common, ports.error());
  if (common.json) {
    fmt::print("{}", json_text({{"ports", *ports}}, 2));
    return kDone;
  }
  for (const nlohmann::json& port : *ports)
    fmt::print("{}", wrapped(format_port(port), terminal_width()));
  return kDone;
}

void add_common_options(command_line::App& app, Common& common) {
  app.add_option("--socket", common.socket,
                 "The switch's control socket: its path, or for `status`, `top`, `why`,\n"
                 "`job`, `port` and `trace` also tcp:HOST:PORT with a token in INA_TOKEN or the\n"
                 "file that INA_TOKEN_FILE names, or tls:HOST:PORT with --ca, --cert, --key;\n"
                 "without it INA_SOCKET, or /run/ina/switch.sock. At a path only a switch of\n"
                 "root, of yourself, of a service in /run/NAME or of the user INA_SWITCH_USER\n"
                 "is taken for one");
  app.add_option("--admin", common.admin,
                 "Where it is administered: the path of its admin.socket, or\n"
                 "HOST:PORT, its admin.listen; without it (and --socket) INA_ADMIN,\n"
                 "or the control socket's path and \".admin\"");
  app.add_option("--ca", common.tls.ca,
                 "Over TLS: who signed the switch's certificate (or INA_TLS_CA)");
  app.add_option("--cert", common.tls.certificate,
                 "Over TLS: your own certificate (or INA_TLS_CERT)");
  app.add_option("--key", common.tls.key, "Over TLS: its private key (or INA_TLS_KEY)");
  app.add_option("--timeout", common.timeout_s,
                 "How long to wait for an answer, e.g. 30s; `status` waits so long\n"
                 "for the switch to start, too [10 s, and 0.5 s]")
      ->transform(command_line::duration())
      ->type_name("TIME");
  app.add_flag("-j,--json", common.json, "JSON, for programs");
}

/// Below the help of each command.
void add_footers(command_line::App& app) {
  for (command_line::App& command : app.commands()) {
    command.footer(
        "`inactl --help` has the options of every command: --socket, --admin, --ca, --cert, "
        "--key,\n"
        "--timeout, --json.");
    add_footers(command);
  }
}

/// Before the command line is understood: whether its errors are for a program.
bool asks_for_json(int argc, char** argv) {
  return std::any_of(argv + std::min(argc, 1), argv + argc, [](std::string_view argument) {
    return argument == "-j" || argument == "--json";
  });
}

/// The command, to the end of its output.
int carry_out(const Common& common, const std::function<int()>& command) {
  int status = kRefused;
  try {
    status = command();
  } catch (const std::exception& error) {
    return complain(common, kRefused, error.what());
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  fmt::print(stderr, "inactl: the output cannot be written: {}\n", std::strerror(errno));
  return status == kDone ? kRefused : status;
}

int run(int argc, char** argv) {
  command_line::App app("Asks a running aggregation switch how it is, and administers it.",
                        "inactl");
  app.set_version_flag("--version", INA_PROJECT_VERSION);
  app.require_subcommand(1);
  // Options of every command are found here, wherever they stand.
  app.fallthrough();
  app.footer(kExitHelp);
  Common common;
  add_common_options(app, common);

  bool watch = false;
  command_line::App* status = app.add_subcommand(
      "status", "Ports, lcores, aggregator and jobs, and what each job waits for");
  status->add_flag("--watch", watch, "Again every second, until interrupted");
  std::function<int()> chosen = [&] { return run_status(common, watch); };
  bool once = false;
  command_line::App* tops = app.add_subcommand(
      "top", "Rates of packet loops, ports and jobs, the busiest first, again every second");
  tops->add_flag("--once", once, "Once, after a second");
  tops->callback([&] { chosen = [&] { return run_top(common, once); }; });
  std::string job;
  command_line::App* asked = app.add_subcommand(
      "why", "Why a job does not advance, or few of its contributions are added in slots");
  asked->add_option("job", job, "Its name, or OWNER/NAME; without it all jobs");
  asked->callback([&] { chosen = [&] { return run_why(common, job); }; });
  const auto add_show = [&](const char* what, const char* help, const char* show_help,
                            const char* argument, const char* argument_help, auto run) {
    command_line::App* group = app.add_subcommand(what, help);
    group->require_subcommand(1);
    command_line::App* show = group->add_subcommand("show", show_help);
    show->callback([&chosen, &common, &job, run] {
      chosen = [&common, &job, run] { return run(common, job); };
    });
    return show->add_option(argument, job, argument_help);
  };
  add_show("job", "One job", "The whole record of a job", "job",
           "Its name, or OWNER/NAME where several have it", run_job_show)
      ->required();
  add_show("port", "The ports", "The whole record of its ports, or of one", "port",
           "Its name; without it all ports", run_port_show);
  add_admin_commands(app, common, chosen);
  add_footers(app);
  try {
    if (const auto ended = app.parse(argc, argv)) return *ended;
  } catch (const command_line::UsageError& error) {
    common.json = asks_for_json(argc, argv);
    return complain(common, kUsage, command_line::sentence_of(error));
  }
  prepare_limits();
  if (const std::string low =
          low_limits_text("inactl", {.open_files = 16, .stack_bytes = 1 << 16, .threads = 2});
      !low.empty())
    return complain(common, kRefused, low);
  complete(common);
  return carry_out(common, chosen);
}

}  // namespace
}  // namespace ina::cli

int main(int argc, char** argv) {
  try {
    return ina::cli::run(argc, argv);
  } catch (const std::exception& error) {
    ina::tell_stderr("inactl", error.what());
    return ina::cli::kRefused;
  }
}
