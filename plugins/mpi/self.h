// A communicator of this process alone.
#pragma once

#include "plugins/mpi/abi.h"

namespace ina::mpi {

/// Packs, and answers questions about arguments: its errors are returned, and reach no handler of
/// the program. The program cannot free it. Null before MPI_Init. Any thread.
MPI_Comm self();

/// MPI's class of error for elements that are sent, MPI_SUCCESS if there is none. No handler hears
/// of it.
int class_of_elements(const void* buffer, MPI_Count count, MPI_Datatype type);

}  // namespace ina::mpi
