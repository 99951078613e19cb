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
  std::unique_ptr<UdpTransport> transport(
      new UdpTransport(url_, own_, max_slot_bytes_, sender_.joins()));
  if (auto opened = transport->open_socket(); !opened) return tl::unexpected(opened.error());
  return transport;
}

UdpTransport::UdpTransport(Url url, const wire::Address& own, uint32_t max_slot_bytes, bool joins)
    : url_(std::move(url)),
      own_(own),
      max_slot_bytes_(max_slot_bytes),
      wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      sender_(joins) {}

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
  if (::setsockopt(fd.get(), SOL_UDP, UDP_SEGMENT, &unset, sizeof unset) != 0)
    sender_.send_one_by_one();
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
  needed_mtu_.store(binding.slot_bytes + kAround, std::memory_order_relaxed);
  sender_.make_buffers();
  receiver_.make_buffers(binding.slot_bytes);
  bound_ = true;
}

size_t UdpTransport::tx_burst(std::span<const TxPacket> packets) {
  if (!bound_) return 0;
  const size_t taken = sender_.send(socket_.get(), own_, binding_, packets);
  for (size_t i = 0; i < taken; ++i) counters_.bytes_copied += packets[i].payload_bytes;
  return taken;
}

size_t UdpTransport::rx_burst(std::span<RxPacket> packets) {
  if (!bound_) return 0;
  const size_t room = std::min(packets.size(), receiver_.room());
  size_t place = 0;
  // Few messages are for this worker alone, and they must not wait behind the results.
  size_t filled = receiver_.receive(socket_.get(), own_, binding_, packets.first(room), place);
  if (group_socket_)
    filled += receiver_.receive(group_socket_.get(), own_, binding_,
                                packets.subspan(filled, room - place), place);
  return filled;
}

TransportCounters UdpTransport::counters() const {
  TransportCounters counters = counters_;
  counters.dropped = receiver_.dropped();
  return counters;
}

std::string UdpTransport::trouble() const {
  const uint64_t refused = sender_.too_long();
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
