#include "transport/shm_join.h"

#include <iterator>

namespace ina::client {

Result<std::unique_ptr<ShmTransport>> join_shm(control::Received& joined, BulkCopier& copier) {
  const control::Json& body = joined.body;
  const control::Json& shm = body.at("shm");
  if (const auto layout = shm.at("layout").get<uint32_t>(); layout != io::shm::kLayoutVersion)
    return fail(INA_ERR_VERSION,
                "the switch (" + body.value("library", std::string("?")) + ") uses shm layout " +
                    std::to_string(layout) + ", this program (" INA_PROJECT_VERSION ") layout " +
                    std::to_string(io::shm::kLayoutVersion) + ": install matching versions");
  const io::shm::Geometry geometry{
      body.at("lanes").get<uint32_t>(),      shm.at("tx_depth").get<uint32_t>(),
      shm.at("rx_depth").get<uint32_t>(),    body.at("slot_bytes").get<uint32_t>(),
      shm.at("result_rows").get<uint32_t>(), shm.at("side_rows").get<uint32_t>()};
  if (joined.lost_descriptors)
    return fail(INA_ERR_NO_MEMORY, "this process has no room for the " +
                                       std::to_string(2 + geometry.lanes) +
                                       " descriptors of the switch: close some, or raise its limit "
                                       "of open files (ulimit -n)");
  if (geometry.lanes == 0 || joined.fds.size() != 2 + geometry.lanes)
    return fail(INA_ERR_INTERNAL, "the switch sent an incomplete answer to the request to join");
  std::vector<Fd> events(std::make_move_iterator(joined.fds.begin() + 2),
                         std::make_move_iterator(joined.fds.end()));
  return ShmTransport::create(geometry, joined.fds[0], joined.fds[1], std::move(events), copier);
}

}  // namespace ina::client
