#include "aggregator/aggregator.h"

#include <algorithm>

namespace ina::aggregator {

Aggregator::Aggregator(const Shape& shape, std::span<std::byte> rows,
                       std::pmr::memory_resource* tables)
    : shard_(shape, rows, tables), expanded_(std::max(1u, shape.burst)) {}

void Aggregator::add_job(JobIndex index, const JobSpec& spec) {
  shard_.add_job(index, spec);
  results_.bare().add_job(index, spec.joining, spec.start);
  parking_.add_job(spec);
}

void Aggregator::remove_job(JobIndex index) {
  if (!shard_.jobs[index].present) return;
  results_.bare().remove_job(index);
  parking_.remove_job(shard_.jobs[index].spec);
  shard_.remove_job(index);
}

void Aggregator::new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill) {
  if (shard_.jobs[index].present) shard_.new_epoch(index, epoch, instance, spill);
}

void Aggregator::add_result_buffer(JobIndex index, const ResultBuffer& buffer) {
  ShardJob& job = shard_.jobs[index];
  if (job.present) job.results.add(buffer);
}

void Aggregator::remove_result_buffer(JobIndex index, uint32_t first_unit) {
  shard_.jobs[index].results.remove(first_unit);
}

}  // namespace ina::aggregator
