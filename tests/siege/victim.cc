// A worker whose sums are watched while others attack its switch. For ./dev bench siege.
//
//   ina-siege-victim URL JOB RANK WORLD ELEMENTS LOG [REGISTER_EVERY]
//
// Sums until SIGTERM to rank 0, and checks every element of every sum. LOG: a file that shows,
// while all goes on, when each sum began and ended (CLOCK_MONOTONIC, ns): a 64-bit count, then
// pairs. REGISTER_EVERY: after so many sums rank 0 asks for registered memory and gives it back; a
// refusal is no error. Prints the status' name, its text and how often memory was refused; exit
// status 1 for a wrong sum.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "bench/worker_arguments.h"
#include "ina/ina.h"

namespace {

volatile sig_atomic_t enough = 0;

constexpr size_t kMostSums = size_t{4} << 20;
constexpr size_t kRegisteredBytes = 64 * 1024;

struct Sum {
  int64_t start_ns;
  int64_t end_ns;
};

/// The sums as another process sees them, through the file.
class Log {
 public:
  explicit Log(const char* path) {
    constexpr size_t kBytes = sizeof(uint64_t) + kMostSums * sizeof(Sum);
    const int fd = ::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(kBytes)) != 0) return;
    void* map = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (map == MAP_FAILED) return;
    count_ = static_cast<std::atomic<uint64_t>*>(map);
    sums_ = {reinterpret_cast<Sum*>(count_ + 1), kMostSums};
  }
  bool open() const { return count_ != nullptr; }
  void add(Sum sum) {
    const uint64_t count = count_->load(std::memory_order_relaxed);
    if (count == sums_.size()) return;
    sums_[count] = sum;
    count_->store(count + 1, std::memory_order_release);
  }

 private:
  std::atomic<uint64_t>* count_ = nullptr;
  std::span<Sum> sums_;
};

/// Differs from sum to sum, so that no old result passes for a new one.
int32_t value_of(size_t element, uint64_t sum) {
  return static_cast<int32_t>(element % 1000) + static_cast<int32_t>(sum % 100'000);
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

class Worker {
 public:
  Worker(const ina_config& config, size_t elements)
      : config_(config), send_(elements), recv_(elements) {}

  int join() { return ina_init(&config_, &context_); }

  /// INA_IN_PROGRESS: there is more to do.
  int sum(uint64_t number, Log& log) {
    for (size_t i = 0; i < send_.size(); ++i) send_[i] = value_of(i, number) * (config_.rank + 1);
    // By the last element rank 0 tells the others whether this sum is the last.
    send_.back() = enough;
    const int64_t start = now_ns();
    const int status =
        ina_allreduce(context_, send_.data(), recv_.data(), send_.size(), INA_INT32, INA_SUM, 0);
    if (status != INA_OK) return status;
    log.add({start, now_ns()});
    return recv_.back() == 1 ? INA_OK : INA_IN_PROGRESS;
  }

  bool right(uint64_t number) const {
    const int32_t weight = config_.world_size * (config_.world_size + 1) / 2;
    for (size_t i = 0; i + 1 < recv_.size(); ++i)
      if (recv_[i] != value_of(i, number) * weight) {
        std::printf("sum %llu: element %zu is %d, not %d\n",
                    static_cast<unsigned long long>(number), i, recv_[i],
                    value_of(i, number) * weight);
        return false;
      }
    return recv_.back() == 0 || recv_.back() == 1;
  }

  bool take_memory() {
    void* memory = nullptr;
    if (ina_alloc(context_, kRegisteredBytes, &memory) != INA_OK) return false;
    return ina_free(context_, memory) == INA_OK;
  }

  ina_context* context() { return context_; }

 private:
  ina_config config_;
  ina_context* context_ = nullptr;
  std::vector<int32_t> send_;
  std::vector<int32_t> recv_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  ina_config config = ina::config_of(argv);
  if (!std::getenv("INA_TIMEOUT_US")) config.timeout_us = 120'000'000;
  const auto elements = static_cast<size_t>(std::atoll(argv[5]));
  const uint64_t register_every = argc > 7 ? std::strtoull(argv[7], nullptr, 10) : 0;
  Log log(argv[6]);
  if (elements == 0 || !log.open()) return 2;
  struct sigaction action {};
  action.sa_handler = [](int) { enough = 1; };
  if (config.rank == 0) ::sigaction(SIGTERM, &action, nullptr);

  Worker worker(config, elements);
  uint64_t refused = 0;
  int status = worker.join();
  if (status == INA_OK) status = INA_IN_PROGRESS;
  for (uint64_t number = 0; status == INA_IN_PROGRESS; ++number) {
    status = worker.sum(number, log);
    if (status < 0) break;
    if (!worker.right(number)) return 1;
    const bool asks = config.rank == 0 && register_every != 0 && number % register_every == 0;
    if (asks && !worker.take_memory()) ++refused;
  }
  std::string text = status == INA_OK ? "" : ina_last_error(worker.context());
  if (worker.context()) {
    const int left = ina_finalize(worker.context(), 0);
    if (status == INA_OK && left != INA_OK) {
      status = left;
      text = ina_last_error(nullptr);
    }
  }
  std::printf("%s %s refused=%llu\n", ina_status_name(status), text.c_str(),
              static_cast<unsigned long long>(refused));
  return 0;
}
