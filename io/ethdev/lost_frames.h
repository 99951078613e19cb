// Frames that were lost before the switch could take them: where the kernel or the device had no
// room for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/ethdev/driver_socket.h"

namespace ina::io {

/// Belongs to one device. Used by the control plane's thread.
class LostFrames {
 public:
  /// `driver`: its name. `interface`: of the kernel, if it has one.
  LostFrames(uint16_t port_id, std::string driver, std::string interface,
             std::vector<DriverSocket> sockets);

  /// Since the device was opened; nothing: nobody counts them.
  std::optional<uint64_t> count();

 private:
  uint64_t of_tap() const;

  uint16_t port_id_;
  std::string driver_;
  std::string interface_;
  std::vector<DriverSocket> sockets_;
  uint64_t counted_ = 0;  ///< by sockets whose own counters begin anew with each look
  uint64_t before_ = 0;   ///< by an interface that was there before
};

}  // namespace ina::io
