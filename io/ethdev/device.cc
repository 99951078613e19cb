#include "io/ethdev/device.h"

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "common/receive_queues.h"
#include "io/ethdev/device_arguments.h"
#include "io/ethdev/device_limits.h"
#include "io/ethdev/eal.h"
#include "io/ethdev/interrupt_thread.h"
#include "io/ethdev/memif_socket.h"
#include "io/ethdev/socket_filter.h"

namespace ina::io {
namespace {

constexpr uint32_t kEthernetHeaderBytes = 14;
/// Over its queues a device spreads what no rule steers. The hash knows nothing of lanes.
constexpr uint64_t kSpreadBy = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP;

constexpr std::chrono::milliseconds kXdpQueueRelease{50};

tl::unexpected<Error> fail_device(const std::string& name, const std::string& what, int error) {
  const std::string said = take_eal_errors();
  return fail(error == ENOMEM ? INA_ERR_NO_MEMORY : INA_ERR_INTERNAL,
              "Device " + name + ": " + what + " (" + rte_strerror(error) +
                  (said.empty() ? "" : "; DPDK: " + said) + ").");
}

/// Drivers that copy a frame into memory of their own before tx_burst returns. Only they may be
/// given payload outside DPDK's memory. Such payload has no address for DMA, and its owner need not
/// keep it until some later burst shows that the device is done with it.
bool copies_on_tx(std::string_view driver, const rte_device* device) {
  const rte_devargs* const arguments = rte_dev_devargs(device);
  const bool zero_copy = arguments != nullptr && arguments->args != nullptr &&
                         std::strstr(arguments->args, "zero-copy=yes") != nullptr;
  return !zero_copy && (driver == "net_memif" || driver == "net_af_packet" || driver == "net_tap");
}

uint32_t ring_frame_bytes(std::string_view driver, const rte_device* device) {
  const rte_devargs* const arguments = rte_dev_devargs(device);
  if (driver != "net_af_packet" || arguments == nullptr || arguments->args == nullptr) return 0;
  // As Device::attach() was given them: behind the name.
  return packet_ring_frame_bytes(std::string(",") + arguments->args);
}

std::string mtu_text(const std::string& device, uint32_t mtu) {
  return "Device " + device.substr(0, device.find(',')) +
         ": by this driver it takes no mtu above " + std::to_string(max_mtu(device)) + ", " +
         std::to_string(mtu) + " is asked for.";
}

/// The kernel refuses an XDP program where frames may not fit a page, by an error that explains
/// nothing. The text of `error` is replaced if the interface's MTU explains the refusal.
Error of_large_mtu(const std::string& device, const Error& error) {
  if (!device.starts_with("net_af_xdp") || error.status != INA_ERR_INTERNAL) return error;
  const std::string interface(device_argument(device, "iface"));
  const uint32_t mtu = mtu_of_interface(interface).value_or(0);
  if (mtu <= kMaxXdpMtu) return error;
  return {INA_ERR_INVALID,
          "Interface " + interface + " has an MTU of " + std::to_string(mtu) +
              ", and AF_XDP takes " + std::to_string(kMaxXdpMtu) +
              " at most, because its frames lie in pages of the kernel: 'ip link set dev " +
              interface + " mtu " + std::to_string(kMaxXdpMtu) +
              "' with slots of up to 2 KiB, or use AF_PACKET. (" + error.text + ")"};
}

std::string driver_of(uint16_t port_id) {
  rte_eth_dev_info info{};
  return rte_eth_dev_info_get(port_id, &info) == 0 ? info.driver_name : "";
}

}  // namespace

Result<std::unique_ptr<Device>> Device::open(const DeviceConfig& config) {
  if (config.mtu < 576 || config.mtu > kMaxMtu)
    return fail(INA_ERR_INVALID, "Device " + config.device + ": mtu " + std::to_string(config.mtu) +
                                     " is not within 576..16000.");
  const BpfMessages messages;
  take_eal_errors();  // of something else
  std::unique_ptr<Device> device(new Device);
  const std::vector<DriverSocket> before = sockets_like(config.device);
  if (config.mtu > max_mtu(config.device))
    return fail(INA_ERR_INVALID, mtu_text(config.device, config.mtu));
  if (auto done = device->lock_interface(config); !done) return tl::unexpected(done.error());
  if (auto done = device->attach(config); !done)
    return tl::unexpected(of_large_mtu(config.device, done.error()));
  auto done = device->configure(config);
  device->sockets_ = added_sockets(before, sockets_like(config.device), device->queues_);
  if (!done) return tl::unexpected(of_large_mtu(config.device, done.error()));
  device->find_rings(config);
  const std::string interface(device_argument(config.device, "iface"));
  device->lost_.emplace(device->port_id_, driver_of(device->port_id_), interface, device->sockets_);
  return device;
}

/// Drivers that make an interface of their own need no lock.
Result<void> Device::lock_interface(const DeviceConfig& config) {
  const std::string interface(device_argument(config.device, "iface"));
  if (interface.empty() || config.device.starts_with("net_tap")) return {};
  auto lock = InterfaceLock::take(
      interface, config.datagrams_only ? InterfaceUse::kWorker : InterfaceUse::kPort);
  if (!lock)
    return fail(lock.error().status, "Device " + config.device.substr(0, config.device.find(',')) +
                                         ": " + lock.error().text);
  lock_ = std::move(*lock);
  return {};
}

/// For AF_PACKET. The driver's queues begin with the number of their socket, which tells them
/// apart.
void Device::find_rings(const DeviceConfig& config) {
  if (driver_of(port_id_) != "net_af_packet") return;
  const uint32_t frame_bytes = device_number(config.device, "framesz", 2048);
  std::vector<PacketRing> rings;
  for (uint16_t queue = 0; queue < queues_ && !sockets_.empty(); ++queue) {
    const int fd = *static_cast<const int*>(rte_eth_fp_ops[port_id_].rxq.data[queue]);
    const auto socket = std::ranges::find(sockets_, fd, &DriverSocket::fd);
    if (socket == sockets_.end()) return;
    const auto ring = PacketRing::of(*socket, frame_bytes);
    if (!ring) return;
    rings.push_back(*ring);
  }
  rings_ = std::move(rings);
}

bool Device::is_attached() {
  attached_ = attached_ && interface_.is_attached(sockets_) && (!xdp_ || xdp_->is_attached());
  return attached_;
}

Result<void> Device::attach(const DeviceConfig& config) {
  name_ = config.device.substr(0, config.device.find(','));
  const bool has_arguments = name_.size() != config.device.size();
  uint16_t port_id = RTE_MAX_ETHPORTS;
  if (rte_eth_dev_get_port_by_name(name_.c_str(), &port_id) == 0) {
    if (has_arguments)
      return fail(INA_ERR_INVALID, "Device " + name_ + " exists already, give it by name only.");
    port_id_ = port_id;
    return {};
  }
  if (!has_arguments && !name_.starts_with("net_"))
    return fail(INA_ERR_INVALID,
                "Device " + name_ +
                    " does not exist. A PCI device must be bound to vfio-pci and listed when DPDK "
                    "starts.");
  remove_stale_memif_socket(config.device);
  const auto arguments = with_xdp_program(config);
  if (!arguments) return tl::unexpected(arguments.error());
  if (const int error = rte_dev_probe(arguments->c_str()); error != 0)
    return fail_device(name_, "cannot be made from \"" + config.device + "\"", -error);
  made_here_ = true;
  if (rte_eth_dev_get_port_by_name(name_.c_str(), &port_id) != 0)
    return fail_device(name_, "is no network device", ENODEV);
  port_id_ = port_id;
  return {};
}

Result<std::string> Device::with_xdp_program(const DeviceConfig& config) {
  const std::string& device = config.device;
  if (!device.starts_with("net_af_xdp") || !device_argument(device, "xdp_prog").empty())
    return device;
  const std::string interface(device_argument(device, "iface"));
  if (const uint32_t queues = receive_queues_of(interface); queues != xdp_queues(device))
    return fail(INA_ERR_INVALID,
                "Device " + name_ + ": " +
                    xdp_queues_text(device, interface, queues, !config.datagrams_only) + ".");
  auto program = XdpProgram::make(interface);
  if (!program) return tl::unexpected(program.error());
  xdp_ = std::move(*program);
  return device + ",xdp_prog=" + xdp_->path();
}

Result<void> Device::configure(const DeviceConfig& config) {
  rte_eth_dev_info info{};
  if (const int error = rte_eth_dev_info_get(port_id_, &info); error != 0)
    return fail_device(name_, "does not describe itself", -error);
  gated_ = std::string_view(info.driver_name) == "net_memif";
  if (auto done = find_interface(info); !done) return done;
  if (auto done = choose_modes(config, info); !done) return done;
  if (auto done = make_queues(config, info); !done) return done;
  if (const int error = rte_eth_dev_start(port_id_); error != 0)
    return fail_device(name_, "cannot be started", -error);
  if (config.promiscuous) {
    const int error = rte_eth_promiscuous_enable(port_id_);
    // Drivers without a wire have no such thing.
    if (error != 0 && error != -ENOTSUP)
      return fail_device(name_, "cannot be made to receive frames for others", -error);
    promiscuous_ = error == 0;
  } else if (auto done = pass_vlan(config.vlan); !done) {
    return done;
  }
  if (auto done = read_mac(info); !done) return done;
  if (xdp_) {
    if (auto done = xdp_->take_over(); !done) return done;
    if (!config.datagrams_only) return xdp_->take_all();
  }
  return {};
}

/// Has a device that filters VLANs pass this one.
Result<void> Device::pass_vlan(uint16_t vlan) {
  if (vlan == 0 || (rte_eth_dev_get_vlan_offload(port_id_) & RTE_ETH_VLAN_FILTER_OFFLOAD) == 0)
    return {};
  if (const int error = rte_eth_dev_vlan_filter(port_id_, vlan, 1); error != 0)
    return fail_device(name_, "does not take frames of VLAN " + std::to_string(vlan), -error);
  return {};
}

/// The kernel's interface, where the driver does not know the link.
Result<void> Device::find_interface(const rte_eth_dev_info& info) {
  const std::string_view driver = info.driver_name;
  // These two report their link as up while they are started (DPDK 22.11).
  if (driver != "net_af_packet" && driver != "net_af_xdp") return {};
  if (!interface_.find(info.if_index))
    return fail_device(name_, "its network interface is not to be found", errno);
  return {};
}

/// Largest frames, queues and offloads.
Result<void> Device::choose_modes(const DeviceConfig& config, const rte_eth_dev_info& info) {
  const std::string_view driver = info.driver_name;
  const bool is_virtual = std::string_view(rte_bus_name(rte_dev_bus(info.device))) == "vdev";
  traits_.frame_bytes = config.mtu + kEthernetHeaderBytes;
  if (config.mtu > max_mtu(driver)) return fail(INA_ERR_INVALID, mtu_text(name_, config.mtu));

  rte_eth_conf conf{};
  // memif states 1518 bytes but takes any frame, so a virtual device is not asked.
  if (!is_virtual) {
    if (config.mtu > info.max_mtu)
      return fail(INA_ERR_INVALID, "Device " + name_ + " takes no mtu above " +
                                       std::to_string(info.max_mtu) + ", " +
                                       std::to_string(config.mtu) + " is asked for.");
    conf.rxmode.mtu = config.mtu;
  }
  if (auto done = choose_queues(config, info); !done) return done;
  // Not where another lane sends the frame: it does so when the payload may have gone.
  traits_.sends_from_outside = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0 &&
                               is_virtual && !config.copy_on_tx && queues_ == config.lanes &&
                               copies_on_tx(driver, info.device);
  if (traits_.sends_from_outside) conf.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  choose_offloads(config, info, conf);
  if (queues_ > 1) conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & kSpreadBy;
  if (conf.rx_adv_conf.rss_conf.rss_hf != 0) conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
  if (const int error = rte_eth_dev_configure(port_id_, queues_, queues_, &conf); error != 0)
    return fail_device(name_, "cannot be configured", -error);
  return {};
}

/// The queues, and the pools of their buffers.
Result<void> Device::make_queues(const DeviceConfig& config, const rte_eth_dev_info& info) {
  const std::string_view driver = info.driver_name;
  uint16_t rx_descriptors = config.rx_descriptors;
  uint16_t tx_descriptors = config.tx_descriptors;
  if (const int error =
          rte_eth_dev_adjust_nb_rx_tx_desc(port_id_, &rx_descriptors, &tx_descriptors);
      error != 0)
    return fail_device(name_, "refuses the number of descriptors", -error);
  const BufferNeed need{.frame_bytes = traits_.frame_bytes,
                        .queues = queues_,
                        .lanes = config.lanes,
                        .rx_descriptors = rx_descriptors * buffers_per_descriptor(driver),
                        .tx_descriptors = tx_descriptors,
                        .ring_frames = config.ring_frames,
                        .lent_buffers = config.lent_buffers,
                        .min_rx_bytes = ring_frame_bytes(driver, info.device),
                        .sends_from_outside = traits_.sends_from_outside};
  // The driver for AF_XDP first copies frames from another pool into its pages.
  const bool made =
      driver == "net_af_xdp" ? buffers_.make_pages(port_id_, need) : buffers_.make(port_id_, need);
  if (!made)
    return fail_device(name_,
                       "no memory for its packet buffers; give DPDK more memory (eal.memory of a "
                       "switch) or the device fewer descriptors",
                       rte_errno);
  return set_up_queues(rx_descriptors, tx_descriptors);
}

Result<void> Device::read_mac(const rte_eth_dev_info& info) {
  rte_ether_addr mac{};
  if (const int error = rte_eth_macaddr_get(port_id_, &mac); error != 0)
    return fail_device(name_, "has no MAC address", -error);
  std::copy_n(mac.addr_bytes, traits_.mac.size(), traits_.mac.begin());
  if (std::string_view(info.driver_name) == "net_tap") {
    // The driver reports the kernel's address, which is at the other end of the same link.
    traits_.mac.front() |= uint8_t{2};  // administered locally
    traits_.mac.back() ^= uint8_t{1};
  }
  return {};
}

Result<void> Device::take_datagrams(uint32_t ip, uint16_t udp_port) {
  if (xdp_) return xdp_->take_datagrams(ip, udp_port);
  if (!name_.starts_with("net_af_packet")) return {};
  for (const DriverSocket& socket : sockets_)
    if (!pass_datagrams_only(socket.fd, ip, udp_port))
      return fail_device(name_, "its socket takes no filter", errno);
  return {};
}

/// Takes the device's offloads for checksums, and has it pass its VLAN. Tags are put on and taken
/// off here: of QEMU's four NICs virtio does it in rte_eth_tx_prepare() only, and e1000 with
/// stripping.
void Device::choose_offloads(const DeviceConfig& config, const rte_eth_dev_info& info,
                             rte_eth_conf& conf) {
  if (config.vlan != 0 && !config.promiscuous)
    conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
  conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
  if ((info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) == 0) return;
  conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
  traits_.tx_checksums = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
  if ((info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) == 0) return;
  conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
  traits_.tx_checksums |= RTE_MBUF_F_TX_UDP_CKSUM;
}

Result<void> Device::choose_queues(const DeviceConfig& config, const rte_eth_dev_info& info) {
  const uint16_t most =
      max_queues(info.driver_name, std::min(info.max_rx_queues, info.max_tx_queues));
  // The kernel gives frames to all sockets that the driver has opened.
  if (const auto key = queues_argument(info.driver_name); !key.empty() && most > config.lanes)
    return fail(INA_ERR_INVALID,
                "Device " + name_ + " " + unpolled_queues_text(key, most, config.lanes) + ".");
  // memif states the most it could have; how many there are is the peer's choice.
  queues_ = gated_ ? uint16_t{1} : std::min(most, config.lanes);
  if (queues_ != 0) return {};
  return fail(INA_ERR_INVALID, "Device " + name_ + " cannot both receive and send.");
}

Result<void> Device::set_up_queues(uint16_t rx_descriptors, uint16_t tx_descriptors) {
  const auto anywhere = static_cast<unsigned>(SOCKET_ID_ANY);
  for (uint16_t queue = 0; queue < queues_; ++queue) {
    int error =
        rte_eth_rx_queue_setup(port_id_, queue, rx_descriptors, anywhere, nullptr, buffers_.rx());
    if (error == 0)
      error = rte_eth_tx_queue_setup(port_id_, queue, tx_descriptors, anywhere, nullptr);
    if (error != 0) return fail_device(name_, "its queues cannot be set up", -error);
  }
  return {};
}

bool Device::steer(const Steering& steering) {
  return queues_ > 1 && steer_by_rules(port_id_, queues_, steering);
}

Device::~Device() {
  if (promiscuous_) rte_eth_promiscuous_disable(port_id_);
  const auto close = [](void* port_id) {
    rte_eth_dev_stop(*static_cast<uint16_t*>(port_id));
    rte_eth_dev_close(*static_cast<uint16_t*>(port_id));
  };
  const bool is_xdp = xdp_ != nullptr;
  xdp_.reset();  // the driver would fail to detach what it has not attached
  if (port_id_ != RTE_MAX_ETHPORTS) {
    // memif's peer may go at the same moment, which its driver handles in that thread, unlocked.
    if (gated_)
      run_in_interrupt_thread(close, &port_id_);
    else
      close(&port_id_);
  }
  if (made_here_) rte_eal_hotplug_remove("vdev", name_.c_str());
  // Until then the kernel writes into the buffers.
  for (const DriverSocket& socket : sockets_) close_left_open(socket);
  // The kernel gives the queue back in the background, and the driver handles a refusal badly. The
  // next process that opens the interface should find the queue free.
  if (is_xdp) std::this_thread::sleep_for(kXdpQueueRelease);
}

bool Device::link_up() {
  if (interface_) return interface_.is_up();
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port_id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

}  // namespace ina::io
