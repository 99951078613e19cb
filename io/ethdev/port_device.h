// The device of a port, as the control plane handles it: never on the packet path. Without DPDK's
// headers.
#pragma once

#include <cstdint>
#include <optional>

#include "common/result.h"
#include "wire/frame.h"

namespace ina::io {

class PortDevice {
 public:
  PortDevice() = default;
  virtual ~PortDevice() = default;
  PortDevice(const PortDevice&) = delete;
  PortDevice& operator=(const PortDevice&) = delete;

  /// Open, and on an interface that is still there. One that was removed and made again, or left
  /// the network namespace and came back, is another interface.
  virtual bool is_attached() = 0;
  /// Closes it. No lane uses it any more.
  virtual void close() = 0;
  /// True: the interface is there again, and up.
  virtual bool may_reopen() = 0;
  /// Opens it again, for lanes to attach to.
  virtual Result<void> reopen() = 0;
  /// Address of the port, which may be another one after reopen().
  virtual wire::MacAddress mac() const = 0;
  /// Frames lost before the switch could take them, since the start; nothing: nobody counts them.
  virtual std::optional<uint64_t> lost_frames() = 0;
};

}  // namespace ina::io
