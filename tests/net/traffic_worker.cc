// A worker that runs every collective once and counts what each moved for it.
//   traffic_worker URL JOB RANK WORLD BLOCK_BYTES SLOT_BYTES
// Prints a line for each collective, then "ok" if its payload agreed with docs/collectives.md and
// no fragment had more messages without payload than one each way. Ends with 1 if not.
#include <cstdio>
#include <cstdlib>

#include "bench/worker_arguments.h"
#include "tests/support/collective_traffic.h"

namespace {

bool count(ina::Context& context, uint64_t block_bytes, uint32_t slot_bytes) {
  bool right = true;
  for (const auto& traffic : ina::test::TrafficCount(context, block_bytes, slot_bytes).run()) {
    right &= traffic.up == traffic.up_wanted && traffic.down == traffic.down_wanted;
    right &= traffic.bare_packets() <= traffic.most_bare_packets();
    std::printf("%s\n", traffic.text().c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  ina_config config = ina::config_of(argv);
  try {
    ina::Context context(config);
    const bool right = count(context, std::strtoull(argv[5], nullptr, 10),
                             static_cast<uint32_t>(std::strtoul(argv[6], nullptr, 10)));
    context.finalize();
    std::printf("%s\n", right ? "ok" : "wrong");
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
