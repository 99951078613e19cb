// One ethdev device and its queue pairs: opening, buffers, bursts, closing.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "io/ethdev/buffer_budget.h"
#include "io/ethdev/device_buffers.h"
#include "io/ethdev/driver_socket.h"
#include "io/ethdev/interface_lock.h"
#include "io/ethdev/kernel_interface.h"
#include "io/ethdev/lost_frames.h"
#include "io/ethdev/packet_ring.h"
#include "io/ethdev/poll_gate.h"
#include "io/ethdev/steering.h"
#include "io/ethdev/xdp_program.h"
#include "wire/frame.h"

namespace ina::io {

struct DeviceConfig {
  /// Name of a device that exists ("net_memif0", "0000:01:00.0"), or device arguments by which one
  /// is made ("net_pcap0,rx_pcap=...") and removed again at the end.
  std::string device;
  uint32_t mtu = 1500;  ///< bytes of an IPv4 packet
  uint16_t rx_descriptors = 1024;
  uint16_t tx_descriptors = 1024;
  uint32_t lent_buffers = 0;  ///< received ones that may lie in other devices' queues meanwhile
  uint16_t lanes = 1;         ///< threads that use it; each gets a queue pair if there are enough
  uint32_t ring_frames = 0;   ///< that may lie in a ring from one lane to another
  bool promiscuous = false;   ///< receive what is sent to others, too, where that is a choice
  uint16_t vlan = 0;          ///< of the frames to it, where it is not promiscuous; 0: no tag
  bool copy_on_tx = false;    ///< whole frames will be built in tx_pool(), on any device
  /// AF_XDP: the kernel keeps incoming frames, but for those that take_datagrams() will name.
  bool datagrams_only = false;
};

/// A queue pair is used by one thread at a time, the rest by one.
class Device {
 public:
  /// Packets of one call of rx() or tx().
  static constexpr uint16_t kMaxBurst = kBurstFrames;
  static constexpr uint32_t kVlanTagBytes = io::kVlanTagBytes;

  static Result<std::unique_ptr<Device>> open(const DeviceConfig& config);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Lane n has queue pair n, if there is one. A gated device has no more than one.
  uint16_t queues() const { return queues_; }

  uint16_t rx(rte_mbuf** packets, uint16_t count, uint16_t queue = 0) {
    if (!rings_.empty()) return rx_from(rings_[queue], packets, count, queue);
    if (!gated_) return rte_eth_rx_burst(port_id_, queue, packets, count);
    if (!gate_.enter()) return 0;
    const uint16_t taken = rte_eth_rx_burst(port_id_, queue, packets, count);
    gate_.leave();
    return taken;
  }

  /// Returns how many the device took; the others still belong to the caller.
  uint16_t tx(rte_mbuf** packets, uint16_t count, uint16_t queue = 0) {
    if (!gated_) return rte_eth_tx_burst(port_id_, queue, packets, count);
    if (!gate_.enter()) return 0;
    const uint16_t sent = rte_eth_tx_burst(port_id_, queue, packets, count);
    gate_.leave();
    return sent;
  }

  /// Has the device put the frames of each lane into the lane's queue, where it can. False: it
  /// cannot, and frames may arrive at any queue.
  bool steer(const Steering& steering);

  /// Asks the driver or the kernel, which may take a system call.
  bool link_up();
  /// The interface of the kernel on which it was opened is there, and nobody has taken its name.
  /// From one thread, as lost_frames().
  bool is_attached();
  /// See LostFrames.
  std::optional<uint64_t> lost_frames() { return lost_ ? lost_->count() : std::nullopt; }

  /// From an interface of the kernel it gets from now on UDP datagrams to this address and port
  /// only; by AF_XDP it takes them away from the kernel. Other devices go on getting
  /// everything.
  Result<void> take_datagrams(uint32_t ip, uint16_t udp_port);

  /// A socket that is readable when frames are there; -1: the driver has none, or several.
  /// Interfaces of the kernel have one for each queue.
  int socket() const { return sockets_.size() == 1 ? sockets_.front().fd : -1; }

  const wire::MacAddress& mac() const { return traits_.mac; }
  /// Largest frame without FCS and VLAN tags; every receive buffer has room for one with two tags.
  uint32_t frame_bytes() const { return traits_.frame_bytes; }
  /// A frame may be sent as a chain whose payload lies outside DPDK's memory.
  bool sends_from_outside() const { return traits_.sends_from_outside; }
  /// Checksums that the device completes in the frames of messages, as flags of a buffer.
  uint64_t tx_checksums() const { return traits_.tx_checksums; }
  /// Buffers to send from: whole frames, or only headers if sends_from_outside().
  rte_mempool* tx_pool() const { return buffers_.tx(); }

 private:
  Device() = default;
  uint16_t rx_from(PacketRing& ring, rte_mbuf** packets, uint16_t count, uint16_t queue) {
    // No more than the ring was looked at for: more may come in between.
    const uint16_t there = ring.look(count);
    if (there == 0) return 0;
    const uint16_t taken = rte_eth_rx_burst(port_id_, queue, packets, there);
    ring.taken(packets, taken);
    return taken;
  }
  Result<void> lock_interface(const DeviceConfig& config);
  void find_rings(const DeviceConfig& config);
  Result<void> attach(const DeviceConfig& config);
  /// Arguments by which the driver loads our XDP program.
  Result<std::string> with_xdp_program(const DeviceConfig& config);
  Result<void> configure(const DeviceConfig& config);
  Result<void> pass_vlan(uint16_t vlan);
  Result<void> find_interface(const rte_eth_dev_info& info);
  Result<void> choose_modes(const DeviceConfig& config, const rte_eth_dev_info& info);
  void choose_offloads(const DeviceConfig& config, const rte_eth_dev_info& info,
                       rte_eth_conf& conf);
  Result<void> choose_queues(const DeviceConfig& config, const rte_eth_dev_info& info);
  Result<void> make_queues(const DeviceConfig& config, const rte_eth_dev_info& info);
  Result<void> set_up_queues(uint16_t rx_descriptors, uint16_t tx_descriptors);
  Result<void> read_mac(const rte_eth_dev_info& info);

  /// What it is and can do, as it was opened.
  struct Traits {
    wire::MacAddress mac{};
    uint32_t frame_bytes = 0;
    bool sends_from_outside = false;
    uint64_t tx_checksums = 0;
  };

  std::string name_;
  PollGate gate_;
  uint16_t port_id_ = RTE_MAX_ETHPORTS;
  uint16_t queues_ = 1;
  bool made_here_ = false;
  bool gated_ = false;
  bool promiscuous_ = false;
  bool attached_ = true;
  Traits traits_;
  std::optional<InterfaceLock> lock_;
  KernelInterface interface_;
  std::unique_ptr<XdpProgram> xdp_;    ///< of an AF_XDP device, unless its arguments name another
  std::vector<DriverSocket> sockets_;  ///< one for each queue; empty: the driver has none
  std::vector<PacketRing> rings_;      ///< of AF_PACKET, by queue
  std::optional<LostFrames> lost_;
  DeviceBuffers buffers_;
};

}  // namespace ina::io
