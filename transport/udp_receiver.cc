#include "transport/udp_receiver.h"

#include <algorithm>
#include <optional>

namespace ina::client {
namespace {

// The most bytes received at once: they should still be in the cache when they are looked at.
constexpr size_t kRxBytes = 128 << 10;
constexpr size_t kLeastDatagrams = 8;
constexpr size_t kMostDatagrams = 64;

}  // namespace

void UdpReceiver::make_buffers(uint32_t slot_bytes) {
  datagram_bytes_ = wire::kInaHeaderBytes + slot_bytes;
  // One byte more shows that a datagram was longer.
  const size_t stride = (datagram_bytes_ + 1 + 63) / 64 * 64;
  const size_t datagrams = std::clamp(kRxBytes / stride, kLeastDatagrams, kMostDatagrams);
  bytes_.assign(datagrams * stride, std::byte{});
  parts_.assign(datagrams, iovec{});
  from_.assign(datagrams, sockaddr_in{});
  headers_.assign(datagrams, mmsghdr{});
  for (size_t i = 0; i < datagrams; ++i) {
    parts_[i] = {bytes_.data() + i * stride, datagram_bytes_ + 1};
    headers_[i].msg_hdr.msg_iov = &parts_[i];
    headers_[i].msg_hdr.msg_iovlen = 1;
    headers_[i].msg_hdr.msg_name = &from_[i];
  }
}

size_t UdpReceiver::receive(int socket, const wire::Address& own, const FrameBinding& binding,
                            std::span<RxPacket> packets, size_t& place) {
  mmsghdr* const headers = headers_.data() + place;
  for (size_t i = 0; i < packets.size(); ++i) headers[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
  const int received =
      ::recvmmsg(socket, headers, static_cast<unsigned>(packets.size()), MSG_DONTWAIT, nullptr);
  size_t filled = 0;
  for (int i = 0; i < received; ++i) {
    const mmsghdr& header = headers[i];
    if (accept(header, own, binding, packets[filled]))
      ++filled;
    else
      ++dropped_;
  }
  place += static_cast<size_t>(std::max(received, 0));
  return filled;
}

bool UdpReceiver::accept(const mmsghdr& received, const wire::Address& own,
                         const FrameBinding& binding, RxPacket& packet) const {
  const auto* const bytes = static_cast<const std::byte*>(received.msg_hdr.msg_iov->iov_base);
  const auto& from = *static_cast<const sockaddr_in*>(received.msg_hdr.msg_name);
  const auto lane = static_cast<uint16_t>(ntohs(from.sin_port) - binding.switch_address.udp_port);
  if (received.msg_len > datagram_bytes_ ||
      ntohl(from.sin_addr.s_addr) != binding.switch_address.ip || lane >= binding.lanes)
    return false;
  auto frame = wire::parse_datagram({bytes, received.msg_len});
  if (!frame || frame->envelope.job != binding.job || frame->envelope.job_key != binding.job_key)
    return false;
  if (binding.tag_keys) {
    frame->envelope.source = {{}, ntohl(from.sin_addr.s_addr), ntohs(from.sin_port)};
    frame->envelope.destination = own;
    if (!wire::tag_matches(
            *frame, wire::make_seal(*binding.tag_keys, {frame->payload, frame->payload_bytes})))
      return false;
  }
  if (wire::validate(frame->message, frame->payload_bytes, binding.slot_bytes)) return false;
  packet = {
      .message = frame->message, .payload = frame->payload, .payload_bytes = frame->payload_bytes};
  return true;
}

}  // namespace ina::client
