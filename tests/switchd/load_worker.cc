// A worker process for tests and scripts/kill_loop.py: sums until something ends it, or a number of
// times, and says how it went.
//   load_worker URL JOB RANK WORLD [ELEMENTS [TIMES [PAUSE_MS [LOG]]]]
// TIMES: -1 for ever: SIGTERM to rank 0 ends all ranks after the same sum. PAUSE_MS: between two.
// LOG: a file that gets the CLOCK_MONOTONIC time, in ns, of each sum's end, and of the last call's.
// Prints the status' name and its text; exit code 0 for any status, 1 for a wrong sum.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/worker_arguments.h"
#include "ina/ina.h"

namespace {

volatile sig_atomic_t enough = 0;

/// Differs from sum to sum, so that no old result passes for a new one.
int32_t value_of(size_t element, long sum) {
  return static_cast<int32_t>(element % 1000) + static_cast<int32_t>(sum % 100'000);
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

bool write_log(const char* path, const std::vector<int64_t>& times) {
  std::FILE* file = std::fopen(path, "w");
  if (!file) return false;
  for (const int64_t time : times) std::fprintf(file, "%lld\n", static_cast<long long>(time));
  return std::fclose(file) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  ina_config config = ina::config_of(argv);
  if (!std::getenv("INA_TIMEOUT_US")) config.timeout_us = 20'000'000;
  const size_t elements = argc > 5 ? static_cast<size_t>(std::atoll(argv[5])) : 65'536;
  if (elements == 0) return 2;
  const long times = argc > 6 ? std::atol(argv[6]) : -1;
  const int pause_ms = argc > 7 ? std::atoi(argv[7]) : 0;
  const char* log = argc > 8 ? argv[8] : nullptr;
  struct sigaction action {};
  action.sa_handler = [](int) { enough = 1; };
  if (config.rank == 0) ::sigaction(SIGTERM, &action, nullptr);

  ina_context* context = nullptr;
  int status = ina_init(&config, &context);
  // By the last element rank 0 tells the others whether this sum is the last.
  std::vector<int32_t> send(elements);
  std::vector<int32_t> recv(elements);
  std::vector<int64_t> ends;
  const int32_t weight = config.world_size * (config.world_size + 1) / 2;
  bool last = false;
  for (long done = 0; status == INA_OK && done != times && !last; ++done) {
    for (size_t i = 0; i < elements; ++i) send[i] = value_of(i, done) * (config.rank + 1);
    send.back() = enough;
    status = ina_allreduce(context, send.data(), recv.data(), send.size(), INA_INT32, INA_SUM, 0);
    if (log) ends.push_back(now_ns());
    if (status != INA_OK) break;
    for (size_t i = 0; i + 1 < elements; ++i)
      if (recv[i] != value_of(i, done) * weight) {
        std::printf("sum %ld: element %zu is %d, not %d\n", done, i, recv[i],
                    value_of(i, done) * weight);
        return 1;
      }
    last = recv.back() == 1;
    if (!last && recv.back() != 0) {
      std::printf("sum %ld: the last element is %d, not 0 or 1\n", done, recv.back());
      return 1;
    }
    if (pause_ms != 0) ::usleep(static_cast<useconds_t>(pause_ms) * 1000);
  }
  // After an error the context's text counts; a goodbye has its own.
  std::string text = status == INA_OK ? "" : ina_last_error(context);
  if (context) {
    const int left = ina_finalize(context, 0);
    if (status == INA_OK && left != INA_OK) text = ina_last_error(nullptr);
    if (status == INA_OK) status = left;
  }
  if (log && !write_log(log, ends)) return 2;
  std::printf("%s %s\n", ina_status_name(status), text.c_str());
  return 0;
}
