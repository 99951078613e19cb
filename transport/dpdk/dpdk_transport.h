// The client's DPDK transport: libina-dpdk.so. It is a library of its own so that libina does not
// link DPDK; libina loads it when a URL asks for it.
//
//   dpdk:10.0.0.1?iface=eth0&driver=af_xdp
//   dpdk:10.0.0.1?device=0000:01:00.0&ip=10.0.0.2&mtu=9000
//
//   path      address of the switch's port, or any on the way to it
//   iface     the interface of the kernel (that by which the kernel would reach the path)
//   driver    how it is used: af_packet (the default) or af_xdp
//   device    instead of both: a PCI device, or arguments of any device of DPDK's
//   ip        the worker's own IPv4 address; needed unless an interface of the kernel has one
//   udp_port  the worker's own UDP port (7584); chosen by the kernel on its interfaces
//   mtu       largest IPv4 packet (the interface's; 1500)
//   control   the switch's control connection; read by libina, not here
//   port      name of the switch's port behind which the worker is, if it has several; likewise
//
//   memif:/run/ina/memif0.sock?id=0&ip=10.0.0.2&udp_port=9000&mtu=9000
//
//   path      socket on which the switch's memif device listens
//   id        number of the memif interface on that socket (0)
//   others    as above; ip is needed
//
// memif needs neither root nor hugepages; AF_PACKET and AF_XDP need capabilities. DPDK is started
// at the first open and stays until the process ends, since it can be started only once; further
// transports add devices to it. Meanwhile the process cannot use DPDK for anything else. If the
// switch dies, packets stop; that it died is seen on the control connection.
#pragma once

#include <memory>

#include "common/result.h"
#include "transport/dpdk/shared_device.h"
#include "transport/frame_transport.h"
#include "transport/url.h"

namespace ina::client {

class DpdkTransport final : public FrameTransport {
 public:
  /// Waits at most `timeout_us` for a switch's memif to answer.
  static Result<std::unique_ptr<DpdkTransport>> open(std::string_view url, int64_t timeout_us);
  ~DpdkTransport() override;

  wire::Address address() const override { return own_; }
  uint32_t max_slot_bytes() const override { return max_slot_bytes_; }
  Result<std::unique_ptr<FrameTransport>> share() override;
  void bind(const FrameBinding& binding) override;
  Result<void> reopen(Nanos timeout_ns) override;

  size_t tx_burst(std::span<const TxPacket> packets) override;
  size_t rx_burst(std::span<RxPacket> packets) override;
  void rx_release() override;
  void wait(Nanos timeout_ns) override;
  void wake() override;
  /// A device wakes nobody who does not poll it.
  Nanos idle_poll_ns() const override { return 2'000'000; }
  TransportCounters counters() const override;

 private:
  static constexpr uint16_t kMaxBurst = SharedDevice::kMaxBurst;

  /// `leads`: reopen() connects the device anew.
  DpdkTransport(std::shared_ptr<SharedDevice> device, bool leads);

  bool woken();
  bool sleep(Nanos duration_ns);
  rte_mbuf* make_frame(const TxPacket& packet);
  bool parse(rte_mbuf* buffer, RxPacket& packet) const;
  void flush();
  bool poll();

  const std::shared_ptr<SharedDevice> device_;
  const bool leads_;
  SharedDevice::Channel channel_;
  wire::Address own_;
  uint32_t max_slot_bytes_ = 0;
  FrameBinding binding_;
  TransportCounters counters_;
};

}  // namespace ina::client

/// The factory. Returns nullptr, a status and a text, cut to fit, on failure. The caller deletes
/// the transport. The library must not be unloaded: threads of DPDK stay.
extern "C" INA_API ina::client::FrameTransport* ina_dpdk_transport_open(
    const char* url, int64_t timeout_us, int* status, char* error_text, size_t error_text_bytes);
