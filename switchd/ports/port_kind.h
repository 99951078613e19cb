// A kind of port as the conductor sees it: it checks how a member wants to reach the switch, makes
// the member's way, and has the lanes serve the member. A new kind is a class of this, a struct in
// way.h, and a line in ports.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/messages.h"
#include "control/socket.h"
#include "switchd/conductor_config.h"
#include "switchd/ports/way.h"

namespace ina::switchd {

struct Job;

class PortKind {
 public:
  virtual ~PortKind() = default;

  /// The value of request::Reach::transport that asks for it.
  virtual std::string_view name() const = 0;
  /// The way that `peer` asks for. Error: a sentence for the client.
  virtual Result<Way> choose(const control::PeerCredentials& peer,
                             const control::request::Reach& reach) = 0;
  /// Makes the resources of `way`, on which the member at `rank` will be, and describes them in
  /// `place`. Returns the descriptors that go with `place`.
  virtual Result<std::vector<int>> give(Job& job, Rank rank, Way& way,
                                        control::answer::Place& place) = 0;
  /// The lanes serve the member from now on.
  virtual Result<void> attach(const Job& job, Rank rank) = 0;
  /// Why a switch with the configuration `next` does not have this way; empty: it has.
  virtual std::string lost_text(const Way& way, const ConductorConfig& next) const = 0;
};

}  // namespace ina::switchd
