// A port of the switch on any ethdev device: a NIC, memif, AF_PACKET, a capture file.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bridge/bridge.h"
#include "bridge/source_guard.h"
#include "common/result.h"
#include "io/ethdev/device.h"
#include "io/ethdev/endpoint_table.h"
#include "io/ethdev/ethdev_counters.h"
#include "io/port.h"

namespace ina::io {

struct EthdevPortConfig {
  std::string name;    ///< for people
  std::string device;  ///< see DeviceConfig
  uint32_t ip = 0;     ///< own address, host byte order
  uint16_t udp_port = wire::kDefaultUdpPort;
  uint16_t lanes = 1;  ///< frames to udp_port .. udp_port + lanes - 1 are taken
  uint32_t mtu = 1500;
  uint16_t rx_descriptors = 1024;
  uint16_t tx_descriptors = 1024;
  uint32_t slot_bytes = 1024;
  bool ecn = true;  ///< mark results while frames come in faster than they are handled
  uint16_t max_endpoints = 256;
  bool bridged = false;  ///< what is not for the switch goes to transit() instead of being dropped
  std::vector<uint32_t> switch_ips{};  ///< bridged: addresses of the other ports, answered here too
  uint32_t lent_buffers = 0;           ///< bridged: what the other ports' queues may hold
  std::vector<bridge::HostAddress> hosts{};  ///< who may send here; empty: anybody
};

/// Belongs to one lcore; bind() and unbind() are called on it too, between bursts.
class EthdevPort {
 public:
  static Result<std::unique_ptr<EthdevPort>> open(const EthdevPortConfig& config);
  ~EthdevPort();
  EthdevPort(const EthdevPort&) = delete;
  EthdevPort& operator=(const EthdevPort&) = delete;

  /// Where workers send to.
  wire::Address address() const { return own_; }
  const EthdevPortConfig& config() const { return config_; }
  bool link_up() { return device_->link_up(); }

  /// From now on, frames from `worker` that carry this job and key are this worker's, if their tags
  /// are right where there are keys for tags.
  Result<EndpointIndex> bind(const wire::Address& worker, JobId job_id, uint64_t job_key,
                             JobIndex job, Rank rank,
                             const std::optional<wire::TagKeys>& tag_keys = {});
  void unbind(EndpointIndex endpoint);

  size_t rx_burst(std::span<RxPacket> burst);
  void rx_release();
  bool tx(EndpointIndex endpoint, const wire::Message& message, std::span<const std::byte> payload);
  void tx_flush();
  const PortCounters& counters() const { return counters_; }
  const EthdevCounters& ethdev_counters() const { return ethdev_counters_; }

  // The port as part of a learning switch; see switchd/forwarding.h.

  /// A frame for somebody else. Without a buffer it was the switch's and is answered already, but
  /// tells where its sender is.
  struct Transit {
    bridge::Addresses addresses;
    rte_mbuf* buffer = nullptr;
  };
  /// Those of the last rx_burst(). Each buffer must go to drop_transit(), or by hand_over...() and
  /// send_transit() to other ports, before the next burst.
  std::span<const Transit> transit() const { return {transit_.data(), transit_count_}; }
  void drop_transit(const Transit& frame, DropReason reason);
  /// Counts it as forwarded to one port.
  void hand_over(const Transit& frame);
  /// Counts it as flooded, and lets `ports` ports send the same buffer; at least one.
  void hand_over_to_all(const Transit& frame, uint16_t ports);
  /// Queues a frame that another port received.
  void send_transit(const Transit& frame);

 private:
  EthdevPort(const EthdevPortConfig& config, std::unique_ptr<Device> device);

  /// Workers send faster than their frames are handled: the device's queue grows.
  bool congested() const { return config_.ecn && backlog_ >= kCongestedBursts * largest_burst_; }
  bool is_for_switch(std::span<const std::byte> frame, uint32_t& ip) const;
  void put_aside(size_t place);
  /// Reads one frame; true if `packet` was filled. `place` is where its buffer is held.
  bool take(size_t place, RxPacket& packet);
  bool parse(std::span<const std::byte> frame, wire::Frame& parsed, const Endpoint*& endpoint,
             DropReason& reason) const;
  bool accept(const wire::Frame& frame, const Endpoint& endpoint, RxPacket& packet);
  size_t accept_tagged(std::span<RxPacket> burst);
  void answer(size_t place);
  bool append_payload(rte_mbuf* head, std::span<const std::byte> payload);
  rte_mbuf* share(std::span<const std::byte> payload);
  void drop_shared();
  enum class Queued : uint8_t { kMessage, kAnswer, kTransit };
  void queue(rte_mbuf* frame, Queued kind, size_t bytes);

  EthdevPortConfig config_;
  std::unique_ptr<Device> device_;
  wire::Address own_;
  bridge::SourceGuard guard_;
  EndpointTable endpoints_;
  PortCounters counters_;
  EthdevCounters ethdev_counters_;

  // Receiving: the buffers of the burst that the datapath still reads.
  std::array<rte_mbuf*, Device::kMaxBurst> held_{};
  uint16_t held_count_ = 0;
  static constexpr uint32_t kCongestedBursts = 4;
  uint32_t largest_burst_ = 1;
  uint64_t backlog_ = 0;  ///< frames, nearly all workers' messages, since the queue was last empty
  /// Frames of the burst at hand whose tags have not been looked at.
  struct Tagged {
    wire::Frame frame;
    const Endpoint* endpoint = nullptr;
  };
  std::array<Tagged, Device::kMaxBurst> tagged_{};
  uint16_t tagged_count_ = 0;
  std::array<Transit, Device::kMaxBurst> transit_{};
  uint16_t transit_count_ = 0;

  // Sending: frames not yet given to the device, what they are, and their bytes: of payload in a
  // message, all of them otherwise.
  std::array<rte_mbuf*, Device::kMaxBurst> queued_{};
  std::array<Queued, Device::kMaxBurst> queued_kind_{};
  std::array<uint32_t, Device::kMaxBurst> queued_bytes_{};
  uint16_t queued_count_ = 0;
  // The buffer that stands for the last payload: the frames of one result share it.
  rte_mbuf* shared_ = nullptr;
  std::span<const std::byte> shared_payload_;
};

static_assert(SwitchPort<EthdevPort>);

}  // namespace ina::io
