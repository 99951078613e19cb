#include "programs/psd/server.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "common/clock.h"
#include "common/event_fd.h"
#include "common/logging/record.h"
#include "common/turns.h"

namespace ina::psd {

namespace {

// How long the switch may take to answer, and how long to wait before another try.
constexpr Nanos kTimeoutNs = 5'000'000'000;
constexpr int kRetryMs = 20;
constexpr int kLongestRetryMs = 1000;
constexpr Nanos kLongestPauseNs = 1'000'000'000;

/// Neither time nor another try changes it.
bool is_final(ina_status status) {
  return status == INA_ERR_UNSUPPORTED || status == INA_ERR_VERSION || status == INA_ERR_INVALID;
}

}  // namespace

Server::Server(ServerConfig config)
    : config_(std::move(config)), stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Server::stop() {
  ring_event(stop_event_.get());
}

bool Server::stopped(int timeout_ms) const {
  pollfd event{stop_event_.get(), POLLIN, 0};
  return ::poll(&event, 1, timeout_ms) > 0;
}

/// By the URL, if there is one. Its `control` goes before the configuration's socket.
Result<void> Server::find_way() {
  way_.socket = config_.socket;
  way_.trust = config_.trust;
  if (config_.url.empty()) return {};
  auto url = client::parse_url(config_.url);
  if (!url) return tl::unexpected(url.error());
  if (!membership::carries_frames(*url))
    return fail(INA_ERR_INVALID,
                "url '" + config_.url + "' names no Ethernet port: use udp:ADDRESS?control=..., " +
                    "dpdk:ADDRESS?control=... or memif:/path/of/memif.sock?ip=...; without a URL " +
                    "the switch is reached by shared memory");
  way_.socket = url->get("control", config_.socket);
  way_.url = std::move(*url);
  return {};
}

Result<void> Server::run() {
  if (auto found = find_way(); !found) return found;
  std::string last_text;
  int pause_ms = kRetryMs;
  while (!stopped(0)) {
    const Result<void> served = serve();
    jobs_.clear();
    control_.close();
    if (served) break;
    const ina_status status = served.error().status;
    if (status == INA_ERR_REFUSED || is_final(status)) return served;
    // A switch that is down says the same at every try.
    if (served.error().text != last_text)
      logging::warn("trying again", way_.socket)("text", served.error().text);
    last_text = served.error().text;
    // Each beginning may cost every job an epoch, of which the switch has some thousands.
    pause_ms = status == INA_ERR_INTERNAL ? std::min(2 * pause_ms, kLongestRetryMs) : kRetryMs;
    if (stopped(pause_ms)) break;
  }
  return {};
}

/// Until stop() or an error.
Result<void> Server::serve() {
  auto connection = control::Connection::open(way_.socket, 0, way_.trust);
  if (!connection) return tl::unexpected(connection.error());
  control_ = std::move(*connection);
  if (auto sent =
          control::say(control_, request::Serve{control::kControlVersion, INA_PROJECT_VERSION});
      !sent)
    return sent;
  for (;;) {
    const auto events = wait();
    if (events[0].revents != 0) return {};
    logging::report_omitted(now_ns());
    const auto heard = control::hear(control_, 0);
    if (!heard) return tl::unexpected(heard.error());
    look_after_jobs(events);
    if (*heard)
      if (auto handled = on_message((*heard)->message); !handled) return handled;
    if (auto joined = join_next(); !joined) return joined;
  }
}

/// For something to do. Of the stop event, the own connection, and those of the jobs that are
/// served, in their order.
std::vector<pollfd> Server::wait() {
  std::vector<pollfd> events = {{stop_event_.get(), POLLIN, 0}, {control_.fd(), POLLIN, 0}};
  for (const auto& [id, job] : jobs_)
    if (job.served) events.push_back({job.served->server().control().fd(), POLLIN, 0});
  ::poll(events.data(), events.size(), wait_ms());
  return events;
}

/// Those that have said something.
void Server::look_after_jobs(std::span<const pollfd> events) {
  auto event = events.begin() + 2;
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const bool speaks = job->second.served && (event++)->revents != 0;
    job = !speaks || look_after(*job) ? std::next(job) : jobs_.erase(job);
  }
}

Result<void> Server::on_message(const answer::Message& message) {
  if (answer::is_no_room(message)) return fail(INA_ERR_NO_SWITCH, control::error_of(message).text);
  if (std::holds_alternative<answer::Refused>(message))
    return tl::unexpected(control::error_of(message));
  if (const auto* serving = std::get_if<answer::Serving>(&message)) {
    logging::info("serving", way_.socket)("switch", way_.socket)("version", serving->library);
  } else if (const auto* offered = std::get_if<answer::Job>(&message)) {
    Job& job = jobs_[offered->job_id];
    job.name = offered->job;
    // A user with many jobs must not silence what is said of others'.
    job.source = offered->owner.empty() ? way_.socket : offered->owner;
  } else {
    return {};
  }
  return control::say(control_, request::NextJob{});
}

/// Until a job is to be joined; -1: none is.
int Server::wait_ms() const {
  constexpr Nanos kMs = 1'000'000;
  constexpr Nanos kNever = std::numeric_limits<Nanos>::max();
  Nanos due = kNever;
  for (const auto& [id, job] : jobs_)
    if (!job.served) due = std::min(due, job.due);
  return due == kNever ? -1 : static_cast<int>(std::max<Nanos>(0, due - now_ns() + kMs - 1) / kMs);
}

/// A job that is due; end(): none is. Owners take turns.
Server::Jobs::iterator Server::next_to_join() {
  const Nanos now = now_ns();
  std::map<std::string, Jobs::iterator> due;
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job)
    if (!job->second.served && job->second.due <= now) due.emplace(job->second.source, job);
  const auto turn = next_in_turn(due, last_joined_);
  return turn == due.end() ? jobs_.end() : turn->second;
}

/// Joins a job, if one is due. What goes wrong is this job's alone, and the others go on; but what
/// neither time nor another job would change ends the server.
Result<void> Server::join_next() {
  const auto next = next_to_join();
  if (next == jobs_.end()) return {};
  Job& job = next->second;
  auto served = join(*next);
  if (!served) {
    if (is_final(served.error().status)) return tl::unexpected(served.error());
    put_off(*next, served.error().text);
  } else if (!*served) {
    jobs_.erase(next);
  } else {
    job.served = std::move(*served);
    job.last_text.clear();
    logging::info("job served", job.source)("job", job.name)("id", next->first);
  }
  return {};
}

/// Nothing: the job has ended.
Result<std::unique_ptr<ServedJob>> Server::join(Jobs::value_type& entry) {
  auto& [id, job] = entry;
  try {
    auto server = JobServer::join(way_, id, kTimeoutNs);
    if (!server) return tl::unexpected(server.error());
    if (!*server) return nullptr;
    return std::make_unique<ServedJob>(std::move(*server), threads_of(job.source));
  } catch (const std::exception& e) {  // what one job lacks must not end the others' server
    return fail(
        INA_ERR_NO_MEMORY,
        std::string("ina-psd cannot start its thread, or has no memory for it: ") + e.what());
  }
}

std::shared_ptr<OwnerThreads> Server::threads_of(const std::string& owner) {
  std::erase_if(threads_, [](const auto& entry) { return entry.second.expired(); });
  auto threads = threads_[owner].lock();
  if (!threads) threads_[owner] = threads = std::make_shared<OwnerThreads>(config_.idle, cores_);
  return threads;
}

/// The job is joined later. Each time may cost it an epoch, so the pauses become longer.
void Server::put_off(Jobs::value_type& entry, const std::string& text) {
  auto& [id, job] = entry;
  job.served.reset();
  job.due = now_ns() + job.pause_ns;
  job.pause_ns = std::min(2 * job.pause_ns, kLongestPauseNs);
  if (text != job.last_text)
    logging::warn("job not served, trying again", job.source)("job", job.name)("id", id)("text",
                                                                                         text);
  job.last_text = text;
}

/// Hears a job's connection. False: the job has ended. One that was lost otherwise is joined again.
bool Server::look_after(Jobs::value_type& entry) {
  auto& [id, job] = entry;
  while (job.served) {
    const auto heard = control::hear(job.served->server().control(), 0);
    if (heard && !*heard) break;
    const auto* const said = heard ? &(*heard)->message : nullptr;
    if (const auto* dropped = said ? std::get_if<answer::Dropped>(said) : nullptr) {
      logging::warn("not heard", job.source)("job", job.name)("text", dropped->text);
    } else if (!said || std::holds_alternative<answer::Refused>(*said)) {
      put_off(entry, said ? control::error_of(*said).text : heard.error().text);
    } else {
      logging::info("job ended", job.source)("job", job.name)("id", id);
      return false;
    }
  }
  return true;
}

}  // namespace ina::psd
