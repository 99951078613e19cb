// Nonblocking calls: operations of the switch that a generalised request of MPI stands for.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include <ina/ina.h>

#include "plugins/mpi/abi.h"
#include "plugins/mpi/collectives.h"

namespace ina::mpi {

class Group;

/// libina's own thread carries the operation out. A thread of the program tells MPI of the end when
/// MPI has it look: in MPI_Wait, MPI_Test and all other calls that make progress. No other thread
/// calls MPI, so every thread level of the program will do.
class Request : public std::enable_shared_from_this<Request> {
 public:
  Request(std::unique_ptr<Collective> call, std::shared_ptr<Group> group, ina_request* operation);

  /// True if this MPI has a way to be asked to look.
  static bool offered();
  /// Makes the request.
  int announce(MPI_Request* request);

  /// True if MPI has been told just now. A request that another thread looks at is left to it.
  bool look();
#if !defined(OPEN_MPI)
  /// MPICH does not look when it is asked for the status of one.
  static void look_at(MPI_Request handle);
#endif
  /// Waits until MPI has been told.
  void finish();
  /// MPI ends before the operation.
  void abandon();

 private:
  bool ended();
  void settle();
  void forget() const;
  static int query(void* state, MPI_Status* status);
  static int free(void* state);
  static int cancel(void* state, int complete);

  std::mutex mutex_;
  const std::unique_ptr<Collective> call_;
  const std::shared_ptr<Group> group_;
  ina_request* operation_;  ///< null when it has ended
  int status_ = MPI_SUCCESS;
  MPI_Request handle_ = MPI_REQUEST_NULL;
  std::atomic<bool> told_ = false;  ///< whether MPI knows that it has ended
};

}  // namespace ina::mpi
