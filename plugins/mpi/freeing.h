// Communicators that the program frees just now: functions of its attributes may make calls on
// them.
#pragma once

#include <string>

#include "plugins/mpi/abi.h"

namespace ina::mpi {

/// Why MPI has to do a call on `comm`, in which all its ranks are within MPI_Comm_free,
/// MPI_Comm_disconnect or MPI_Finalize; null if they are not. Any thread.
const char* why_ending(MPI_Comm comm);

/// MPI_Finalize has begun.
void begin_finalize();

}  // namespace ina::mpi
