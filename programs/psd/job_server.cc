#include "programs/psd/job_server.h"

#include <pthread.h>

#include <algorithm>

#include "common/clock.h"
#include "transport/frame_join.h"
#include "transport/shm_join.h"
#include "wire/text.h"

namespace ina::psd {

namespace {

using control::Json;

// How long to wait, at most, until what the transport did not take is tried again.
constexpr Nanos kSendAgainNs = 1'000'000;

Error error_of(const Json& message) {
  return {static_cast<ina_status>(message.value("status", static_cast<int>(INA_ERR_INTERNAL))),
          message.value("text", std::string("the switch gave no reason"))};
}

}  // namespace

Result<std::unique_ptr<JobServer>> JobServer::start(const Way& way, uint32_t id, IdleMode idle,
                                                    Nanos timeout_ns) {
  std::unique_ptr<JobServer> server(new JobServer);
  server->id_ = id;
  auto joined = server->join(way, timeout_ns);
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

/// Opens the Ethernet port, if there is to be one: the switch is told its address.
Result<Json> JobServer::request(const Way& way, Nanos timeout_ns) {
  Json request = {{"type", "join_fallback"}, {"job_id", id_}};
  if (!way.url) return request;
  const auto place = client::frame_place_of(*way.url);
  if (!place) return tl::unexpected(place.error());
  auto opened = client::open_frame_transport(*way.url, timeout_ns);
  if (!opened) return tl::unexpected(opened.error());
  client::add_frames(request, **opened, *place);
  frames_ = opened->get();
  transport_ = std::move(*opened);
  return request;
}

Result<void> JobServer::join(const Way& way, Nanos timeout_ns) {
  const auto message = request(way, timeout_ns);
  if (!message) return tl::unexpected(message.error());
  auto connection = control::Connection::open(way.socket, timeout_ns);
  if (!connection) return tl::unexpected(connection.error());
  control_ = std::move(*connection);
  if (auto sent = control_.send(*message); !sent) return sent;
  auto reply = control_.receive(timeout_ns);
  if (!reply) return tl::unexpected(reply.error());
  if (!*reply) return fail(INA_ERR_TIMEOUT, "the switch did not answer the request to join a job");
  try {
    const Json& body = (*reply)->body;
    if (control::is_no_room(body)) return fail(INA_ERR_NO_SWITCH, error_of(body).text);
    if (body.at("type") != "joined") return tl::unexpected(error_of(body));
    return attach(**reply, way);
  } catch (const Json::exception& e) {
    return fail(INA_ERR_INTERNAL, std::string("malformed answer of the switch: ") + e.what());
  }
}

Result<void> JobServer::attach(control::Received& joined, const Way& way) {
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
  fallback_.emplace(config);
  if (!frames_) return attach_shm(joined);
  if (auto bound = client::bind_frames(body, way.url->text, *frames_); !bound) return bound;
  return control_.send({{"type", "attach"}});
}

Result<void> JobServer::attach_shm(control::Received& joined) {
  auto transport = client::join_shm(joined, copier_);
  if (!transport) return tl::unexpected(transport.error());
  const int region = (*transport)->region_fd();
  transport_ = std::move(*transport);
  return control_.send({{"type", "attach"}}, {region});
}

void JobServer::run(IdleMode mode) {
  ::pthread_setname_np(::pthread_self(), "ina-psd-job");
  IdleStrategy idle(mode);
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (progress())
      idle.reset();
    else if (idle.idle(now_ns()) == IdleStrategy::Step::kSleep)
      transport_->wait(fallback_->has_output() ? std::min(kSendAgainNs, idle.sleep_ns())
                                               : idle.sleep_ns());
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
