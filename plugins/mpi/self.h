// A communicator of this process alone.
#pragma once

#include "plugins/mpi/abi.h"

namespace ina::mpi {

/// Packs, and answers questions about arguments: its errors are returned, and reach no handler of
/// the program. The program cannot free it. Null before MPI_Init. Any thread.
MPI_Comm self();

}  // namespace ina::mpi
