#include "psd/server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <vector>

#include "common/clock.h"
#include "logging/record.h"

namespace ina::psd {

namespace {

using control::Json;

// How long the switch may take to answer, and how long to wait before another try.
constexpr Nanos kTimeoutNs = 5'000'000'000;
constexpr int kRetryMs = 20;

}  // namespace

Server::Server(ServerConfig config)
    : config_(std::move(config)), stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Server::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event_.get(), &one, sizeof(one));
}

bool Server::stopped(int timeout_ms) const {
  pollfd event{stop_event_.get(), POLLIN, 0};
  return ::poll(&event, 1, timeout_ms) > 0;
}

Result<void> Server::run() {
  std::string last_text;
  while (!stopped(0)) {
    const Result<void> served = serve();
    jobs_.clear();
    control_.close();
    if (served) break;
    const ina_status status = served.error().status;
    if (status == INA_ERR_REFUSED || status == INA_ERR_UNSUPPORTED || status == INA_ERR_VERSION)
      return served;
    // A switch that is down says the same at every try.
    if (served.error().text != last_text)
      logging::warn("trying again", config_.socket)("text", served.error().text);
    last_text = served.error().text;
    if (stopped(kRetryMs)) break;
  }
  return {};
}

/// Until stop() or an error.
Result<void> Server::serve() {
  auto connection = control::Connection::open(config_.socket, 0, config_.tls);
  if (!connection) return tl::unexpected(connection.error());
  control_ = std::move(*connection);
  if (auto sent = control_.send({{"type", "serve"},
                                 {"version", control::kControlVersion},
                                 {"library", INA_PROJECT_VERSION}});
      !sent)
    return sent;
  for (;;) {
    std::vector<pollfd> fds = {{stop_event_.get(), POLLIN, 0}, {control_.fd(), POLLIN, 0}};
    for (const auto& [id, job] : jobs_) fds.push_back({job->control().fd(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return {};
    logging::report_omitted(now_ns());
    if (auto looked = look_after_jobs(); !looked) return looked;
    auto received = control_.receive(0);
    if (!received) return tl::unexpected(received.error());
    if (!*received) continue;
    try {
      if (auto handled = on_message((*received)->body); !handled) return handled;
    } catch (const Json::exception& e) {
      return fail(INA_ERR_INTERNAL, std::string("malformed message of the switch: ") + e.what());
    }
  }
}

Result<void> Server::on_message(const Json& message) {
  const std::string type = message.at("type").get<std::string>();
  if (control::is_no_room(message))
    return fail(INA_ERR_NO_SWITCH, message.at("text").get<std::string>());
  if (type == "refused")
    return fail(static_cast<ina_status>(message.at("status").get<int>()),
                message.at("text").get<std::string>());
  if (type == "serving") {
    logging::info("serving", config_.socket)("switch", config_.socket)(
        "version", message.value("library", std::string("?")));
  } else if (type == "job") {
    auto job = JobServer::start(config_.socket, message.at("job_id").get<uint32_t>(), config_.idle,
                                kTimeoutNs);
    if (!job)
      return fail(INA_ERR_INTERNAL, "cannot serve job '" + message.value("job", std::string()) +
                                        "': " + job.error().text);
    if (*job) {
      logging::info("job served", config_.socket)("job", (*job)->name())("id", (*job)->id());
      jobs_[(*job)->id()] = std::move(*job);
    }
  } else {
    return {};
  }
  return control_.send({{"type", "next_job"}});
}

/// Lets go of jobs that have ended. Losing a job otherwise means to begin anew.
Result<void> Server::look_after_jobs() {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto received = job->second->control().receive(0);
    if (!received)
      return fail(INA_ERR_SWITCH_LOST,
                  "job '" + job->second->name() + "': " + received.error().text);
    if (!*received) {
      ++job;
      continue;
    }
    const Json& body = (*received)->body;
    if (body.value("type", Json()) == "refused")
      return fail(INA_ERR_INTERNAL,
                  "job '" + job->second->name() + "': " + body.value("text", std::string()));
    logging::info("job ended", config_.socket)("job", job->second->name())("id", job->second->id());
    job = jobs_.erase(job);
  }
  return {};
}

}  // namespace ina::psd
