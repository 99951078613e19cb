#include "programs/inactl/common.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "common/json/json.h"
#include "common/json_schema.h"
#include "common/standard_error.h"
#include "control/client.h"
#include "programs/inactl/status_json.h"

namespace ina::cli {

namespace {

/// Sets what is still empty.
void from_environment(std::string& value, const char* variable) {
  const char* found = ::getenv(variable);
  if (value.empty() && found) value = found;
}

}  // namespace

void complete(Common& common) {
  if (common.socket.empty()) from_environment(common.admin, "INA_ADMIN");
  from_environment(common.socket, "INA_SOCKET");
  if (common.socket.empty()) common.socket = control::kDefaultSocket;
  from_environment(common.tls.ca, "INA_TLS_CA");
  from_environment(common.tls.certificate, "INA_TLS_CERT");
  from_environment(common.tls.key, "INA_TLS_KEY");
}

Result<std::string> admin_address(const Common& common) {
  constexpr std::string_view kUnix = "unix:";
  const std::string& admin = common.admin;
  if (admin.starts_with(kUnix)) return admin.substr(kUnix.size());
  if (admin.starts_with('/') || admin.starts_with('.') || control::is_remote(admin)) return admin;
  if (!admin.empty()) return std::string(control::kTlsScheme) + admin;
  if (control::is_remote(common.socket))
    return fail(INA_ERR_INVALID, common.socket +
                                     " is for workers and for `inactl status`; to administer that "
                                     "switch from here give --admin HOST:PORT, its admin.listen");
  return common.socket + ".admin";
}

Result<control::Trust> trust_of(const Common& common) {
  const auto user = control::own_switch_user(::getenv);
  if (!user) return tl::unexpected(user.error());
  return control::Trust{.tls = {common.tls, ""}, .user = *user};
}

size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string printable_lines(std::string_view text) {
  return printable(text, "\n");
}

std::string json_text(nlohmann::json object, int indent) {
  if (!object.contains("schema")) object["schema"] = kJsonSchema;
  return object.dump(indent, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

int complain(const Common& common, Exit status, const std::string& text) {
  if (common.json) {
    fmt::print("{}", json_text({{"status", static_cast<int>(status)}, {"text", text}}));
  } else {
    std::fflush(stdout);
    tell_stderr("inactl", text);
  }
  return status;
}

Exit exit_of(ina_status status) {
  switch (status) {
    case INA_OK:
      return kDone;
    case INA_ERR_INVALID:
      return kUsage;
    case INA_ERR_NO_SWITCH:
      return kNoSwitch;
    case INA_ERR_TIMEOUT:
      return kTimedOut;
    default:
      return kRefused;
  }
}

}  // namespace ina::cli
