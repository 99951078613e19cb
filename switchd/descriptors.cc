// Memory files that workers send: the doorman receives them and says what they are, the mapper maps
// them, and then what the worker had asked for goes on. Meanwhile nothing else is read from it.
#include <sys/epoll.h>

#include <exception>

#include "common/logging/record.h"
#include "control/doorman.h"
#include "switchd/conductor_state.h"

namespace ina::switchd {

namespace {

// With so many connections to be closed that the doorman has not taken, no others are accepted.
constexpr size_t kMostUnclosed = 256;

}  // namespace

bool Conductor::doorman_busy() const {
  return doorman_ && doorman_->waiting() > kMostUnclosed;
}

/// Why a message may not carry descriptors now; empty if it may.
std::string Conductor::no_descriptors_text(const Client& client, const std::string& type) const {
  if (type != "attach" && type != "register")
    return fmt::format("'{}' carries descriptors, which it may not", type);
  if (!client.job)
    return fmt::format("'{}' carries descriptors, but there is no job for them", type);
  if (!client.job->at(client.rank).session)
    return fmt::format("'{}' carries descriptors over another port than shm", type);
  const bool first = client.state == Client::State::kJoined;
  const bool may = type == "attach" ? first
                                    : client.role == Client::Role::kWorker &&
                                          (first || client.state == Client::State::kAttached);
  if (!may) return fmt::format("'{}' with descriptors comes at the wrong time", type);
  if (!doorman_) return "this switch takes no descriptors";
  return {};
}

/// The next message of the client, which was only looked at. If it is not taken, nothing can be
/// taken from the client any more.
void Conductor::on_descriptors(Client& client, Json body) {
  const auto type = body.at("type").get<std::string>();
  std::string problem = no_descriptors_text(client, type);
  const uint64_t token = ++last_token_;
  if (problem.empty())
    if (auto asked = doorman_->ask(client.connection.fd(), client.peer.uid, token); !asked)
      problem = asked.error().text;
  if (!problem.empty()) {
    to_close_.insert(client.connection.fd());
    return refuse(client, INA_ERR_INVALID, problem);
  }
  client.token = token;
  client.asked = std::move(body);
  asking_[token] = client.connection.fd();
  // Its end is noticed all the same.
  epoll_event event{};
  event.data.fd = client.connection.fd();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

/// Who asked with this token; nullptr if he has gone.
Conductor::Client* Conductor::asking(uint64_t token) {
  const auto fd = asking_.find(token);
  const auto client = fd == asking_.end() ? clients_.end() : clients_.find(fd->second);
  return client == clients_.end() ? nullptr : client->second.get();
}

/// What the client asked for is done, and it is read from again.
Conductor::Json Conductor::resume(Client& client) {
  asking_.erase(client.token);
  client.token = 0;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = client.connection.fd();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event.data.fd, &event) != 0)
    to_close_.insert(event.data.fd);
  return std::exchange(client.asked, {});
}

void Conductor::on_doorman() {
  while (auto answer = doorman_->next()) {
    Client* client = asking(answer->token);
    if (!client) {
      mapper_.discard({}, std::move(answer->file));
      continue;
    }
    try {
      on_memory_file(*client, *answer);
    } catch (const std::exception& e) {  // what it said is no such message, or memory is out
      to_close_.insert(client->connection.fd());
      refuse(*client, INA_ERR_INVALID, std::string("malformed control message: ") + e.what());
    }
  }
  if (doorman_->alive()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, doorman_->fd(), nullptr);
  for (const auto& [token, fd] : asking_) to_close_.insert(fd);
  logging::error("doorman lost")("pid", doorman_->pid())(
      "text", "nobody can join over shared memory any more; start the switch again");
}

void Conductor::on_memory_file(Client& client, control::Doorman::Answer& answer) {
  const bool attaches = client.asked.at("type") == "attach";
  const auto refused = [&](ina_status status, const std::string& text) {
    mapper_.discard({}, std::move(answer.file));
    if (attaches) {
      resume(client);
      return refuse(client, status, text);
    }
    answer_register(client, resume(client), status, text);
  };
  // The job may have ended meanwhile, and a worker that came back may have taken its place.
  Job::Worker* worker = Job::of(client);
  if (!worker || !worker->session) {
    mapper_.discard({}, std::move(answer.file));
    resume(client);
    return;
  }
  if (answer.status != INA_OK) return refused(answer.status, answer.text);
  if (attaches) {
    const size_t bytes = io::shm::WorkerLayout(client.job->geometry).bytes;
    return mapper_.map(client.token, std::move(answer.file), bytes, "worker region");
  }
  const auto number = client.asked.at("number").get<uint32_t>();
  const auto bytes = client.asked.at("bytes").get<uint64_t>();
  if (number == 0 || number >= io::shm::kMaxRegions || worker->session->registered[number] ||
      bytes == 0)
    return refused(INA_ERR_INVALID, fmt::format("memory is registered with an unused number in "
                                                "1..{}",
                                                io::shm::kMaxRegions - 1));
  auto share = handles_.take(client.job->owner(), {.mappings = 1}, mapper_.leaving());
  if (!share) return refused(share.error().status, share.error().text);
  worker->registered[number] = std::move(*share);
  mapper_.map(client.token, std::move(answer.file), bytes, "registered memory");
}

/// The mapper's time is its users', as the conductor's own is: they are heard again when they have
/// paid for it.
void Conductor::on_mapped() {
  while (auto done = mapper_.next()) {
    if (Client* client = asking(done->token)) {
      charge_time(*client, done->spent);
      try {
        on_region(*client, done->region);
      } catch (const std::exception& e) {
        to_close_.insert(client->connection.fd());
        refuse(*client, INA_ERR_NO_MEMORY, std::string("the switch failed: ") + e.what());
      }
    } else if (Job* job = making(done->token)) {
      for (Job::Worker& member : job->members)
        if (member.client) charge_time(*member.client, done->spent / job->workers);
      on_results_made(*job, done->region);
    }
    if (done->region) mapper_.discard(std::move(done->region->map), std::move(done->region->fd));
  }
}

/// What an `attach` or a `register` asked for is mapped, or cannot be.
void Conductor::on_region(Client& client, Result<io::shm::Region>& region) {
  const Json body = resume(client);
  const bool attaches = body.at("type") == "attach";
  Job::Worker* worker = Job::of(client);
  if (!worker || !worker->session) return;
  if (!attaches) return on_registered(client, body, region);
  if (!region) return refuse(client, region.error().status, region.error().text);
  worker->session->worker_region = std::move(region->map);
  attach_member(client);
}

}  // namespace ina::switchd
