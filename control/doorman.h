// The doorman takes descriptors from strangers, so that no important process ever holds one.
//
// A process that closes the last descriptor of a file triggers the file's own action. A TCP socket
// with SO_LINGER waits. A file on a FUSE mount asks a server that may never answer, and the process
// cannot even be killed meanwhile. The same holds for descriptors in a message that nobody has
// read. So a switch does not receive descriptors, and does not close a connection in which some
// wait. It passes the connection to the doorman, a small process. One child of the doorman does the
// work, and the doorman does not mind if that child hangs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "wire/types.h"

namespace ina::control {

namespace doorman {
enum class Kind : uint8_t;
}

class Doorman {
 public:
  // The most hanging children of one user, and of all users.
  static constexpr int kChildrenPerUser = 4;
  static constexpr int kChildren = 64;
  static constexpr size_t kMostUnclosed = 256;

  /// The outcome of ask(); or, without a token, the cost of a user's requests.
  struct Answer {
    uint64_t token = 0;
    ina_status status = INA_OK;
    std::string text;  ///< why not
    Fd file;           ///< the memory file: sealed and without holes (common/sealed_memory.h)
    uid_t user = 0;
    Nanos cpu_ns = 0;  ///< processor time of the doorman and its children
  };

  /// Makes the process. To be called first of all: it is a copy of this one, without any of its
  /// descriptors.
  static Result<std::unique_ptr<Doorman>> start();
  /// The doorman ends by itself, some time later.
  ~Doorman();

  /// Has the next message of a unix connection received, which carries descriptors and must carry
  /// one memory file. Nothing may be received there until the answer with `token` has come. Error:
  /// it cannot be asked.
  Result<void> ask(int connection, uid_t user, uint64_t token);
  /// The connection of a question is about to be closed.
  void withdraw(uint64_t token);
  /// Closes a unix connection and its queue. No copy of its descriptor may exist.
  void close(Fd connection);

  /// Readable when there is an answer.
  int fd() const { return socket_.get(); }
  std::optional<Answer> next();
  /// Hands over requests that could not be handed over before. To be called from time to time.
  void turn();
  /// The number of requests that wait for turn().
  size_t waiting() const { return unclosed() + asks_.size(); }
  /// Connections to be closed among them.
  size_t unclosed() const { return waiting_.size() + unconfirmed_; }
  /// With so many to be closed no others are to be accepted.
  bool has_too_many() const { return unclosed() > kMostUnclosed; }
  /// False: the process has ended, which should not happen. Descriptors are refused from then on.
  bool alive() const { return alive_; }
  pid_t pid() const { return pid_; }
  /// Overrides the choice by the kernel's version. Before Linux 6.9 a process that closes a unix
  /// socket also closes descriptors in the queues of other sockets that are unreachable. All
  /// connections go to the doorman then.
  void set_kernel_collects(bool collects) { kernel_collects_ = collects; }

 private:
  struct Ask {
    int connection = -1;
    uid_t user = 0;
    uint64_t token = 0;
  };

  Doorman(Fd socket, pid_t pid);
  bool hand_over(Fd& connection);
  bool send(doorman::Kind kind, uid_t user, uint64_t token, int connection);

  Fd socket_;
  pid_t pid_ = 0;
  bool alive_ = true;
  bool kernel_collects_ = false;
  uint32_t unconfirmed_ = 0;  ///< handed over, but the doorman does not know yet that we closed it
  std::deque<Fd> waiting_;
  std::deque<Ask> asks_;  ///< for which there was no room
};

}  // namespace ina::control
