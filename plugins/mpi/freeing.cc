#include "plugins/mpi/freeing.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "plugins/mpi/interposer.h"

namespace ina::mpi {

namespace {

std::atomic<bool> finalizing = false;
std::atomic<int> freed_now = 0;
std::mutex mutex;

std::vector<MPI_Comm>& communicators() {
  static auto* const found = new std::vector<MPI_Comm>;
  return *found;
}

int end(MPI_Comm* comm, int (*end_in_mpi)(MPI_Comm*)) {
  if (!comm || *comm == MPI_COMM_NULL) return end_in_mpi(comm);
  const MPI_Comm ending = *comm;
  {
    const std::lock_guard lock(mutex);
    communicators().push_back(ending);
    ++freed_now;
  }
  const int status = end_in_mpi(comm);
  const std::lock_guard lock(mutex);
  communicators().erase(std::ranges::find(communicators(), ending));
  --freed_now;
  return status;
}

}  // namespace

const char* why_ending(MPI_Comm comm) {
  if (finalizing) return "MPI_Finalize";
  if (freed_now == 0) return nullptr;
  const std::lock_guard lock(mutex);
  const bool ending = std::ranges::find(communicators(), comm) != communicators().end();
  return ending ? "the communicator is freed just now" : nullptr;
}

void begin_finalize() {
  finalizing = true;
}

}  // namespace ina::mpi

INA_MPI_EXPORT int MPI_Comm_free(MPI_Comm* comm) {
  return ina::mpi::end(comm, [](MPI_Comm* ended) { return PMPI_Comm_free(ended); });
}

INA_MPI_EXPORT int MPI_Comm_disconnect(MPI_Comm* comm) {
  return ina::mpi::end(comm, [](MPI_Comm* ended) { return PMPI_Comm_disconnect(ended); });
}
