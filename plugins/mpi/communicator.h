// A communicator's group of the switch.
#pragma once

#include <memory>
#include <string>

#include "plugins/mpi/abi.h"
#include "plugins/mpi/collectives.h"
#include "plugins/mpi/groups.h"
#include "plugins/mpi/world.h"

namespace ina::mpi {

/// All its ranks have the same answer to usable(): they agree in a call that all of them make and
/// in which all may wait, MPI_Init or the first blocking collective.
class Communicator {
 public:
  /// The one of `comm`, which all ranks ask for in the same call of theirs.
  static Communicator& of(MPI_Comm comm);
  /// The one of `comm` if its ranks have agreed, and null before: for calls that must not wait. All
  /// ranks make their collective calls in the same order, so all get the same.
  static Communicator* known(MPI_Comm comm);
  /// After World::join().
  static void begin();

  bool usable() const { return group_ && World::of_process().why_not().empty(); }
  const std::string& why_not() const;

  /// The way of the next call, if it is usable.
  Way next() const { return group_->next(); }
  /// A call that nobody does: its status.
  int refuse() const { return fail(INA_ERR_MISMATCH); }

  /// Starts an operation and waits for it; MPI goes on with its own meanwhile. An error goes
  /// to the communicator's handler: other ranks may have completed, so that nothing could be done
  /// again.
  int run(Collective& call);
  /// Starts one that `*request` stands for. `bytes`: those of call->bytes().
  int start(std::unique_ptr<Collective> call, MPI_Request* request, size_t& bytes);

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  /// While a communicator is freed: the delete callbacks of the program's attributes may make
  /// collective calls on it, in different orders, which are MPI's. They run on the thread that
  /// frees it. Another thread may have a new communicator of the same handle before MPI's call
  /// returns.
  class Freeing {
   public:
    explicit Freeing(MPI_Comm comm);
    ~Freeing();
    Freeing(const Freeing&) = delete;
    Freeing& operator=(const Freeing&) = delete;

    /// True if this thread is freeing it.
    static bool is_freeing(MPI_Comm comm);

   private:
    static thread_local Freeing* innermost;
    const MPI_Comm comm_;
    Freeing* const outer_;
  };

 private:
  explicit Communicator(MPI_Comm comm);
  Communicator(MPI_Comm comm, std::string why_not);
  void agree();
  static Communicator* attached(MPI_Comm comm);
  static int forget(MPI_Comm, int, void* found, void*);
  int fail(int status) const;

  const MPI_Comm comm_;
  std::shared_ptr<Group> group_;
  std::string why_not_;
};

}  // namespace ina::mpi
