// Code that all commands of inactl share: the address of the switch, the output format, and the
// exit status.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "control/trust.h"

namespace ina::cli {

inline constexpr int64_t kSecondNs = 1'000'000'000;

/// The program's exit status. docs/administration.md has the table.
enum Exit : int {
  kDone = 0,
  kRefused = 1,   ///< the switch said no, or could not do it
  kUsage = 2,     ///< the command line, or a file that it names, is wrong
  kNoSwitch = 3,  ///< no switch was reached
  kTimedOut = 4,  ///< not within the time given
};

/// The table of exit statuses, for --help.
inline constexpr const char* kExitHelp =
    "Exit status: 0 done; 1 the switch refused, or could not do it; 2 the command line, or a file\n"
    "that it names, is wrong; 3 no switch was reached; 4 not within the time given.\n"
    "An error is a sentence on standard error; with --json instead an object on standard output,\n"
    "{\"schema\": 1, \"status\": EXIT STATUS, \"text\": SENTENCE}.";

/// Options that every command takes, before or behind its name. Empty: not given.
struct Common {
  std::string socket;
  std::string admin;
  control::TlsFiles tls;
  std::optional<uint64_t> timeout_s;
  bool json = false;
};

/// Fills in from the environment what the command line left open. Of --admin, --socket, INA_ADMIN
/// and INA_SOCKET the first that is given says where the switch is administered.
void complete(Common& common);

/// Where to administer it: a path, or "tls:HOST:PORT".
Result<std::string> admin_address(const Common& common);

/// An object for a program, with its "schema" (common/json_schema.h), which the switch may have
/// given it, and a line end. `indent`: -1: one line. A name that is no UTF-8 has replacements.
std::string json_text(nlohmann::json object, int indent = -1);

/// Whom to take for the switch.
Result<control::Trust> trust_of(const Common& common);

/// Characters that a line of standard output has room for; 0: it is no terminal.
size_t terminal_width();

/// A text of lines, as it may be printed.
std::string printable_lines(std::string_view text);

/// Tells the user, or the program that reads along. Returns `status`.
int complain(const Common& common, Exit status, const std::string& text);

/// The exit status for an error of libina's kind.
Exit exit_of(ina_status status);

}  // namespace ina::cli
