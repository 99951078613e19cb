// A worker of scripts/soak.py: runs collectives of all kinds, types and sizes, and checks every
// element, until SIGTERM to rank 0, or for a number of operations.
//   soak_worker URL JOB RANK WORLD SEED [OPERATIONS [PAUSE_US [COUNT_FILE]]]
// SEED: of the choice of operations, the same on all ranks. OPERATIONS: -1: until told. COUNT_FILE
// gets the number of operations so far now and then, for scripts that wait for progress. Prints the
// status' name and its text, and the number of operations; exit code 0 for any status, 1 for a
// wrong element.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "bench/worker_arguments.h"
#include "ina/ina.h"
#include "tests/support/collective_grid.h"

namespace {

namespace perf = ina::perf;

volatile sig_atomic_t enough = 0;

// Between two questions whether all end.
constexpr long kOperationsBetweenVotes = 16;

/// Draws from a generator as every rank does, so that all make the same calls.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t bound) { return random_() % bound; }
  template <class Value, size_t kCount>
  Value one_of(const Value (&values)[kCount]) {
    return values[below(kCount)];
  }

 private:
  std::mt19937_64 random_;
};

/// Mostly small; a few MiB now and then.
uint64_t draw_elements(Draw& draw) {
  const uint64_t most = uint64_t{1} << (4 + draw.below(15));
  return 1 + draw.below(most);
}

void run_one(ina::test::CollectiveGrid& grid, Draw& draw, uint64_t ranks) {
  const auto collective = draw.one_of(perf::kAllCollectives);
  ina_dtype dtype{};
  ina_op op{};
  do {
    dtype = draw.one_of(perf::kAllDtypes);
    op = draw.one_of(perf::kAllOps);
  } while (!perf::is_offered(dtype, op));
  const uint64_t elements = draw_elements(draw);
  if (draw.below(64) == 0) return grid.many_at_once();
  const uint64_t whole =
      perf::has_blocks(collective) ? (elements + ranks - 1) / ranks * ranks : elements;
  grid.once(collective, dtype, op, whole);
}

/// True if rank 0 was told to end; all ranks get the same answer.
bool all_end(ina_context* context) {
  int32_t mine = enough;
  int32_t sum = 0;
  const int status = ina_allreduce(context, &mine, &sum, 1, INA_INT32, INA_SUM, 0);
  if (status != INA_OK)
    throw std::runtime_error(std::string(ina_status_name(status)) + " " + ina_last_error(context));
  return sum != 0;
}

void write_count(const char* path, long count) {
  if (!path) return;
  const std::string fresh = std::string(path) + ".new";
  std::FILE* file = std::fopen(fresh.c_str(), "w");
  if (!file) return;
  std::fprintf(file, "%ld\n", count);
  std::fclose(file);
  std::rename(fresh.c_str(), path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  ina_config config = ina::config_of(argv);
  Draw draw(std::strtoull(argv[5], nullptr, 10));
  const long operations = argc > 6 ? std::atol(argv[6]) : -1;
  const int pause_us = argc > 7 ? std::atoi(argv[7]) : 0;
  const char* count_file = argc > 8 ? argv[8] : nullptr;
  struct sigaction action {};
  action.sa_handler = [](int) { enough = 1; };
  if (config.rank == 0) ::sigaction(SIGTERM, &action, nullptr);

  ina_context* context = nullptr;
  if (const int status = ina_init(&config, &context); status != INA_OK) {
    std::printf("%s %s 0\n", ina_status_name(status), ina_last_error(nullptr));
    return 0;
  }
  long done = 0;
  try {
    ina::test::CollectiveGrid grid(context);
    for (; done != operations; ++done) {
      if (done % kOperationsBetweenVotes == 0) {
        write_count(count_file, done);
        if (all_end(context)) break;
      }
      run_one(grid, draw, static_cast<uint64_t>(config.world_size));
      if (pause_us != 0) ::usleep(static_cast<useconds_t>(pause_us));
    }
  } catch (const std::exception& error) {
    // Libina's text of an error, or that an element is wrong, of which libina knows nothing.
    const bool wrong = std::string_view(error.what()).find("wrong") != std::string_view::npos;
    std::printf("%s\n", error.what());
    ina_finalize(context, 0);
    return wrong ? 1 : 0;
  }
  const int left = ina_finalize(context, 0);
  std::printf("%s %ld\n", ina_status_name(left), done);
  return 0;
}
