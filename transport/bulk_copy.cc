#include "transport/bulk_copy.h"

#include <immintrin.h>
#include <sched.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstring>

namespace ina::client {

namespace {

constexpr size_t kLineBytes = 64;
// Below this a hand-over to another thread costs more than the copy.
constexpr size_t kWorthSharingBytes = 256 * 1024;

int cpus_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

/// Whole lines go past the caches, which saves reading them first.
void stream(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLineBytes);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kLineBytes; to += kLineBytes, from += kLineBytes, bytes -= kLineBytes)
    for (size_t i = 0; i < kLineBytes; i += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  std::memcpy(to, from, bytes);
}

void copy_one(const CopyJob& job) {
  // Empty operations have no buffers.
  if (job.bytes == 0) return;
  if (job.stream) {
    stream(job.to, job.from, job.bytes);
    _mm_sfence();  // before the store that announces it
  } else {
    std::memcpy(job.to, job.from, job.bytes);
  }
}

}  // namespace

struct BulkCopier::Arena {
  explicit Arena(int threads) : arena(threads) {}
  tbb::task_arena arena;
};

BulkCopier::BulkCopier(int threads, uint32_t local_ranks, int cpus)
    : chooses_(threads <= 0),
      local_ranks_(std::max(1u, local_ranks)),
      cpus_(cpus > 0 ? cpus : cpus_of_this_process()) {
  set_threads(chooses_ ? threads_beside(1) : threads);
}

void BulkCopier::leave_cores_to(uint32_t lanes) {
  if (chooses_) set_threads(threads_beside(lanes));
}

/// Every rank of the job may be on this host, and each lane of the switch polls on a core of its
/// own.
int BulkCopier::threads_beside(uint32_t lanes) const {
  const int free = cpus_ - static_cast<int>(lanes);
  return std::clamp(free / static_cast<int>(local_ranks_), 1, 8);
}

void BulkCopier::set_threads(int threads) {
  if (threads == threads_) return;
  threads_ = threads;
  arena_ = threads > 1 ? std::make_unique<Arena>(threads) : nullptr;
}

BulkCopier::~BulkCopier() = default;

void BulkCopier::copy(std::span<const CopyJob> jobs) {
  size_t bytes = 0;
  if (arena_)
    for (const CopyJob& job : jobs) bytes += job.bytes;
  if (bytes < kWorthSharingBytes) {
    for (const CopyJob& job : jobs) copy_one(job);
    return;
  }
  arena_->arena.execute(
      [&] { tbb::parallel_for(size_t{0}, jobs.size(), [&](size_t i) { copy_one(jobs[i]); }); });
}

}  // namespace ina::client
