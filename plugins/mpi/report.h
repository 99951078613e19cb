// The report on the program's calls: their number and their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace ina::mpi {

/// Report of this rank's calls, taken or left to MPI. Any thread may use it.
class Report {
 public:
  static Report& of_process();

  void taken(const char* function, size_t bytes);
  void left(const char* function, const std::string& why);
  /// A table, if INA_MPI_REPORT says so.
  void print(int rank, int size) const;

 private:
  struct Taken {
    uint64_t calls = 0, bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Taken> taken_;
  std::map<std::string, std::map<std::string, uint64_t>> left_;  ///< calls by function and reason
};

}  // namespace ina::mpi
