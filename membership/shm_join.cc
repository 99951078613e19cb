#include "membership/shm_join.h"

#include <bit>
#include <iterator>

namespace ina::membership {

namespace {

// Limits of a lane's send ring, which this process makes: 64 rows of the largest slots, or 1 MiB of
// the smallest.
constexpr uint64_t kMostSendBytes = 4 << 20;
constexpr uint32_t kMostSendRows = 4096;

bool fits(const control::answer::ShmEnd& shm, uint32_t slot_bytes) {
  return std::has_single_bit(shm.tx_depth) && std::has_single_bit(shm.rx_depth) &&
         shm.tx_depth <= kMostSendRows && uint64_t{shm.tx_depth} * slot_bytes <= kMostSendBytes;
}

}  // namespace

Result<std::unique_ptr<client::ShmTransport>> join_shm(const control::answer::Place& place,
                                                       control::Heard& joined,
                                                       client::BulkCopier& copier) {
  constexpr const char* kIncomplete = "the switch sent an incomplete answer to the request to join";
  if (!place.shm) return fail(INA_ERR_INTERNAL, kIncomplete);
  const control::answer::ShmEnd& shm = *place.shm;
  if (shm.layout != io::shm::kLayoutVersion)
    return fail(INA_ERR_VERSION, "the switch (" + (place.library.empty() ? "?" : place.library) +
                                     ") uses shm layout " + std::to_string(shm.layout) +
                                     ", this program (" INA_PROJECT_VERSION ") layout " +
                                     std::to_string(io::shm::kLayoutVersion) +
                                     ": install matching versions");
  if (auto checked = control::check(place); !checked) return tl::unexpected(checked.error());
  if (!fits(shm, place.slot_bytes))
    return fail(INA_ERR_INTERNAL, "the switch granted rings that no switch has: of " +
                                      std::to_string(shm.tx_depth) + " and " +
                                      std::to_string(shm.rx_depth) + " entries");
  const io::shm::Geometry geometry{place.lanes,      shm.tx_depth,    shm.rx_depth,
                                   place.slot_bytes, shm.result_rows, shm.side_rows};
  if (joined.lost_descriptors)
    return fail(INA_ERR_NO_MEMORY, "this process has no room for the " +
                                       std::to_string(2 + geometry.lanes) +
                                       " descriptors of the switch: close some, or raise its limit "
                                       "of open files (ulimit -n)");
  if (geometry.lanes == 0 || joined.fds.size() != 2 + geometry.lanes)
    return fail(INA_ERR_INTERNAL, kIncomplete);
  std::vector<Fd> events(std::make_move_iterator(joined.fds.begin() + 2),
                         std::make_move_iterator(joined.fds.end()));
  return client::ShmTransport::create(geometry, joined.fds[0], joined.fds[1], std::move(events),
                                      copier);
}

}  // namespace ina::membership
