#include "bench/perf/gather.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace ina::perf {
namespace {

class MappingGather : public Gather {
 public:
  MappingGather(SharedArea& area, int rank, int ranks) : area_(area), rank_(rank), ranks_(ranks) {}

  void max_each(std::span<int64_t> values) override {
    std::ranges::copy(values, area_.ranks[rank_].samples);
    barrier();
    for (int rank = 0; rank < ranks_; ++rank)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::max(values[i], area_.ranks[rank].samples[i]);
    barrier();  // nobody overwrites what another still reads
  }

  int64_t sum(int64_t value) override {
    area_.ranks[rank_].samples[0] = value;
    barrier();
    int64_t total = 0;
    for (int rank = 0; rank < ranks_; ++rank) total += area_.ranks[rank].samples[0];
    barrier();
    return total;
  }

  void barrier() override {
    const uint32_t turn = area_.turn.load(std::memory_order_acquire);
    if (area_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        static_cast<uint32_t>(ranks_)) {
      area_.arrived.store(0, std::memory_order_relaxed);
      area_.turn.store(turn + 1, std::memory_order_release);
      return;
    }
    // Ranks may be many more than cores.
    for (int spins = 0; area_.turn.load(std::memory_order_acquire) == turn; ++spins) {
      const timespec pause{0, 200'000};
      spins < 1000 ? sched_yield() : nanosleep(&pause, nullptr);
    }
  }

 private:
  SharedArea& area_;
  int rank_;
  int ranks_;
};

class AllreduceGather : public Gather {
 public:
  explicit AllreduceGather(ina_context* context) : context_(context) {}

  void max_each(std::span<int64_t> values) override { reduce(values, INA_MAX); }

  int64_t sum(int64_t value) override {
    reduce({&value, 1}, INA_SUM);
    return value;
  }

  void barrier() override { check(ina_barrier(context_, 0)); }

 private:
  void reduce(std::span<int64_t> values, ina_op op) {
    check(ina_allreduce(context_, values.data(), values.data(), values.size(), INA_INT64, op, 0));
  }

  void check(int status) {
    if (status != INA_OK)
      throw std::runtime_error(std::string(ina_status_name(status)) + ": " +
                               ina_last_error(context_));
  }

  ina_context* context_;
};

}  // namespace

void UnmapSharedArea::operator()(SharedArea* area) const {
  munmap(area, bytes);
}

std::unique_ptr<SharedArea, UnmapSharedArea> map_shared_area(int ranks) {
  const size_t bytes =
      offsetof(SharedArea, ranks) + static_cast<size_t>(ranks) * sizeof(SharedArea::Rank);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // A fresh mapping is zeros, as every field must be at the start.
  return {static_cast<SharedArea*>(memory), UnmapSharedArea{bytes}};
}

std::unique_ptr<Gather> gather_by_mapping(SharedArea& area, int rank, int ranks) {
  return std::make_unique<MappingGather>(area, rank, ranks);
}

std::unique_ptr<Gather> gather_by_allreduce(ina_context* context) {
  return std::make_unique<AllreduceGather>(context);
}

}  // namespace ina::perf
