#include "transport/udp_transport.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/event_fd.h"
#include "common/system_text.h"
#include "transport/interface.h"
#include "transport/udp_filter.h"

namespace ina::client {
namespace {

// The kernel's buffer for results that the worker has not fetched yet: a window of some MiB, with
// the kernel's own overhead for small datagrams. Without privileges the kernel gives less.
constexpr int kSocketBufferBytes = 16 << 20;
// The most bytes received at once: they should still be in the cache when they are looked at.
constexpr size_t kRxBytes = 128 << 10;
constexpr size_t kLeastRxDatagrams = 8;
// The most bytes of one message that the kernel cuts up. The kernel takes 64 KiB. But its copy
// should still be in the cache when it cuts, and the first of the frames be on the way.
constexpr size_t kMaxMessageBytes = 17 << 10;
constexpr size_t kMaxDatagrams = 64;  // the kernel's limit
// The part of the MTU that is not payload.
constexpr uint32_t kAround = wire::kIpv4Bytes + wire::kUdpBytes + wire::kInaHeaderBytes;

/// Its buffers, as far as the kernel lets us.
void enlarge(const Fd& fd) {
  for (const auto& [forced, plain] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}})
    if (::setsockopt(fd.get(), SOL_SOCKET, forced, &kSocketBufferBytes,
                     sizeof kSocketBufferBytes) != 0)
      ::setsockopt(fd.get(), SOL_SOCKET, plain, &kSocketBufferBytes, sizeof kSocketBufferBytes);
}

/// Datagrams that are sent in one piece leave the interface one by one. Not so on a veth that need
/// not compute checksums: it hands its peer the whole piece. An AF_PACKET port of a switch at the
/// other end takes that for one frame that is too long.
bool cuts_up(const Interface& interface) {
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto ask = [&](auto& what) {
    ifreq request{};
    interface.name.copy(request.ifr_name, sizeof request.ifr_name - 1);
    request.ifr_data = reinterpret_cast<char*>(&what);
    return any && ::ioctl(any.get(), SIOCETHTOOL, &request) == 0;
  };
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  if (!ask(driver) || std::strcmp(driver.driver, "veth") != 0) return true;
  ethtool_value checksums{.cmd = ETHTOOL_GTXCSUM, .data = 1};
  return ask(checksums) && checksums.data == 0;
}

}  // namespace

Result<std::unique_ptr<UdpTransport>> UdpTransport::open(const Url& url) {
  const auto prefixed = [&](const Error& error) {
    return fail(error.status, "URL \"" + url.text + "\": " + error.text);
  };
  if (auto known = url.check_keys({"ip", "control", "port", "gso"}); !known)
    return tl::unexpected(known.error());
  const std::string gso = url.get("gso", "auto");
  if (gso != "auto" && gso != "off")
    return prefixed({INA_ERR_INVALID, "gso=" + gso + " is neither auto nor off"});
  const auto towards = parse_ipv4(url.path);
  if (!towards) return prefixed(towards.error());
  const auto ip = url.has("ip") ? url.ipv4("ip") : source_towards(*towards);
  if (!ip) return prefixed(ip.error());
  const auto interface = interface_with(*ip);
  if (!interface) return prefixed(interface.error());
  const uint32_t mtu = std::min(interface->mtu, mtu_towards(*towards).value_or(UINT32_MAX));
  if (mtu <= kAround)
    return prefixed(
        {INA_ERR_INVALID, "an MTU of " + std::to_string(mtu) + " leaves no room for a fragment"});
  std::unique_ptr<UdpTransport> transport(new UdpTransport(
      url, {interface->mac, *ip, 0}, mtu - kAround, gso == "auto" && cuts_up(*interface)));
  if (auto opened = transport->open_socket(); !opened) return prefixed(opened.error());
  return transport;
}

Result<std::unique_ptr<FrameTransport>> UdpTransport::share() {
  std::unique_ptr<UdpTransport> transport(new UdpTransport(url_, own_, max_slot_bytes_, segment_));
  if (auto opened = transport->open_socket(); !opened) return tl::unexpected(opened.error());
  return transport;
}

UdpTransport::UdpTransport(Url url, const wire::Address& own, uint32_t max_slot_bytes, bool segment)
    : url_(std::move(url)),
      own_(own),
      max_slot_bytes_(max_slot_bytes),
      wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      segment_(segment) {}

Result<void> UdpTransport::open_socket() {
  Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in own = socket_address(own_.ip, 0);
  socklen_t bytes = sizeof own;
  if (!fd || !wake_event_ ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
    return tl::unexpected(system_error("no UDP socket at " + dotted(own_.ip)));
  // A fragment that the network would cut up is one that the switch drops.
  const int discover = IP_PMTUDISC_DO;
  ::setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  enlarge(fd);
  // Kernels before 4.18 do not know it.
  const int unset = 0;
  if (::setsockopt(fd.get(), SOL_UDP, UDP_SEGMENT, &unset, sizeof unset) != 0) segment_ = false;
  own_.udp_port = ntohs(own.sin_port);
  socket_ = std::move(fd);
  return {};
}

/// The socket knows nothing of the switch, so there is nothing to connect anew. A new port keeps
/// out what is still on its way.
Result<void> UdpTransport::reopen(Nanos) {
  bound_ = false;
  group_socket_.reset();
  return open_socket();
}

/// A socket of its own, because only one that is bound to the group's address receives nothing
/// else. All workers of the job on this host have one.
Result<void> UdpTransport::join_group(const wire::Address& group) {
  Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_in address = socket_address(group.ip, group.udp_port);
  const ip_mreq membership{.imr_multiaddr = {htonl(group.ip)}, .imr_interface = {htonl(own_.ip)}};
  const int yes = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::setsockopt(fd.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)
    return tl::unexpected(system_error("the results' group " + dotted(group.ip) +
                                       " cannot be joined at " + dotted(own_.ip)));
  enlarge(fd);
  group_socket_ = std::move(fd);
  return {};
}

void UdpTransport::bind(const FrameBinding& binding) {
  binding_ = binding;
  filter_strangers(socket_.get(), binding);
  datagram_bytes_ = wire::kInaHeaderBytes + binding.slot_bytes;
  needed_mtu_.store(binding.slot_bytes + kAround, std::memory_order_relaxed);
  // One byte more shows that a datagram was longer.
  const size_t stride = (datagram_bytes_ + 1 + 63) / 64 * 64;
  tx_ina_headers_.resize(kBurst);
  tx_parts_.assign(2 * kBurst, iovec{});
  outgoing_.assign(kBurst, Outgoing{});
  tx_headers_.assign(kBurst, mmsghdr{});
  const size_t rx_datagrams = std::clamp(kRxBytes / stride, kLeastRxDatagrams, kBurst);
  rx_bytes_.assign(rx_datagrams * stride, std::byte{});
  rx_parts_.assign(rx_datagrams, iovec{});
  rx_from_.assign(rx_datagrams, sockaddr_in{});
  rx_headers_.assign(rx_datagrams, mmsghdr{});
  for (size_t i = 0; i < kBurst; ++i) {
    Outgoing& out = outgoing_[i];
    const cmsghdr segment{
        .cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT};
    std::memcpy(out.control.data(), &segment, sizeof segment);
    tx_headers_[i].msg_hdr.msg_name = &out.to;
    tx_headers_[i].msg_hdr.msg_namelen = sizeof out.to;
    tx_headers_[i].msg_hdr.msg_control = out.control.data();
  }
  for (size_t i = 0; i < rx_datagrams; ++i) {
    rx_parts_[i] = {rx_bytes_.data() + i * stride, datagram_bytes_ + 1};
    rx_headers_[i].msg_hdr.msg_iov = &rx_parts_[i];
    rx_headers_[i].msg_hdr.msg_iovlen = 1;
    rx_headers_[i].msg_hdr.msg_name = &rx_from_[i];
  }
  bound_ = true;
}

size_t UdpTransport::tx_burst(std::span<const TxPacket> packets) {
  if (!bound_) return 0;
  packets = packets.first(std::min(packets.size(), kBurst));
  lay_out(packets);
  size_t sent = 0;
  while (sent < messages_) {
    const int now = ::sendmmsg(socket_.get(), tx_headers_.data() + sent,
                               static_cast<unsigned>(messages_ - sent), MSG_DONTWAIT);
    if (now > 0) {
      sent += static_cast<size_t>(now);
    } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
      break;
    } else if ((errno == EIO || errno == EINVAL) && outgoing_[sent].datagrams > 1) {
      // Kernels before 6.11 cut nothing up for an interface that does not compute checksums.
      segment_ = false;
      break;
    } else if (errno != EINTR) {
      if (errno == EMSGSIZE) too_long_.fetch_add(1, std::memory_order_relaxed);
      ++sent;  // as lost as on the wire: it is asked for later
    }
  }
  // With several lanes some behind these may have gone. They go again, and count once.
  size_t taken = packets.size();
  for (; sent < messages_; ++sent) taken = std::min(taken, outgoing_[sent].place);
  for (size_t i = 0; i < taken; ++i) counters_.bytes_copied += packets[i].payload_bytes;
  return taken;
}

bool UdpTransport::Outgoing::takes(size_t more_bytes) const {
  static_assert(kBurst <= kMaxDatagrams);
  return more_bytes <= datagram_bytes && bytes == datagrams * datagram_bytes &&
         bytes + more_bytes <= kMaxMessageBytes;
}

/// Makes messages of the packets, in their order within each lane.
void UdpTransport::lay_out(std::span<const TxPacket> packets) {
  messages_ = 0;
  iovec* part = tx_parts_.data();
  for (uint16_t lane = 0; lane < binding_.lanes; ++lane) {
    Outgoing* out = nullptr;
    for (size_t i = 0; i < packets.size(); ++i) {
      const TxPacket& packet = packets[i];
      if (packet.message.lane != lane) continue;
      const size_t bytes = wire::kInaHeaderBytes + packet.payload_bytes;
      if (!out || !segment_ || !out->takes(bytes)) {
        out = &outgoing_[messages_];
        out->to = socket_address(binding_.switch_address.ip,
                                 static_cast<uint16_t>(binding_.switch_address.udp_port + lane));
        out->place = i;
        out->datagrams = out->bytes = 0;
        out->datagram_bytes = bytes;
        tx_headers_[messages_].msg_hdr.msg_iov = part;
        ++messages_;
      }
      wire::Envelope envelope{.source = own_,
                              .destination = binding_.switch_address,
                              .job = binding_.job,
                              .job_key = binding_.job_key,
                              .tag = 0};
      envelope.destination.udp_port = static_cast<uint16_t>(envelope.destination.udp_port + lane);
      const std::span<const std::byte> payload(packet.payload, packet.payload_bytes);
      std::optional<wire::Seal> seal;
      if (binding_.tag_keys) seal = wire::make_seal(*binding_.tag_keys, payload);
      auto& header = tx_ina_headers_[i];
      wire::encode_ina_header(envelope, packet.message, payload, header, seal ? &*seal : nullptr);
      *part++ = {header.data(), header.size()};
      // The kernel only reads it; iovec has no const.
      if (packet.payload_bytes != 0)
        *part++ = {const_cast<std::byte*>(packet.payload), packet.payload_bytes};
      ++out->datagrams;
      out->bytes += bytes;
      msghdr& message = tx_headers_[messages_ - 1].msg_hdr;
      message.msg_iovlen = static_cast<size_t>(part - message.msg_iov);
    }
  }
  for (size_t i = 0; i < messages_; ++i) {
    Outgoing& out = outgoing_[i];
    const auto datagram_bytes = static_cast<uint16_t>(out.datagram_bytes);
    std::memcpy(CMSG_DATA(reinterpret_cast<cmsghdr*>(out.control.data())), &datagram_bytes,
                sizeof datagram_bytes);
    tx_headers_[i].msg_hdr.msg_controllen = out.datagrams > 1 ? out.control.size() : 0;
  }
}

size_t UdpTransport::rx_burst(std::span<RxPacket> packets) {
  if (!bound_) return 0;
  const size_t room = std::min(packets.size(), rx_headers_.size());
  size_t place = 0;
  // Few messages are for this worker alone, and they must not wait behind the results.
  size_t filled = receive(socket_, packets.first(room), place);
  if (group_socket_) filled += receive(group_socket_, packets.subspan(filled, room - place), place);
  return filled;
}

/// `place`: the first buffer that is free; moved behind those that are filled.
size_t UdpTransport::receive(const Fd& socket, std::span<RxPacket> packets, size_t& place) {
  mmsghdr* const headers = rx_headers_.data() + place;
  for (size_t i = 0; i < packets.size(); ++i) headers[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
  const int received = ::recvmmsg(socket.get(), headers, static_cast<unsigned>(packets.size()),
                                  MSG_DONTWAIT, nullptr);
  size_t filled = 0;
  for (int i = 0; i < received; ++i) {
    const mmsghdr& header = headers[i];
    if (accept(header, static_cast<const std::byte*>(header.msg_hdr.msg_iov->iov_base),
               packets[filled]))
      ++filled;
    else
      ++counters_.dropped;
  }
  place += static_cast<size_t>(std::max(received, 0));
  return filled;
}

bool UdpTransport::accept(const mmsghdr& received, const std::byte* bytes, RxPacket& packet) const {
  const auto& from = *static_cast<const sockaddr_in*>(received.msg_hdr.msg_name);
  const auto lane = static_cast<uint16_t>(ntohs(from.sin_port) - binding_.switch_address.udp_port);
  if (received.msg_len > datagram_bytes_ ||
      ntohl(from.sin_addr.s_addr) != binding_.switch_address.ip || lane >= binding_.lanes)
    return false;
  auto frame = wire::parse_datagram({bytes, received.msg_len});
  if (!frame || frame->envelope.job != binding_.job || frame->envelope.job_key != binding_.job_key)
    return false;
  if (binding_.tag_keys) {
    frame->envelope.source = {{}, ntohl(from.sin_addr.s_addr), ntohs(from.sin_port)};
    frame->envelope.destination = own_;
    if (!wire::tag_matches(
            *frame, wire::make_seal(*binding_.tag_keys, {frame->payload, frame->payload_bytes})))
      return false;
  }
  if (wire::validate(frame->message, frame->payload_bytes, binding_.slot_bytes)) return false;
  packet = {
      .message = frame->message, .payload = frame->payload, .payload_bytes = frame->payload_bytes};
  return true;
}

std::string UdpTransport::trouble() const {
  const uint64_t refused = too_long_.load(std::memory_order_relaxed);
  if (refused == 0) return {};
  return "the kernel refused " + std::to_string(refused) +
         " messages as longer than the MTU on the way to " + url_.path +
         ", of which the slots need " + std::to_string(needed_mtu_.load(std::memory_order_relaxed));
}

void UdpTransport::wait(Nanos timeout_ns) {
  // poll() passes over a descriptor of -1, which stands for no group.
  pollfd fds[] = {
      {socket_.get(), POLLIN, 0}, {wake_event_.get(), POLLIN, 0}, {group_socket_.get(), POLLIN, 0}};
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  ++counters_.sleeps;
  if (::ppoll(fds, std::size(fds), &timeout, nullptr) > 0 && fds[1].revents != 0) {
    drain_event(wake_event_.get());
  }
}

void UdpTransport::wake() {
  ring_event(wake_event_.get());
}

}  // namespace ina::client
