// Packet buffers without a device, for tests of classes that hold and hand on buffers.
#pragma once

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <cstring>
#include <string>

#include "tests/ethdev/frames.h"

namespace ina::io {

/// Needs DPDK (eal_fixture.h). Ends with a failure if a buffer was not given back.
class Buffers {
 public:
  static constexpr unsigned kBuffers = 1023;

  Buffers() {
    static int pools = 0;
    pool_ = rte_pktmbuf_pool_create(("buffers" + std::to_string(pools++)).c_str(), kBuffers, 0, 0,
                                    2048 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
  }
  ~Buffers() {
    EXPECT_EQ(in_use(), 0u);
    rte_mempool_free(pool_);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  rte_mempool* pool() const { return pool_; }
  unsigned in_use() const { return rte_mempool_in_use_count(pool_); }

  rte_mbuf* holding(const Bytes& bytes) const {
    rte_mbuf* const buffer = rte_pktmbuf_alloc(pool_);
    std::memcpy(rte_pktmbuf_append(buffer, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    return buffer;
  }

 private:
  rte_mempool* pool_;
};

}  // namespace ina::io
