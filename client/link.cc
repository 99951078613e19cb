#include "client/link.h"

#include <span>
#include <utility>

namespace ina::client {

void Link::connect(std::unique_ptr<Transport> transport) {
  if (transport) {
    const std::lock_guard lock(transport_mutex_);
    transport_ = std::move(transport);
  }
  idle_poll_ns_ = transport_->idle_poll_ns();
}

bool Link::turn(Nanos now) {
  const size_t arrived = receive(now);
  const size_t ready = engine_->prepare(to_send_, now);
  size_t sent = 0;
  if (ready != 0) {
    sent = transport_->tx_burst(std::span(to_send_).first(ready));
    engine_->sent(sent, now);
  }
  all_sent_ = sent == ready && ready < Engine::kBurst;
  return arrived + sent != 0;
}

size_t Link::receive(Nanos now) {
  const size_t arrived = transport_->rx_burst(received_);
  if (arrived != 0) {
    engine_->on_packets(std::span(received_).first(arrived), now, copier_);
    transport_->rx_release();
  }
  return arrived;
}

void Link::replace(const Made& made) {
  const std::lock_guard lock(transport_mutex_);
  transport_ = made(std::move(transport_));
}

std::unique_ptr<Transport> Link::replace(std::unique_ptr<Transport> transport) {
  lost_counters_ = counters();
  const std::lock_guard lock(transport_mutex_);
  std::swap(transport_, transport);
  return transport;
}

TransportCounters Link::counters() const {
  const TransportCounters now = transport_->counters();
  return {.sleeps = lost_counters_.sleeps + now.sleeps,
          .dropped = lost_counters_.dropped + now.dropped,
          .bytes_copied = lost_counters_.bytes_copied + now.bytes_copied};
}

void Link::wake() {
  const std::lock_guard lock(transport_mutex_);
  if (transport_) transport_->wake();
}

}  // namespace ina::client
