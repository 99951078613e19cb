// The kernel's interface under a device whose driver does not know the link itself. A device of
// another kind has none: it is attached, and asked itself whether the link is up.
#pragma once

#include <span>
#include <string>

#include "common/fd.h"
#include "io/ethdev/driver_socket.h"

namespace ina::io {

class KernelInterface {
 public:
  /// False: there is none of this index, and errno says why.
  bool find(unsigned index);

  explicit operator bool() const { return !name_.empty(); }
  /// Switched on, and its link works. Makes system calls.
  bool is_up() const;
  /// It is there, nobody has taken its name, and the driver's sockets get its frames.
  bool is_attached(std::span<const DriverSocket> sockets) const;

 private:
  std::string name_;
  unsigned index_ = 0;  ///< 0: none
  Fd socket_;           ///< by which the kernel is asked
};

}  // namespace ina::io
