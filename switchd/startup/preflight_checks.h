// The parts of switchd/startup/preflight.cc: for its files only.
#pragma once

#include <sys/socket.h>

#include "switchd/startup/preflight.h"

namespace ina::switchd {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

/// The input of a check.
struct Asked {
  const config::Config& config;
  const Machine& machine;
  const std::string& config_file;  ///< empty: there is none
};

/// Where a check puts what it finds.
class Report {
 public:
  Report(const char* check, Preflight& to) : check_(check), to_(to) {}
  /// The switch would not start. An empty text is none.
  void problem(const std::string& text) { add(text, true); }
  /// The switch would start, and something would not work.
  void warning(const std::string& text) { add(text, false); }
  void not_checked(const std::string& text) { to_.not_checked.push_back(text); }

 private:
  void add(const std::string& text, bool fatal) {
    if (!text.empty()) to_.findings.push_back({check_, text, fatal});
  }
  const char* check_;
  Preflight& to_;
};

/// Each returns why not, empty if nothing speaks against it.
std::string socket_problem(const std::string& path, const std::string& setting);
std::string listen_problem(const std::string& listen, const std::string& setting);
std::string log_problem(const std::string& path);

/// Files and addresses that are the same, by whatever name.
void check_same_places(const Asked& asked, Report& report);

/// Limits of the process (ulimit).
void check_limits(const Asked& asked, Report& report);

/// An Ethernet port: the source of its device, and whether frames fit.
void check_port(const Asked& asked, const config::PortConfig& port, Report& report);

}  // namespace ina::switchd
