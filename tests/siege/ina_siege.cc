// ina-siege: the attacks of a local user that need the rings, and many threads. For ./dev bench
// siege and tests/e2e.
//
//   ina-siege ATTACK SOCKET JOB
//
// Reads orders from standard input, a word a line, and answers each with a JSON object: "begin",
// "end" (stops the attack, and reports its work), "share CORES ENTRIES" (for the attacks `burn` and
// `work`, which harm nobody and are the yardstick of the others: cores that they use, and entries a
// second that `work` sends; without it one core, and as many entries as are taken). Ends with its
// input.
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "common/clock.h"
#include "tests/siege/raw_worker.h"

// Linux 6.1; older headers lack it.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace ina::siege {
namespace {

using control::Json;

constexpr Nanos kMsNs = 1'000'000;

void sleep_ns(Nanos duration) {
  const timespec pause{duration / 1'000'000'000, duration % 1'000'000'000};
  ::nanosleep(&pause, nullptr);
}

class Attack {
 public:
  virtual ~Attack() = default;
  virtual void begin() {}
  /// A few milliseconds of it, again and again.
  virtual void step() = 0;
  virtual void end() {}
  virtual Json did() { return Json::object(); }
  virtual void set_share(double /*cores*/, double /*entries_per_s*/) {}
};

/// Computes, as anybody may: in bursts, as the attacks do.
class Burn : public Attack {
 public:
  void set_share(double cores, double) override { share_ = cores; }
  void begin() override {
    const auto threads = static_cast<size_t>(std::ceil(share_));
    stop_ = false;
    for (size_t i = 0; i < threads; ++i) {
      const double part = std::min(1.0, share_ - static_cast<double>(i));
      threads_.emplace_back([this, part] { spin(part); });
    }
  }
  void step() override { sleep_ns(5 * kMsNs); }
  void end() override {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void spin(double part) {
    constexpr Nanos kPeriodNs = 200 * kMsNs;
    while (!stop_) {
      const Nanos start = now_ns();
      const auto busy = static_cast<Nanos>(part * kPeriodNs);
      while (!stop_ && now_ns() - start < busy) {
      }
      while (!stop_ && now_ns() - start < kPeriodNs) sleep_ns(kMsNs);
    }
  }
  double share_ = 1;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

/// An attack by a worker of a job of its own; begins anew when the switch has thrown it out.
class ByWorker : public Attack {
 public:
  ByWorker(std::string socket, std::string job, bool sealed = true)
      : socket_(std::move(socket)), job_(std::move(job)), sealed_(sealed) {}
  void begin() override { join(); }
  void end() override { worker_.reset(); }
  void step() final {
    if (!worker_ || !worker_->hear()) {
      ++lost_;
      sleep_ns(kMsNs);
      worker_.reset();
      join();
    }
    if (worker_) act(*worker_);
  }
  Json did() override {
    return {{"jobs", jobs_}, {"jobs_lost", lost_}, {"entries", entries_}, {"results", results_}};
  }

 protected:
  virtual void act(RawWorker& worker) = 0;
  virtual void joined(RawWorker&) {}
  void join() {
    try {
      worker_ = std::make_unique<RawWorker>(socket_, job_ + "-" + std::to_string(jobs_), sealed_);
      joined(*worker_);
      ++jobs_;
    } catch (const std::runtime_error&) {
      worker_.reset();
      sleep_ns(kMsNs);
    }
  }
  /// Right contributions, as many as find room, and their results.
  void work(RawWorker& worker, uint64_t most) {
    for (uint64_t i = 0; i < most && worker.waiting(0) < worker.tx_depth() / 2; ++i, ++entries_) {
      const Entry entry = worker.next_contribution();
      worker.put(entry.message.lane, entry);
    }
    worker.ring();
    results_ += worker.take_results();
  }

  std::unique_ptr<RawWorker> worker_;
  uint64_t entries_ = 0;
  uint64_t results_ = 0;
  uint64_t jobs_ = 0;
  uint64_t lost_ = 0;

 private:
  std::string socket_;
  std::string job_;
  bool sealed_;
};

Nanos cpu_ns() {
  timespec spent{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return Nanos{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

/// Contributes valid entries, so many a second, and computes for the rest of its share of the
/// cores: the yardstick of floods.
class Work : public ByWorker {
 public:
  using ByWorker::ByWorker;
  void set_share(double cores, double entries_per_s) override {
    cores_ = cores;
    per_s_ = entries_per_s;
  }
  void begin() override {
    ByWorker::begin();
    start_ = now_ns();
    spent_ = cpu_ns();
    first_ = entries_;
  }

 protected:
  void act(RawWorker& worker) override {
    const auto passed = static_cast<double>(now_ns() - start_);
    const double due = per_s_ * passed * 1e-9 - static_cast<double>(entries_ - first_);
    const auto spent = static_cast<double>(cpu_ns() - spent_);
    if (due < 1 && spent >= cores_ * passed) sleep_ns(kMsNs / 10);
    work(worker, static_cast<uint64_t>(std::clamp(due, 0.0, 64.0)));
  }

 private:
  double cores_ = 0;
  double per_s_ = 1e12;  // as many as are taken
  Nanos start_ = 0;
  Nanos spent_ = 0;
  uint64_t first_ = 0;
};

/// Entries of random bytes, and right ones with a field or two that are wrong; read positions and
/// flags that lie.
class Garbage : public ByWorker {
 public:
  using ByWorker::ByWorker;

 protected:
  void act(RawWorker& worker) override {
    constexpr uint64_t kBatch = 64;
    if (worker.waiting(0) > worker.tx_depth() - kBatch) {
      worker.ring();
      sleep_ns(kMsNs / 10);
      return;
    }
    for (uint64_t i = 0; i < kBatch; ++i, ++entries_) {
      Entry entry = worker.next_contribution();
      std::array<unsigned char, sizeof(Entry)> bytes;
      std::memcpy(bytes.data(), &entry, sizeof(entry));
      const size_t spoilt = i % 8 == 0 ? bytes.size() : 1 + i % 3;
      for (size_t k = 0; k < spoilt; ++k)
        bytes[random_() % bytes.size()] = static_cast<unsigned char>(random_());
      std::memcpy(&entry, bytes.data(), sizeof(entry));
      worker.put(0, entry);
    }
    worker.ring();
    results_ += worker.take_results();
    if (random_() % 16 == 0) worker.rx_read(0).store(random_(), std::memory_order_relaxed);
    worker.sleep_flag().store(static_cast<uint32_t>(random_() % 4), std::memory_order_relaxed);
  }

 private:
  std::mt19937_64 random_{1};
};

/// Takes pages away from under the switch while it reads them.
class Punch : public ByWorker {
 public:
  Punch(const std::string& socket, const std::string& job) : ByWorker(socket, job, false) {}
  void end() override {
    unmap();
    ByWorker::end();
  }
  Json did() override {
    Json did = ByWorker::did();
    did["unsealed_taken"] = unsealed_;
    did["holes"] = holes_;
    if (holes_ != 0) did["broken"] = {"memory that the switch reads has got holes"};
    return did;
  }

 protected:
  // Every mapping makes taking a page away slower for the holder of the file's locks.
  static constexpr size_t kMappings = 4000;

  void joined(RawWorker& worker) override {
    unmap();
    unsealed_ += worker.unsealed_taken() ? 1 : 0;
    const auto& region = worker.region();
    bytes_ = region.map.size();
    for (size_t i = 0; i < kMappings; ++i) {
      void* map = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, region.fd.get(), 0);
      if (map == MAP_FAILED) break;
      maps_.push_back(map);
      [[maybe_unused]] const char read = *static_cast<const volatile char*>(map);
    }
  }

  void act(RawWorker& worker) override {
    work(worker, 256);
    const auto& region = worker.region();
    const auto bytes = static_cast<off_t>(bytes_);
    constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    // Payloads first: the ring itself must go on being read.
    const auto half = bytes / 2 / 4096 * 4096;
    holes_ += ::fallocate(region.fd.get(), kPunch, half, bytes - half) == 0 ? 1 : 0;
    holes_ += ::fallocate(region.fd.get(), kPunch, 0, 4096) == 0 ? 1 : 0;
    holes_ += ::fallocate(region.fd.get(), FALLOC_FL_ZERO_RANGE, half, 4096) == 0 ? 1 : 0;
    holes_ += ::fallocate(region.fd.get(), FALLOC_FL_COLLAPSE_RANGE, 0, 4096) == 0 ? 1 : 0;
    holes_ += ::ftruncate(region.fd.get(), 4096) == 0 ? 1 : 0;
    holes_ +=
        ::madvise(region.map.data() + half, bytes_ - static_cast<size_t>(half), MADV_REMOVE) == 0
            ? 1
            : 0;
    // Nobody can refuse these; they cost a reader of the page at most a fault.
    ::madvise(region.map.data(), bytes_, MADV_PAGEOUT);
    ::madvise(region.map.data(), bytes_, MADV_COLLAPSE);
  }

 private:
  void unmap() {
    for (void* map : maps_) ::munmap(map, bytes_);
    maps_.clear();
  }
  std::vector<void*> maps_;
  size_t bytes_ = 0;
  uint64_t holes_ = 0;
  uint64_t unsealed_ = 0;
};

/// As many waiters on the own doorbell as the machine allows, while results come. They are made
/// once and stay: making them is no attack on the switch.
class Doorbell : public ByWorker {
 public:
  Doorbell(const std::string& socket, const std::string& job, size_t threads)
      : ByWorker(socket, job), most_(threads) {}
  void begin() override {
    if (!worker_) ByWorker::begin();
  }
  void end() override {}
  Json did() override {
    Json did = ByWorker::did();
    did["waiters"] = threads_ * kWaiters;
    return did;
  }

 protected:
  static constexpr size_t kWaiters = 128;  // of a thread: the limit of futex_waitv

  void joined(RawWorker& worker) override {
    if (doorbell_) throw std::logic_error("the attacker's job was ended, and its waiters wait on");
    doorbell_ = &worker.doorbell();
    pthread_attr_t small;
    ::pthread_attr_init(&small);
    ::pthread_attr_setstacksize(&small, 64 << 10);
    ::pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (; threads_ < most_; ++threads_) {
      pthread_t thread{};
      const auto body = [](void* doorbell) -> void* {
        wait(static_cast<const std::atomic<uint32_t>*>(doorbell));
        return nullptr;
      };
      auto* word = const_cast<std::atomic<uint32_t>*>(doorbell_);
      if (::pthread_create(&thread, &small, body, word) != 0) break;
    }
    ::pthread_attr_destroy(&small);
  }
  void act(RawWorker& worker) override {
    worker.sleep_flag().store(io::shm::kAsleep, std::memory_order_relaxed);
    work(worker, 1);
    sleep_ns(kMsNs / 2);
  }

 private:
  [[noreturn]] static void wait(const std::atomic<uint32_t>* doorbell) {
    struct futex_waitv waiters[kWaiters] = {};
    for (;;) {
      for (auto& waiter : waiters) {
        waiter.uaddr = reinterpret_cast<uintptr_t>(doorbell);
        waiter.val = doorbell->load(std::memory_order_relaxed);
        waiter.flags = FUTEX_32;
      }
      ::syscall(SYS_futex_waitv, waiters, kWaiters, 0, nullptr, CLOCK_MONOTONIC);
    }
  }
  size_t most_;
  size_t threads_ = 0;
  const std::atomic<uint32_t>* doorbell_ = nullptr;
};

/// Has the switch call it over the control connection each time, never reads that, and rings a lane
/// that has nothing to do.
class Wake : public ByWorker {
 public:
  using ByWorker::ByWorker;

 protected:
  void act(RawWorker& worker) override {
    for (int i = 0; i < 64; ++i) {
      worker.sleep_flag().store(2 + period_++ % 1'000'000, std::memory_order_relaxed);
      work(worker, 1);
      worker.ring(true);
    }
  }

 private:
  uint32_t period_ = 0;
};

/// Rings a lane that has nothing to do, and sends nothing.
class Ring : public ByWorker {
 public:
  using ByWorker::ByWorker;
  Json did() override {
    Json did = ByWorker::did();
    did["rings"] = rings_;
    return did;
  }

 protected:
  void act(RawWorker& worker) override {
    for (int i = 0; i < 256; ++i, ++rings_) worker.ring(true);
  }

 private:
  uint64_t rings_ = 0;
};

/// Asks the fallback for results that it has, each of which it has to send again and again.
class Ask : public ByWorker {
 public:
  using ByWorker::ByWorker;

 protected:
  void joined(RawWorker&) override { asked_ = 0; }
  void act(RawWorker& worker) override {
    constexpr uint64_t kBatch = 64;
    constexpr uint64_t kFragments = 64;  // the window of a RawWorker's job
    if (worker.waiting(0) <= worker.tx_depth() - kBatch) {
      for (uint64_t i = 0; i < kBatch; ++i, ++asked_, ++entries_) {
        Entry entry = worker.next_contribution();
        entry.message.seq = static_cast<uint32_t>(asked_ % kFragments);
        entry.message.lane = entry.message.seq % worker.lanes() & 0xff;
        // First it learns of the fragment, then that a worker has the result.
        const bool has = asked_ / kFragments == 1;
        entry.message.type = has ? wire::Type::kHave : wire::Type::kQuery;
        if (!has) entry.payload_bytes = entry.message.elements = 0;
        worker.put(0, entry);
      }
    }
    worker.ring();
    results_ += worker.take_results();
  }

 private:
  uint64_t asked_ = 0;
};

/// An attack by several jobs at once.
class Several : public Attack {
 public:
  Several(size_t jobs, const std::function<std::unique_ptr<Attack>(size_t)>& make_one) {
    for (size_t i = 0; i < jobs; ++i) attacks_.push_back(make_one(i));
  }
  void begin() override {
    for (auto& attack : attacks_) attack->begin();
  }
  void step() override {
    for (auto& attack : attacks_) attack->step();
  }
  void end() override {
    for (auto& attack : attacks_) attack->end();
  }
  Json did() override {
    std::map<std::string, uint64_t> sums;
    for (auto& attack : attacks_) {
      const Json did = attack->did();
      for (const auto& [what, count] : did.items()) sums[what] += count.get<uint64_t>();
    }
    return sums;
  }

 private:
  std::vector<std::unique_ptr<Attack>> attacks_;
};

std::unique_ptr<Attack> make(const std::string& name, const std::string& socket,
                             const std::string& job) {
  if (name == "burn") return std::make_unique<Burn>();
  if (name == "work") return std::make_unique<Work>(socket, job);
  if (name == "garbage") return std::make_unique<Garbage>(socket, job);
  if (name == "punch") return std::make_unique<Punch>(socket, job);
  if (name == "doorbell") return std::make_unique<Doorbell>(socket, job, 3200);
  if (name == "doorbell_few") return std::make_unique<Doorbell>(socket, job, 200);
  if (name == "ask")
    return std::make_unique<Several>(8, [&](size_t number) {
      return std::make_unique<Ask>(socket, job + "-" + std::to_string(number));
    });
  if (name == "wake") return std::make_unique<Wake>(socket, job);
  if (name == "ring") return std::make_unique<Ring>(socket, job);
  throw std::invalid_argument("no attack is called " + name);
}

/// The next order, if there is one; empty at the end of the input.
class Orders {
 public:
  bool wait(int timeout_ms) const {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, timeout_ms) > 0;
  }
  static std::string next() {
    std::string line;
    for (char c = 0; ::read(STDIN_FILENO, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
};

int run(const std::string& name, const std::string& socket, const std::string& job) {
  const auto attack = make(name, socket, job);
  const Orders orders;
  for (bool attacking = false;;) {
    if (attacking && !orders.wait(0)) {
      attack->step();
      continue;
    }
    const std::string order = Orders::next();
    if (order.empty()) break;
    if (order == "begin") {
      attack->begin();
      attacking = true;
    } else if (order == "end" && attacking) {
      attack->end();
      attacking = false;
    } else if (order.starts_with("share ")) {
      double cores = 0, entries_per_s = 0;
      std::istringstream(order.substr(6)) >> cores >> entries_per_s;
      attack->set_share(cores, entries_per_s);
    }
    std::cout << attack->did() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace ina::siege

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    const int status = ina::siege::run(argv[1], argv[2], argv[3]);
    ::_exit(status);  // waiters have no end
  } catch (const std::exception& error) {
    std::cerr << "ina-siege: " << error.what() << std::endl;
    ::_exit(1);
  }
}
