#include "plugins/mpi/report.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ina::mpi {

Report& Report::of_process() {
  static auto* const report = new Report;  // outlives all static objects that use it
  return *report;
}

void Report::taken(const char* function, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Taken& sum = taken_[function];
  ++sum.calls;
  sum.bytes += bytes;
}

void Report::left(const char* function, const std::string& why) {
  const std::lock_guard lock(mutex_);
  ++left_[function][why];
}

void Report::print(int rank, int size) const {
  const char* wanted = std::getenv("INA_MPI_REPORT");
  if (!wanted || std::strcmp(wanted, "0") == 0 || rank != 0) return;
  const std::lock_guard lock(mutex_);
  std::fprintf(stderr, "ina: calls of rank %d of %d\n", rank, size);
  std::fprintf(stderr, "ina: %-26s %12s %16s  %s\n", "function", "calls", "bytes", "through");
  for (const auto& [function, sum] : taken_)
    std::fprintf(stderr, "ina: %-26s %12llu %16llu  the switch\n", function.c_str(),
                 static_cast<unsigned long long>(sum.calls),
                 static_cast<unsigned long long>(sum.bytes));
  for (const auto& [function, reasons] : left_)
    for (const auto& [why, calls] : reasons)
      std::fprintf(stderr, "ina: %-26s %12llu %16s  MPI: %s\n", function.c_str(),
                   static_cast<unsigned long long>(calls), "", why.c_str());
}

}  // namespace ina::mpi
