// A worker that runs every collective by each data type and operation, in place and not, from no
// element to many, one after another and many at once.
//   grid_worker URL JOB RANK WORLD [BYTES | uneven]
// With BYTES operations of that size of each collective instead, with even and uneven counts; with
// "uneven" those whose ranks may have different counts, and none. Prints "ok" and the number of
// operations, or the error, and then ends with 1.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bench/worker_arguments.h"
#include "tests/support/collective_grid.h"
#include "tests/support/uneven_grid.h"

namespace {

using ina::perf::Collective;
using ina::test::CollectiveGrid;
using ina::test::UnevenGrid;

// Each returns how many operations it were.

uint32_t run_small(ina_context* context) {
  CollectiveGrid grid(context);
  grid.run({0, 1, 255, 256, 257, 5003});
  grid.many_at_once();
  return grid.done();
}

uint32_t run_uneven(ina_context* context) {
  UnevenGrid grid(context);
  grid.run({1, 255, 5003});
  return grid.done();
}

uint32_t run_large(ina_context* context, uint64_t bytes, int world) {
  CollectiveGrid grid(context);
  for (const Collective collective : ina::perf::kAllCollectives)
    grid.once(collective, INA_FLOAT32, INA_SUM,
              ina::perf::whole_elements(collective, bytes, sizeof(float), world));
  UnevenGrid uneven(context);
  uneven.run_large(bytes / sizeof(float));
  return grid.done() + uneven.done();
}

uint32_t run(ina_context* context, std::string_view which, int world) {
  if (which.empty()) return run_small(context);
  if (which == "uneven") return run_uneven(context);
  return run_large(context, std::strtoull(which.data(), nullptr, 10), world);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 2;
  ina_config config = ina::config_of(argv);
  ina_context* context = nullptr;
  if (const int status = ina_init(&config, &context); status != INA_OK) {
    std::printf("%s %s\n", ina_status_name(status), ina_last_error(nullptr));
    return 1;
  }
  try {
    const uint32_t done = run(context, argc == 6 ? argv[5] : "", config.world_size);
    if (ina_finalize(context, 0) != INA_OK) throw std::runtime_error("leaving the job failed");
    std::printf("ok %u\n", done);
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
