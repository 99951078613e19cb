#include "control/client.h"

#include <sys/stat.h>

namespace ina::control {

Result<Json> query_status(const std::string& path, Nanos timeout_ns, const std::string& token,
                          const TlsClient& tls, Nanos connect_timeout_ns) {
  auto connection =
      Connection::open(path, connect_timeout_ns < 0 ? timeout_ns : connect_timeout_ns, tls);
  if (!connection) return tl::unexpected(connection.error());
  Json query = {{"type", "status"}};
  if (is_remote(path) && !token.empty()) query["token"] = token;
  auto reply = connection->ask(query, timeout_ns);
  if (!reply) return tl::unexpected(reply.error());
  if (!*reply)
    return fail(INA_ERR_TIMEOUT, "the switch at " + path + " did not answer the status query");
  Received& received = **reply;
  if (received.body.value("type", Json()) == "refused")
    return fail(INA_ERR_REFUSED, "the switch at " + path + " refused: " +
                                     received.body.value("text", std::string("no reason given")));
  if (received.body["type"] != "status")
    return fail(INA_ERR_INTERNAL, "the switch at " + path + " answered with '" +
                                      received.body["type"].get<std::string>() +
                                      "' to the status query");
  if (is_remote(path)) {
    if (!received.body.contains("status") || !received.body["status"].is_object())
      return fail(INA_ERR_INTERNAL, "the switch at " + path + " sent no status");
    return std::move(received.body["status"]);
  }
  if (received.lost_descriptors)
    return fail(INA_ERR_NO_MEMORY,
                "this process has no descriptor left for the status of the "
                "switch at " +
                    path + ": close some, or raise ulimit -n");
  // The status may be larger than a message, so it comes as a memory file.
  struct stat status {};
  if (received.fds.size() != 1 || ::fstat(received.fds[0].get(), &status) != 0)
    return fail(INA_ERR_INTERNAL, "the switch at " + path + " sent a status without its content");
  std::string text(static_cast<size_t>(status.st_size), '\0');
  if (::pread(received.fds[0].get(), text.data(), text.size(), 0) !=
      static_cast<ssize_t>(text.size()))
    return fail(INA_ERR_INTERNAL, "cannot read the status that the switch at " + path + " sent");
  Json parsed = Json::parse(text, nullptr, false);
  if (!parsed.is_object())
    return fail(INA_ERR_INTERNAL,
                "the status that the switch at " + path + " sent is no JSON object");
  return parsed;
}

}  // namespace ina::control
