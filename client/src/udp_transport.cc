#include "client/src/udp_transport.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

namespace ina::client {
namespace {

// What the kernel may hold of results that nobody has fetched yet: a window of some MiB, with the
// kernel's own overhead for small datagrams. Without privileges it gives less.
constexpr int kSocketBufferBytes = 16 << 20;

std::string system_error() {
  return std::strerror(errno);
}

std::string dotted(uint32_t ip) {
  const in_addr address{htonl(ip)};
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

sockaddr_in socket_address(uint32_t ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(ip);
  address.sin_port = htons(port);
  return address;
}

/// The own address from which the kernel would send to `ip`.
Result<uint32_t> source_towards(uint32_t ip) {
  const Fd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = socket_address(ip, 9);  // nothing is sent
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  if (!probe || ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
    return fail(INA_ERR_NO_SWITCH, "no way to " + dotted(ip) + ": " + system_error());
  return ntohl(own.sin_addr.s_addr);
}

/// Its buffers, as far as the kernel lets us.
void enlarge(const Fd& fd) {
  for (const auto& [forced, plain] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}})
    if (::setsockopt(fd.get(), SOL_SOCKET, forced, &kSocketBufferBytes,
                     sizeof kSocketBufferBytes) != 0)
      ::setsockopt(fd.get(), SOL_SOCKET, plain, &kSocketBufferBytes, sizeof kSocketBufferBytes);
}

struct Interface {
  wire::MacAddress mac{};
  uint32_t mtu = 0;
};

/// The interface that has this address.
Result<Interface> interface_of(uint32_t ip) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return fail(INA_ERR_INTERNAL, "the interfaces cannot be listed: " + system_error());
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::string name;
  for (const ifaddrs* at = list; at; at = at->ifa_next)
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET &&
        ntohl(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr) == ip)
      name = at->ifa_name;
  // Labels such as "eth0:1" are the interface's own.
  name = name.substr(0, name.find(':'));
  if (name.empty()) return fail(INA_ERR_INVALID, "no interface has the address " + dotted(ip));
  Interface found;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_PACKET || name != at->ifa_name) continue;
    const auto* link = reinterpret_cast<const sockaddr_ll*>(at->ifa_addr);
    if (link->sll_halen == found.mac.size())
      std::memcpy(found.mac.data(), link->sll_addr, found.mac.size());
  }
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (!any || ::ioctl(any.get(), SIOCGIFMTU, &request) != 0)
    return fail(INA_ERR_INTERNAL,
                "interface " + name + " does not tell its MTU: " + system_error());
  found.mtu = static_cast<uint32_t>(request.ifr_mtu);
  return found;
}

}  // namespace

Result<std::unique_ptr<UdpTransport>> UdpTransport::open(const Url& url) {
  const auto prefixed = [&](const Error& error) {
    return fail(error.status, "URL \"" + url.text + "\": " + error.text);
  };
  if (auto known = url.check_keys({"ip", "control", "port"}); !known)
    return tl::unexpected(known.error());
  const auto towards = parse_ipv4(url.path);
  if (!towards) return prefixed(towards.error());
  const auto ip = url.has("ip") ? url.ipv4("ip") : source_towards(*towards);
  if (!ip) return prefixed(ip.error());
  const auto interface = interface_of(*ip);
  if (!interface) return prefixed(interface.error());
  constexpr uint32_t kAround = wire::kIpv4Bytes + wire::kUdpBytes + wire::kInaHeaderBytes;
  if (interface->mtu <= kAround)
    return prefixed({INA_ERR_INVALID, "an MTU of " + std::to_string(interface->mtu) +
                                          " leaves no room for a fragment"});
  std::unique_ptr<UdpTransport> transport(
      new UdpTransport(url, {interface->mac, *ip, 0}, interface->mtu - kAround));
  if (auto opened = transport->open_socket(); !opened) return prefixed(opened.error());
  return transport;
}

UdpTransport::UdpTransport(Url url, const wire::Address& own, uint32_t max_slot_bytes)
    : url_(std::move(url)),
      own_(own),
      max_slot_bytes_(max_slot_bytes),
      wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<void> UdpTransport::open_socket() {
  Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in own = socket_address(own_.ip, 0);
  socklen_t bytes = sizeof own;
  if (!fd || !wake_event_ ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
    return fail(INA_ERR_INTERNAL, "no UDP socket at " + dotted(own_.ip) + ": " + system_error());
  // A fragment that the network would cut up is one that the switch drops.
  const int discover = IP_PMTUDISC_DO;
  ::setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  enlarge(fd);
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
    return fail(INA_ERR_INTERNAL, "the results' group " + dotted(group.ip) +
                                      " cannot be joined at " + dotted(own_.ip) + ": " +
                                      system_error());
  enlarge(fd);
  group_socket_ = std::move(fd);
  return {};
}

void UdpTransport::bind(const FrameBinding& binding) {
  binding_ = binding;
  datagram_bytes_ = wire::kInaHeaderBytes + binding.slot_bytes;
  // One byte more shows that a datagram was longer.
  const size_t stride = (datagram_bytes_ + 1 + 63) / 64 * 64;
  outgoing_.assign(kBurst, Outgoing{});
  tx_headers_.assign(kBurst, mmsghdr{});
  rx_bytes_.assign(kBurst * stride, std::byte{});
  rx_parts_.assign(kBurst, iovec{});
  rx_from_.assign(kBurst, sockaddr_in{});
  rx_headers_.assign(kBurst, mmsghdr{});
  for (size_t i = 0; i < kBurst; ++i) {
    Outgoing& out = outgoing_[i];
    out.parts[0] = {out.header.data(), out.header.size()};
    tx_headers_[i].msg_hdr.msg_name = &out.to;
    tx_headers_[i].msg_hdr.msg_namelen = sizeof out.to;
    tx_headers_[i].msg_hdr.msg_iov = out.parts.data();
    rx_parts_[i] = {rx_bytes_.data() + i * stride, datagram_bytes_ + 1};
    rx_headers_[i].msg_hdr.msg_iov = &rx_parts_[i];
    rx_headers_[i].msg_hdr.msg_iovlen = 1;
    rx_headers_[i].msg_hdr.msg_name = &rx_from_[i];
  }
  bound_ = true;
}

size_t UdpTransport::tx_burst(std::span<const TxPacket> packets) {
  if (!bound_) return 0;
  const size_t count = std::min(packets.size(), kBurst);
  for (size_t i = 0; i < count; ++i) {
    const TxPacket& packet = packets[i];
    Outgoing& out = outgoing_[i];
    const wire::Envelope envelope{.source = {},
                                  .destination = {},
                                  .job = binding_.job,
                                  .job_key = binding_.job_key,
                                  .tag = 0};
    wire::encode_ina_header(envelope, packet.message, {packet.payload, packet.payload_bytes},
                            out.header);
    // The kernel only reads it; iovec has no const.
    out.parts[1] = {const_cast<std::byte*>(packet.payload), packet.payload_bytes};
    tx_headers_[i].msg_hdr.msg_iovlen = packet.payload_bytes == 0 ? 1 : 2;
    out.to = socket_address(
        binding_.switch_address.ip,
        static_cast<uint16_t>(binding_.switch_address.udp_port + packet.message.lane));
  }
  size_t taken = 0;
  while (taken < count) {
    const int sent = ::sendmmsg(socket_.get(), tx_headers_.data() + taken,
                                static_cast<unsigned>(count - taken), MSG_DONTWAIT);
    if (sent > 0) {
      taken += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
      break;
    } else if (errno != EINTR) {
      ++taken;  // as lost as on the wire: it is asked for later
    }
  }
  for (size_t i = 0; i < taken; ++i) counters_.bytes_copied += packets[i].payload_bytes;
  return taken;
}

size_t UdpTransport::rx_burst(std::span<RxPacket> packets) {
  if (!bound_) return 0;
  const size_t room = std::min(packets.size(), kBurst);
  size_t place = 0;
  // What comes for this worker alone is little, and must not wait behind the results.
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
  const auto frame = wire::parse_datagram({bytes, received.msg_len});
  if (!frame || frame->envelope.job != binding_.job ||
      frame->envelope.job_key != binding_.job_key ||
      wire::validate(frame->message, frame->payload_bytes, binding_.slot_bytes))
    return false;
  packet = {
      .message = frame->message, .payload = frame->payload, .payload_bytes = frame->payload_bytes};
  return true;
}

void UdpTransport::wait(Nanos timeout_ns) {
  // poll() passes over a descriptor of -1, which stands for no group.
  pollfd fds[] = {
      {socket_.get(), POLLIN, 0}, {wake_event_.get(), POLLIN, 0}, {group_socket_.get(), POLLIN, 0}};
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  ++counters_.sleeps;
  if (::ppoll(fds, std::size(fds), &timeout, nullptr) > 0 && fds[1].revents != 0) {
    uint64_t value = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_event_.get(), &value, sizeof value);
  }
}

void UdpTransport::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_event_.get(), &one, sizeof one);
}

}  // namespace ina::client
