// inactl: asks a running switch how it is, and administers it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#ifdef INA_HAVE_ADMIN
#include "cli/admin_commands.h"
#endif
#include "cli/status_format.h"
#include "control/client.h"
#include "control/tokens.h"

namespace {

constexpr ina::Nanos kTimeoutNs = 2'000'000'000;
constexpr auto kWatchInterval = std::chrono::seconds(1);
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

struct Options {
  std::string socket = ina::control::kDefaultSocket;
  bool json = false;
  bool watch = false;
};

/// Prints the status once. False, with the reason on stderr, if there is none.
bool print_status(const Options& options) {
  const auto token = ina::control::own_token(::getenv);
  const ina::control::TlsClient tls{ina::control::own_tls_files(::getenv), ""};
  const auto status = token ? ina::control::query_status(options.socket, kTimeoutNs, *token, tls)
                            : ina::Result<ina::control::Json>(tl::unexpected(token.error()));
  if (!status) {
    fmt::print(stderr, "inactl: {}\n", status.error().text);
    return false;
  }
  using Json = nlohmann::json;
  // Under --watch one line an object, for programs that read along.
  const std::string text =
      options.json
          ? status->dump(options.watch ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n"
          : ina::cli::format_status(*status);
  if (options.watch && !options.json) fmt::print("{}", kClearScreen);
  fmt::print("{}", text);
  return std::fflush(stdout) == 0;
}

int run_status(const Options& options) {
  while (print_status(options)) {
    if (!options.watch) return EXIT_SUCCESS;
    std::this_thread::sleep_for(kWatchInterval);
  }
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Asks a running aggregation switch how it is, and administers it.", "inactl");
  app.set_version_flag("--version", INA_PROJECT_VERSION);
  app.require_subcommand(1);

  Options options;
  CLI::App* status = app.add_subcommand(
      "status", "Ports, lcores, aggregator and jobs, and what each job waits for");
  status
      ->add_option("--socket", options.socket,
                   "The switch's control socket: its path, or tcp:HOST:PORT with a\n"
                   "token in INA_TOKEN or the file that INA_TOKEN_FILE names, or\n"
                   "tls:HOST:PORT with INA_TLS_CA, INA_TLS_CERT, INA_TLS_KEY")
      ->envname("INA_SOCKET")
      ->capture_default_str();
  status->add_flag("-j,--json", options.json, "JSON, as the switch sends it");
  status->add_flag("--watch", options.watch, "Again every second, until interrupted");

  std::function<int()> chosen = [&] { return run_status(options); };
#ifdef INA_HAVE_ADMIN
  ina::cli::add_admin_commands(app, chosen);
#endif
  CLI11_PARSE(app, argc, argv);
  return chosen();
}
