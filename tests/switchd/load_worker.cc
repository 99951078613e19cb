// A worker process for tests: sums until something ends it, or a number of times, and says how it
// went.
//   load_worker URL JOB RANK WORLD [ELEMENTS [TIMES [PAUSE_MS]]]
// PAUSE_MS: between two sums.
// Prints the status' name and its text; exit code 0 whatever the status, 1 for a wrong sum.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ina/ina.h"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  ina_config config;
  ina_config_init(&config);
  config.url = argv[1];
  config.job = argv[2];
  config.rank = std::atoi(argv[3]);
  config.world_size = std::atoi(argv[4]);
  config.timeout_us = 20'000'000;
  const size_t elements = argc > 5 ? static_cast<size_t>(std::atoll(argv[5])) : 65'536;
  const long times = argc > 6 ? std::atol(argv[6]) : -1;
  const int pause_ms = argc > 7 ? std::atoi(argv[7]) : 0;
  ina_context* context = nullptr;
  int status = ina_init(&config, &context);
  std::vector<int32_t> send(elements, config.rank + 1);
  std::vector<int32_t> recv(elements);
  const int32_t sum = config.world_size * (config.world_size + 1) / 2;
  for (long done = 0; status == INA_OK && done != times; ++done) {
    status = ina_allreduce(context, send.data(), recv.data(), elements, INA_INT32, INA_SUM, 0);
    if (status != INA_OK) break;
    for (const int32_t element : recv)
      if (element != sum) {
        std::printf("wrong sum %d, expected %d\n", element, sum);
        return 1;
      }
    if (pause_ms != 0) ::usleep(static_cast<useconds_t>(pause_ms) * 1000);
  }
  // After an error the context's text is what counts; a goodbye has its own.
  std::string text = status == INA_OK ? "" : ina_last_error(context);
  if (context) {
    const int left = ina_finalize(context, 0);
    if (status == INA_OK && left != INA_OK) text = ina_last_error(nullptr);
    if (status == INA_OK) status = left;
  }
  std::printf("%s %s\n", ina_status_name(status), text.c_str());
  return 0;
}
