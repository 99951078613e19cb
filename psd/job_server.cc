#include "psd/job_server.h"

#include <pthread.h>

#include "client/src/shm_join.h"
#include "common/clock.h"
#include "wire/text.h"

namespace ina::psd {

namespace {

using control::Json;

Error error_of(const Json& message) {
  return {static_cast<ina_status>(message.value("status", static_cast<int>(INA_ERR_INTERNAL))),
          message.value("text", std::string("the switch gave no reason"))};
}

}  // namespace

Result<std::unique_ptr<JobServer>> JobServer::start(const std::string& socket, uint32_t id,
                                                    IdleMode idle, Nanos timeout_ns) {
  std::unique_ptr<JobServer> server(new JobServer);
  server->id_ = id;
  auto joined = server->join(socket, timeout_ns);
  if (!joined && joined.error().status == INA_ERR_ABORTED) return nullptr;
  if (!joined) return tl::unexpected(joined.error());
  server->thread_ = std::thread([raw = server.get(), idle] { raw->run(idle); });
  return server;
}

JobServer::~JobServer() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  transport_->wake();
  thread_.join();
}

Result<void> JobServer::join(const std::string& socket, Nanos timeout_ns) {
  auto connection = control::Connection::open(socket, timeout_ns);
  if (!connection) return tl::unexpected(connection.error());
  control_ = std::move(*connection);
  if (auto sent = control_.send({{"type", "join_fallback"}, {"job_id", id_}}); !sent) return sent;
  auto reply = control_.receive(timeout_ns);
  if (!reply) return tl::unexpected(reply.error());
  if (!*reply) return fail(INA_ERR_TIMEOUT, "the switch did not answer the request to join a job");
  try {
    if ((*reply)->body.at("type") != "joined") return tl::unexpected(error_of((*reply)->body));
    return attach(**reply);
  } catch (const Json::exception& e) {
    return fail(INA_ERR_INTERNAL, std::string("malformed answer of the switch: ") + e.what());
  }
}

Result<void> JobServer::attach(control::Received& joined) {
  const Json& body = joined.body;
  name_ = body.at("job").get<std::string>();
  aggregator::FallbackConfig config;
  config.workers = body.at("workers").get<uint32_t>();
  config.window = body.at("window").get<uint32_t>();
  config.slot_bytes = body.at("slot_bytes").get<uint32_t>();
  config.lanes = body.at("lanes").get<uint32_t>();
  config.instance = body.at("instance").get<uint32_t>();
  config.epoch = body.at("epoch").get<uint32_t>();
  config.min_epoch = config.epoch;
  config.bind_at_once = body.at("bind_at_once").get<bool>();
  config.start = Seq{body.at("start").get<uint64_t>()};
  if (config.workers == 0 || config.workers > kMaxWorkers || config.window == 0)
    return fail(INA_ERR_INTERNAL, "the switch sent an incomplete answer to the request to join");
  auto transport = client::join_shm(joined, copier_);
  if (!transport) return tl::unexpected(transport.error());
  transport_ = std::move(*transport);
  fallback_.emplace(config);
  return control_.send({{"type", "attach"}}, {transport_->region_fd()});
}

void JobServer::run(IdleMode mode) {
  ::pthread_setname_np(::pthread_self(), "ina-psd-job");
  IdleStrategy idle(mode);
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (progress())
      idle.reset();
    else if (idle.idle(now_ns()) == IdleStrategy::Step::kSleep)
      transport_->wait(idle.sleep_ns());
  }
}

/// True if there was something to receive or to send.
bool JobServer::progress() {
  constexpr size_t kBurst = 64;
  client::RxPacket received[kBurst];
  const size_t arrived = transport_->rx_burst(received);
  for (size_t i = 0; i < arrived; ++i)
    fallback_->on_message(received[i].message, received[i].payload);
  if (arrived != 0) transport_->rx_release();
  client::TxPacket to_send[kBurst];
  size_t sent = 0;
  while (const size_t ready = fallback_->prepare(to_send)) {
    const size_t taken = transport_->tx_burst(std::span(to_send, ready));
    fallback_->sent(taken);
    sent += taken;
    if (taken < ready) break;
  }
  if (fallback_->mismatch() && !mismatch_reported_) report_mismatch();
  return arrived + sent != 0;
}

void JobServer::report_mismatch() {
  mismatch_reported_ = true;
  const aggregator::FallbackMismatch& mismatch = *fallback_->mismatch();
  (void)control_.send({{"type", "mismatch"},
                       {"text", wire::mismatch_text(mismatch.first, mismatch.first_signature,
                                                    mismatch.other, mismatch.other_signature)}});
}

}  // namespace ina::psd
