#include "switchd/ports/ports.h"

#include <fmt/format.h>

#include "switchd/ports/frame_kind.h"
#include "switchd/ports/shm_kind.h"

namespace ina::switchd {

namespace {

std::vector<std::unique_ptr<PortKind>> all_kinds(const ConductorConfig& config, Lanes& lanes,
                                                 Resources& resources) {
  std::vector<std::unique_ptr<PortKind>> kinds;
  kinds.push_back(std::make_unique<ShmKind>(config, lanes, resources));
  kinds.push_back(std::make_unique<FrameKind>(config, lanes));
  return kinds;
}

}  // namespace

Ports::Ports(const ConductorConfig& config, Lanes& lanes, Resources& resources)
    : kinds_(all_kinds(config, lanes, resources)) {}

Result<Way> Ports::choose(const control::PeerCredentials& peer,
                          const control::request::Reach& reach) {
  for (const auto& kind : kinds_) {
    if (kind->name() != reach.transport) continue;
    auto way = kind->choose(peer, reach);
    if (!way) return way;
    way->parks = reach.parks;
    return way;
  }
  return fail(INA_ERR_UNSUPPORTED,
              fmt::format("this switch offers no '{}' transport", reach.transport));
}

}  // namespace ina::switchd
