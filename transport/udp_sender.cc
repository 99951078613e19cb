#include "transport/udp_sender.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "transport/interface.h"

namespace ina::client {
namespace {

// The most bytes of one message that the kernel cuts up. The kernel takes 64 KiB. But its copy
// should still be in the cache when it cuts, and the first of the frames be on the way.
constexpr size_t kMaxMessageBytes = 17 << 10;
constexpr size_t kMaxDatagrams = 64;  // the kernel's limit

}  // namespace

void UdpSender::make_buffers() {
  ina_headers_.resize(kBurst);
  parts_.assign(2 * kBurst, iovec{});
  outgoing_.assign(kBurst, Outgoing{});
  headers_.assign(kBurst, mmsghdr{});
  for (size_t i = 0; i < kBurst; ++i) {
    Outgoing& out = outgoing_[i];
    const cmsghdr segment{
        .cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT};
    std::memcpy(out.control.data(), &segment, sizeof segment);
    headers_[i].msg_hdr.msg_name = &out.to;
    headers_[i].msg_hdr.msg_namelen = sizeof out.to;
    headers_[i].msg_hdr.msg_control = out.control.data();
  }
}

size_t UdpSender::send(int socket, const wire::Address& own, const FrameBinding& binding,
                       std::span<const TxPacket> packets) {
  packets = packets.first(std::min(packets.size(), kBurst));
  lay_out(own, binding, packets);
  size_t sent = 0;
  while (sent < messages_) {
    const int now = ::sendmmsg(socket, headers_.data() + sent,
                               static_cast<unsigned>(messages_ - sent), MSG_DONTWAIT);
    if (now > 0) {
      sent += static_cast<size_t>(now);
    } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
      break;
    } else if ((errno == EIO || errno == EINVAL) && outgoing_[sent].datagrams > 1) {
      // Kernels before 6.11 cut nothing up for an interface that does not compute checksums.
      joins_ = false;
      break;
    } else if (errno != EINTR) {
      if (errno == EMSGSIZE) too_long_.fetch_add(1, std::memory_order_relaxed);
      ++sent;  // as lost as on the wire: it is asked for later
    }
  }
  // With several lanes some behind these may have gone. They go again, and count once.
  size_t taken = packets.size();
  for (; sent < messages_; ++sent) taken = std::min(taken, outgoing_[sent].place);
  return taken;
}

bool UdpSender::Outgoing::takes(size_t more_bytes) const {
  static_assert(kBurst <= kMaxDatagrams);
  return more_bytes <= datagram_bytes && bytes == datagrams * datagram_bytes &&
         bytes + more_bytes <= kMaxMessageBytes;
}

/// Makes messages of the packets, in their order within each lane.
void UdpSender::lay_out(const wire::Address& own, const FrameBinding& binding,
                        std::span<const TxPacket> packets) {
  messages_ = 0;
  iovec* part = parts_.data();
  for (uint16_t lane = 0; lane < binding.lanes; ++lane) {
    Outgoing* out = nullptr;
    for (size_t i = 0; i < packets.size(); ++i) {
      const TxPacket& packet = packets[i];
      if (packet.message.lane != lane) continue;
      const size_t bytes = wire::kInaHeaderBytes + packet.payload_bytes;
      if (!out || !joins_ || !out->takes(bytes)) {
        out = &outgoing_[messages_];
        out->to = socket_address(binding.switch_address.ip,
                                 static_cast<uint16_t>(binding.switch_address.udp_port + lane));
        out->place = i;
        out->datagrams = out->bytes = 0;
        out->datagram_bytes = bytes;
        headers_[messages_].msg_hdr.msg_iov = part;
        ++messages_;
      }
      wire::Envelope envelope{.source = own,
                              .destination = binding.switch_address,
                              .job = binding.job,
                              .job_key = binding.job_key,
                              .tag = 0};
      envelope.destination.udp_port = static_cast<uint16_t>(envelope.destination.udp_port + lane);
      const std::span<const std::byte> payload(packet.payload, packet.payload_bytes);
      std::optional<wire::Seal> seal;
      if (binding.tag_keys) seal = wire::make_seal(*binding.tag_keys, payload);
      auto& header = ina_headers_[i];
      wire::encode_ina_header(envelope, packet.message, payload, header, seal ? &*seal : nullptr);
      *part++ = {header.data(), header.size()};
      // The kernel only reads it; iovec has no const.
      if (packet.payload_bytes != 0)
        *part++ = {const_cast<std::byte*>(packet.payload), packet.payload_bytes};
      ++out->datagrams;
      out->bytes += bytes;
      msghdr& message = headers_[messages_ - 1].msg_hdr;
      message.msg_iovlen = static_cast<size_t>(part - message.msg_iov);
    }
  }
  for (size_t i = 0; i < messages_; ++i) {
    Outgoing& out = outgoing_[i];
    const auto datagram_bytes = static_cast<uint16_t>(out.datagram_bytes);
    std::memcpy(CMSG_DATA(reinterpret_cast<cmsghdr*>(out.control.data())), &datagram_bytes,
                sizeof datagram_bytes);
    headers_[i].msg_hdr.msg_controllen = out.datagrams > 1 ? out.control.size() : 0;
  }
}

}  // namespace ina::client
