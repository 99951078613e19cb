// Wrong arguments of a call. Each MPI looks for other ones, and has other words for them.
#pragma once

#include "plugins/mpi/abi.h"
#include "plugins/mpi/bytes.h"

namespace ina::mpi {

#if defined(OPEN_MPI)
constexpr bool kOpenMpi = true;
#else
constexpr bool kOpenMpi = false;
#endif

/// What MPI looks at before it sends anything. MPICH always looks at all of it.
enum class Look {
  kAll,      ///< count, and a datatype that is there and committed
  kPartial,  ///< Open MPI, where it receives: it takes a datatype that is not committed
  kType,     ///< Open MPI, in MPI_Allgatherv: that there is a datatype
  kNone,     ///< Open MPI, at some places
};

/// The faults in the arguments of one call that its rank can see.
class Faults {
 public:
  /// MPI looks for it. `error`: a class for an MPI that was told to look for nothing.
  void noticed(bool fault, int error);
  /// MPI does not look for it, and would crash, or have other ranks wait.
  void unnoticed(bool fault, int error);
  /// Calls one of the two.
  void place(bool fault, int error, bool looks) {
    looks ? noticed(fault, error) : unnoticed(fault, error);
  }
  void root(int root, int size) { noticed(root < 0 || root >= size, MPI_ERR_ROOT); }
  void elements(const void* buffer, MPI_Count count, MPI_Datatype type, Look look);
  /// A block for each of `size` ranks.
  void blocks(const void* buffer, const Numbers& counts, const Numbers& places, MPI_Datatype type,
              int size, Look look);
  /// MPICH refuses the same address at two places where MPI_IN_PLACE is meant.
  void alias(const void* send, const void* recv);

  /// MPI reports it when the call is left to MPI, and sends nothing.
  bool reported_by_mpi() const { return reported_by_mpi_; }
  /// MPI_SUCCESS if there is none.
  int error() const { return error_; }

 private:
  bool reported_by_mpi_ = false;
  int error_ = MPI_SUCCESS;
};

}  // namespace ina::mpi
