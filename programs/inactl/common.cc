#include "programs/inactl/common.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "common/json/json.h"
#include "common/json_schema.h"
#include "control/client.h"
#include "programs/inactl/status_json.h"

namespace ina::cli {

namespace {

/// Sets what is still empty.
void from_environment(std::string& value, const char* variable) {
  const char* found = ::getenv(variable);
  if (value.empty() && found) value = found;
}

bool is_remote(const std::string& socket) {
  return socket.starts_with("tcp:") || socket.starts_with("tls:");
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

Result<std::string> admin_target(const Common& common) {
  if (common.admin.starts_with('/') || common.admin.starts_with('.')) return "unix:" + common.admin;
  if (!common.admin.empty()) return common.admin;
  if (is_remote(common.socket))
    return fail(INA_ERR_INVALID, common.socket +
                                     " is for workers and for `inactl status`; to administer that "
                                     "switch from here give --admin HOST:PORT, its admin.listen");
  return "unix:" + common.socket + ".admin";
}

Result<control::Trust> trust_of(const Common& common) {
  const auto user = control::own_switch_user(::getenv);
  if (!user) return tl::unexpected(user.error());
  return control::Trust{.tls = {common.tls, ""}, .user = *user};
}

std::string printable_lines(std::string_view text) {
  std::string all;
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
    all += printable(std::string(text.substr(0, end))) + "\n";
    text.remove_prefix(end + 1);
  }
  return all + printable(std::string(text));
}

std::string json_text(nlohmann::json object, int indent) {
  if (!object.contains("schema")) object["schema"] = kJsonSchema;
  return object.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int complain(const Common& common, Exit status, const std::string& text) {
  if (common.json) {
    fmt::print("{}", json_text({{"status", static_cast<int>(status)}, {"text", text}}));
  } else {
    std::fflush(stdout);
    fmt::print(stderr, "inactl: {}\n", printable_lines(text));
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
