// The client's udp: transport: plain sockets, for hosts that cannot give up a NIC and for trying
// things out. No privileges, no DPDK; the kernel's network stack is in the way of each datagram.
//
//   udp:10.0.0.1?control=...&ip=10.0.0.2
//
//   path      any address on the way to the switch: by it the kernel chooses the worker's own
//             address. The switch itself tells the address of its Ethernet port
//   ip        the worker's own IPv4 address, where the kernel's choice is not the right one
//   gso       auto: where it works, fragments go to the kernel several at a time, and the kernel or
//             the NIC cuts them up; off: one at a time
//   control   the switch's control socket; read by libina, not here
//   port      name of the switch's port, if it has several; likewise
//
// Worker and switch share a network (no router between them): the switch sends to the MAC address
// of the worker's interface.
#pragma once

#include <atomic>
#include <memory>

#include "common/fd.h"
#include "transport/frame_transport.h"
#include "transport/udp_receiver.h"
#include "transport/udp_sender.h"
#include "transport/url.h"

namespace ina::client {

class UdpTransport final : public FrameTransport {
 public:
  static Result<std::unique_ptr<UdpTransport>> open(const Url& url);

  wire::Address address() const override { return own_; }
  uint32_t max_slot_bytes() const override { return max_slot_bytes_; }
  bool takes_groups() const override { return true; }
  Result<std::unique_ptr<FrameTransport>> share() override;
  Result<void> join_group(const wire::Address& group) override;
  void bind(const FrameBinding& binding) override;
  Result<void> reopen(Nanos timeout_ns) override;

  size_t tx_burst(std::span<const TxPacket> packets) override;
  size_t rx_burst(std::span<RxPacket> packets) override;
  void rx_release() override {}
  void wait(Nanos timeout_ns) override;
  void wake() override;
  /// Only a poll of the socket shows that a datagram has come.
  Nanos idle_poll_ns() const override { return 2'000'000; }
  TransportCounters counters() const override;
  std::string trouble() const override;

 private:
  UdpTransport(Url url, const wire::Address& own, uint32_t max_slot_bytes, bool joins);

  Result<void> open_socket();

  const Url url_;
  wire::Address own_;
  const uint32_t max_slot_bytes_;
  Fd socket_;
  Fd group_socket_;  ///< none: results come to socket_
  Fd wake_event_;
  FrameBinding binding_;
  bool bound_ = false;
  TransportCounters counters_;  ///< but for what the receiver counts
  std::atomic<uint32_t> needed_mtu_{0};
  UdpSender sender_;
  UdpReceiver receiver_;
};

}  // namespace ina::client
