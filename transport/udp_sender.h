// The sending half of the udp: transport: lays packets out as datagrams, several in one message for
// the kernel where that works, and sends them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <span>
#include <vector>

#include "transport/frame_transport.h"

namespace ina::client {

class UdpSender {
 public:
  /// `joins`: a message for the kernel may be several datagrams.
  explicit UdpSender(bool joins) : joins_(joins) {}

  bool joins() const { return joins_; }
  /// Each message is one datagram from now on.
  void send_one_by_one() { joins_ = false; }
  /// Before the first send().
  void make_buffers();

  /// Sends as many of the packets as the kernel takes now, `own` being the socket's address.
  /// Returns how many of the first ones need not be given again.
  size_t send(int socket, const wire::Address& own, const FrameBinding& binding,
              std::span<const TxPacket> packets);

  /// Messages that the kernel refused as too long for the way. From any thread.
  uint64_t too_long() const { return too_long_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kBurst = 64;

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

  void lay_out(const wire::Address& own, const FrameBinding& binding,
               std::span<const TxPacket> packets);

  bool joins_;
  std::vector<std::array<std::byte, wire::kInaHeaderBytes>> ina_headers_;  ///< by packet
  std::vector<iovec> parts_;  ///< header and payload of each packet, in order of messages
  std::vector<Outgoing> outgoing_;
  std::vector<mmsghdr> headers_;  ///< of each outgoing_
  size_t messages_ = 0;           ///< of these, used for the last burst
  std::atomic<uint64_t> too_long_{0};
};

}  // namespace ina::client
