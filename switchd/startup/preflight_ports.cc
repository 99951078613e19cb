// The Ethernet ports, as far as they can be looked at without opening their devices.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/ethdev/buffer_budget.h"
#include "io/ethdev/device_limits.h"
#include "io/ethdev/interface_lock.h"
#include "io/ethdev/known_drivers.h"
#include "switchd/startup/preflight_checks.h"

namespace ina::switchd {

namespace {

// The header before each frame in the ring by which the kernel hands frames over.
constexpr uint32_t kPacketRingHeadBytes = 100;
constexpr uint32_t kDefaultPacketRingFrameBytes = 2048;
constexpr uint32_t kEthernetBytes = 14;
constexpr uint32_t kLaneRingFrames = 512;  // io::FrameRing::kFrames

using config::Config;
using config::PortConfig;
using io::device_argument;
using io::device_number;

bool is_driver(const PortConfig& port, std::string_view driver) {
  return std::string_view(port.device).starts_with(driver);
}

uint32_t queues_of(const Config& config, const PortConfig& port) {
  const uint32_t lanes = config.switchd.lcores;
  if (const std::string_view key = io::queues_argument(port.device); !key.empty())
    return std::min(lanes, device_number(port.device, key, 1));
  // TAP has as many as are asked for, and a NIC mostly has.
  if (is_driver(port, "net_tap") || !is_driver(port, "net_")) return std::min(lanes, 16u);
  return 1;
}

uint64_t port_bytes(const Config& config, const PortConfig& port, uint32_t lent_buffers,
                    bool hugepages) {
  io::BufferNeed need;
  need.frame_bytes = port.mtu_bytes + kEthernetBytes;
  need.lanes = config.switchd.lcores;
  need.queues = queues_of(config, port);
  need.rx_descriptors = port.rx_descriptors;
  need.tx_descriptors = port.tx_descriptors;
  need.ring_frames = kLaneRingFrames;
  need.lent_buffers = lent_buffers;
  if (is_driver(port, "net_af_xdp")) return io::xdp_pool_bytes(io::plan_xdp_buffers(need));
  if (is_driver(port, "net_af_packet"))
    need.min_rx_bytes = io::packet_ring_frame_bytes(port.device);
  const bool copies = is_driver(port, "net_af_packet") || is_driver(port, "net_tap");
  need.sends_from_outside = copies && need.queues == need.lanes;
  const io::BufferPools pools = io::plan_buffers(need);
  return io::pool_bytes(pools.rx_buffers, pools.rx_bytes, hugepages) +
         io::pool_bytes(pools.tx_buffers, pools.tx_bytes, hugepages);
}

// ---- one port

struct PortCheck {
  const Asked& asked;
  const PortConfig& port;
  Report& report;

  uint32_t needed_mtu() const {
    return asked.config.aggregator.slot_bytes + config::kHeaderBytesInMtu;
  }
  std::string at(const std::string& text) const { return "port " + port.name + ": " + text; }
  void problem(const std::string& text) const { report.problem(at(text)); }
  void warning(const std::string& text) const { report.warning(at(text)); }

  /// The interface of the kernel behind the device, which must be there already.
  void interface() const {
    const std::string name(device_argument(port.device, "iface"));
    if (name.empty())
      return problem("its device names no interface (iface=): \"" + port.device + "\"");
    const auto mtu = asked.machine.mtu_of(name);
    if (!mtu) return problem("there is no interface " + name);
    if (*mtu < needed_mtu())
      warning(fmt::format(
          "interface {} has an MTU of {}, and slots of {} bytes need {}: no worker's message would "
          "pass; 'ip link set dev {} mtu {}', or lower aggregator.slot_bytes",
          name, *mtu, asked.config.aggregator.slot_bytes, needed_mtu(), name, needed_mtu()));
    if (is_driver(port, "net_af_xdp")) xdp(name, *mtu);
    alone(name);
  }

  /// Nobody else has the interface, by whichever driver.
  void alone(const std::string& name) const {
    for (const PortConfig& other : asked.config.ports) {
      if (&other == &port) break;
      if (other.type == config::PortType::kEthdev &&
          io::InterfaceLock::same(name, std::string(device_argument(other.device, "iface"))))
        problem(fmt::format(
            "interface {} is port {}'s already: each port needs an interface of its own", name,
            other.name));
    }
    if (const std::string text = io::InterfaceLock::obstacle(name, io::InterfaceUse::kPort);
        !text.empty())
      problem(text);
  }

  void xdp(const std::string& name, uint32_t mtu) const {
    if (mtu > io::kMaxXdpMtu)
      warning(fmt::format(
          "interface {} has an MTU of {}; where its driver has the kernel refuse XDP programs "
          "above "
          "{}, the switch does not start: 'ip link set dev {} mtu {}', or use AF_PACKET",
          name, mtu, io::kMaxXdpMtu, name, io::kMaxXdpMtu));
    const uint32_t queues = asked.machine.receive_queues_of(name);
    if (queues != io::xdp_queues(port.device) && device_argument(port.device, "xdp_prog").empty())
      problem(io::xdp_queues_text(port.device, name, queues, true));
    queues_are_polled();
    if (!asked.machine.bpf || !asked.machine.network_admin || !asked.machine.raw_sockets)
      problem("AF_XDP needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW");
    report.not_checked(at("whether interface " + name + " has an XDP program already"));
  }

  void queues_are_polled() const {
    const uint32_t lanes = asked.config.switchd.lcores;
    const std::string_view key = io::queues_argument(port.device);
    if (const uint32_t queues = device_number(port.device, key, 1); queues > lanes)
      problem("its device " + io::unpolled_queues_text(key, queues, lanes));
  }

  void af_packet() const {
    interface();
    // The driver opens a packet socket, and sets the interface's flags when the device starts.
    if (!asked.machine.raw_sockets || !asked.machine.network_admin)
      problem("AF_PACKET needs root, or CAP_NET_ADMIN and CAP_NET_RAW");
    queues_are_polled();
    const uint32_t room = device_number(port.device, "framesz", kDefaultPacketRingFrameBytes);
    const uint32_t wanted = needed_mtu() + kEthernetBytes + kPacketRingHeadBytes;
    if (room < wanted)
      warning(
          fmt::format("framesz={} of its device holds no frame with a slot of {} bytes, which "
                      "takes {}: no worker's message would pass",
                      room, asked.config.aggregator.slot_bytes, wanted));
  }

  void tap() const {
    if (!asked.machine.network_admin) problem("TAP needs root, or CAP_NET_ADMIN");
    if (::access("/dev/net/tun", R_OK | W_OK) != 0)
      problem(std::string("TAP needs /dev/net/tun: ") + std::strerror(errno));
  }

  void pcap() const {
    const std::string from(device_argument(port.device, "rx_pcap"));
    if (!from.empty() && ::access(from.c_str(), R_OK) != 0)
      problem("its file rx_pcap=" + from + " cannot be read: " + std::strerror(errno));
    const std::string to(device_argument(port.device, "tx_pcap"));
    const size_t slash = to.find_last_of('/');
    if (slash != std::string::npos && ::access(to.substr(0, slash + 1).c_str(), W_OK | X_OK) != 0)
      problem("its file tx_pcap=" + to + " cannot be made: " + std::strerror(errno));
    if (!device_argument(port.device, "iface").empty()) interface();
  }

  void memif() const {
    const std::string path(device_argument(port.device, "socket"));
    const size_t slash = path.find_last_of('/');
    if (device_argument(port.device, "role") == "server" && slash != std::string::npos &&
        device_argument(port.device, "socket-abstract") == "no" &&
        ::access(path.substr(0, slash + 1).c_str(), W_OK | X_OK) != 0)
      problem("the folder of its socket=" + path + ": " + std::strerror(errno));
  }

  void pci() const {
    const auto driver = asked.machine.pci_driver_of(port.device);
    if (!driver) return problem("there is no PCI device " + port.device);
    if (driver->empty())
      problem("PCI device " + port.device + " has no driver: bind it to vfio-pci");
    else if (!is_dpdk_driver(*driver))
      problem("PCI device " + port.device + " is used by the kernel's driver " + *driver +
              ": bind it to vfio-pci");
  }

  void run() const {
    if (const std::string text = io::device_problem(port.device); !text.empty())
      return problem(text);
    if (is_driver(port, "net_") && port.mtu_bytes > io::max_mtu(port.device))
      problem(fmt::format("its driver takes no mtu above {}, and slots of {} bytes need {}{}",
                          io::max_mtu(port.device), asked.config.aggregator.slot_bytes,
                          needed_mtu(),
                          is_driver(port, "net_tap")
                              ? ": use a veth pair in place of TAP, or lower aggregator.slot_bytes"
                              : ": use AF_PACKET, or lower aggregator.slot_bytes"));
    if (is_driver(port, "net_af_packet"))
      af_packet();
    else if (is_driver(port, "net_af_xdp"))
      interface();
    else if (is_driver(port, "net_tap"))
      tap();
    else if (is_driver(port, "net_pcap"))
      pcap();
    else if (is_driver(port, "net_memif"))
      memif();
    else if (!is_driver(port, "net_"))
      pci();
    report.not_checked(at("whether DPDK can open its device \"" + port.device + "\""));
  }
};

}  // namespace

EalMemory needed_eal_memory(const Config& config, bool hugepages) {
  std::vector<const PortConfig*> ports;
  uint32_t queued = 0;
  for (const PortConfig& port : config.ports) {
    if (port.type != config::PortType::kEthdev) continue;
    ports.push_back(&port);
    queued += port.tx_descriptors;
  }
  if (ports.empty()) return {};
  const bool bridged = config.bridge.enabled && ports.size() > 1;
  EalMemory need;
  for (const PortConfig* port : ports)
    need.least += port_bytes(config, *port, bridged ? queued - port->tx_descriptors : 0, hugepages);
  const uint64_t pools = 2 * ports.size();
  need.enough = need.least + pools * io::kPoolOwnBytes + io::kEalOwnBytes;
  need.least += pools * io::kLeastPoolOwnBytes;
  return need;
}

bool is_dpdk_driver(std::string_view driver) {
  return driver == "vfio-pci" || driver == "uio_pci_generic" || driver == "igb_uio" ||
         driver.starts_with("mlx");
}

void check_port(const Asked& asked, const PortConfig& port, Report& report) {
  PortCheck{asked, port, report}.run();
}

}  // namespace ina::switchd
