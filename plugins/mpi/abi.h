// The MPI for which this is compiled. Handles are pointers in Open MPI and numbers in MPICH, so
// there is a library for each.
#pragma once

#include <dlfcn.h>

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

// The library is not linked with MPI: it uses the program's. Where that is another one, none of its
// functions and predefined objects is there, and the program must start nevertheless, to be told
// so. Functions are bound when they are called. Objects are looked for when they are used: those of
// an MPI that came with a module of an interpreter are not there when the program starts.
#if defined(OPEN_MPI)
#define INA_MPI_NAME "Open MPI"
#define INA_MPI_LIBRARY "libina_mpi_openmpi.so"
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global)                   \
  ([] {                                                        \
    static void* const found = ::dlsym(RTLD_DEFAULT, #global); \
    return static_cast<type>(found);                           \
  }())
#else
#define INA_MPI_NAME "MPICH"
#define INA_MPI_LIBRARY "libina_mpi_mpich.so"
#endif
