// Keeps a switch from using an interface of the kernel that another port, or another process, uses:
// each would get the other's frames, and hosts would hear both.
//
// The lock is an abstract Unix socket whose name has the interface's number. Such names belong to a
// network namespace, as interfaces do, and go with their process.
#pragma once

#include <optional>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace ina::io {

/// A port of a switch has an interface for itself. Workers share it with each other.
enum class InterfaceUse { kPort, kWorker };

class InterfaceLock {
 public:
  /// An error names the process that has the interface. Locks that another user's process holds,
  /// who is not root, do not count: anybody could make them.
  static Result<InterfaceLock> take(const std::string& interface, InterfaceUse use);
  /// Why another process keeps take() from it; empty: none does.
  static std::string obstacle(const std::string& interface, InterfaceUse use);
  /// Both name the same interface, which is there: it may have several names.
  static bool same(const std::string& interface, const std::string& other);

 private:
  explicit InterfaceLock(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

}  // namespace ina::io
