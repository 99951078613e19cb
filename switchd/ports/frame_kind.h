// Ethernet ports: members whose packets come in frames.
#pragma once

#include <string>

#include "switchd/lanes/lanes.h"
#include "switchd/ports/port_kind.h"

namespace ina::switchd {

class FrameKind : public PortKind {
 public:
  /// Both must outlive it.
  FrameKind(const ConductorConfig& config, Lanes& lanes) : config_(config), lanes_(lanes) {}

  std::string_view name() const override { return control::kTransportFrame; }
  Result<Way> choose(const control::PeerCredentials& peer,
                     const control::request::Reach& reach) override;
  Result<std::vector<int>> give(Job& job, Rank rank, Way& way,
                                control::answer::Place& place) override;
  Result<void> attach(const Job& job, Rank rank) override;
  std::string lost_text(const Way& way, const ConductorConfig& next) const override;

 private:
  Result<uint32_t> port_of(const std::string& name, const wire::MacAddress& mac);
  Result<uint32_t> port_where_seen(const wire::MacAddress& mac);
  std::string port_names() const;

  const ConductorConfig& config_;
  Lanes& lanes_;
};

}  // namespace ina::switchd
