// An aggregating switch of a simulated network: the product's aggregator behind a port.
#pragma once

#include <span>
#include <vector>

#include "aggregator/domains.h"
#include "aggregator/serve.h"
#include "sim/fabric.h"

namespace ina::sim {

/// Memory in cache lines, as the aggregator wants it.
struct alignas(64) Line {
  std::byte bytes[64];
};
using Lines = std::vector<Line>;

inline std::byte* data(Lines& lines) {
  return reinterpret_cast<std::byte*>(lines.data());
}
inline Lines lines_of(size_t bytes) {
  return Lines(bytes / sizeof(Line) + 1);
}

/// One lane, as the daemon's, and a port on the simulated network.
class Switch final : public Endpoint {
 public:
  /// `rack`: whose own switch it is; 0: the one that the racks are at.
  Switch(Fabric& fabric, const aggregator::Shape& shape, uint32_t rack = 0);

  uint32_t host() const { return host_; }
  aggregator::Aggregator& aggregator() { return aggregator_; }
  const aggregator::Aggregator& aggregator() const { return aggregator_; }

  /// `hosts`: of the members, and last of the fallback or the switch above if it has one.
  void bind(io::JobIndex job, JobId id, uint64_t key, std::span<const uint32_t> hosts,
            uint32_t workers);
  void add_job(io::JobIndex job, const aggregator::JobSpec& spec);
  /// `domain` is a member of `root`, which is here, too.
  void link(io::JobIndex domain, io::JobIndex root, Rank member) {
    domains_.link(domain, root, member);
  }

  void arrived() override;
  void on_timer(uint64_t argument) override;
  uint64_t mismatches() const { return mismatches_; }
  /// The error in the counters, in a sentence: every packet has one fate, and so has every
  /// contribution. Empty: none.
  std::string problem_of_ledger() const;

 private:
  enum Timer : uint64_t { kPark, kJoin };

  void send(io::JobIndex job, Rank rank, const aggregator::Emission& emission);
  void serve_roots();
  void watch_parking();
  void watch_joining();

  Fabric& fabric_;
  uint32_t host_;
  bool watching_ = false;
  Nanos join_at_ = aggregator::BareResults::kNever;
  Lines rows_;
  aggregator::Aggregator aggregator_;
  aggregator::Domains domains_;
  io::sim::SimPort port_;
  std::vector<std::vector<io::EndpointIndex>> endpoints_;  ///< by job and rank
  uint64_t mismatches_ = 0;
};

}  // namespace ina::sim
