// Stands for Ethernet ports in a build without DPDK; never made. Tests derive ports from it.
#pragma once

#include <optional>
#include <span>

#include "common/result.h"
#include "io/ethdev/drop_witness.h"
#include "io/ethdev/ethdev_counters.h"
#include "io/port.h"
#include "switchd/lanes/forwarding.h"
#include "wire/frame.h"

namespace ina::switchd {

struct NoFramePort {
  size_t rx_burst(std::span<io::RxPacket>) { return 0; }
  void rx_release() {}
  bool tx(io::EndpointIndex, const wire::Message&, std::span<const std::byte>) { return false; }
  bool tx_to_group(io::EndpointIndex, const wire::Message&, std::span<const std::byte>) {
    return false;
  }
  void tx_flush() {}
  const io::PortCounters& counters() const { return counters_; }
  Result<io::EndpointIndex> bind(const wire::Address&, JobId, uint64_t, io::JobIndex, Rank,
                                 const std::optional<wire::TagKeys>&, JobId) {
    return fail(INA_ERR_UNSUPPORTED, "this build has no Ethernet ports");
  }
  void unbind(io::EndpointIndex) {}
  void expect(JobId, uint64_t) {}
  void forget(JobId) {}
  std::span<const io::DroppedFrames> dropped(JobId) const { return {}; }
  bool heard(io::EndpointIndex) const { return false; }
  const io::EthdevCounters& ethdev_counters() const { return ethdev_counters_; }
  wire::Address address() const { return {}; }
  bool link_up() { return false; }
  bool take_moved() { return false; }
  void detach() {}
  void attach() {}
  struct Transit {
    bridge::Addresses addresses;
    std::optional<bridge::LoopProbe> probe;
    void* buffer = nullptr;
  };
  std::span<const Transit> transit() const { return {}; }
  void drop_transit(const Transit&, DropReason) {}
  void hand_over(const Transit&) {}
  void hand_over_to_all(const Transit&, uint16_t) {}
  void send_transit(const Transit&) {}
  void send_probe(std::span<const std::byte>) {}
  io::PortCounters counters_;
  io::EthdevCounters ethdev_counters_;
};
static_assert(io::SwitchPort<NoFramePort> && BridgedPort<NoFramePort>);

}  // namespace ina::switchd
