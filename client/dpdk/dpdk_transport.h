// The client's memif transport: libina-dpdk.so. It is a library of its own so that libina does not
// link DPDK; libina loads it when a URL asks for it.
//
//   memif:/run/ina/memif0.sock?id=0&ip=10.0.0.2&udp_port=9000&mtu=9000
//
//   path      socket on which the switch's memif device listens
//   id        number of the memif interface on that socket (0)
//   ip        the worker's own IPv4 address; needed
//   udp_port  the worker's own UDP port (7584)
//   mtu       largest IPv4 packet; slots of 8 KiB need 8292 (1500)
//   control   the switch's control socket; read by libina, not here
//   port      name of the switch's port that the socket belongs to, if it has several; likewise
//
// It needs neither root nor hugepages. DPDK is started at the first open and stays until the
// process ends, since it can be started only once; further transports add devices to it. Meanwhile
// the process cannot use DPDK for anything else. If the switch dies, packets stop; that it died is
// seen on the control socket.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "client/src/frame_transport.h"
#include "client/src/url.h"
#include "common/result.h"
#include "io/ethdev/device.h"

namespace ina::client {

class DpdkTransport final : public FrameTransport {
 public:
  /// Waits at most `timeout_us` for the switch's memif to answer.
  static Result<std::unique_ptr<DpdkTransport>> open(std::string_view url, int64_t timeout_us);
  ~DpdkTransport() override;

  wire::Address address() const override { return own_; }
  uint32_t max_slot_bytes() const override {
    return device_->frame_bytes() - static_cast<uint32_t>(wire::kFrameHeaderBytes);
  }
  void bind(const FrameBinding& binding) override;
  Result<void> reopen(Nanos timeout_ns) override;

  size_t tx_burst(std::span<const TxPacket> packets) override;
  size_t rx_burst(std::span<RxPacket> packets) override;
  void rx_release() override;
  void wait(Nanos timeout_ns) override;
  void wake() override { woken_.store(true, std::memory_order_release); }
  /// A device wakes nobody who does not poll it.
  Nanos idle_poll_ns() const override { return 2'000'000; }
  TransportCounters counters() const override { return counters_; }

 private:
  static constexpr uint16_t kMaxBurst = io::Device::kMaxBurst;

  DpdkTransport(Url url, uint32_t mtu, const wire::Address& own);

  void close();
  rte_mbuf* make_frame(const TxPacket& packet);
  bool parse(const rte_mbuf* buffer, RxPacket& packet) const;
  void flush();
  bool poll();

  const Url url_;
  const uint32_t mtu_;
  std::unique_ptr<io::Device> device_;  ///< none after a reopen() that failed
  wire::Address own_;
  FrameBinding binding_;
  bool bound_ = false;
  TransportCounters counters_;
  std::atomic<bool> woken_{false};  ///< written by wake(), from any thread; reset by wait()

  // Frames taken from the caller that the device did not take yet.
  std::array<rte_mbuf*, kMaxBurst> unsent_{};
  uint16_t unsent_begin_ = 0;
  uint16_t unsent_end_ = 0;
  // Frames received: those up to `read_` have been looked at, and the caller may read their
  // payloads.
  std::array<rte_mbuf*, kMaxBurst> received_{};
  uint16_t read_ = 0;
  uint16_t received_count_ = 0;
};

}  // namespace ina::client

/// The factory. Returns nullptr and a text, cut to fit, on failure. The caller deletes the
/// transport. The library must not be unloaded: threads of DPDK stay.
extern "C" INA_API ina::client::FrameTransport* ina_dpdk_transport_open(const char* url,
                                                                        int64_t timeout_us,
                                                                        char* error_text,
                                                                        size_t error_text_bytes);
