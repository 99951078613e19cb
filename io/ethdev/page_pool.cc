#include "io/ethdev/page_pool.h"

#include <rte_mbuf.h>
#include <rte_memzone.h>

namespace ina::io {

rte_mempool* make_page_pool(const std::string& name, uint32_t buffers) {
  constexpr uint32_t kPageBytes = 4096;
  constexpr uint32_t kElementBytes = kPageBytes - RTE_CACHE_LINE_SIZE;  // and a header
  constexpr uint32_t kCached = 64;
  rte_mempool* const pool = rte_mempool_create_empty(name.c_str(), buffers, kElementBytes, kCached,
                                                     sizeof(rte_pktmbuf_pool_private),
                                                     SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_SPREAD);
  if (pool == nullptr) return nullptr;
  rte_pktmbuf_pool_private room{};
  room.mbuf_data_room_size = kElementBytes - sizeof(rte_mbuf);
  rte_pktmbuf_pool_init(pool, &room);
  const rte_memzone* const memory = rte_memzone_reserve_aligned(
      name.c_str(), size_t{buffers} * kPageBytes, SOCKET_ID_ANY, 0, kPageBytes);
  const auto free_memory = [](rte_mempool_memhdr*, void* zone) {
    rte_memzone_free(static_cast<const rte_memzone*>(zone));
  };
  if (memory == nullptr ||
      rte_mempool_populate_virt(pool, static_cast<char*>(memory->addr), memory->len, kPageBytes,
                                free_memory,
                                const_cast<rte_memzone*>(memory)) != static_cast<int>(buffers)) {
    rte_mempool_free(pool);
    return nullptr;
  }
  rte_mempool_obj_iter(pool, rte_pktmbuf_init, nullptr);
  return pool;
}

}  // namespace ina::io
