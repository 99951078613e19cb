#include "io/ethdev/device_buffers.h"

#include <rte_bus.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <string>
#include <string_view>

#include "io/ethdev/page_pool.h"

namespace ina::io {
namespace {

/// A pool that was left (others_hold_buffers()) keeps its name.
std::string pool_name(const char* kind, uint16_t port_id) {
  static int made = 0;
  return std::string("ina_") + kind + std::to_string(port_id) + "_" + std::to_string(made++);
}

/// Frames in transit lie in the buffers of the device that received them. Drivers of virtual
/// devices copy them; a NIC holds some of them for as long as it has nothing more to send.
bool others_hold_buffers() {
  uint16_t port_id = 0;
  RTE_ETH_FOREACH_DEV(port_id) {
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(port_id, &info) == 0 &&
        std::string_view(rte_bus_name(rte_dev_bus(info.device))) != "vdev")
      return true;
  }
  return false;
}

rte_mempool* make_pool(const char* kind, uint16_t port_id, uint16_t lanes, uint32_t buffers,
                       uint32_t data_bytes) {
  const std::string name = pool_name(kind, port_id);
  // Lanes may be more than cores: none must wait for one that was put aside half-way.
  const char* const between_lanes = lanes > 1 ? "ring_mt_rts" : nullptr;
  return rte_pktmbuf_pool_create_by_ops(name.c_str(), buffers, kPoolCacheFrames, 0,
                                        static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + data_bytes),
                                        SOCKET_ID_ANY, between_lanes);
}

}  // namespace

bool DeviceBuffers::make(uint16_t port_id, const BufferNeed& need) {
  const BufferPools pools = plan_buffers(need);
  const auto lanes = static_cast<uint16_t>(need.lanes);
  rx_ = make_pool("rx", port_id, lanes, pools.rx_buffers, pools.rx_bytes);
  tx_ = make_pool("tx", port_id, lanes, pools.tx_buffers, pools.tx_bytes);
  return rx_ != nullptr && tx_ != nullptr;
}

bool DeviceBuffers::make_pages(uint16_t port_id, const BufferNeed& need) {
  rx_ = tx_ = make_page_pool(pool_name("xdp", port_id), plan_xdp_buffers(need));
  return rx_ != nullptr;
}

DeviceBuffers::~DeviceBuffers() {
  if (!others_hold_buffers()) rte_mempool_free(rx_);
  if (tx_ != rx_) rte_mempool_free(tx_);
}

}  // namespace ina::io
