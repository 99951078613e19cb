#include "control/client.h"

#include <sys/stat.h>

namespace ina::control {

namespace {

Result<std::optional<Heard>> heard_at_all(Result<std::optional<Received>> received) {
  if (!received) return tl::unexpected(received.error());
  if (!*received) return std::optional<Heard>();
  auto message = heard(std::move(**received));
  if (!message) return tl::unexpected(message.error());
  return std::optional<Heard>(std::move(*message));
}

}  // namespace

Result<Heard> heard(Received received) {
  auto answer = parse_answer(received.body);
  if (!answer)
    return fail(INA_ERR_INTERNAL, "the switch sent a malformed message: " + answer.error().text);
  return Heard{std::move(answer->message), answer->channel, std::move(received.fds),
               received.lost_descriptors};
}

Result<std::optional<Heard>> hear(const Connection& connection, Nanos timeout_ns) {
  return heard_at_all(connection.receive(timeout_ns));
}

Result<void> say(const Connection& connection, const request::Message& message,
                 const std::vector<int>& fds) {
  return connection.send_text(to_text(message), fds);
}

Result<std::optional<Heard>> ask(const Connection& connection, const request::Message& message,
                                 Nanos timeout_ns) {
  return heard_at_all(connection.ask_text(to_text(message), timeout_ns));
}

Error error_of(const answer::Message& message) {
  if (const auto* abort = std::get_if<answer::Abort>(&message)) return {abort->status, abort->text};
  const auto* refused = std::get_if<answer::Refused>(&message);
  const answer::Refused none;
  if (!refused) refused = &none;
  return {refused->status, refused->text};
}

Result<Json> query_status(const std::string& path, Nanos timeout_ns, const std::string& token,
                          const TlsClient& tls, Nanos connect_timeout_ns) {
  auto connection =
      Connection::open(path, connect_timeout_ns < 0 ? timeout_ns : connect_timeout_ns, tls);
  if (!connection) return tl::unexpected(connection.error());
  const bool shows_token = is_remote(path) && !token.empty();
  auto reply = ask(*connection, request::Status{shows_token ? token : ""}, timeout_ns);
  if (!reply) return tl::unexpected(reply.error());
  if (!*reply)
    return fail(INA_ERR_TIMEOUT, "the switch at " + path + " did not answer the status query");
  Heard& received = **reply;
  if (const auto* refused = std::get_if<answer::Refused>(&received.message))
    return fail(INA_ERR_REFUSED, "the switch at " + path + " refused: " + refused->text);
  auto* const status = std::get_if<answer::Status>(&received.message);
  if (!status)
    return fail(INA_ERR_INTERNAL,
                "the switch at " + path + " answered the status query with something else");
  if (is_remote(path)) {
    if (status->status.is_null())
      return fail(INA_ERR_INTERNAL, "the switch at " + path + " sent no status");
    return std::move(status->status);
  }
  if (received.lost_descriptors)
    return fail(INA_ERR_NO_MEMORY,
                "this process has no descriptor left for the status of the "
                "switch at " +
                    path + ": close some, or raise ulimit -n");
  // The status may be larger than a message, so it comes as a memory file.
  struct stat file {};
  if (received.fds.size() != 1 || ::fstat(received.fds[0].get(), &file) != 0)
    return fail(INA_ERR_INTERNAL, "the switch at " + path + " sent a status without its content");
  std::string text(static_cast<size_t>(file.st_size), '\0');
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
