// The worker from which a frame comes: bindings by IP address, UDP port and job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "io/port.h"
#include "wire/frame.h"
#include "wire/header_check.h"

namespace ina::io {

/// A worker bound to a port at admission.
struct Endpoint {
  wire::Address address;
  JobId job_id{};
  JobId family{};  ///< the job itself, or the one of whose ranks it is a group
  uint64_t job_key = 0;
  JobIndex job = 0;
  Rank rank{};
  std::optional<wire::TagKeys> tag_keys{};  ///< its frames and those to it carry tags
  bool bound = false;
  // Written through find(), whose result is const otherwise.
  mutable bool heard = false;  ///< a frame of its worker was taken
  mutable wire::HeaderCheck header{};
};

/// Fixed capacity, open addressing at a load of at most one half. Used by one thread.
class EndpointTable {
 public:
  explicit EndpointTable(uint16_t capacity) : endpoints_(capacity) {
    size_t buckets = 4;
    while (buckets < size_t{capacity} * 2) buckets *= 2;
    buckets_.assign(buckets, kEmpty);
  }

  enum class Refusal : uint8_t { kNone, kFull, kTaken };

  /// One address may be bound by a job and its groups, and by no other. `refusal` says why there is
  /// no index.
  std::optional<EndpointIndex> insert(const Endpoint& endpoint, Refusal& refusal) {
    refusal = Refusal::kNone;
    EndpointIndex& bucket = buckets_[find_bucket(endpoint.address, endpoint.job_id)];
    if (bucket != kEmpty || is_of_others(endpoint)) {
      refusal = Refusal::kTaken;
      return std::nullopt;
    }
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      if (endpoints_[i].bound) continue;
      endpoints_[i] = endpoint;
      endpoints_[i].bound = true;
      bucket = static_cast<EndpointIndex>(i);
      return bucket;
    }
    refusal = Refusal::kFull;
    return std::nullopt;
  }

  /// Rare, so the buckets are simply filled anew.
  void erase(EndpointIndex index) {
    if (!contains(index)) return;
    endpoints_[index] = Endpoint{};
    buckets_.assign(buckets_.size(), kEmpty);
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      const Endpoint& endpoint = endpoints_[i];
      if (endpoint.bound)
        buckets_[find_bucket(endpoint.address, endpoint.job_id)] = static_cast<EndpointIndex>(i);
    }
  }

  /// The job's worker at `source`, whose MAC address must be the bound one too; nullptr: unknown.
  const Endpoint* find(const wire::Address& source, JobId job) const {
    const EndpointIndex index = buckets_[find_bucket(source, job)];
    if (index == kEmpty || endpoints_[index].address.mac != source.mac) return nullptr;
    return &endpoints_[index];
  }

  bool contains(EndpointIndex index) const {
    return index < endpoints_.size() && endpoints_[index].bound;
  }
  const Endpoint& operator[](EndpointIndex index) const { return endpoints_[index]; }
  size_t capacity() const { return endpoints_.size(); }

 private:
  static constexpr EndpointIndex kEmpty = 0xffff;

  bool is_of_others(const Endpoint& endpoint) const {
    return std::ranges::any_of(endpoints_, [&](const Endpoint& other) {
      return other.bound && other.address.ip == endpoint.address.ip &&
             other.address.udp_port == endpoint.address.udp_port && other.family != endpoint.family;
    });
  }

  /// Bucket of the key, or the empty one in which it would be put.
  size_t find_bucket(const wire::Address& address, JobId job) const {
    const uint64_t key = (uint64_t{address.ip} << 16 | address.udp_port) ^ uint64_t { value(job) }
                                                                               << 40;
    const size_t mask = buckets_.size() - 1;
    size_t bucket = (key * 0x9e3779b97f4a7c15u) >> 32 & mask;
    while (buckets_[bucket] != kEmpty) {
      const Endpoint& there = endpoints_[buckets_[bucket]];
      if (there.address.ip == address.ip && there.address.udp_port == address.udp_port &&
          there.job_id == job)
        break;
      bucket = (bucket + 1) & mask;
    }
    return bucket;
  }

  std::vector<Endpoint> endpoints_;
  std::vector<EndpointIndex> buckets_;
};

}  // namespace ina::io
