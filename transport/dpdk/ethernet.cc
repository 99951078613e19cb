#include "transport/dpdk/ethernet.h"

#include <net/if.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/ethdev/device_arguments.h"
#include "io/ethdev/socket_filter.h"
#include "transport/dpdk/environment.h"
#include "transport/interface.h"

namespace ina::client {
namespace {

constexpr uint32_t kDefaultMtu = 1500;

// The kernel's ring for results that the worker has not fetched yet: a whole window.
constexpr uint32_t kRingBytes = 4 << 20;

std::string system_error() {
  return std::strerror(errno);
}

/// The socket holds a name, until the process ends at the latest, that nobody else in this network
/// namespace can have meanwhile.
Result<Fd> claim(const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);  // not in the file system
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
    return fail(INA_ERR_REFUSED, system_error());
  return socket;
}

/// Arguments of an AF_PACKET device. A frame of its ring holds one of the interface and about 100
/// bytes, a block whole frames and whole pages.
std::string packet_arguments(const std::string& interface, uint32_t mtu) {
  constexpr uint32_t kFramesOfBlock = 4;
  const uint32_t frame_bytes = (mtu + 128 + 1023) / 1024 * 1024;
  const uint32_t frames = kRingBytes / frame_bytes / kFramesOfBlock * kFramesOfBlock;
  return "net_af_packet" + std::to_string(new_device_number()) + ",iface=" + interface +
         ",qpairs=1,blocksz=" + std::to_string(frame_bytes * kFramesOfBlock) +
         ",framesz=" + std::to_string(frame_bytes) + ",framecnt=" + std::to_string(frames);
}

}  // namespace

Result<Ethernet> Ethernet::resolve(const Url& url) {
  if (auto known =
          url.check_keys({"device", "iface", "driver", "ip", "udp_port", "mtu", "control", "port"});
      !known)
    return tl::unexpected(known.error());
  const auto invalid = [&](const std::string& what) {
    return fail(INA_ERR_INVALID, "URL \"" + url.text + "\": " + what);
  };
  if (const auto switch_ip = parse_ipv4(url.path); !switch_ip)
    return invalid(switch_ip.error().text);
  Ethernet ethernet;
  ethernet.device_ = url.get("device");
  if (url.has("device") && (url.has("iface") || url.has("driver")))
    return invalid("it names a device, and iface and driver are to make one of.");
  const std::string driver = url.get("driver", "af_packet");
  if (driver != "af_packet" && driver != "af_xdp")
    return invalid("driver=" + driver + " is neither af_packet nor af_xdp.");
  const std::string name = url.has("device") ? ethernet.device_ : "net_" + driver;
  if (name.starts_with("net_af_packet")) ethernet.driver_ = Driver::kAfPacket;
  if (name.starts_with("net_af_xdp")) ethernet.driver_ = Driver::kAfXdp;

  uint32_t mtu = kDefaultMtu;
  if (ethernet.driver_ != Driver::kOther) {
    if (url.has("udp_port")) return invalid("the kernel chooses the UDP port.");
    if (auto done = ethernet.resolve_interface(url); !done) return invalid(done.error().text + '.');
    mtu = ethernet.mtu_;
  } else {
    const auto ip = url.ipv4("ip");
    if (!ip) return tl::unexpected(ip.error());
    const auto udp_port = url.number("udp_port", wire::kDefaultUdpPort, 1, 65535);
    if (!udp_port) return tl::unexpected(udp_port.error());
    ethernet.ip_ = *ip;
    ethernet.udp_port_ = static_cast<uint16_t>(*udp_port);
  }
  const auto given = url.number("mtu", mtu, 576, 16000);
  if (!given) return tl::unexpected(given.error());
  ethernet.mtu_ = static_cast<uint32_t>(*given);
  return ethernet;
}

Result<void> Ethernet::resolve_interface(const Url& url) {
  const std::string name =
      url.has("device") ? std::string(io::device_argument(device_, "iface")) : url.get("iface");
  const auto towards = source_towards(*parse_ipv4(url.path));
  if (name.empty() && !towards) return tl::unexpected(towards.error());
  const auto found = name.empty() ? interface_with(*towards) : interface_named(name);
  if (!found) return tl::unexpected(found.error());
  const std::vector<uint32_t>& addresses = found->addresses;
  const auto has = [&](uint32_t ip) { return std::ranges::find(addresses, ip) != addresses.end(); };
  interface_ = found->name;
  mtu_ = found->mtu;
  if (!found->up) return fail(INA_ERR_INVALID, "interface " + interface_ + " is down");
  if (url.has("ip")) {
    const auto given = url.ipv4("ip");
    if (!given) return tl::unexpected(given.error());
    ip_ = *given;
    if (!has(ip_))
      return fail(INA_ERR_INVALID, "interface " + interface_ + " has no address " + dotted(ip_));
  } else if (addresses.empty()) {
    return fail(INA_ERR_INVALID, "interface " + interface_ + " has no IPv4 address");
  } else {
    ip_ = towards && has(*towards) ? *towards : addresses.front();
  }
  return {};
}

uint16_t Ethernet::descriptors() const {
  // The ring of an AF_PACKET device is in its arguments.
  if (driver_ == Driver::kAfPacket) return 256;
  return driver_ == Driver::kAfXdp ? 2048 : 1024;
}

std::string Ethernet::arguments() const {
  if (!device_.empty()) return device_;
  if (driver_ == Driver::kAfPacket) return packet_arguments(interface_, mtu_);
  return "net_af_xdp" + std::to_string(new_device_number()) + ",iface=" + interface_;
}

/// DPDK's driver of AF_PACKET (22.11) has the kernel share frames out between all sockets of an
/// interface whose processes have the same number, which contexts of one process have, and may
/// those of two containers.
Result<void> Ethernet::claim_interface() {
  const uint32_t group =
      (static_cast<uint32_t>(::getpid()) ^ ::if_nametoindex(interface_.c_str())) & 0xffff;
  auto claimed = claim("ina-af_packet-" + std::to_string(group));
  if (!claimed)
    return fail(
        INA_ERR_REFUSED,
        "Interface " + interface_ +
            ": another context of this process (or one in a container, whose process has "
            "the same number) uses AF_PACKET already, and the kernel would share its frames "
            "out between both. Use udp: for one of them.");
  claim_ = std::move(*claimed);
  return {};
}

Result<std::unique_ptr<io::Device>> Ethernet::open() {
  const bool pci = !device_.empty() && !device_.starts_with("net_");
  if (auto done = start_dpdk(pci ? device_ : ""); !done) return tl::unexpected(done.error());
  if (driver_ == Driver::kAfPacket)
    if (auto done = claim_interface(); !done) return tl::unexpected(done.error());
  auto device = open_device({.device = pci ? device_.substr(0, device_.find(',')) : arguments(),
                             .mtu = mtu_,
                             .rx_descriptors = descriptors(),
                             .tx_descriptors = descriptors(),
                             .copy_on_tx = true,
                             .datagrams_only = true});
  if (!device && driver_ != Driver::kOther && ::geteuid() != 0)
    return fail(device.error().status,
                device.error().text + " This needs root, or " +
                    (driver_ == Driver::kAfPacket ? "CAP_NET_ADMIN and CAP_NET_RAW"
                                                  : "CAP_NET_ADMIN, CAP_NET_RAW "
                                                    "and CAP_BPF") +
                    "; udp: needs nothing.");
  if (!device) return device;
  if (auto done = take_port(**device); !done) {
    close_device(*device);
    return tl::unexpected(done.error());
  }
  return device;
}

Result<void> Ethernet::take_port(io::Device& device) {
  if (driver_ == Driver::kOther) return {};
  // The kernel sees the frames, too, if by AF_PACKET: with a socket there it neither answers that
  // the port is closed nor gives the port to another process. Datagrams at the socket are not read.
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own = socket_address(ip_, 0);
  socklen_t bytes = sizeof own;
  if (!socket || !io::pass_nothing(socket.get()) ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
    return fail(INA_ERR_INTERNAL, "no UDP port at " + dotted(ip_) + ": " + system_error());
  udp_port_ = ntohs(own.sin_port);
  if (auto done = device.take_datagrams(ip_, udp_port_); !done) return done;
  reservation_ = std::move(socket);
  return {};
}

}  // namespace ina::client
