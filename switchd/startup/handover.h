// A switch that starts again in its own process, with another configuration: the data that the
// program hands to itself, and the way it is executed again.
#pragma once

#include <optional>
#include <string>

#include "common/result.h"
#include "switchd/configuration.h"

namespace ina::switchd {

struct Handover {
  Source source;  ///< of the configuration, as it was checked
  /// The one that ran before, for the case that the switch does not start with the new one.
  std::optional<Source> previous = std::nullopt;
  /// Why `source` is the one before after all.
  std::string failure = {};
};

/// SIGHUP, SIGTERM and SIGINT wait until release_signals(): in this program and in the one that it
/// executes.
void hold_signals();
void release_signals();

/// The handover of the program that ran before this one in the same process; nothing: there was
/// none. To be called once, first of all.
std::optional<Handover> take_handover();

/// Where this program is, as of its start: a newer one may have been installed there since.
class Program {
 public:
  explicit Program(char** arguments);
  /// Executes what is there now, with the arguments of this one. All descriptors but the standard
  /// streams are closed. Returns if that failed.
  Error execute(const Handover& handover) const;
  /// Why it could not be executed; empty: it could.
  std::string problem() const;

 private:
  std::string path_;
  char** arguments_;
};

}  // namespace ina::switchd
