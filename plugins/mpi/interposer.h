// The common part of the entry points of C and Fortran.
#pragma once

#include <functional>

#define INA_MPI_EXPORT extern "C" __attribute__((visibility("default")))

namespace ina::mpi {

/// Ends a program of another MPI, whose handles are of another kind, with a line that says so.
/// `caller`: an address in the program.
void require_own_mpi(void* caller);

/// MPI_Init for the caller at that address: `initialise_mpi` is MPI's own function.
int initialise(void* caller, const std::function<int()>& initialise_mpi);

}  // namespace ina::mpi
