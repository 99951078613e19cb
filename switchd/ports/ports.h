// The kinds of ports that this switch knows.
#pragma once

#include <memory>
#include <vector>

#include "switchd/lanes/lanes.h"
#include "switchd/memory/resources.h"
#include "switchd/ports/port_kind.h"

namespace ina::switchd {

class Ports {
 public:
  /// All must outlive it.
  Ports(const ConductorConfig& config, Lanes& lanes, Resources& resources);

  /// `peer`: the client that asks. Error: a sentence for the client.
  Result<Way> choose(const control::PeerCredentials& peer, const control::request::Reach& reach);

 private:
  const std::vector<std::unique_ptr<PortKind>> kinds_;
};

}  // namespace ina::switchd
