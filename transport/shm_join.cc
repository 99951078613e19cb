#include "transport/shm_join.h"

#include <iterator>

namespace ina::client {

Result<std::unique_ptr<ShmTransport>> join_shm(const control::answer::Place& place,
                                               control::Heard& joined, BulkCopier& copier) {
  constexpr const char* kIncomplete = "the switch sent an incomplete answer to the request to join";
  if (!place.shm) return fail(INA_ERR_INTERNAL, kIncomplete);
  const control::answer::ShmEnd& shm = *place.shm;
  if (shm.layout != io::shm::kLayoutVersion)
    return fail(INA_ERR_VERSION, "the switch (" + (place.library.empty() ? "?" : place.library) +
                                     ") uses shm layout " + std::to_string(shm.layout) +
                                     ", this program (" INA_PROJECT_VERSION ") layout " +
                                     std::to_string(io::shm::kLayoutVersion) +
                                     ": install matching versions");
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
  return ShmTransport::create(geometry, joined.fds[0], joined.fds[1], std::move(events), copier);
}

}  // namespace ina::client
