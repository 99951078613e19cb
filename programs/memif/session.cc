#include "programs/memif/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "common/logging/record.h"
#include "transport/shm_join.h"

namespace ina::memif {

namespace {

using control::Json;

constexpr int kMessagesPerTurn = 16;

/// What a worker may say that the switch is told as it stands.
constexpr std::array<std::string_view, 7> kPassedOn = {
    "attach", "share_results", "leave", "abort", "mismatch", "explain", "status"};

}  // namespace

Session::Session(control::Connection worker, std::string barred, std::string switch_socket,
                 Interfaces& interfaces)
    : worker_(std::move(worker)),
      barred_(std::move(barred)),
      switch_socket_(std::move(switch_socket)),
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
  const std::string peer = worker_.peer().text();
  if (job_.empty()) return peer;
  return fmt::format("job {} rank {} ({})", job_, rank_, peer);
}

/// Hands over what has been said; false as soon as `handle` says so, or at the end of file.
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
  return read(worker_, [this](control::Received& received) {
    try {
      return from_worker(received.body);
    } catch (const Json::exception& e) {
      return refuse({INA_ERR_INVALID, std::string("malformed control message: ") + e.what()});
    }
  });
}

bool Session::on_switch() {
  return read(switch_, [this](control::Received& received) {
    try {
      return from_switch(received);
    } catch (const Json::exception& e) {
      return refuse(
          {INA_ERR_INTERNAL, std::string("malformed control message of the switch: ") + e.what()});
    }
  });
}

// ---- from the worker to the switch

bool Session::from_worker(Json& body) {
  if (!barred_.empty()) return refuse({INA_ERR_REFUSED, barred_});
  const std::string type = body.at("type").get<std::string>();
  const bool joins = type == "join" || type == "rejoin";
  if (joins) {
    if (transport_) return refuse({INA_ERR_INVALID, "this connection has joined already"});
    if (!rewrite_join(body)) return true;
  } else if (std::ranges::find(kPassedOn, type) == kPassedOn.end()) {
    return refuse({INA_ERR_UNSUPPORTED,
                   "ina-memif passes no '" + type + "': it is for workers on memif alone"});
  } else if (type == "attach" && !transport_) {
    return refuse({INA_ERR_INVALID, "attach without join"});
  }
  if (!switch_) {
    auto opened = control::Connection::open(switch_socket_, 0);
    // Who comes back tries again when the connection is closed, and gives up when it is refused.
    if (!opened) return type != "rejoin" && refuse(opened.error());
    switch_ = std::move(*opened);
  }
  std::vector<int> region;
  if (type == "attach") region.push_back(transport_->region_fd());
  if (switch_.send(body, region)) return true;
  // A switch that has no room has said so before it closed the connection.
  (void)on_switch();
  return false;
}

/// Makes the join of a worker with frames one of a worker on the shm port. False: refused.
bool Session::rewrite_join(Json& body) {
  if (body.at("transport") != "frame") {
    refuse(
        {INA_ERR_UNSUPPORTED, "ina-memif takes workers on memif only; join the switch itself at " +
                                  switch_socket_ + " over shared memory"});
    return false;
  }
  const Json& address = body.at("address");
  address_ = {address.at("mac").get<wire::MacAddress>(), address.at("ip").get<uint32_t>(),
              address.at("udp_port").get<uint16_t>()};
  interface_ = body.value("interface", uint32_t{0});
  job_ = body.at("job").get<std::string>();
  rank_ = body.at("rank").get<uint32_t>();
  for (const char* ours : {"address", "port", "interface"}) body.erase(ours);
  body["transport"] = "shm";
  body["result_buffers"] = false;  // frames do not say where in one a result lies
  return true;
}

// ---- from the switch to the worker

bool Session::from_switch(control::Received& received) {
  Json& body = received.body;
  std::vector<int> fds;
  if (body.at("type") == "joined") {
    if (auto attached = attach(received); !attached) {
      refuse(attached.error());
      return false;  // the switch holds a place for it
    }
  } else {
    for (const Fd& fd : received.fds) fds.push_back(fd.get());
  }
  return worker_.send(body, fds).has_value();
}

/// Takes the worker's place on the shm port, and makes `joined` the answer for a worker with
/// frames.
Result<void> Session::attach(control::Received& joined) {
  Json& body = joined.body;
  auto transport = client::join_shm(joined, copier_);
  if (!transport) return tl::unexpected(transport.error());
  const Binding binding{.worker = address_,
                        .job = JobId{body.at("job_id").get<uint32_t>()},
                        .job_key = body.at("job_key").get<uint64_t>(),
                        .lanes = body.at("lanes").get<uint32_t>(),
                        .slot_bytes = body.at("slot_bytes").get<uint32_t>()};
  const auto ours = interfaces_.attach(interface_, binding, **transport);
  if (!ours) return tl::unexpected(ours.error());
  transport_ = std::move(*transport);
  body.erase("shm");
  body["address"] = {{"mac", ours->mac}, {"ip", ours->ip}, {"udp_port", ours->udp_port}};
  logging::info("worker joined", source())("worker", name())("interface", interface_);
  return {};
}

/// True: the session goes on.
bool Session::refuse(const Error& error) {
  logging::warn("refused", source())("worker", name())("status", error.status)("text", error.text);
  return worker_.send({{"type", "refused"}, {"status", error.status}, {"text", error.text}})
      .has_value();
}

}  // namespace ina::memif
