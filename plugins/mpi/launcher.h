// The processes of MPI_COMM_WORLD that have this library, as their launcher knows them. No message
// of MPI's may ask for that: a process without the library would take it for one of the program's.
#pragma once

#include <memory>

namespace ina::mpi {

/// MPI's own start publishes what processes have put into the launcher's key-value space before, so
/// that the answer needs no wait.
class Launcher {
 public:
  /// Before MPI's own start: says that this process has the library. Null: there is no launcher
  /// that could be told.
  static std::unique_ptr<Launcher> tell();
  virtual ~Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Afterwards: whether that rank of MPI_COMM_WORLD has said so.
  virtual bool has_library(int rank) = 0;

 protected:
  Launcher() = default;
};

}  // namespace ina::mpi
