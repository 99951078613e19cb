// Packet buffers in the form that AF_XDP needs.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <string>

namespace ina::io {

/// Buffers of a page each, one right after another: DPDK's driver of AF_XDP (22.11) reckons with
/// that when it tells the kernel where they lie. In DPDK's usual pools none crosses a page, which
/// leaves gaps. Buffers behind the area that the kernel knows are lost. nullptr: no memory.
rte_mempool* make_page_pool(const std::string& name, uint32_t buffers);

}  // namespace ina::io
