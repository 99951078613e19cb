// The shm port: memory that the switch shares with a worker of this host.
#pragma once

#include "switchd/lanes/lanes.h"
#include "switchd/memory/resources.h"
#include "switchd/ports/port_kind.h"

namespace ina::switchd {

class ShmKind : public PortKind {
 public:
  /// All must outlive it.
  ShmKind(const ConductorConfig& config, Lanes& lanes, Resources& resources)
      : config_(config), lanes_(lanes), resources_(resources) {}

  std::string_view name() const override { return control::kTransportShm; }
  Result<Way> choose(const control::PeerCredentials& peer,
                     const control::request::Reach& reach) override;
  Result<std::vector<int>> give(Job& job, Rank rank, Way& way,
                                control::answer::Place& place) override;
  Result<void> attach(const Job& job, Rank rank) override;
  std::string lost_text(const Way& way, const ConductorConfig& next) const override;

 private:
  const ConductorConfig& config_;
  Lanes& lanes_;
  Resources& resources_;
};

}  // namespace ina::switchd
