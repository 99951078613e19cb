// The pools of packet buffers of one device.
#pragma once

#include <rte_mempool.h>

#include <cstdint>

#include "io/ethdev/buffer_budget.h"

namespace ina::io {

class DeviceBuffers {
 public:
  DeviceBuffers() = default;
  /// After the device is closed: until then it, or the kernel, writes into the buffers.
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  /// A pool for each direction. False: no memory, and rte_errno says why.
  bool make(uint16_t port_id, const BufferNeed& need);
  /// One pool of pages for both, as AF_XDP needs it. False as make().
  bool make_pages(uint16_t port_id, const BufferNeed& need);

  rte_mempool* rx() const { return rx_; }
  rte_mempool* tx() const { return tx_; }

 private:
  rte_mempool* rx_ = nullptr;
  rte_mempool* tx_ = nullptr;
};

}  // namespace ina::io
