// The receiving half of the udp: transport: takes datagrams from the kernel, and drops those that
// are not the switch's for this job.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <vector>

#include "transport/frame_transport.h"

namespace ina::client {

class UdpReceiver {
 public:
  /// Before the first receive().
  void make_buffers(uint32_t slot_bytes);
  /// Most datagrams of one burst.
  size_t room() const { return headers_.size(); }

  /// Fills `packets` with what is there, `own` being the address to which it was sent. Payloads lie
  /// in the buffers. `place`: the first buffer that is free; moved behind those that are filled.
  size_t receive(int socket, const wire::Address& own, const FrameBinding& binding,
                 std::span<RxPacket> packets, size_t& place);

  uint64_t dropped() const { return dropped_; }

 private:
  bool accept(const mmsghdr& received, const wire::Address& own, const FrameBinding& binding,
              RxPacket& packet) const;

  size_t datagram_bytes_ = 0;     ///< the longest that the job has
  std::vector<std::byte> bytes_;  ///< a buffer for each of headers_
  std::vector<iovec> parts_;
  std::vector<sockaddr_in> from_;
  std::vector<mmsghdr> headers_;
  uint64_t dropped_ = 0;
};

}  // namespace ina::client
