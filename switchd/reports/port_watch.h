// The Ethernet ports as the control plane sees them from time to time: their links, and loops. What
// changes goes to the log.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "switchd/conductor_config.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

/// What the control plane knows of a port's device.
struct DeviceState {
  bool gone = false;
  Nanos gone_since = 0;
  std::string failure;                ///< why it could not be opened again
  std::optional<uint64_t> lost = {};  ///< PortDevice::lost_frames(); nothing: nobody counts them
};

/// Why a port is blocked, as a sentence; empty: it is not. `port`: in config order.
std::string block_text(const ConductorConfig& config, size_t port, const bridge::PortBlock& block);

class PortWatch {
 public:
  /// Both must outlive it.
  PortWatch(ConductorConfig& config, Lanes& lanes)
      : config_(config), lanes_(lanes), ports_(config.frame_ports.size()) {}

  /// Looks, if it is time.
  void turn(Nanos now);
  /// When that will be, or `until`, whichever is earlier.
  Nanos next(Nanos until) const { return ports_.empty() ? until : std::min(until, next_look_); }
  /// By Ethernet port, in config order.
  const DeviceState& device(size_t port) const { return ports_[port].device; }
  /// What is wrong with the device, as a sentence; empty: nothing.
  std::string device_text(size_t port) const;

 private:
  static constexpr Nanos kLookNs = 200'000'000;
  static constexpr Nanos kReopenNs = 1'000'000'000;
  static constexpr Nanos kMovesNs = 10'000'000'000;
  /// Addresses that appear at another port within kMovesNs, before that is worth a line.
  static constexpr uint64_t kManyMoves = 20;

  struct Port {
    bool link_up = false;
    Nanos link_since = 0;  ///< 0: nobody has looked yet
    bridge::PortBlock block;
    uint64_t moved = 0;
    DeviceState device;
    Nanos next_reopen = 0;
    uint64_t lost_told = 0;
  };

  void look_at_link(size_t number, bool up, Nanos now);
  void look_at_block(size_t number, const bridge::PortBlock& block, Nanos now);
  void look_at_moves(size_t number, uint64_t moved);
  void look_at_device(size_t number, Nanos now);
  void close_device(size_t number, Nanos now);
  void reopen_device(size_t number, Nanos now);
  void look_at_losses(size_t number);

  ConductorConfig& config_;
  Lanes& lanes_;
  std::vector<Port> ports_;
  Nanos next_look_ = 0;
  Nanos next_moves_ = 0;
};

}  // namespace ina::switchd
