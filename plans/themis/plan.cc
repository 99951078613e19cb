#include "plans/themis/plan.h"

#include "plans/themis/cost.h"

namespace ina::themis {
namespace {

constexpr uint64_t kHashVersion = 1;

class Fnv1a {
 public:
  void add(uint64_t number) {
    for (int byte = 0; byte < 8; ++byte) {
      hash_ = (hash_ ^ (number >> (8 * byte) & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

void add_topology(Fnv1a& hash, const Topology& topology) {
  hash.add(topology.dimensions.size());
  for (const Dimension& d : topology.dimensions)
    for (const uint64_t number :
         {static_cast<uint64_t>(d.kind), uint64_t{d.size}, d.bits_per_s,
          static_cast<uint64_t>(d.step_latency_ps), d.aggregation_bits_per_s,
          static_cast<uint64_t>(d.point_to_point)})
      hash.add(number);
}

void add_chunk(Fnv1a& hash, const Chunk& chunk) {
  hash.add(chunk.request);
  hash.add(chunk.bytes);
  hash.add(chunk.stages.size());
  for (const Stage& stage : chunk.stages) {
    hash.add(stage.dimension);
    hash.add(static_cast<uint64_t>(stage.phase));
    hash.add(stage.in_network ? 1 : 0);
    hash.add(stage.held_bytes);
  }
}

}  // namespace

uint64_t held_after(const Stage& stage, const Dimension& dimension) {
  switch (stage.phase) {
    case Phase::kReduceScatter:
      return stage.held_bytes / dimension.size;
    case Phase::kAllGather:
      return stage.held_bytes * dimension.size;
    default:
      return stage.held_bytes;
  }
}

std::vector<Load> loads_of(const Plan& plan) {
  std::vector<Load> loads(plan.topology.dimensions.size());
  for (const Chunk& chunk : plan.chunks)
    for (const Stage& stage : chunk.stages) {
      Load& load = loads[stage.dimension];
      load.tx_bytes += stage.tx_bytes;
      load.rx_bytes += stage.rx_bytes;
      load.tx_ps += stage.tx_ps;
      load.rx_ps += stage.rx_ps;
    }
  return loads;
}

uint64_t tx_bytes_of(const Plan& plan) {
  uint64_t bytes = 0;
  for (const Load& load : loads_of(plan)) bytes += load.tx_bytes;
  return bytes;
}

Picos ideal_ps(const Plan& plan) {
  return transfer_ps(tx_bytes_of(plan), plan.topology.bits_per_s());
}

uint64_t hash_of(const Plan& plan) {
  Fnv1a hash;
  hash.add(kHashVersion);
  add_topology(hash, plan.topology);
  hash.add(plan.requests.size());
  for (const Request& request : plan.requests) {
    hash.add(static_cast<uint64_t>(request.collective));
    hash.add(request.bytes);
    hash.add(static_cast<uint64_t>(request.issue_ps));
  }
  hash.add(plan.chunks.size());
  for (const Chunk& chunk : plan.chunks) add_chunk(hash, chunk);
  for (const std::vector<OperationId>& operations : plan.order) {
    hash.add(operations.size());
    for (const OperationId& id : operations) {
      hash.add(id.chunk);
      hash.add(id.stage);
    }
  }
  return hash.value();
}

}  // namespace ina::themis
