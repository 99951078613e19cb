#include "io/ethdev/steering.h"

#include <rte_ethdev.h>
#include <rte_flow.h>

#include <algorithm>
#include <vector>

#include "wire/frame.h"

namespace ina::io {
namespace {

constexpr uint16_t kEthertypeIpv4 = 0x0800;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint16_t kFragmentOffset = 0x1fff;

uint16_t load16(const std::byte* at) {
  return static_cast<uint16_t>(std::to_integer<uint16_t>(at[0]) << 8 |
                               std::to_integer<uint16_t>(at[1]));
}
uint32_t load32(const std::byte* at) {
  return uint32_t{load16(at)} << 16 | load16(at + 2);
}

/// Frames of one lane, by addresses and UDP port, and the queue that they should arrive at.
class Rule {
 public:
  Rule(const Steering& steering, uint16_t lane, uint16_t queue) : queue_{queue} {
    vlan_.hdr.vlan_tci = rte_cpu_to_be_16(steering.vlan);
    vlan_mask_.hdr.vlan_tci = RTE_BE16(0x0fff);
    ip_.hdr.dst_addr = rte_cpu_to_be_32(steering.ip);
    ip_mask_.hdr.dst_addr = RTE_BE32(0xffffffff);
    udp_.hdr.dst_port = rte_cpu_to_be_16(static_cast<uint16_t>(steering.udp_port + lane));
    udp_mask_.hdr.dst_port = RTE_BE16(0xffff);
    attributes_.ingress = 1;
    rte_flow_item* item = pattern_;
    *item++ = match(RTE_FLOW_ITEM_TYPE_ETH, nullptr, nullptr);
    if (steering.vlan != 0) *item++ = match(RTE_FLOW_ITEM_TYPE_VLAN, &vlan_, &vlan_mask_);
    *item++ = match(RTE_FLOW_ITEM_TYPE_IPV4, &ip_, &ip_mask_);
    *item++ = match(RTE_FLOW_ITEM_TYPE_UDP, &udp_, &udp_mask_);
    *item = match(RTE_FLOW_ITEM_TYPE_END, nullptr, nullptr);
  }
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;

  bool possible(uint16_t port_id) const {
    rte_flow_error error{};
    return rte_flow_validate(port_id, &attributes_, pattern_, actions_, &error) == 0;
  }
  bool install(uint16_t port_id) const {
    rte_flow_error error{};
    return rte_flow_create(port_id, &attributes_, pattern_, actions_, &error) != nullptr;
  }

 private:
  static rte_flow_item match(rte_flow_item_type type, const void* spec, const void* mask) {
    return {.type = type, .spec = spec, .last = nullptr, .mask = mask};
  }

  rte_flow_attr attributes_{};
  rte_flow_item_vlan vlan_{};
  rte_flow_item_vlan vlan_mask_{};
  rte_flow_item_ipv4 ip_{};
  rte_flow_item_ipv4 ip_mask_{};
  rte_flow_item_udp udp_{};
  rte_flow_item_udp udp_mask_{};
  rte_flow_action_queue queue_;
  rte_flow_item pattern_[5];
  const rte_flow_action actions_[2] = {{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &queue_},
                                       {.type = RTE_FLOW_ACTION_TYPE_END, .conf = nullptr}};
};

/// Frames that no rule names go to queue 0. Where the device does not let its table be written,
/// lanes hand such frames on.
void send_the_rest_to_queue_0(uint16_t port_id) {
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(port_id, &info) != 0 || info.reta_size == 0) return;
  const size_t groups = (info.reta_size + RTE_ETH_RETA_GROUP_SIZE - 1) / RTE_ETH_RETA_GROUP_SIZE;
  std::vector<rte_eth_rss_reta_entry64> table(groups);
  for (rte_eth_rss_reta_entry64& group : table) group.mask = UINT64_MAX;
  rte_eth_dev_rss_reta_update(port_id, table.data(), info.reta_size);
}

}  // namespace

uint16_t lane_of(std::span<const std::byte> frame, const Steering& steering) {
  const std::byte* const ethernet = frame.data();
  const std::byte* const ip = ethernet + wire::kEthernetBytes;
  if (frame.size() < wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes ||
      load16(ethernet + 12) != kEthertypeIpv4 || ip[9] != std::byte{kProtocolUdp} ||
      load32(ip + 16) != steering.ip || (load16(ip + 6) & kFragmentOffset) != 0)
    return 0;
  const size_t port_at = size_t{4} * (std::to_integer<size_t>(ip[0]) & 0xf) + 2;
  if (wire::kEthernetBytes + port_at + 2 > frame.size()) return 0;
  const uint32_t lane = uint32_t{load16(ip + port_at)} - steering.udp_port;
  return lane < steering.lanes ? static_cast<uint16_t>(lane) : uint16_t{0};
}

bool steer_by_rules(uint16_t port_id, uint16_t queues, const Steering& steering) {
  // All or nothing is asked for first: some drivers change the device even by rules that fail.
  for (const bool install : {false, true})
    for (uint16_t lane = 0; lane < steering.lanes; ++lane) {
      const Rule rule(steering, lane, lane % queues);
      if (install ? rule.install(port_id) : rule.possible(port_id)) continue;
      rte_flow_error error{};
      if (install) rte_flow_flush(port_id, &error);
      return false;
    }
  send_the_rest_to_queue_0(port_id);
  return true;
}

}  // namespace ina::io
