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

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "common/fd.h"
#include "transport/frame_transport.h"
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
  TransportCounters counters() const override { return counters_; }
  std::string trouble() const override;

 private:
  static constexpr size_t kBurst = 64;

  UdpTransport(Url url, const wire::Address& own, uint32_t max_slot_bytes, bool segment);

  Result<void> open_socket();
  void lay_out(std::span<const TxPacket> packets);
  size_t receive(const Fd& socket, std::span<RxPacket> packets, size_t& place);
  bool accept(const mmsghdr& received, const std::byte* bytes, RxPacket& packet) const;

  const Url url_;
  wire::Address own_;
  const uint32_t max_slot_bytes_;
  Fd socket_;
  Fd group_socket_;  ///< none: results come to socket_
  Fd wake_event_;
  FrameBinding binding_;
  bool bound_ = false;
  TransportCounters counters_;
  std::atomic<uint32_t> needed_mtu_{0};
  std::atomic<uint64_t> too_long_{0};  ///< messages that the kernel refused as too long for the way

  /// The input of one sendmsg(): datagrams to one UDP port, all of the same length, but the last
  /// may be shorter.
  struct Outgoing {
    sockaddr_in to{};
    size_t place = 0;  ///< of its first packet in the burst
    size_t datagrams = 0;
    size_t datagram_bytes = 0;
    size_t bytes = 0;
    bool takes(size_t more_bytes) const;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(uint16_t))> control{};
  };
  bool segment_;  ///< whether a message may be several datagrams
  std::vector<std::array<std::byte, wire::kInaHeaderBytes>> tx_ina_headers_;  ///< by packet
  std::vector<iovec> tx_parts_;  ///< header and payload of each packet, in order of messages
  std::vector<Outgoing> outgoing_;
  std::vector<mmsghdr> tx_headers_;  ///< of each outgoing_
  size_t messages_ = 0;              ///< of these, used for the last burst

  std::vector<std::byte> rx_bytes_;  ///< a buffer for each of rx_headers_
  std::vector<iovec> rx_parts_;
  std::vector<sockaddr_in> rx_from_;
  std::vector<mmsghdr> rx_headers_;
  size_t datagram_bytes_ = 0;
};

}  // namespace ina::client
