// A port of the switch on any ethdev device: a NIC, memif, AF_PACKET, a capture file.
//
// Each lane has an EthdevPort of its own for the port: its bindings, its counters, and its queue
// pair of the device if that has enough of them. A lane hands frames for another lane over by a
// ring. In the same way it hands frames that are no worker's messages to lane 0. A lane without a
// queue pair receives from these rings alone, and sends by a ring to a lane that has one.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "common/result.h"
#include "io/bridge/source_guard.h"
#include "io/ethdev/answer_limit.h"
#include "io/ethdev/backlog.h"
#include "io/ethdev/device.h"
#include "io/ethdev/ethdev_port_config.h"
#include "io/ethdev/frame_maker.h"
#include "io/ethdev/lane_counters.h"
#include "io/ethdev/lane_rings.h"
#include "io/ethdev/message_intake.h"
#include "io/ethdev/port_device.h"
#include "io/ethdev/send_queue.h"
#include "io/ethdev/switch_addresses.h"
#include "io/ethdev/transit_frames.h"
#include "io/port.h"

namespace ina::io {

/// One lane's part of a port: which of its parts a frame goes to, and in which order. Belongs to
/// the lane; bind() and unbind() are called on it too, between bursts. Lanes touch each other's
/// nowhere but in their rings.
class alignas(64) EthdevPort {
 public:
  /// One for each lane. They may be destroyed in any order, once no lane uses any of them.
  static Result<std::vector<std::unique_ptr<EthdevPort>>> open(const EthdevPortConfig& config);
  ~EthdevPort() { rx_release(); }
  EthdevPort(const EthdevPort&) = delete;
  EthdevPort& operator=(const EthdevPort&) = delete;

  /// Where workers send to: of lane 0, whichever lane this is.
  wire::Address address() const { return own_; }
  const EthdevPortConfig& config() const { return config_; }
  /// Not to be called by two lanes at a time.
  bool link_up() { return device_ != nullptr && device_->link_up(); }

  /// The device as the control plane handles it; the same for all lanes.
  PortDevice& device();
  /// Before the device is closed, on each lane: the lane uses nothing of it any more. After it was
  /// called on all of them, it is called again: what others had put into this lane's rings goes.
  void detach();
  /// After it was opened again.
  void attach();
  /// Queue pairs of the device, for all lanes.
  uint16_t queues() const;
  /// The device knows which lane a frame is for.
  bool steered() const;

  /// From now on, frames from `worker` that carry this job and key are this worker's, if their tags
  /// are right where there are keys for tags. `root`: of a group the job whose workers are in it,
  /// which may have bound the same address.
  Result<EndpointIndex> bind(const wire::Address& worker, JobId job_id, uint64_t job_key,
                             JobIndex job, Rank rank,
                             const std::optional<wire::TagKeys>& tag_keys = {}, JobId root = {});
  void unbind(EndpointIndex endpoint);

  /// Has the port remember what it drops of a job whose workers may be bound at other ports.
  void expect(JobId job, uint64_t job_key) { intake_.witness().expect(job, job_key); }
  void forget(JobId job) { intake_.witness().forget(job); }
  std::span<const DroppedFrames> dropped(JobId job) const { return intake_.witness().dropped(job); }
  /// True if a frame of the worker was ever taken.
  bool heard(EndpointIndex endpoint) const { return intake_.endpoints()[endpoint].heard; }

  size_t rx_burst(std::span<RxPacket> burst);
  void rx_release();
  bool tx(EndpointIndex endpoint, const wire::Message& message, std::span<const std::byte> payload);
  /// Sends to the group of the worker's job (wire/group.h), with any members.
  bool tx_to_group(EndpointIndex endpoint, const wire::Message& message,
                   std::span<const std::byte> payload);
  void tx_flush();
  /// The counters of this lane. Statements about all received frames hold for the lanes' sum.
  const PortCounters& counters() const { return counters_.port; }
  const EthdevCounters& ethdev_counters() const { return counters_.ethdev; }
  /// True if frames were passed on for other lanes since the last call.
  bool take_moved() { return rings_.take_moved(); }

  // The port as part of a learning switch; see switchd/lanes/forwarding.h.

  using Transit = TransitFrame;
  /// Those of the last rx_burst(). Each buffer must go to drop_transit(), or by hand_over...() and
  /// send_transit() to other ports, before the next burst.
  std::span<const Transit> transit() const { return transit_.all(); }
  void drop_transit(const Transit& frame, DropReason reason) { transit_.drop(frame, reason); }
  void hand_over(const Transit& frame) {
    counters_.ethdev.forwarded_bytes += frame.buffer->pkt_len;
    transit_.hand_over();
  }
  void hand_over_to_all(const Transit& frame, uint16_t ports) {
    counters_.ethdev.forwarded_bytes += frame.buffer->pkt_len;
    transit_.hand_over_to_all(frame, ports);
  }
  /// Queues a frame that another port received.
  void send_transit(const Transit& frame);
  /// Queues a copy of a probe for loops; lost if there is no buffer.
  void send_probe(std::span<const std::byte> probe);

 private:
  /// The state that the lanes of a port share.
  class Common;

  EthdevPort(const EthdevPortConfig& config, std::shared_ptr<Common> common, uint16_t lane);

  uint16_t receive_alone(uint16_t room, bool& full);
  uint16_t receive_own(rte_mbuf** frames, uint16_t room, bool& full);
  /// Reads one frame; true if `packet` was filled. `place` is where its buffer is held.
  bool take(size_t place, RxPacket& packet);
  void pass_on(size_t place);
  void refuse(size_t place, const SwitchAddress& to, DropReason reason);
  bool answer(size_t place, const SwitchAddress& as, DropReason& reason);
  bool send(const Endpoint& worker, const wire::Address& to, const wire::Message& message,
            std::span<const std::byte> payload);
  void queue(rte_mbuf* frame, SendQueue::Kind kind, size_t bytes);

  EthdevPortConfig config_;
  std::shared_ptr<Common> common_;
  Device* device_;  ///< nullptr: detached
  wire::Address own_;
  Steering steering_;
  uint16_t lane_;
  bridge::SourceGuard guard_;
  bridge::ProbeFrames probes_;
  SwitchAddresses addresses_;
  LaneCounters counters_;

  // Receiving: the buffers of the burst that the datapath still reads.
  std::array<rte_mbuf*, Device::kMaxBurst> held_{};
  uint16_t held_count_ = 0;
  MessageIntake intake_;
  Backlog backlog_;
  AnswerLimit answer_limit_;
  TransitFrames transit_;

  LaneRings rings_;

  std::optional<FrameMaker> maker_;  ///< nothing: detached
  SendQueue queue_;
};

static_assert(SwitchPort<EthdevPort>);

}  // namespace ina::io
