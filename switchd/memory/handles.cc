#include "switchd/memory/handles.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

namespace ina::switchd {

namespace {

/// Empty if `count` fits.
std::string problem(const std::string& owner, const char* what, const char* limit, uint64_t count,
                    uint64_t total_used, uint64_t total, uint64_t own_used, uint64_t own_most) {
  if (own_used + count > own_most)
    return fmt::format(
        "it needs {} {}, the switch has {} for '{}', of which {} are in use: leave jobs, or give "
        "memory back",
        count, what, own_most, owner, own_used);
  if (total_used + count > total)
    return fmt::format(
        "it needs {} {}, {} of the switch's {} are in use: wait for a job to end, or "
        "raise {}",
        count, what, total_used, total, limit);
  return {};
}

/// Without those that the switch has itself, and that come and go with a message.
uint64_t descriptors_for_peers(uint64_t limit) {
  constexpr uint64_t kReserved = 128;
  return limit - std::min<uint64_t>(limit / 2, kReserved);
}

uint64_t file_limit() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  return files.rlim_cur;
}

}  // namespace

Result<Handles::Share> Handles::take(const std::string& owner, HandleCount count,
                                     uint64_t leaving) {
  const HandleCount own = used_by(owner);
  std::string text =
      problem(owner, "mappings", "vm.max_map_count", count.mappings, used_.mappings + leaving,
              total_.mappings, own.mappings, total_.mappings * share_percent_ / 100);
  if (text.empty())
    text = problem(owner, "descriptors", "its limit of open files (LimitNOFILE)", count.descriptors,
                   used_.descriptors, total_.descriptors, own.descriptors,
                   total_.descriptors * share_percent_ / 100);
  if (!text.empty()) return fail(INA_ERR_REFUSED, text);
  return keep(owner, count);
}

Handles::Share Handles::keep(const std::string& owner, HandleCount count) {
  HandleCount& own = by_owner_[owner];
  own.mappings += count.mappings;
  own.descriptors += count.descriptors;
  used_.mappings += count.mappings;
  used_.descriptors += count.descriptors;
  return {this, owner, count};
}

void Handles::give_back(const std::string& owner, HandleCount count) {
  const auto own = by_owner_.find(owner);
  own->second.mappings -= count.mappings;
  own->second.descriptors -= count.descriptors;
  used_.mappings -= count.mappings;
  used_.descriptors -= count.descriptors;
  if (own->second.mappings == 0 && own->second.descriptors == 0) by_owner_.erase(own);
}

HandleCount Handles::used_by(const std::string& owner) const {
  const auto own = by_owner_.find(owner);
  return own == by_owner_.end() ? HandleCount{} : own->second;
}

HandleCount Handles::of_limits(uint64_t max_map_count, uint64_t files, uint64_t connections) {
  constexpr uint64_t kMostReserve = 8'192;  // mappings of libraries, DPDK, heaps and stacks
  const uint64_t descriptors = descriptors_for_peers(files);
  return {max_map_count - std::min(max_map_count / 4, kMostReserve),
          descriptors - std::min(descriptors / 2, connections)};
}

HandleCount Handles::of_this_process(uint64_t connections) {
  uint64_t mappings = 65'530;
  std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
  return of_limits(mappings, file_limit(), connections);
}

uint32_t Handles::connections_of(uint32_t wanted, uint64_t files) {
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, descriptors_for_peers(files) / 2));
}

uint32_t Handles::connections_of_this_process(uint32_t wanted) {
  return connections_of(wanted, file_limit());
}

}  // namespace ina::switchd
