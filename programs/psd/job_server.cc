#include "programs/psd/job_server.h"

#include "wire/text.h"

namespace ina::psd {

Result<std::unique_ptr<JobServer>> JobServer::join(const Way& way, uint32_t id, Nanos timeout_ns) {
  std::unique_ptr<JobServer> server(new JobServer);
  auto joined = server->ask_to_join(way, id, timeout_ns);
  if (!joined && joined.error().status == INA_ERR_ABORTED) return nullptr;
  if (!joined) return tl::unexpected(joined.error());
  return server;
}

/// Opens the Ethernet port, if there is to be one: the switch is told its address.
Result<request::JoinFallback> JobServer::join_message(const Way& way, uint32_t id,
                                                      Nanos timeout_ns) {
  request::JoinFallback request{.job_id = id};
  if (!way.url) return request;
  auto opened = attachment_.open(*way.url, way.trust, timeout_ns);
  if (!opened) return tl::unexpected(opened.error());
  request.reach = attachment_.reach();
  transport_ = std::move(*opened);
  return request;
}

Result<void> JobServer::ask_to_join(const Way& way, uint32_t id, Nanos timeout_ns) {
  const auto message = join_message(way, id, timeout_ns);
  if (!message) return tl::unexpected(message.error());
  auto connection = control::Connection::open(way.socket, 0, way.trust);  // the caller tries again
  if (!connection) return tl::unexpected(connection.error());
  control_ = std::move(*connection);
  auto reply = control::ask(control_, *message, timeout_ns);
  if (!reply) return tl::unexpected(reply.error());
  if (!*reply) return fail(INA_ERR_TIMEOUT, "the switch did not answer the request to join a job");
  const answer::Message& said = (*reply)->message;
  const auto* const joined = std::get_if<answer::FallbackJoined>(&said);
  if (!joined) return tl::unexpected(control::error_of(said));
  return attach(*joined, **reply);
}

/// `heard`: in which `joined` came.
Result<void> JobServer::attach(const answer::FallbackJoined& joined, control::Heard& heard) {
  const answer::Place& place = joined.place;
  aggregator::FallbackConfig config;
  config.workers = joined.workers;
  config.window = place.window;
  config.slot_bytes = place.slot_bytes;
  config.lanes = place.lanes;
  config.instance = joined.instance;
  config.epoch = place.epoch;
  config.min_epoch = config.epoch;
  config.bind_at_once = joined.bind_at_once;
  config.start = Seq{joined.start};
  if (config.workers == 0 || config.workers > kMaxWorkers || config.window == 0)
    return fail(INA_ERR_INTERNAL, "the switch sent an incomplete answer to the request to join");
  fallback_.emplace(config);
  auto made = attachment_.take(place, heard);
  if (!made) return tl::unexpected(made.error());
  shm_ = made->get();
  if (shm_) transport_ = std::move(*made);
  return control::say(control_, request::Attach{}, membership::Attachment::descriptors(shm_));
}

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
  (void)control::say(
      control_, request::Mismatch{wire::mismatch_text(mismatch.first, mismatch.first_signature,
                                                      mismatch.other, mismatch.other_signature)});
}

}  // namespace ina::psd
