// The unix socket of administrators: accepts those whom the kernel says may administer.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "common/fd.h"
#include "common/result.h"

namespace ina::admin {

/// The number of a group, of its name or its number.
Result<gid_t> group_of(const std::string& name);

/// Who is at the other end of a unix socket, and whether it is root, the user of this process, or
/// one of the group.
struct UnixPeer {
  std::string text;  ///< "uid 1000, pid 4711"
  bool allowed = false;
};
UnixPeer peer_of(int fd, std::optional<gid_t> group);

class UnixListener {
 public:
  /// Called on the listener's thread, for each connection of somebody allowed. The descriptor is
  /// the callee's.
  using Accepted = std::function<void(int fd, const std::string& who)>;

  static Result<UnixListener> open(const std::string& path, std::optional<gid_t> group);
  UnixListener(UnixListener&& other) noexcept = default;
  UnixListener& operator=(UnixListener&& other) noexcept = delete;
  /// Ends the thread and removes the path.
  ~UnixListener();

  /// Begins to accept.
  void start(Accepted accepted);

 private:
  UnixListener(Fd fd, std::string path, std::optional<gid_t> group, Fd stop)
      : fd_(std::move(fd)), path_(std::move(path)), group_(group), stop_(std::move(stop)) {}
  void run(const Accepted& accepted) const;

  Fd fd_;
  std::string path_;
  std::optional<gid_t> group_;
  Fd stop_;  ///< eventfd
  std::thread thread_;
};

}  // namespace ina::admin
