// Tokens: the proof of a worker that joins over TCP, in place of the peer credentials that a unix
// socket has.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "control/tls_files.h"

namespace ina::control {

/// Tenant of workers that show no token, where the switch lets them in.
inline constexpr std::string_view kAnonymousTenant = "anonymous";

/// The switch's table of tenants and their tokens.
class TokenTable {
 public:
  static constexpr size_t kMinTokenBytes = 16;
  static constexpr size_t kMaxTokenBytes = 256;
  static constexpr size_t kMaxTenantBytes = 31;

  /// Reads lines "TENANT TOKEN"; empty ones and those that begin with # are skipped. A tenant may
  /// have several tokens. A file that others may read or write is refused. Errors name file and
  /// line, never a token.
  static Result<TokenTable> load(const std::string& path);

  /// The tenant of this token. The time does not depend on matches in the table.
  std::optional<std::string> tenant_of(std::string_view token) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string tenant;
    std::string token;
  };
  std::vector<Entry> entries_;
};

/// The problem of a tenant's name; empty: none.
std::string tenant_problem(std::string_view tenant);

/// The number of "uid:1000"; nothing if it is something else.
std::optional<uid_t> uid_of(const std::string& owner);

/// True if the texts are equal; the time depends on the length of `shown` only.
bool equal_in_constant_time(std::string_view known, std::string_view shown);

/// A variable's value or nullptr.
using Environment = std::function<const char*(const char*)>;

/// The token of this process: the variable INA_TOKEN, or the first line of the file that
/// INA_TOKEN_FILE names; empty if neither is set.
Result<std::string> own_token(const Environment& environment);
/// Its ticket, likewise: INA_TICKET, INA_TICKET_FILE.
Result<std::string> own_ticket(const Environment& environment);

/// Its files for TLS: INA_TLS_CA, INA_TLS_CERT, INA_TLS_KEY.
TlsFiles own_tls_files(const Environment& environment);

}  // namespace ina::control
