// A port of the switch on any ethdev device: a NIC, memif, AF_PACKET, a capture file.
//
// Each lane has an EthdevPort of its own for the port: its bindings, its counters, and its queue
// pair of the device if that has enough of them. A lane hands frames for another lane over by a
// ring. In the same way it hands frames that are no worker's messages to lane 0. A lane without a
// queue pair receives from these rings alone, and sends by a ring to a lane that has one.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "io/bridge/bridge.h"
#include "io/bridge/source_guard.h"
#include "io/ethdev/device.h"
#include "io/ethdev/drop_witness.h"
#include "io/ethdev/endpoint_table.h"
#include "io/ethdev/ethdev_counters.h"
#include "io/ethdev/frame_ring.h"
#include "io/port.h"

namespace ina::io {

/// An address of the switch, and the VLAN in which it has it; 0: without a tag.
struct SwitchAddress {
  uint32_t ip = 0;  ///< host byte order
  uint16_t vlan = 0;
  friend bool operator==(const SwitchAddress&, const SwitchAddress&) = default;
};

struct EthdevPortConfig {
  std::string name;    ///< for people
  std::string device;  ///< see DeviceConfig
  uint32_t ip = 0;     ///< own address, host byte order
  uint16_t vlan = 0;   ///< of what is for the switch and comes from it, 1..4094; 0: has no tag
  uint16_t udp_port = wire::kDefaultUdpPort;
  uint16_t lanes = 1;  ///< frames to udp_port + n are lane n's
  /// With one lane: frames to so many UDP ports from udp_port on are taken. A relay does not look
  /// for whose lane a frame is.
  uint16_t relayed_lanes = 1;
  uint32_t mtu = 1500;
  uint16_t rx_descriptors = 1024;
  uint16_t tx_descriptors = 1024;
  uint32_t slot_bytes = 1024;
  bool ecn = true;  ///< mark results while frames come in faster than they are handled
  uint16_t max_endpoints = 256;
  bool bridged = false;  ///< what is not for the switch goes to transit() instead of being dropped
  /// bridged: addresses of the other ports, which are answered here too
  std::vector<SwitchAddress> switch_addresses{};
  uint32_t lent_buffers = 0;                 ///< bridged: what the other ports' queues may hold
  std::vector<bridge::HostAddress> hosts{};  ///< who may send here; empty: anybody
};

/// One lane's part of a port. Belongs to the lane; bind() and unbind() are called on it too,
/// between bursts. Lanes touch each other's nowhere but in their rings.
class alignas(64) EthdevPort {
 public:
  /// One for each lane. They may be destroyed in any order, once no lane uses any of them.
  static Result<std::vector<std::unique_ptr<EthdevPort>>> open(const EthdevPortConfig& config);
  ~EthdevPort();
  EthdevPort(const EthdevPort&) = delete;
  EthdevPort& operator=(const EthdevPort&) = delete;

  /// Where workers send to: of lane 0, whichever lane this is.
  wire::Address address() const { return own_; }
  const EthdevPortConfig& config() const { return config_; }
  /// Not to be called by two lanes at a time.
  bool link_up() { return device_->link_up(); }
  /// Queue pairs of the device, for all lanes.
  uint16_t queues() const { return device_->queues(); }
  /// The device knows which lane a frame is for.
  bool steered() const { return common_->steered; }

  /// From now on, frames from `worker` that carry this job and key are this worker's, if their tags
  /// are right where there are keys for tags. `root`: of a group the job whose workers are in it,
  /// which may have bound the same address.
  Result<EndpointIndex> bind(const wire::Address& worker, JobId job_id, uint64_t job_key,
                             JobIndex job, Rank rank,
                             const std::optional<wire::TagKeys>& tag_keys = {}, JobId root = {});
  void unbind(EndpointIndex endpoint);

  /// Has the port remember what it drops of a job whose workers may be bound at other ports.
  void expect(JobId job, uint64_t job_key) { witness_.expect(job, job_key); }
  void forget(JobId job) { witness_.forget(job); }
  std::span<const DroppedFrames> dropped(JobId job) const { return witness_.dropped(job); }
  /// Whether a frame of the worker was ever taken.
  bool heard(EndpointIndex endpoint) const { return endpoints_[endpoint].heard; }

  size_t rx_burst(std::span<RxPacket> burst);
  void rx_release();
  bool tx(EndpointIndex endpoint, const wire::Message& message, std::span<const std::byte> payload);
  /// The same to the group of the worker's job (wire/group.h), whoever is in it.
  bool tx_to_group(EndpointIndex endpoint, const wire::Message& message,
                   std::span<const std::byte> payload);
  void tx_flush();
  /// Of this lane; what is said of all frames received is true of the sum over the lanes.
  const PortCounters& counters() const { return counters_; }
  const EthdevCounters& ethdev_counters() const { return ethdev_counters_; }
  /// Whether frames were passed on for other lanes since the last call.
  bool take_moved() { return std::exchange(moved_, false); }

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
  /// What the lanes of a port have in common.
  struct Common {
    std::unique_ptr<Device> device;
    std::vector<std::unique_ptr<FrameRing>> rings;  ///< their frames go before the device does
    bool steered = false;
  };
  /// What waits for the end of the burst to be handed to another lane.
  struct Outbox {
    FrameRing* ring = nullptr;
    uint16_t count = 0;
    std::array<rte_mbuf*, Device::kMaxBurst> frames{};
  };

  EthdevPort(const EthdevPortConfig& config, std::shared_ptr<Common> common, uint16_t lane);

  static void connect(Common& common, std::span<const std::unique_ptr<EthdevPort>> lanes);
  uint16_t receive_alone(uint16_t room, bool& full);
  uint16_t receive(uint16_t room, bool& full);
  uint16_t receive_own(rte_mbuf** frames, uint16_t room, bool& full);
  void hand_over(Outbox& outbox);
  void pass_to_carrier();
  void send_queued();
  void lose_queued(uint16_t first);

  /// Workers send faster than their frames are handled: the device's queue grows.
  bool congested() const { return config_.ecn && backlog_ >= kCongestedBursts * largest_burst_; }
  uint16_t own_lane_of(const rte_mbuf& frame) const;
  bool is_for_switch(std::span<const std::byte> frame, SwitchAddress& address) const;
  void put_aside(size_t place);
  /// Reads one frame; true if `packet` was filled. `place` is where its buffer is held.
  bool take(size_t place, RxPacket& packet);
  bool parse(std::span<const std::byte> frame, wire::Frame& parsed, const Endpoint*& endpoint,
             DropReason& reason) const;
  void note_drop(std::span<const std::byte> frame, DropReason reason);
  bool accept(const wire::Frame& frame, const Endpoint& endpoint, RxPacket& packet);
  size_t accept_tagged(std::span<RxPacket> burst);
  bool answer(size_t place, const SwitchAddress& as, DropReason& reason);
  bool send(const Endpoint& worker, const wire::Address& to, const wire::Message& message,
            std::span<const std::byte> payload);
  bool append_payload(rte_mbuf* head, std::span<const std::byte> payload);
  rte_mbuf* share(std::span<const std::byte> payload);
  void drop_shared();
  void tag(rte_mbuf* frame, uint16_t vlan) const;
  enum class Queued : uint8_t { kMessage, kAnswer, kTransit };
  void queue(rte_mbuf* frame, Queued kind, size_t bytes);

  EthdevPortConfig config_;
  std::shared_ptr<Common> common_;
  Device* device_;
  wire::Address own_;
  wire::Address source_;  ///< of what this lane sends
  Steering steering_;
  uint16_t lane_;
  uint32_t message_header_bytes_;  ///< of a message as it is queued
  bridge::SourceGuard guard_;
  Nanos next_answer_ =
      0;  ///< to what neighbours ask; it may be ahead of time by what may come at once
  EndpointTable endpoints_;
  DropWitness witness_;
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

  // Between lanes.
  std::vector<FrameRing*> received_for_us_;  ///< by lanes that have a queue pair
  std::vector<Outbox> outboxes_;             ///< by lane; none without a queue pair
  size_t next_source_ = 0;                   ///< among the own queue and received_for_us_
  FrameRing* carrier_ = nullptr;             ///< to a lane that sends for this one
  std::vector<FrameRing*> carried_;          ///< of lanes for which this one sends
  bool moved_ = false;

  // Sending: frames not yet given to the device, what they are, and their bytes: of payload in a
  // message, all of them otherwise.
  std::array<rte_mbuf*, Device::kMaxBurst> queued_{};
  std::array<Queued, Device::kMaxBurst> queued_kind_{};
  std::array<uint32_t, Device::kMaxBurst> queued_bytes_{};
  uint16_t queued_count_ = 0;
  // The buffer that stands for the last payload: the frames of one result share it.
  rte_mbuf* shared_ = nullptr;
  std::span<const std::byte> shared_payload_;
  rte_mbuf_ext_shared_info foreign_memory_{};  ///< describes payloads that no buffer owns
};

static_assert(SwitchPort<EthdevPort>);

}  // namespace ina::io
