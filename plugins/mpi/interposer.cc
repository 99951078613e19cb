// The functions of MPI that are taken over, for LD_PRELOAD: blocking, nonblocking, and with large
// counts where MPI has them.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "plugins/mpi/abi.h"
#include "plugins/mpi/collectives.h"
#include "plugins/mpi/communicator.h"
#include "plugins/mpi/groups.h"
#include "plugins/mpi/interposer.h"
#include "plugins/mpi/launcher.h"
#include "plugins/mpi/report.h"
#include "plugins/mpi/requests.h"
#include "plugins/mpi/self.h"
#include "plugins/mpi/world.h"

namespace ina::mpi {

namespace {

/// An interpreter keeps the libraries of its modules from each other. MPI, which came with the one
/// that `caller` is in, must be found from here.
void find_mpi_of(void* caller) {
  Dl_info module{};
  if (::dlsym(RTLD_DEFAULT, "PMPI_Init") || !::dladdr(caller, &module)) return;
  ::dlopen(module.dli_fname, RTLD_LAZY | RTLD_GLOBAL | RTLD_NOLOAD);
}

template <class Leave>
int leave_to_mpi(const char* function, const std::string& why, Leave leave) {
  Report::of_process().left(function, why);
  return leave();
}

/// Where MPI has no word for what is wrong.
int fail(MPI_Comm comm, int error) {
  PMPI_Comm_call_errhandler(comm, error);
  return error;
}

/// MPI says what is wrong with arguments, before it sends anything, in its own words.
constexpr const char* kRefused = "arguments that it refuses";
constexpr const char* kDisagreed = "after a call that the ranks disagreed about";

/// `make` gives the call as a Collective, `leave` is MPI's own function.
template <class Make, class Leave>
int blocking(const char* function, MPI_Comm comm, Make make, Leave leave) {
  if (comm == MPI_COMM_NULL || self() == MPI_COMM_NULL) return leave();
  int inter = 0;
  if (const int error = PMPI_Comm_test_inter(comm, &inter); error != MPI_SUCCESS) return error;
  if (inter) return leave_to_mpi(function, "intercommunicator", leave);
  auto call = make();
  const Faults faults = call.faults();
  if (faults.reported_by_mpi()) return leave_to_mpi(function, kRefused, leave);
  if (faults.error() == MPI_SUCCESS && call.why_not())
    return leave_to_mpi(function, call.why_not(), leave);
  Communicator& communicator = Communicator::of(comm);
  if (!communicator.usable()) return leave_to_mpi(function, communicator.why_not(), leave);
  if (faults.error() != MPI_SUCCESS) return fail(comm, faults.error());
  const Way way = communicator.next();
  if (way == Way::kMpi) return leave_to_mpi(function, kDisagreed, leave);
  const int status = way == Way::kSwitch ? communicator.run(call) : communicator.refuse();
  Report::of_process().taken(function, call.bytes());
  return status;
}

/// `make` gives the call as a unique_ptr of a Collective, `leave` is MPI's own function.
template <class Make, class Leave>
int nonblocking(const char* function, MPI_Comm comm, MPI_Request* request, Make make, Leave leave) {
  if (comm == MPI_COMM_NULL || self() == MPI_COMM_NULL) return leave();
  int inter = 0;
  if (const int error = PMPI_Comm_test_inter(comm, &inter); error != MPI_SUCCESS) return error;
  if (inter) return leave_to_mpi(function, "intercommunicator", leave);
  if (!Request::offered()) return leave_to_mpi(function, "MPI's progress cannot be joined", leave);
  auto call = make();
  const Faults faults = call->faults();
  if (faults.reported_by_mpi() || (!request && !kOpenMpi))
    return leave_to_mpi(function, kRefused, leave);
  if (faults.error() == MPI_SUCCESS && call->why_not())
    return leave_to_mpi(function, call->why_not(), leave);
  Communicator* const communicator = Communicator::known(comm);
  if (!communicator) return leave_to_mpi(function, "before any blocking call", leave);
  if (!communicator->usable()) return leave_to_mpi(function, communicator->why_not(), leave);
  if (faults.error() != MPI_SUCCESS) return fail(comm, faults.error());
  if (!request) return fail(comm, MPI_ERR_ARG);
  const Way way = communicator->next();
  if (way == Way::kMpi) return leave_to_mpi(function, kDisagreed, leave);
  *request = MPI_REQUEST_NULL;
  if (way == Way::kNobody) return communicator->refuse();
  size_t bytes = 0;
  const int status = communicator->start(std::move(call), request, bytes);
  Report::of_process().taken(function, bytes);
  return status;
}

int free(MPI_Comm* comm, int (*free_of_mpi)(MPI_Comm*)) {
  if (!comm || *comm == MPI_COMM_NULL || *comm == MPI_COMM_WORLD || *comm == MPI_COMM_SELF)
    return free_of_mpi(comm);
  const Communicator::Freeing freeing(*comm);
  return free_of_mpi(comm);
}

}  // namespace

void require_own_mpi(void* caller) {
  find_mpi_of(caller);
  std::array<char, 16384> version{};
  int length = 0;
  PMPI_Get_library_version(version.data(), &length);
  if (std::strncmp(version.data(), INA_MPI_NAME, std::strlen(INA_MPI_NAME)) == 0) return;
  version[std::strcspn(version.data(), "\n,")] = '\0';
  std::fprintf(stderr,
               "ina: %s is for %s, and this program uses %s; preload the library for that\n",
               INA_MPI_LIBRARY, INA_MPI_NAME, version.data());
  std::_Exit(1);
}

int initialise(void* caller, const std::function<int()>& initialise_mpi) {
  require_own_mpi(caller);
  std::unique_ptr<Launcher> launcher = Launcher::tell();
  const int status = initialise_mpi();
  if (status != MPI_SUCCESS) return status;
  self();  // before the program has handles that it frees: MPI gives their numbers again
  World::of_process().join(std::move(launcher));
  Communicator::begin();
  return status;
}

}  // namespace ina::mpi

using namespace ina::mpi;

INA_MPI_EXPORT int MPI_Init(int* argc, char*** argv) {
  return initialise(__builtin_return_address(0), [&] { return PMPI_Init(argc, argv); });
}

INA_MPI_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return initialise(__builtin_return_address(0),
                    [&] { return PMPI_Init_thread(argc, argv, required, provided); });
}

INA_MPI_EXPORT int MPI_Finalize() {
  int rank = 0, size = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  World::of_process().begin_leaving(Groups::of_process().abandon());
  Report::of_process().print(rank, size);
  const int status = PMPI_Finalize();
  World::of_process().end_leaving();
  return status;
}

INA_MPI_EXPORT int MPI_Comm_free(MPI_Comm* comm) {
  return ina::mpi::free(comm, PMPI_Comm_free);
}

INA_MPI_EXPORT int MPI_Comm_disconnect(MPI_Comm* comm) {
  return ina::mpi::free(comm, PMPI_Comm_disconnect);
}

#if !defined(OPEN_MPI)
INA_MPI_EXPORT int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  Request::look_at(request);
  return PMPI_Request_get_status(request, flag, status);
}
#endif

// The macros give a function the parameters that it has in MPI, and `request` behind them.
#define INA_MPI_WITH_REQUEST(...) (__VA_ARGS__, MPI_Request * request)
#define INA_MPI_AND_REQUEST(...) (__VA_ARGS__, request)
#define INA_MPI_DEFINE(NAME, INAME, SUFFIX, CLASS, PARAMETERS, ARGUMENTS)                        \
  INA_MPI_EXPORT int MPI_##NAME##SUFFIX PARAMETERS {                                             \
    return blocking(                                                                             \
        "MPI_" #NAME #SUFFIX, comm, [&] { return CLASS ARGUMENTS; },                             \
        [&] { return PMPI_##NAME##SUFFIX ARGUMENTS; });                                          \
  }                                                                                              \
  INA_MPI_EXPORT int MPI_##INAME##SUFFIX INA_MPI_WITH_REQUEST PARAMETERS {                       \
    return nonblocking(                                                                          \
        "MPI_" #INAME #SUFFIX, comm, request, [&] { return std::make_unique<CLASS> ARGUMENTS; }, \
        [&] { return PMPI_##INAME##SUFFIX INA_MPI_AND_REQUEST ARGUMENTS; });                     \
  }

INA_MPI_DEFINE(Barrier, Ibarrier, , Barrier, (MPI_Comm comm), (comm))

#define COUNT int
#define PLACE int
#define INA_MPI_COLLECTIVE(NAME, INAME, PARAMETERS, ARGUMENTS) \
  INA_MPI_DEFINE(NAME, INAME, , NAME, PARAMETERS, ARGUMENTS)
#include "plugins/mpi/functions.inc"
#undef INA_MPI_COLLECTIVE
#undef PLACE
#undef COUNT

#if MPI_VERSION >= 4
#define COUNT MPI_Count
#define PLACE MPI_Aint
#define INA_MPI_COLLECTIVE(NAME, INAME, PARAMETERS, ARGUMENTS) \
  INA_MPI_DEFINE(NAME, INAME, _c, NAME, PARAMETERS, ARGUMENTS)
#include "plugins/mpi/functions.inc"
#endif
