#include "switchd/memory/peer_memory.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "common/logging/record.h"
#include "io/shm/layout.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;
using io::shm::kMaxRegions;

/// Why a message may not carry descriptors now; empty if it may.
std::string PeerMemory::refusal(const Client& client, const request::Message& message) const {
  const bool attaches = std::holds_alternative<request::Attach>(message);
  const std::string type = control::type_of(message);
  if (!attaches && !std::holds_alternative<request::Register>(message))
    return fmt::format("'{}' carries descriptors, which it may not", type);
  if (!client.job)
    return fmt::format("'{}' carries descriptors, but there is no job for them", type);
  if (!client.job->at(client.rank).way.shm())
    return fmt::format("'{}' carries descriptors over another port than shm", type);
  const bool first = client.state == Client::State::kJoined;
  const bool may = attaches ? first
                            : client.role == Client::Role::kWorker &&
                                  (first || client.state == Client::State::kAttached);
  if (!may) return fmt::format("'{}' with descriptors comes at the wrong time", type);
  return {};
}

void PeerMemory::on_descriptors(Client& client, const control::Json& body) {
  auto said = control::parse_request(body);
  if (!said) {
    connections_.close_later(client);
    return connections_.refuse_malformed(client, said.error());
  }
  const Client* from = client.from(said->channel);
  // Descriptors for a group that has ended meanwhile are received and closed.
  std::string problem =
      from || value(client.joined) == 0 ? refusal(from ? *from : client, said->message) : "";
  if (problem.empty() && !doorman_) problem = "this switch takes no descriptors";
  const uint64_t token = resources_.mapper().new_token();
  if (problem.empty())
    if (auto asked = doorman_->ask(client.connection.fd(), client.peer.uid, token); !asked)
      problem = asked.error().text;
  if (!problem.empty()) {
    connections_.close_later(client);
    return connections_.refuse(client, INA_ERR_INVALID, problem);
  }
  client.token = token;
  client.asked = std::move(*said);
  asking_[token] = {.fd = client.connection.fd(), .peer = client.peer};
  // Its end is noticed all the same.
  connections_.hold(client);
}

void PeerMemory::forget(const Client& client) {
  const auto asked = asking_.find(client.token);
  if (asked == asking_.end()) return;
  if (doorman_) doorman_->withdraw(client.token);
  // Work that has begun goes on, and is its user's all the same.
  if (asked->second.mapping && !resources_.mapper().withdraw(client.token))
    asked->second.fd = -1;
  else
    asking_.erase(asked);
}

/// The client that asked with this token; nullptr if it has gone.
Client* PeerMemory::asking(uint64_t token) const {
  const auto asked = asking_.find(token);
  return asked == asking_.end() ? nullptr : connections_.find(asked->second.fd);
}

/// The client's request is done, and the client is read from again.
control::Request PeerMemory::resume(Client& client) {
  asking_.erase(client.token);
  client.token = 0;
  connections_.release(client);
  return std::exchange(client.asked, {});
}

void PeerMemory::on_doorman(const Epoll& epoll) {
  while (auto answer = doorman_->next()) {
    if (answer->token == 0) {
      connections_.charge_time({.uid = answer->user}, answer->cpu_ns);
      continue;
    }
    Client* client = asking(answer->token);
    if (!client) {
      const control::PeerCredentials peer{.uid = answer->user};
      resources_.mapper().discard(peer.source(), {}, std::move(answer->file));
      continue;
    }
    try {
      on_file(*client, *answer);
    } catch (const std::exception& e) {
      connections_.close_later(*client);
      connections_.refuse(*client, INA_ERR_NO_MEMORY,
                          std::string("the switch failed: ") + e.what());
    }
  }
  if (doorman_->alive()) return;
  epoll.forget(doorman_->fd());
  for (const auto& [token, asked] : asking_)
    if (Client* client = connections_.find(asked.fd)) connections_.close_later(*client);
  logging::error("doorman lost")("pid", doorman_->pid())(
      "text", "nobody can join over shared memory any more; start the switch again");
}

void PeerMemory::on_file(Client& line, control::Doorman::Answer& answer) {
  const auto* const registers = std::get_if<request::Register>(&line.asked.message);
  Client* const from = line.from(line.asked.channel);
  // The job may have ended meanwhile, and a worker that came back may have taken its place.
  Job::Worker* worker = from ? Job::of(*from) : nullptr;
  ShmWay* const shm = worker ? worker->way.shm() : nullptr;
  if (!shm) {
    resources_.mapper().discard(line.peer.source(), {}, std::move(answer.file));
    resume(line);
    return;
  }
  Client& client = *from;
  const auto refused = [&](ina_status status, const std::string& text) {
    resources_.mapper().discard(client.job->owner(), {}, std::move(answer.file));
    const control::Request asked = resume(line);
    if (const auto* asks = std::get_if<request::Register>(&asked.message))
      return connections_.send(client, answer::Registered{asks->number, status, text});
    connections_.refuse(client, status, text);
  };
  if (answer.status != INA_OK) return refused(answer.status, answer.text);
  Mapper& mapper = resources_.mapper();
  const std::string owner = client.job->owner();
  if (!registers) {
    asking_[line.token].mapping = true;
    const size_t bytes = io::shm::WorkerLayout(client.job->geometry).bytes;
    return mapper.map_region(owner, line.token, std::move(answer.file), bytes);
  }
  const auto [number, bytes] = *registers;
  if (number == 0 || number >= kMaxRegions || shm->session->registered[number] || bytes == 0)
    return refused(INA_ERR_INVALID, fmt::format("memory is registered with an unused number in "
                                                "1..{}",
                                                kMaxRegions - 1));
  if (auto taken = resources_.take(*client.job, *shm, number, bytes); !taken)
    return refused(taken.error().status, taken.error().text);
  asking_[line.token].mapping = true;
  mapper.map_registered(owner, line.token, std::move(answer.file), bytes);
}

/// The mapper's time is its users', as the conductor's own is: they are heard again when they have
/// paid for it.
bool PeerMemory::on_mapped(Mapper::Done& done) {
  const auto asked = asking_.find(done.token);
  if (asked == asking_.end()) return false;
  connections_.charge_time(asked->second.peer, done.spent);
  Client* client = connections_.find(asked->second.fd);
  if (!client) {
    asking_.erase(asked);
    return true;
  }
  try {
    on_region(*client, done.region);
  } catch (const std::exception& e) {
    connections_.close_later(*client);
    connections_.refuse(*client, INA_ERR_NO_MEMORY, std::string("the switch failed: ") + e.what());
  }
  return true;
}

/// The region of an `attach` or a `register` is mapped, or cannot be.
void PeerMemory::on_region(Client& line, Result<io::shm::Region>& region) {
  const control::Request asked = resume(line);
  Client* const from = line.from(asked.channel);
  Job::Worker* worker = from ? Job::of(*from) : nullptr;
  ShmWay* const shm = worker ? worker->way.shm() : nullptr;
  if (!shm) return;
  Client& client = *from;
  if (const auto* registers = std::get_if<request::Register>(&asked.message))
    return on_registered(client, registers->number, region);
  if (!region) return connections_.refuse(client, region.error().status, region.error().text);
  shm->session->worker_region = std::move(region->map);
  attached_(client);
}

/// A worker's own memory file is mapped, or cannot be. Registered before `attach` (a worker that
/// comes back) it reaches the lanes with the worker.
void PeerMemory::on_registered(Client& client, uint32_t number, Result<io::shm::Region>& region) {
  Job& job = *client.job;
  Job::Worker& worker = job.at(client.rank);
  ShmWay& shm = *worker.way.shm();
  if (!region) {
    resources_.give_back(job, shm, number);
    return connections_.send(
        client, answer::Registered{number, region.error().status, region.error().text});
  }
  Mapping& memory = shm.session->registered[number];
  memory = std::move(region->map);
  if (worker.attached && job.state != Job::State::kRejoining) {
    const LanePlace place = job.lane_place(client.rank);
    lanes_.run(command::SetRegistered{.job = place.job,
                                      .rank = place.member,
                                      .number = number,
                                      .memory = {memory.data(), memory.size()}});
  }
  connections_.send(client, answer::Registered{number});
}

void PeerMemory::on_unregister(Client& client, const request::Unregister& message) {
  if (!client.job) return;
  Job& job = *client.job;
  const uint32_t number = message.number;
  ShmWay* const shm = job.members[value(client.rank)].way.shm();
  if (!shm || number == 0 || number >= kMaxRegions) return;
  const LanePlace place = job.lane_place(client.rank);
  lanes_.run(command::SetRegistered{.job = place.job, .rank = place.member, .number = number});
  // No lane has it any more.
  resources_.mapper().discard(job.owner(), std::move(shm->session->registered[number]));
  resources_.give_back(job, *shm, number);
}

}  // namespace ina::switchd
