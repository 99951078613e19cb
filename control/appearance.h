// Reports when a unix socket appears at a path, so that a client that waits for a switch need not
// try again and again.
#pragma once

#include <string>

#include "common/fd.h"

namespace ina::control {

class Appearance {
 public:
  /// Tells nothing of an address over TCP, or of a path whose folder cannot be watched.
  explicit Appearance(const std::string& path);

  /// Readable when something has changed in the socket's folder; -1: nothing is told.
  int fd() const { return fd_.get(); }
  /// Takes in changes. True: the socket appeared, or may be used by others now. A listener
  /// follows at once, but may not be there yet.
  bool appeared();

 private:
  Fd fd_;
  std::string name_;  ///< within its folder
};

}  // namespace ina::control
