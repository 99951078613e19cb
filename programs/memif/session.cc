#include "programs/memif/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "common/logging/record.h"
#include "membership/shm_join.h"

namespace ina::memif {

namespace {

using control::Json;
namespace request = control::request;
namespace answer = control::answer;

// Packets are passed on after so many messages of a connection.
constexpr int kMessagesPerTurn = 4;

/// Messages of a worker that are passed to the switch unchanged.
constexpr std::array<std::string_view, 7> kPassedOn = {
    "attach", "share_results", "leave", "abort", "mismatch", "explain", "status"};

Error malformed(const Error& error) {
  return {INA_ERR_INVALID, "malformed control message: " + error.text};
}

}  // namespace

Session::Session(control::Connection worker, std::string barred, std::string switch_socket,
                 control::Trust trust, Interfaces& interfaces)
    : worker_(std::move(worker)),
      peer_(worker_.peer()),
      barred_(std::move(barred)),
      switch_socket_(std::move(switch_socket)),
      trust_(std::move(trust)),
      interfaces_(interfaces) {}

Session::~Session() {
  leave_interface();
}

void Session::leave_interface() {
  if (!transport_) return;
  interfaces_.detach(interface_);
  transport_.reset();
}

std::string Session::name() const {
  if (job_.empty()) return peer_.text();
  return fmt::format("job {} rank {} ({})", job_, rank_, peer_.text());
}

/// Hands over received messages; false as soon as `handle` returns false, or at the end of file.
template <class Handle>
bool Session::read(const control::Connection& from, Handle&& handle) {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    auto received = from.receive(0);
    if (!received && received.error().status == INA_ERR_INVALID) (void)refuse(received.error());
    if (!received) return false;
    if (!*received) return true;
    if ((*received)->carries_descriptors) {
      (void)refuse({INA_ERR_INVALID, "ina-memif takes no descriptors"});
      return false;
    }
    if (!handle(**received)) return false;
  }
  return true;
}

bool Session::on_worker() {
  return read(worker_, [this](control::Received& received) { return from_worker(received.body); });
}

bool Session::on_switch() {
  return read(switch_, [this](control::Received& received) { return from_switch(received); });
}

// ---- from the worker to the switch

bool Session::from_worker(const Json& body) {
  if (!barred_.empty()) return refuse({INA_ERR_REFUSED, barred_});
  const auto type = control::type_of(body);
  if (!type) return refuse(malformed(type.error()));
  std::optional<request::Message> join;
  if (*type == request::Join::kType || *type == request::Rejoin::kType) {
    if (transport_) return refuse({INA_ERR_INVALID, "this connection has joined already"});
    join = rewritten_join(body);
    if (!join) return true;
  } else if (std::ranges::find(kPassedOn, *type) == kPassedOn.end()) {
    return refuse({INA_ERR_UNSUPPORTED,
                   "ina-memif passes no '" + *type + "': it is for workers on memif alone"});
  } else if (*type == request::Attach::kType && !transport_) {
    return refuse({INA_ERR_INVALID, "attach without join"});
  }
  if (!switch_) {
    auto opened = control::Connection::open(switch_socket_, 0, trust_);
    // A re-joining worker tries again after a close, and gives up after a refusal.
    if (!opened) return *type != request::Rejoin::kType && refuse(opened.error());
    switch_ = std::move(*opened);
  }
  std::vector<int> region;
  if (*type == request::Attach::kType) region.push_back(transport_->region_fd());
  if (join ? control::say(switch_, *join) : switch_.send(body, region)) return true;
  // A switch that has no room has said so before it closed the connection.
  (void)on_switch();
  return false;
}

/// The `join` or `rejoin` of a worker with frames as that of one on the shm port. Nothing: refused.
std::optional<request::Message> Session::rewritten_join(const Json& body) {
  auto said = control::parse_request(body);
  if (!said) {
    refuse(malformed(said.error()));
    return std::nullopt;
  }
  auto* const joins = std::get_if<request::Join>(&said->message);
  request::Member& member = joins ? joins->member : std::get<request::Rejoin>(said->message).member;
  if (!member.reach.frame) {
    refuse(
        {INA_ERR_UNSUPPORTED, "ina-memif takes workers on memif only; join the switch itself at " +
                                  switch_socket_ + " over shared memory"});
    return std::nullopt;
  }
  address_ = member.reach.frame->address;
  interface_ = member.reach.frame->interface;
  job_ = member.job;
  rank_ = member.rank;
  member.reach.transport = control::kTransportShm;
  member.reach.frame.reset();
  member.reach.result_buffers = false;  // frames do not say where in one a result lies
  return std::move(said->message);
}

// ---- from the switch to the worker

bool Session::from_switch(control::Received& received) {
  std::vector<int> fds;
  for (const Fd& fd : received.fds) fds.push_back(fd.get());
  const auto type = control::type_of(received.body);
  if (!type || *type != answer::Joined::kType) return worker_.send(received.body, fds).has_value();
  auto joined = control::heard(std::move(received)).and_then([this](control::Heard heard) {
    return attach(std::move(heard));
  });
  if (joined) return worker_.send_text(control::to_text(std::move(*joined))).has_value();
  refuse(joined.error());
  return false;  // the switch holds a place for it
}

/// Takes the worker's place on the shm port. The answer for a worker with frames.
Result<answer::Joined> Session::attach(control::Heard heard) {
  auto* const said = std::get_if<answer::Joined>(&heard.message);
  if (!said) return fail(INA_ERR_INTERNAL, "the switch takes the worker for a fallback server");
  answer::Joined joined = std::move(*said);
  auto transport = membership::join_shm(joined.place, heard, copier_);
  if (!transport) return tl::unexpected(transport.error());
  const Binding binding{.worker = address_,
                        .job = JobId{joined.place.job_id},
                        .job_key = joined.place.job_key,
                        .lanes = joined.place.lanes,
                        .slot_bytes = joined.place.slot_bytes};
  const auto ours = interfaces_.attach(interface_, binding, **transport);
  if (!ours) return tl::unexpected(ours.error());
  transport_ = std::move(*transport);
  joined.place.shm.reset();
  joined.place.address = *ours;
  logging::info("worker joined", peer_.source())("worker", name())("interface", interface_);
  return joined;
}

void Session::give_way(const std::string& text) {
  logging::warn("refused", peer_.source())("worker", name())("status", INA_ERR_REFUSED)("text",
                                                                                        text);
  const answer::Refused refused{.status = INA_ERR_REFUSED, .text = text, .retry = true};
  (void)worker_.send_text(control::to_text(refused));
}

/// True: the session goes on.
bool Session::refuse(const Error& error) {
  logging::warn("refused", peer_.source())("worker", name())("status", error.status)("text",
                                                                                     error.text);
  return worker_.send_text(control::to_text(answer::Refused{error.status, error.text})).has_value();
}

}  // namespace ina::memif
