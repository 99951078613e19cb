// A communicator's job of the switch.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ina/ina.h>

#include "plugins/mpi/abi.h"
#include "plugins/mpi/collectives.h"

namespace ina::mpi {

class Request;

/// All its ranks have the same answer to usable(): they agree in a call that all of them make and
/// in which all may wait, MPI_Init or the first blocking collective.
class Communicator {
 public:
  /// The one of `comm`, which all ranks ask for in the same call of theirs.
  static Communicator& of(MPI_Comm comm);
  /// The same if its ranks have agreed, and null before: for calls that must not wait. All ranks
  /// make their collective calls in the same order, so all get the same.
  static Communicator* known(MPI_Comm comm);
  /// All that there are leave their jobs. All ranks call it.
  static void leave_all();

  bool usable() const { return context_ != nullptr; }
  const std::string& why_not() const { return why_not_; }

  /// Starts an operation and waits for it; MPI goes on with its own meanwhile. An error goes
  /// to the communicator's handler: other ranks may have completed, so that nothing could be done
  /// again.
  int run(Collective& call);
  /// Starts one that `*request` stands for. `bytes`: those of call->bytes().
  int start(std::unique_ptr<Collective> call, MPI_Request* request, size_t& bytes);

  /// Says on stderr what has become of an operation. MPI's status.
  int complain(int status) const;
  /// Of an operation that start() has begun: it is no longer this communicator's.
  void completed(const Request* request);

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

 private:
  explicit Communicator(MPI_Comm comm);
  void agree();
  void leave();
  std::string share_name() const;
  static int forget(MPI_Comm, int, void* found, void*);
  int fail(int status) const;
  std::vector<std::shared_ptr<Request>> running();

  const MPI_Comm comm_;
  int rank_ = 0, size_ = 0;
  ina_context* context_ = nullptr;
  std::string why_not_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Request>> running_;
};

}  // namespace ina::mpi
