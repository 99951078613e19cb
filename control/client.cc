#include "control/client.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>

#include "common/clock.h"
#include "control/absence.h"
#include "control/bounded_json.h"

namespace ina::control {

namespace {

Result<std::optional<Heard>> heard_at_all(Result<std::optional<Received>> received) {
  if (!received) return tl::unexpected(received.error());
  if (!*received) return std::optional<Heard>();
  auto message = heard(std::move(**received));
  if (!message) return tl::unexpected(message.error());
  return std::optional<Heard>(std::move(*message));
}

// The largest that a switch can be configured for: switch.lcores, aggregator.slot_bytes,
// jobs.window_bytes and straggler.run_ahead (a fragment of each lane more, where a lane has one).
constexpr uint32_t kMostLanes = 64;
constexpr uint32_t kMostSlotBytes = 64 << 10;
constexpr uint64_t kMostWindowBytes = uint64_t{1} << 30;

constexpr std::chrono::milliseconds kAgain{20};  // after a refusal for now

/// Reads the memory file beside an answer. `what`: the content's name in errors.
Result<Json> content_of(const Heard& received, const std::string& what, const std::string& path) {
  if (received.lost_descriptors)
    return fail(INA_ERR_NO_MEMORY, "this process has no descriptor left for the " + what +
                                       " of the switch at " + path +
                                       ": close some, or raise ulimit -n");
  struct stat file {};
  // Only memory files have seals, and to ask for these never waits, whatever the descriptor is of.
  if (received.fds.size() != 1 || ::fcntl(received.fds[0].get(), F_GET_SEALS) < 0 ||
      ::fstat(received.fds[0].get(), &file) != 0)
    return fail(INA_ERR_INTERNAL,
                "the switch at " + path + " sent a " + what + " without its content");
  if (static_cast<uint64_t>(file.st_size) > kMaxStatusBytes)
    return fail(INA_ERR_INTERNAL, "the switch at " + path + " sent a " + what + " of " +
                                      std::to_string(file.st_size) + " bytes; at most " +
                                      std::to_string(kMaxStatusBytes) + " are allowed");
  std::string text(static_cast<size_t>(file.st_size), '\0');
  if (::pread(received.fds[0].get(), text.data(), text.size(), 0) !=
      static_cast<ssize_t>(text.size()))
    return fail(INA_ERR_INTERNAL,
                "cannot read the " + what + " that the switch at " + path + " sent");
  Json parsed = parse_bounded(text);
  if (!parsed.is_object())
    return fail(INA_ERR_INTERNAL, "the " + what + " that the switch at " + path +
                                      " sent is no JSON object of at most " +
                                      std::to_string(kMaxJsonParts) + " parts");
  return parsed;
}

/// A connection that is refused, by TLS or for want of room, is none: nothing was asked.
tl::unexpected<Error> not_accepted(const Error& error) {
  return fail(error.status == INA_ERR_REFUSED ? INA_ERR_NO_SWITCH : error.status, error.text);
}

Error refused_by(const std::string& path, const Error& error) {
  if (error.status != INA_ERR_REFUSED) return error;
  return {INA_ERR_REFUSED, "the switch at " + path + " refused: " + error.text};
}

/// Where a switch is asked.
struct Place {
  const std::string& path;
  const Trust& trust;
  const char* setting = kControlSocketSetting;  ///< of the switch, that `path` must be
};

/// The answer on a connection of its own. While the switch has no room for the connection, or not
/// yet time for its user, it is asked again until `connect_timeout_ns` have passed.
Result<std::optional<Heard>> ask_anew(const Place& place, const request::Message& question,
                                      Nanos timeout_ns, Nanos connect_timeout_ns) {
  for (const Nanos begun = now_ns();;) {
    auto connection =
        Connection::open(place.path, connect_timeout_ns, place.trust, INT64_MAX, place.setting);
    if (!connection) return not_accepted(connection.error());
    auto reply = ask(*connection, question, timeout_ns);
    // INA_ERR_INVALID is for what this side gets wrong.
    if (!reply && reply.error().status == INA_ERR_INVALID)
      return fail(INA_ERR_INTERNAL, reply.error().text);
    if (!reply) return not_accepted(reply.error());
    const bool no_room = *reply && answer::is_no_room((*reply)->message);
    if (!no_room || now_ns() - begun >= connect_timeout_ns) return reply;
    std::this_thread::sleep_for(kAgain);
  }
}

/// Asks once, and takes an answer of type `Wanted`, whose content is in `field` over TCP. A refusal
/// has the switch's own words.
template <class Wanted>
Result<Json> query(const Place& place, const request::Message& question, Json Wanted::*field,
                   Nanos timeout_ns, Nanos connect_timeout_ns) {
  const std::string& path = place.path;
  const std::string what = type_of(question);
  auto reply = ask_anew(place, question, timeout_ns, connect_timeout_ns);
  if (!reply) return tl::unexpected(reply.error());
  if (!*reply)
    return fail(INA_ERR_TIMEOUT,
                "the switch at " + path + " did not answer the " + what + " query");
  Heard& received = **reply;
  if (const auto* refused = std::get_if<answer::Refused>(&received.message)) {
    const Error error{INA_ERR_REFUSED, refused->text};
    if (answer::is_no_room(received.message)) return not_accepted(refused_by(path, error));
    return tl::unexpected(error);
  }
  auto* const answer = std::get_if<Wanted>(&received.message);
  if (!answer)
    return fail(INA_ERR_INTERNAL,
                "the switch at " + path + " answered the " + what + " query with something else");
  const bool may_be_inside = is_remote(path) || std::is_same_v<Wanted, answer::Done>;
  if (may_be_inside && !(answer->*field).is_null()) return std::move(answer->*field);
  if (!is_remote(path)) return content_of(received, what, path);
  return fail(INA_ERR_INTERNAL, "the switch at " + path + " sent no " + what);
}

/// How long to wait for the answer to `trace`: the switch tells what it has then.
Nanos answered_within_ns(const request::Trace& trace) {
  constexpr Nanos kAnswerNs = 5'000'000'000;
  return Nanos{trace.timeout_ms} * 1'000'000 + kAnswerNs;
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

Result<void> check(const answer::Place& place) {
  const auto within = [](uint32_t value, uint32_t most) { return value >= 1 && value <= most; };
  const uint64_t bytes = uint64_t{place.window} * place.slot_bytes;
  if (within(place.lanes, kMostLanes) && within(place.slot_bytes, kMostSlotBytes) && bytes != 0 &&
      bytes <= kMostWindowBytes + uint64_t{place.lanes} * place.slot_bytes)
    return {};
  return fail(INA_ERR_INTERNAL, "the switch granted what no switch has: a window of " +
                                    std::to_string(place.window) + " fragments of " +
                                    std::to_string(place.slot_bytes) + " bytes in " +
                                    std::to_string(place.lanes) + " lanes");
}

Error error_of(const answer::Message& message) {
  if (const auto* abort = std::get_if<answer::Abort>(&message)) return {abort->status, abort->text};
  const auto* refused = std::get_if<answer::Refused>(&message);
  const answer::Refused none;
  if (!refused) refused = &none;
  return {refused->status, refused->text};
}

Result<Json> query_status(const std::string& path, Nanos timeout_ns, const std::string& token,
                          const Trust& trust, Nanos connect_timeout_ns) {
  return query({path, trust}, request::Status{is_remote(path) ? token : ""},
               &answer::Status::status, timeout_ns,
               connect_timeout_ns < 0 ? timeout_ns : connect_timeout_ns)
      .map_error([&](const Error& error) { return refused_by(path, error); });
}

Result<Json> query_trace(const std::string& path, const request::Trace& trace,
                         const std::string& token, const Trust& trust) {
  request::Trace asked = trace;
  if (is_remote(path)) asked.token = token;
  return query({path, trust}, asked, &answer::Trace::trace, answered_within_ns(asked), kAbsentNs)
      .map_error([&](const Error& error) { return refused_by(path, error); });
}

Result<Json> administer(const std::string& address, const request::Message& message,
                        Nanos timeout_ns, const Trust& trust) {
  const Place place{address, trust, "admin.socket"};
  const Nanos connect_ns = std::min(timeout_ns, kAbsentNs);
  if (std::holds_alternative<request::Status>(message))
    return query(place, message, &answer::Status::status, timeout_ns, connect_ns);
  if (const auto* trace = std::get_if<request::Trace>(&message))
    return query(place, message, &answer::Trace::trace, answered_within_ns(*trace), connect_ns);
  return query(place, message, &answer::Done::content, timeout_ns, connect_ns);
}

}  // namespace ina::control
