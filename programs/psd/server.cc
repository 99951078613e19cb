#include "programs/psd/server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <vector>

#include "common/clock.h"
#include "common/event_fd.h"
#include "common/logging/record.h"

namespace ina::psd {

namespace {

// How long the switch may take to answer, and how long to wait before another try.
constexpr Nanos kTimeoutNs = 5'000'000'000;
constexpr int kRetryMs = 20;
constexpr int kLongestRetryMs = 1000;

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
  if (config_.url.empty()) return {};
  auto url = client::parse_url(config_.url);
  if (!url) return tl::unexpected(url.error());
  if (url->scheme != "udp" && url->scheme != "dpdk" && url->scheme != "memif")
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
    // Each failure to serve a job costs the switch an epoch, of which it has some thousands.
    pause_ms = status == INA_ERR_INTERNAL ? std::min(2 * pause_ms, kLongestRetryMs) : kRetryMs;
    if (stopped(pause_ms)) break;
  }
  return {};
}

/// Until stop() or an error.
Result<void> Server::serve() {
  auto connection = control::Connection::open(way_.socket, 0, config_.tls);
  if (!connection) return tl::unexpected(connection.error());
  control_ = std::move(*connection);
  if (auto sent =
          control::say(control_, request::Serve{control::kControlVersion, INA_PROJECT_VERSION});
      !sent)
    return sent;
  for (;;) {
    std::vector<pollfd> fds = {{stop_event_.get(), POLLIN, 0}, {control_.fd(), POLLIN, 0}};
    for (const auto& [id, job] : jobs_) fds.push_back({job->control().fd(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return {};
    logging::report_omitted(now_ns());
    if (auto looked = look_after_jobs(); !looked) return looked;
    const auto heard = control::hear(control_, 0);
    if (!heard) return tl::unexpected(heard.error());
    if (!*heard) continue;
    if (auto handled = on_message((*heard)->message); !handled) return handled;
  }
}

Result<void> Server::on_message(const answer::Message& message) {
  if (answer::is_no_room(message)) return fail(INA_ERR_NO_SWITCH, control::error_of(message).text);
  if (std::holds_alternative<answer::Refused>(message))
    return tl::unexpected(control::error_of(message));
  if (const auto* serving = std::get_if<answer::Serving>(&message)) {
    logging::info("serving", way_.socket)("switch", way_.socket)("version", serving->library);
  } else if (const auto* offered = std::get_if<answer::Job>(&message)) {
    auto job = JobServer::start(way_, offered->job_id, config_.idle, kTimeoutNs);
    if (!job)
      return fail(is_final(job.error().status) ? job.error().status : INA_ERR_INTERNAL,
                  "cannot serve job '" + offered->job + "': " + job.error().text);
    if (*job) {
      logging::info("job served", way_.socket)("job", (*job)->name())("id", (*job)->id());
      jobs_[(*job)->id()] = std::move(*job);
    }
  } else {
    return {};
  }
  return control::say(control_, request::NextJob{});
}

/// Lets go of jobs that have ended. Losing a job otherwise means to begin anew.
Result<void> Server::look_after_jobs() {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto heard = control::hear(job->second->control(), 0);
    if (!heard)
      return fail(INA_ERR_SWITCH_LOST, "job '" + job->second->name() + "': " + heard.error().text);
    if (!*heard) {
      ++job;
      continue;
    }
    const answer::Message& said = (*heard)->message;
    if (const auto* dropped = std::get_if<answer::Dropped>(&said)) {
      logging::warn("not heard", way_.socket)("job", job->second->name())("text", dropped->text);
      continue;  // there may be more
    }
    if (const auto* refused = std::get_if<answer::Refused>(&said))
      return fail(INA_ERR_INTERNAL, "job '" + job->second->name() + "': " + refused->text);
    logging::info("job ended", way_.socket)("job", job->second->name())("id", job->second->id());
    job = jobs_.erase(job);
  }
  return {};
}

}  // namespace ina::psd
