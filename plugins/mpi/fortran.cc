// Subroutines for Fortran that call MPI's own C functions and not those that are taken over. Open
// MPI's all do: those of mpif.h and `use mpi`, whose names compilers spell differently, and of
// `use mpi_f08`, whose last argument may be missing. Of MPICH's, those of `use mpi_f08` that have
// no buffer do.
#include "plugins/mpi/abi.h"
#include "plugins/mpi/interposer.h"

#include <algorithm>
#include <array>

namespace ina::mpi {

namespace {

static_assert(sizeof(MPI_Fint) == sizeof(int), "arrays of counts are passed on as they are");

/// An argument of a subroutine, all of which are addresses, as that of the C function.
template <class C>
struct Argument;

template <>
struct Argument<int> {
  Argument(void* given, void*) : value(*static_cast<const MPI_Fint*>(given)) {}
  int value;
};

#if defined(OPEN_MPI)

/// MPI_IN_PLACE and MPI_BOTTOM: addresses in memory, under the names that compilers give them. They
/// are looked for when they are used, as MPI itself is (abi.h), also in the module that `caller` is
/// in.
class Places {
 public:
  static const Places& of(void* caller) {
    static const Places found(caller);
    return found;
  }
  void* value(void* given) const {
    if (!given) return given;
    if (std::ranges::find(in_place_, given) != in_place_.end()) return MPI_IN_PLACE;
    if (std::ranges::find(bottom_, given) != bottom_.end()) return MPI_BOTTOM;
    return given;
  }

 private:
  explicit Places(void* caller) {
    Dl_info of_caller{};
    void* const module = ::dladdr(caller, &of_caller)
                             ? ::dlopen(of_caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                             : nullptr;
    const auto look = [&](const char* name) {
      void* const place = ::dlsym(RTLD_DEFAULT, name);
      return place || !module ? place : ::dlsym(module, name);
    };
    std::ranges::transform(std::array{"MPI_FORTRAN_IN_PLACE", "mpi_fortran_in_place",
                                      "mpi_fortran_in_place_", "mpi_fortran_in_place__"},
                           in_place_.begin(), look);
    std::ranges::transform(std::array{"MPI_FORTRAN_BOTTOM", "mpi_fortran_bottom",
                                      "mpi_fortran_bottom_", "mpi_fortran_bottom__"},
                           bottom_.begin(), look);
  }
  std::array<void*, 4> in_place_{}, bottom_{};
};

template <>
struct Argument<void*> {
  Argument(void* given, void* caller) : value(Places::of(caller).value(given)) {}
  void* value;
};

template <>
struct Argument<const void*> : Argument<void*> {
  using Argument<void*>::Argument;
};

template <>
struct Argument<const int*> {
  Argument(void* given, void*) : value(static_cast<const int*>(given)) {}
  const int* value;
};

template <>
struct Argument<MPI_Datatype> {
  Argument(void* given, void*) : value(PMPI_Type_f2c(*static_cast<MPI_Fint*>(given))) {}
  MPI_Datatype value;
};

template <>
struct Argument<MPI_Op> {
  Argument(void* given, void*) : value(PMPI_Op_f2c(*static_cast<MPI_Fint*>(given))) {}
  MPI_Op value;
};

template <>
struct Argument<MPI_Comm> {
  Argument(void* given, void*) : value(PMPI_Comm_f2c(*static_cast<MPI_Fint*>(given))) {}
  MPI_Comm value;
};

#endif

/// A result.
template <>
struct Argument<MPI_Request*> {
  Argument(void* given, void*) : value(&made), place(static_cast<MPI_Fint*>(given)) {}
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() {
    if (made != MPI_REQUEST_NULL) *place = PMPI_Request_c2f(made);
  }
  MPI_Request made = MPI_REQUEST_NULL;
  MPI_Request* value;
  MPI_Fint* place;
};

#if defined(OPEN_MPI)

/// An argument that becomes a result.
template <>
struct Argument<MPI_Comm*> {
  Argument(void* given, void*)
      : made(PMPI_Comm_f2c(*static_cast<MPI_Fint*>(given))),
        value(&made),
        place(static_cast<MPI_Fint*>(given)) {}
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() { *place = PMPI_Comm_c2f(made); }
  MPI_Comm made;
  MPI_Comm* value;
  MPI_Fint* place;
};

#endif

template <class... Parameters, class... Given>
void call(int (*function)(Parameters...), void* caller, MPI_Fint* error, Given... given) {
  const int status = function(Argument<Parameters>(given, caller).value...);
  if (error) *error = status;
}

}  // namespace

}  // namespace ina::mpi

#if defined(OPEN_MPI)
#define INA_MPI_ALIAS(NAME, OF, ...) \
  INA_MPI_EXPORT __attribute__((alias(#OF))) void NAME(__VA_ARGS__);
#define INA_MPI_ALIASES(LOWER, UPPER, ...)                        \
  INA_MPI_ALIAS(mpi_##LOWER, mpi_##LOWER##_f08_, __VA_ARGS__)     \
  INA_MPI_ALIAS(mpi_##LOWER##_, mpi_##LOWER##_f08_, __VA_ARGS__)  \
  INA_MPI_ALIAS(mpi_##LOWER##__, mpi_##LOWER##_f08_, __VA_ARGS__) \
  INA_MPI_ALIAS(MPI_##UPPER, mpi_##LOWER##_f08_, __VA_ARGS__)
#else
#define INA_MPI_ALIASES(LOWER, UPPER, ...)
#endif

#define INA_MPI_GIVEN_1 void* a
#define INA_MPI_GIVEN_2 INA_MPI_GIVEN_1, void* b
#define INA_MPI_GIVEN_3 INA_MPI_GIVEN_2, void* c
#define INA_MPI_GIVEN_4 INA_MPI_GIVEN_3, void* d
#define INA_MPI_GIVEN_5 INA_MPI_GIVEN_4, void* e
#define INA_MPI_GIVEN_6 INA_MPI_GIVEN_5, void* f
#define INA_MPI_GIVEN_7 INA_MPI_GIVEN_6, void* g
#define INA_MPI_GIVEN_8 INA_MPI_GIVEN_7, void* h
#define INA_MPI_GIVEN_9 INA_MPI_GIVEN_8, void* i
#define INA_MPI_GIVEN_10 INA_MPI_GIVEN_9, void* j
#define INA_MPI_NAMES_1 a
#define INA_MPI_NAMES_2 INA_MPI_NAMES_1, b
#define INA_MPI_NAMES_3 INA_MPI_NAMES_2, c
#define INA_MPI_NAMES_4 INA_MPI_NAMES_3, d
#define INA_MPI_NAMES_5 INA_MPI_NAMES_4, e
#define INA_MPI_NAMES_6 INA_MPI_NAMES_5, f
#define INA_MPI_NAMES_7 INA_MPI_NAMES_6, g
#define INA_MPI_NAMES_8 INA_MPI_NAMES_7, h
#define INA_MPI_NAMES_9 INA_MPI_NAMES_8, i
#define INA_MPI_NAMES_10 INA_MPI_NAMES_9, j

// COUNT: of the C function's parameters.
#define INA_MPI_SUBROUTINE(LOWER, UPPER, FUNCTION, COUNT)                                 \
  INA_MPI_EXPORT void mpi_##LOWER##_f08_(INA_MPI_GIVEN_##COUNT, MPI_Fint* error) {        \
    ina::mpi::call(&FUNCTION, __builtin_return_address(0), error, INA_MPI_NAMES_##COUNT); \
  }                                                                                       \
  INA_MPI_ALIASES(LOWER, UPPER, INA_MPI_GIVEN_##COUNT, MPI_Fint* error)

INA_MPI_EXPORT void mpi_init_f08_(MPI_Fint* error) {
  const int status =
      ina::mpi::initialise(__builtin_return_address(0), [] { return PMPI_Init(nullptr, nullptr); });
  if (error) *error = status;
}
INA_MPI_ALIASES(init, INIT, MPI_Fint* error)

INA_MPI_EXPORT void mpi_init_thread_f08_(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
  const int status = ina::mpi::initialise(__builtin_return_address(0), [&] {
    return PMPI_Init_thread(nullptr, nullptr, *required, provided);
  });
  if (error) *error = status;
}
INA_MPI_ALIASES(init_thread, INIT_THREAD, MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error)

INA_MPI_EXPORT void mpi_finalize_f08_(MPI_Fint* error) {
  const int status = MPI_Finalize();
  if (error) *error = status;
}
INA_MPI_ALIASES(finalize, FINALIZE, MPI_Fint* error)

INA_MPI_SUBROUTINE(barrier, BARRIER, MPI_Barrier, 1)
INA_MPI_SUBROUTINE(ibarrier, IBARRIER, MPI_Ibarrier, 2)
#if defined(OPEN_MPI)
INA_MPI_SUBROUTINE(comm_free, COMM_FREE, MPI_Comm_free, 1)
INA_MPI_SUBROUTINE(comm_disconnect, COMM_DISCONNECT, MPI_Comm_disconnect, 1)
INA_MPI_SUBROUTINE(allreduce, ALLREDUCE, MPI_Allreduce, 6)
INA_MPI_SUBROUTINE(reduce, REDUCE, MPI_Reduce, 7)
INA_MPI_SUBROUTINE(reduce_scatter_block, REDUCE_SCATTER_BLOCK, MPI_Reduce_scatter_block, 6)
INA_MPI_SUBROUTINE(reduce_scatter, REDUCE_SCATTER, MPI_Reduce_scatter, 6)
INA_MPI_SUBROUTINE(bcast, BCAST, MPI_Bcast, 5)
INA_MPI_SUBROUTINE(allgather, ALLGATHER, MPI_Allgather, 7)
INA_MPI_SUBROUTINE(allgatherv, ALLGATHERV, MPI_Allgatherv, 8)
INA_MPI_SUBROUTINE(gather, GATHER, MPI_Gather, 8)
INA_MPI_SUBROUTINE(gatherv, GATHERV, MPI_Gatherv, 9)
INA_MPI_SUBROUTINE(scatter, SCATTER, MPI_Scatter, 8)
INA_MPI_SUBROUTINE(scatterv, SCATTERV, MPI_Scatterv, 9)
INA_MPI_SUBROUTINE(alltoall, ALLTOALL, MPI_Alltoall, 7)
INA_MPI_SUBROUTINE(alltoallv, ALLTOALLV, MPI_Alltoallv, 9)
INA_MPI_SUBROUTINE(iallreduce, IALLREDUCE, MPI_Iallreduce, 7)
INA_MPI_SUBROUTINE(ireduce, IREDUCE, MPI_Ireduce, 8)
INA_MPI_SUBROUTINE(ireduce_scatter_block, IREDUCE_SCATTER_BLOCK, MPI_Ireduce_scatter_block, 7)
INA_MPI_SUBROUTINE(ireduce_scatter, IREDUCE_SCATTER, MPI_Ireduce_scatter, 7)
INA_MPI_SUBROUTINE(ibcast, IBCAST, MPI_Ibcast, 6)
INA_MPI_SUBROUTINE(iallgather, IALLGATHER, MPI_Iallgather, 8)
INA_MPI_SUBROUTINE(iallgatherv, IALLGATHERV, MPI_Iallgatherv, 9)
INA_MPI_SUBROUTINE(igather, IGATHER, MPI_Igather, 9)
INA_MPI_SUBROUTINE(igatherv, IGATHERV, MPI_Igatherv, 10)
INA_MPI_SUBROUTINE(iscatter, ISCATTER, MPI_Iscatter, 9)
INA_MPI_SUBROUTINE(iscatterv, ISCATTERV, MPI_Iscatterv, 10)
INA_MPI_SUBROUTINE(ialltoall, IALLTOALL, MPI_Ialltoall, 8)
INA_MPI_SUBROUTINE(ialltoallv, IALLTOALLV, MPI_Ialltoallv, 10)

#else

// MPICH's go on to the C function, another MPI's do not.
#define INA_MPI_FORWARD(NAME, PARAMETERS, ARGUMENTS)                           \
  INA_MPI_EXPORT void NAME PARAMETERS {                                        \
    ina::mpi::require_own_mpi(__builtin_return_address(0));                    \
    reinterpret_cast<void(*) PARAMETERS>(::dlsym(RTLD_NEXT, #NAME)) ARGUMENTS; \
  }
INA_MPI_FORWARD(mpi_init_, (MPI_Fint * error), (error))
INA_MPI_FORWARD(mpi_init_thread_, (MPI_Fint * required, MPI_Fint* provided, MPI_Fint* error),
                (required, provided, error))

#endif
