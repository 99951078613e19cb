#include "control/admin/server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>

#include "common/logging/record.h"
#include "control/admin/listener.h"
#include "control/tls_files.h"
#include "ina_admin.grpc.pb.h"

namespace ina::admin {

namespace {

using nlohmann::json;
using std::chrono::system_clock;

// The limits of gRPC, for any number of administrators: a thread for each call. Administrators on
// this host have a server of their own, so remote ones are not in their way; nor do remote ones
// fill the conductor's queue. Calls that do not fit into that are told to come again.
constexpr int kMaxCallsPerConnection = 8;
constexpr int kMaxAsking = static_cast<int>(Queue::kMaxWaiting) / 2;
constexpr int kSpareThreads = 4;
constexpr int kMaxDrainers = 4;
constexpr size_t kMemoryBytes = size_t{64} << 20;
constexpr int kMaxRequestBytes = 64 << 10;
// A connection without calls does not stay longer.
constexpr int kIdleConnectionMs = 300'000;

// Of a call without a deadline, and most that one call waits for the conductor.
constexpr Nanos kMostNs = 10'000'000'000;
constexpr auto kDrainInterval = std::chrono::milliseconds(100);
// For which the end of the server waits while answers are sent.
constexpr auto kLastWords = std::chrono::milliseconds(500);
// A trace: how often to look whether it is complete; how long it may take; and the rest of the
// caller's deadline for its answer.
constexpr auto kTraceInterval = std::chrono::milliseconds(20);
constexpr Nanos kDefaultTraceNs = 10'000'000'000;
constexpr Nanos kLongestTraceNs = 60'000'000'000;
constexpr auto kAnswerTime = std::chrono::seconds(1);
constexpr Nanos kDefaultTtlNs = 3600 * Nanos{1'000'000'000};

grpc::StatusCode code_of(Error::Code code) {
  switch (code) {
    case Error::Code::kInvalid:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case Error::Code::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case Error::Code::kExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case Error::Code::kNoRoom:
    case Error::Code::kBusy:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Error::Code::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case Error::Code::kTimeout:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case Error::Code::kInternal:
      break;
  }
  return grpc::StatusCode::INTERNAL;
}

grpc::Status status_of(const Error& error) {
  return {code_of(error.code), error.text};
}

Nanos left_ns(system_clock::time_point deadline) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - system_clock::now())
      .count();
}

/// A duration may hold more than 64 bits of nanoseconds do.
Nanos nanos_of(const google::protobuf::Duration& duration) {
  constexpr int64_t kMostSeconds = int64_t{1} << 31;
  return std::clamp<int64_t>(duration.seconds(), -kMostSeconds, kMostSeconds) * 1'000'000'000 +
         duration.nanos();
}

// ---- the status, from the conductor's JSON

template <class Number>
Number number(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number() ? found->get<Number>() : Number{0};
}

void fill(const json& from, v1::Job& job) {
  job.set_name(from.value("name", ""));
  job.set_id(number<uint32_t>(from, "id"));
  job.set_tenant(from.value("owner", ""));
  job.set_state(from.value("state", ""));
  job.set_workers(number<uint32_t>(from, "world_size"));
  for (const json& rank : from["joined"]) job.add_joined(rank.get<uint32_t>());
  for (const json& rank : from["missing"]) job.add_missing(rank.get<uint32_t>());
  job.set_window(number<uint32_t>(from, "window"));
  const bool fixed = from.contains("slots");
  job.set_slots_floor(number<uint32_t>(from, fixed ? "slots" : "slots_floor"));
  job.set_slots_ceiling(number<uint32_t>(from, fixed ? "slots" : "slots_ceiling"));
  job.set_slots_held(number<uint32_t>(from, "slots_held"));
  job.set_priority_max(number<uint32_t>(from, "priority_max"));
  job.set_memory_bytes(number<uint64_t>(from, "memory_bytes"));
  job.set_results(number<uint64_t>(from, "results"));
  if (from.contains("reserved_s"))
    job.mutable_reserved_for()->set_seconds(number<int64_t>(from, "reserved_s"));
}

void fill(const json& from, const char* jobs, const char* workers, v1::Share& share) {
  share.set_jobs(number<uint32_t>(from, jobs));
  share.set_workers(number<uint32_t>(from, workers));
  share.set_slots_floor(number<uint32_t>(from, "slots_floor"));
  share.set_slots_ceiling(number<uint64_t>(from, "slots_ceiling"));
  share.set_memory_bytes(number<uint64_t>(from, "memory_bytes"));
}

void add_drops(const std::string& where, const json& drops, v1::StatusResponse& status) {
  for (const auto& [reason, packets] : drops.items()) {
    v1::Drops& entry = *status.add_drops();
    entry.set_where(where);
    entry.set_reason(reason);
    entry.set_packets(packets.get<uint64_t>());
  }
}

void fill(const json& from, v1::StatusResponse& status) {
  status.set_version(from.value("version", ""));
  const auto uptime_s = number<double>(from, "uptime_s");
  status.mutable_uptime()->set_seconds(static_cast<int64_t>(uptime_s));
  status.set_draining(from.value("draining", false));
  for (const json& job : from.at("jobs")) fill(job, *status.add_jobs());
  for (const json& tenant : from.at("tenants")) {
    v1::Tenant& entry = *status.add_tenants();
    const json& quota = tenant.at("quota");
    entry.set_name(tenant.value("name", ""));
    fill(tenant, "jobs", "workers", *entry.mutable_use());
    fill(quota, "jobs_max", "workers_max", *entry.mutable_quota());
    entry.set_priority_max(number<uint32_t>(quota, "priority_max"));
  }
  for (const json& port : from.at("ports"))
    add_drops(port.value("name", ""), port.at("drops"), status);
  add_drops("aggregator", from.at("aggregator").at("drops"), status);
  status.set_json(from.dump(-1, ' ', false, json::error_handler_t::replace));
}

/// Fills in the fields that Reload and SetPolicy have in common.
template <class Response>
void fill_changes(const json& from, Response& reload) {
  for (const json& change : from.value("changes", json::array())) {
    v1::Change& entry = *reload.add_changes();
    entry.set_key(change.value("key", ""));
    entry.set_before(change.value("before", ""));
    entry.set_after(change.value("after", ""));
    entry.set_in_place(change.value("in_place", false));
    entry.set_text(change.value("text", ""));
  }
  reload.set_restart(from.value("restart", false));
  for (const json& lost : from.value("jobs_lost", json::array())) {
    v1::LostJob& entry = *reload.add_lost();
    entry.set_name(lost.value("name", ""));
    entry.set_owner(lost.value("owner", ""));
    entry.set_reason(lost.value("text", ""));
  }
  reload.set_applied(from.value("applied", true));
  reload.set_starts(number<uint32_t>(from, "starts"));
}

void fill(const json& from, v1::ReloadResponse& reload) {
  reload.set_tokens(number<uint32_t>(from, "tokens"));
  fill_changes(from, reload);
}

template <class Response>
void fill_keys(const json& from, Response& policy) {
  for (const json& key : from.value("keys", json::array())) {
    v1::PolicyKey& entry = *policy.add_keys();
    entry.set_key(key.value("key", ""));
    entry.set_value(key.value("value", ""));
    entry.set_in_file(key.value("in_file", ""));
  }
  policy.set_file(from.value("file", ""));
  policy.set_file_error(from.value("file_error", ""));
}

void fill(const json& from, v1::PolicyResponse& policy) {
  policy.set_policy(from.value("policy", ""));
  for (const json& known : from.value("policies", json::array())) {
    v1::KnownPolicy& entry = *policy.add_policies();
    entry.set_name(known.value("name", ""));
    entry.set_summary(known.value("summary", ""));
  }
  fill_keys(from, policy);
}

void fill(const json& from, v1::SetPolicyResponse& policy) {
  fill_changes(from, policy);
  fill_keys(from, policy);
}

void fill(const json& from, v1::SlotsResponse& slots) {
  slots.set_slots(number<uint32_t>(from, "slots"));
  slots.set_lanes(number<uint32_t>(from, "lanes"));
  slots.set_cells(number<uint32_t>(from, "cells"));
  slots.set_slots_per_cell(number<uint32_t>(from, "slots_per_cell"));
  for (const json& row : from.at("used")) {
    v1::UsedSlot& slot = *slots.add_used();
    slot.set_cell(row.at(0).get<uint32_t>());
    slot.set_state(row.at(1).get<std::string>());
    if (row.at(2).is_number()) slot.set_job_id(row.at(2).get<uint32_t>());
    slot.set_age_us(row.at(3).get<uint64_t>());
    slot.set_contributions(row.at(4).get<uint32_t>());
  }
  slots.set_json(from.dump());
}

void fill(const json& from, v1::TracedPacket& packet) {
  packet.set_at_us(number<double>(from, "at_us"));
  packet.set_lane(number<uint32_t>(from, "lane"));
  packet.set_port(from.value("port", ""));
  if (from.at("rank").is_number()) packet.set_rank(number<uint32_t>(from, "rank"));
  packet.set_type(from.value("type", ""));
  packet.set_seq(number<uint64_t>(from, "seq"));
  if (from.at("operation").is_number()) packet.set_operation(number<uint32_t>(from, "operation"));
  packet.set_elements(number<uint32_t>(from, "elements"));
  for (const json& rank : from.at("bitmap")) packet.add_bitmap(rank.get<uint32_t>());
  packet.set_priority(number<uint32_t>(from, "priority"));
  packet.set_verdict(from.value("verdict", ""));
  if (from.at("reason").is_string()) packet.set_reason(from.at("reason").get<std::string>());
  if (from.at("slot").is_number()) {
    packet.set_slot(number<uint32_t>(from, "slot"));
    packet.set_slot_state(from.value("slot_state", ""));
  }
  for (const json& rank : from.at("held")) packet.add_held(rank.get<uint32_t>());
  for (const json& sent : from.at("sent"))
    packet.add_sent(sent.value("type", "") + " to " + sent.value("to", ""));
}

void fill(const json& from, v1::TraceResponse& trace) {
  trace.set_job(from.value("job", ""));
  trace.set_job_id(number<uint32_t>(from, "id"));
  trace.set_complete(from.value("complete", false));
  trace.set_job_ended(from.value("job_ended", false));
  for (const json& packet : from.at("packets")) fill(packet, *trace.add_packets());
  json told = from;
  told.erase("done");
  trace.set_json(told.dump(-1, ' ', false, json::error_handler_t::replace));
}

// ---- the service

/// One of `count` things as long as it exists.
struct Counted {
  explicit Counted(std::atomic<int>& counter) : count(counter), before(count.fetch_add(1)) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --count; }
  std::atomic<int>& count;
  const int before;
};

class Service final : public v1::Administration::Service {
 public:
  /// `max_asking`: calls that wait for the conductor at a time.
  Service(Queue& queue, int max_asking) : queue_(queue), max_asking_(max_asking) {}

  /// Connections that gRPC did not accept itself, by gRPC's names for them.
  void know(int fd, const std::string& who) {
    const std::lock_guard lock(mutex_);
    unix_peers_["fd:" + std::to_string(fd)] = who;
  }
  /// Streams end.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stopped_.notify_all();
  }

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::CreateJobResponse* response) override {
    if (request->priority_max() > 255)
      return {grpc::StatusCode::INVALID_ARGUMENT, "priority_max is not in 1..255"};
    admin::CreateJob wanted;
    wanted.name = request->name();
    wanted.workers = request->workers();
    wanted.tenant = request->tenant();
    wanted.slots_floor = request->slots_floor();
    wanted.slots_ceiling = request->slots_ceiling();
    wanted.priority_max =
        request->priority_max() == 0 ? uint8_t{255} : static_cast<uint8_t>(request->priority_max());
    wanted.window_bytes = request->window_bytes();
    wanted.ttl_ns = request->has_ttl() ? nanos_of(request->ttl()) : kDefaultTtlNs;
    const Answer answer = ask(*context, std::move(wanted));
    if (!answer) return status_of(answer.error());
    response->set_ticket(answer->value("ticket", ""));
    response->set_job_id(number<uint32_t>(*answer, "job_id"));
    response->set_window(number<uint32_t>(*answer, "window"));
    response->set_slots_floor(number<uint32_t>(*answer, "slots_floor"));
    response->set_slots_ceiling(number<uint32_t>(*answer, "slots_ceiling"));
    response->set_priority_max(number<uint32_t>(*answer, "priority_max"));
    response->set_memory_bytes(number<uint64_t>(*answer, "memory_bytes"));
    response->mutable_expires_in()->set_seconds(number<int64_t>(*answer, "expires_in_s"));
    return grpc::Status::OK;
  }

  grpc::Status AbortJob(grpc::ServerContext* context, const v1::AbortJobRequest* request,
                        v1::AbortJobResponse*) override {
    return done(*context, admin::AbortJob{request->name(), request->reason(), request->owner()});
  }

  grpc::Status KickWorker(grpc::ServerContext* context, const v1::KickWorkerRequest* request,
                          v1::KickWorkerResponse*) override {
    return done(*context, admin::KickWorker{request->job(), request->rank(), request->reason(),
                                            request->owner()});
  }

  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     grpc::ServerWriter<v1::DrainProgress>* writer) override {
    const Counted drainers(drainers_);
    if (drainers.before >= kMaxDrainers)
      return {grpc::StatusCode::UNAVAILABLE,
              std::to_string(kMaxDrainers) + " others wait for the switch to be drained already"};
    const auto until = system_clock::now() +
                       std::chrono::nanoseconds(std::max<Nanos>(0, nanos_of(request->timeout())));
    Answer answer = ask(*context, admin::Drain{});
    for (json told;; answer = ask(*context, admin::GetDrain{})) {
      if (!answer) return status_of(answer.error());
      const bool draining = answer->value("draining", false);
      const bool drained = draining && answer->at("jobs").empty();
      const bool last = drained || !draining || system_clock::now() >= until;
      if (*answer != told || last) {
        v1::DrainProgress progress;
        for (const json& job : answer->at("jobs")) {
          v1::OwnedJob& left = *progress.add_left();
          left.set_name(job.value("name", ""));
          left.set_owner(job.value("owner", ""));
          progress.add_jobs(left.name());
        }
        progress.set_draining(draining);
        progress.set_drained(drained);
        if (!writer->Write(progress)) return grpc::Status::CANCELLED;
        told = *answer;
      }
      if (last) return grpc::Status::OK;
      std::unique_lock lock(mutex_);
      if (stopped_.wait_for(lock, kDrainInterval, [this] { return stopping_; }))
        return {grpc::StatusCode::UNAVAILABLE, "the switch is being stopped"};
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
    }
  }

  grpc::Status Undrain(grpc::ServerContext* context, const v1::UndrainRequest*,
                       v1::UndrainResponse*) override {
    return done(*context, admin::Undrain{});
  }

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest*,
                      v1::StatusResponse* response) override {
    return answer(*context, GetStatus{}, *response);
  }

  grpc::Status Slots(grpc::ServerContext* context, const v1::SlotsRequest*,
                     v1::SlotsResponse* response) override {
    return answer(*context, GetSlots{}, *response);
  }

  grpc::Status Trace(grpc::ServerContext* context, const v1::TraceRequest* request,
                     v1::TraceResponse* response) override {
    const Nanos wait_ns = request->has_timeout() ? nanos_of(request->timeout()) : kDefaultTraceNs;
    if (wait_ns <= 0 || wait_ns > kLongestTraceNs)
      return {grpc::StatusCode::INVALID_ARGUMENT, "the timeout is not in 1 ns..60 s"};
    const Answer begun =
        ask(*context, BeginTrace{request->job(), request->owner(), request->packets()});
    if (!begun) return status_of(begun.error());
    const auto trace = number<uint64_t>(*begun, "trace");
    // Before the caller's own deadline, which would leave the caller without any answer.
    const auto until = std::min(system_clock::now() + std::chrono::nanoseconds(wait_ns),
                                context->deadline() - kAnswerTime);
    for (;;) {
      bool ends = false;
      {
        std::unique_lock lock(mutex_);
        ends = stopped_.wait_for(lock, kTraceInterval, [this] { return stopping_; });
      }
      ends |= context->IsCancelled() || system_clock::now() >= until;
      // Also if the call has failed: a trace that nobody waits for keeps others from theirs.
      const Answer answer = queue_.ask(GetTrace{trace, ends}, who(*context), kMostNs);
      if (!answer) return status_of(answer.error());
      if (!answer->value("done", false)) continue;
      fill(*answer, *response);
      return grpc::Status::OK;
    }
  }

  grpc::Status Reload(grpc::ServerContext* context, const v1::ReloadRequest* request,
                      v1::ReloadResponse* response) override {
    return answer(*context, admin::Reload{.check = request->check(), .force = request->force()},
                  *response);
  }

  grpc::Status Policy(grpc::ServerContext* context, const v1::PolicyRequest*,
                      v1::PolicyResponse* response) override {
    return answer(*context, GetPolicy{}, *response);
  }

  grpc::Status SetPolicy(grpc::ServerContext* context, const v1::SetPolicyRequest* request,
                         v1::SetPolicyResponse* response) override {
    admin::SetPolicy wanted{
        .name = request->policy(), .check = request->check(), .force = request->force()};
    for (const v1::PolicySetting& setting : request->settings())
      wanted.settings.emplace_back(setting.key(), setting.value());
    return answer(*context, std::move(wanted), *response);
  }

 private:
  /// Of requests whose answer has a fill().
  template <class Response>
  grpc::Status answer(const grpc::ServerContext& context, Request request, Response& response) {
    const Answer answer = ask(context, std::move(request));
    if (!answer) return status_of(answer.error());
    fill(*answer, response);
    return grpc::Status::OK;
  }

  Answer ask(const grpc::ServerContext& context, Request request) {
    // A deadline that is not set is far away.
    const Nanos timeout_ns = std::clamp<Nanos>(left_ns(context.deadline()), 0, kMostNs);
    const Counted asking(asking_);
    if (asking.before >= max_asking_)
      return tl::unexpected(Error{Error::Code::kBusy, "the switch is busy: it has " +
                                                          std::to_string(asking.before) +
                                                          " requests of administrators elsewhere "
                                                          "to answer already; try again"});
    return queue_.ask(std::move(request), who(context), timeout_ns);
  }
  grpc::Status done(const grpc::ServerContext& context, Request request) {
    const Answer answer = ask(context, std::move(request));
    return answer ? grpc::Status::OK : status_of(answer.error());
  }
  /// For the log and the workers: "uid 0, pid 4711", or "certificate operator at
  /// ipv4:10.0.0.7:123".
  std::string who(const grpc::ServerContext& context) {
    const std::string peer = context.peer();
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = unix_peers_.find(peer); known != unix_peers_.end())
        return known->second;
    }
    std::string name = "?";
    if (const auto authentication = context.auth_context())
      for (const auto& part : authentication->FindPropertyValues("x509_common_name"))
        name.assign(part.data(), part.size());
    return "certificate " + name + " at " + peer;
  }

  Queue& queue_;
  const int max_asking_;
  std::atomic<int> asking_ = 0;
  std::atomic<int> drainers_ = 0;
  std::mutex mutex_;  ///< of the following
  std::map<std::string, std::string> unix_peers_;
  std::condition_variable stopped_;
  bool stopping_ = false;
};

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(Queue& queue) : queue_(queue) {}

  Result<void> open(const ServerConfig& config);
  uint16_t tcp_port() const override { return tcp_ ? tcp_->listener->port() : uint16_t{0}; }

 private:
  /// One way in, with its own threads.
  struct Way {
    Way(Queue& queue, int max_asking) : service(queue, max_asking) {}
    ~Way() {
      listener.reset();
      service.stop();
      // Answers are on their way: that to the request that ends this server, too.
      if (server) server->Shutdown(system_clock::now() + kLastWords);
    }
    /// Begins to serve what the listener accepts. `with`: for TLS; nullptr: for unix sockets.
    Result<void> start(size_t connections, int handshake_ms,
                       const std::shared_ptr<grpc::ServerCredentials>& with);

    Service service;
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
    std::unique_ptr<grpc::Server> server;
    std::optional<Listener> listener;
  };
  Result<void> open_unix(const ServerConfig& config);
  Result<void> open_tcp(const ServerConfig& config);

  Queue& queue_;
  std::optional<Way> unix_;
  std::optional<Way> tcp_;
};

Result<std::shared_ptr<grpc::ServerCredentials>> credentials(const ServerConfig& config) {
  if (config.tls.certificate.empty() || config.tls.key.empty() || config.tls.ca.empty())
    return fail(INA_ERR_INVALID,
                "admin.listen needs admin.certificate, admin.key and admin.client_ca: over TCP "
                "both ends show a certificate");
  auto pem = control::read_tls_files(config.tls, control::kAdminTlsNames);
  if (!pem) return tl::unexpected(pem.error());
  // gRPC 1.51 speaks TLS 1.2, too, and has no option for that. It takes the ciphers of TLS 1.2, and
  // of no other version, from this variable: without a key that both ends share, this one serves
  // nobody. Nothing else of this process reads the variable.
  ::setenv("GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-CHACHA20-POLY1305", 1);
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem->ca;
  options.pem_key_cert_pairs = {{pem->key, pem->certificate}};
  return grpc::SslServerCredentials(options);
}

Result<void> GrpcServer::Way::start(size_t connections, int handshake_ms,
                                    const std::shared_ptr<grpc::ServerCredentials>& with) {
  grpc::ResourceQuota quota("ina-admin");
  quota.SetMaxThreads(static_cast<int>(connections) * kMaxCallsPerConnection + kSpareThreads)
      .Resize(kMemoryBytes);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, handshake_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  if (with)
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, with);
  builder.RegisterService(&service);
  server = builder.BuildAndStart();
  if (!server) return fail(INA_ERR_INVALID, "gRPC does not start");
  listener->start([this](int fd, const std::string& who) {
    if (!acceptor) {
      service.know(fd, who);
      return grpc::AddInsecureChannelFromFd(server.get(), fd);
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  return {};
}

Result<void> GrpcServer::open_unix(const ServerConfig& config) {
  std::optional<gid_t> group;
  if (!config.group.empty()) {
    const auto found = group_of(config.group);
    if (!found) return tl::unexpected(found.error());
    group = *found;
  }
  auto listener = Listener::open_unix(config.socket, group);
  if (!listener) return tl::unexpected(listener.error());
  unix_.emplace(queue_, static_cast<int>(Queue::kMaxWaiting));
  unix_->listener.emplace(std::move(*listener));
  return unix_->start(Listener::kMaxUnix, config.handshake_ms, nullptr);
}

Result<void> GrpcServer::open_tcp(const ServerConfig& config) {
  auto secured = credentials(config);
  if (!secured) return tl::unexpected(secured.error());
  auto listener = Listener::open_tcp(config.listen);
  if (!listener) return tl::unexpected(listener.error());
  tcp_.emplace(queue_, kMaxAsking);
  tcp_->listener.emplace(std::move(*listener));
  return tcp_->start(Listener::kMaxTcp, config.handshake_ms, *secured);
}

Result<void> GrpcServer::open(const ServerConfig& config) {
  if (!config.listen.empty())
    if (auto opened = open_tcp(config); !opened) return opened;
  return config.socket.empty() ? Result<void>() : open_unix(config);
}

/// gRPC's messages go to the log of the switch.
void log_as_we_do() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* args) {
      if (args->severity == GPR_LOG_SEVERITY_ERROR)
        logging::warn("grpc", "grpc")("text", args->message);
    });
  });
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerConfig& config, Queue& queue) {
  log_as_we_do();
  auto server = std::make_unique<GrpcServer>(queue);
  if (auto opened = server->open(config); !opened) return tl::unexpected(opened.error());
  return server;
}

}  // namespace ina::admin
