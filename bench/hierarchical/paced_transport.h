// A transport that carries at most so many bytes a second each way: a token bucket for each
// direction. Emulates a slow network, so that many ranks on one machine wait for it and not for the
// processor.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "common/clock.h"
#include "fragments/transport.h"

namespace ina::hierarchical {

/// Tokens are bytes. Goes into debt for the last packet.
class TokenBucket {
 public:
  explicit TokenBucket(double bytes_per_s)
      : bytes_per_ns_(bytes_per_s * 1e-9), most_(bytes_per_ns_ * kBurstNs), last_ns_(now_ns()) {}
  bool has_any() {
    const Nanos now = now_ns();
    tokens_ = std::min(most_, tokens_ + static_cast<double>(now - last_ns_) * bytes_per_ns_);
    last_ns_ = now;
    return tokens_ > 0;
  }
  void take(uint32_t bytes) { tokens_ -= bytes; }
  /// Packets of `bytes` bytes that it has tokens for, at least one.
  size_t packets(uint32_t bytes) const { return static_cast<size_t>(tokens_ / bytes) + 1; }

 private:
  // As long as a thread may wait for its core without a loss of rate.
  static constexpr double kBurstNs = 4e6;
  double bytes_per_ns_;
  double most_;
  double tokens_ = 0;
  Nanos last_ns_;
};

class PacedTransport final : public client::Transport {
 public:
  PacedTransport(std::unique_ptr<client::Transport> inner, double bytes_per_s,
                 uint32_t packet_bytes)
      : inner_(std::move(inner)), packet_bytes_(packet_bytes), tx_(bytes_per_s), rx_(bytes_per_s) {}

  size_t tx_burst(std::span<const client::TxPacket> packets) override {
    size_t sent = 0;
    while (sent < packets.size()) {
      const client::TxPacket& packet = packets[sent];
      if (packet.payload_bytes != 0 && !tx_.has_any()) break;
      if (inner_->tx_burst(packets.subspan(sent, 1)) == 0) break;
      tx_.take(packet.payload_bytes);
      ++sent;
    }
    return sent;
  }
  size_t rx_burst(std::span<client::RxPacket> packets) override {
    if (!rx_.has_any()) return 0;
    const size_t most = std::min(packets.size(), rx_.packets(packet_bytes_));
    const size_t received = inner_->rx_burst(packets.first(most));
    for (const client::RxPacket& packet : packets.first(received)) rx_.take(packet.payload_bytes);
    return received;
  }
  void rx_release() override { inner_->rx_release(); }
  void wait(Nanos timeout_ns) override { inner_->wait(std::min<Nanos>(timeout_ns, kPauseNs)); }
  void wake() override { inner_->wake(); }
  bool set_idle(bool idle) override { return inner_->set_idle(idle); }
  Nanos idle_poll_ns() const override { return inner_->idle_poll_ns(); }
  client::TransportCounters counters() const override { return inner_->counters(); }

 private:
  static constexpr Nanos kPauseNs = 200'000;
  std::unique_ptr<client::Transport> inner_;
  const uint32_t packet_bytes_;
  TokenBucket tx_, rx_;
};

}  // namespace ina::hierarchical
