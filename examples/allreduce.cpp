// Averages two vectors over the ranks of a job, in C++20, both in flight at once. Rank and number
// of ranks come from the launcher's environment (INA_RANK, INA_WORLD_SIZE, or those of torchrun,
// mpirun, Slurm), the switch from INA_URL.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <ina/ina.hpp>
#include <span>
#include <vector>

int main() try {
  ina::Context context;
  const int rank = context.rank(), ranks = context.world_size();
  std::vector<float> small(1000, static_cast<float>(rank));
  std::vector<double> large(100000, rank * 10.0);

  // The buffers belong to the library until wait() returns.
  ina::Request first = context.allreduce_async(std::span(small), INA_AVG);
  ina::Request second = context.allreduce_async(std::span(large), INA_AVG);
  first.wait();
  second.wait();
  context.finalize();

  const double mean = (ranks - 1) / 2.0;
  const auto all = [](const auto& values, double expected) {
    return std::all_of(values.begin(), values.end(), [=](auto v) { return v == expected; });
  };
  if (!all(small, mean) || !all(large, mean * 10)) {
    std::fprintf(stderr, "rank %d: a result is wrong\n", rank);
    return 1;
  }
  std::printf("rank %d of %d: means %g and %g\n", rank, ranks, mean, mean * 10);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
