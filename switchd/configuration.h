// The configuration of a running switch, its file, and the daemon's operations on another
// configuration.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "switchd/config/config.h"

namespace ina::switchd {

/// The source that a configuration was read from.
struct Source {
  std::string text;                              ///< of the file
  std::vector<config::Override> overrides = {};  ///< set by an administrator besides
};

/// An object: the value of each key.
nlohmann::json overrides_json(const Source& source);

class Configuration {
 public:
  struct Version {
    config::Config config;
    Source source;
  };
  /// Functions that the control plane cannot do by itself. Each may be empty.
  struct Daemon {
    /// Why a switch with that configuration would not start on this machine, beside this one.
    std::function<std::vector<std::string>(const config::Config& next)> obstacles = {};
    std::function<void(config::LogLevel level)> set_log_level = {};
    /// The service manager is told that the configuration is being read, and, unless the switch
    /// starts again, that it was.
    std::function<void()> reloading = {};
    std::function<void()> reloaded = {};
  };

  /// `file`: empty: there is none. `socket`: control.socket in place of the file's; empty: as in
  /// the file.
  Configuration(std::string file, std::string socket)
      : file_(std::move(file)), socket_(std::move(socket)) {}

  /// The file as it is now, or without one the defaults. All errors with their places.
  tl::expected<Version, std::vector<config::ConfigError>> read() const;
  /// The configuration of a source that was read before. All errors with their places.
  tl::expected<Version, std::vector<config::ConfigError>> parse(Source source) const;

  const std::string& file() const { return file_; }
  const Version& running() const { return running_; }
  void set_running(Version version) { running_ = std::move(version); }
  /// Why the switch does not run with its last configuration; empty: it does.
  const std::string& failure() const { return failure_; }
  void set_failure(std::string text) { failure_ = std::move(text); }

  Daemon daemon;

 private:
  std::string file_;
  std::string socket_;
  Version running_;
  std::string failure_;
};

}  // namespace ina::switchd
