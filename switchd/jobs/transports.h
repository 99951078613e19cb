// The path from the switch to a worker, or to a fallback server: the request is checked against the
// switch's ports.
#pragma once

#include <optional>
#include <string>

#include "control/messages.h"
#include "control/socket.h"
#include "switchd/conductor_config.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

struct MemberTransport {
  bool shm = false;
  bool takes_buffers = false;  ///< reads results where a result buffer has them
  uint32_t frame_port = 0;
  std::optional<wire::Address> address = std::nullopt;  ///< on an Ethernet port
  bool multicast = false;                               ///< results by the job's group
  bool parks = false;  ///< keeps sums for the switch while somebody is slow
};

class Transports {
 public:
  /// Both must outlive it.
  Transports(const ConductorConfig& config, Lanes& lanes) : config_(config), lanes_(lanes) {}

  /// `peer`: the client that asks. Error: a sentence for the client.
  Result<MemberTransport> choose(const control::PeerCredentials& peer,
                                 const control::request::Reach& reach);

 private:
  Result<MemberTransport> choose_frame(const control::PeerCredentials& peer,
                                       const control::request::FrameEnd& frame);
  Result<uint32_t> port_of(const std::string& name, const wire::MacAddress& mac);
  Result<uint32_t> port_where_seen(const wire::MacAddress& mac);
  std::string port_names() const;

  const ConductorConfig& config_;
  Lanes& lanes_;
};

}  // namespace ina::switchd
