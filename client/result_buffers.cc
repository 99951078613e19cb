#include "client/result_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "client/memory.h"
#include "operations/rank_order.h"
#include "operations/reproducible.h"

namespace ina::client {

Result<void> SharedResults::make_ordinary() {
  const size_t bytes = mapping.size();
  auto copy = map_private(bytes);
  if (!copy) return tl::unexpected(copy.error());
  std::memcpy(copy->data(), mapping.data(), bytes);
  if (::mremap(copy->data(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, mapping.data()) ==
      MAP_FAILED)
    return fail(INA_ERR_NO_MEMORY,
                std::string("cannot replace a result buffer: ") + std::strerror(errno));
  copy->release();
  first_unit.reset();
  return {};
}

SharedResults* ResultBuffers::find(const void* data) {
  const auto found = std::ranges::find_if(
      all_, [&](const SharedResults& one) { return one.mapping.data() == data; });
  return found == all_.end() ? nullptr : &*found;
}

void ResultBuffers::remove(const SharedResults& results) {
  all_.erase(all_.begin() + (&results - all_.data()));
}

Result<void> ResultBuffers::make_ordinary() {
  for (SharedResults& results : all_) {
    if (!results.first_unit) continue;
    if (auto replaced = results.make_ordinary(); !replaced) return replaced;
  }
  return {};
}

Result<void> ResultBuffers::aim(OperationSpec& spec) const {
  const size_t bytes = spec.elements * wire_bytes(spec.dtype);
  for (const SharedResults& results : all_) {
    const Mapping& mapping = results.mapping;
    if (!overlaps(mapping.data(), mapping.size(), spec.recv, bytes) || !results.first_unit)
      continue;
    const auto at = static_cast<uint64_t>(spec.recv - mapping.data());
    if (!contains(mapping.data(), mapping.size(), spec.recv) || bytes > mapping.size() - at)
      return fail(INA_ERR_INVALID, "recv reaches beyond its result buffer of " +
                                       std::to_string(mapping.size()) + " bytes");
    if (at % wire::kTargetUnitBytes != 0)
      return fail(INA_ERR_INVALID, "recv lies at byte " + std::to_string(at) +
                                       " of a result buffer: it must be a multiple of " +
                                       std::to_string(wire::kTargetUnitBytes));
    if (reproducible_ && (Reproducible::handles(spec) || RankOrder::handles(spec, world_size_)))
      return fail(INA_ERR_UNSUPPORTED,
                  "a reproducible reduction of floats is put together by its workers, which cannot "
                  "write to a result buffer: use other memory");
    spec.target = 1 + *results.first_unit + static_cast<uint32_t>(at / wire::kTargetUnitBytes);
    return {};
  }
  return {};
}

Result<void> ResultBuffers::aim(OperationSpec& spec, const CollectiveCall& call) const {
  const CallRegions regions(call, world_size_, rank_);
  const auto invalid = [&](const std::string& text) {
    return fail(INA_ERR_INVALID, std::string(call.function) + ": " + text);
  };
  for (const CallRegions::Region& region : regions.recv) {
    if (region.count == 0) continue;
    const size_t offset = region.offset * wire_bytes(spec.dtype);
    const size_t bytes = region.count * wire_bytes(spec.dtype);
    const auto results = std::ranges::find_if(all_, [&](const SharedResults& one) {
      return one.first_unit &&
             overlaps(one.mapping.data(), one.mapping.size(), spec.recv + offset, bytes);
    });
    if (results == all_.end()) {
      if (spec.target == 0) continue;
      return invalid("recv lies in a result buffer only in part");
    }
    if (call.collective != Collective::kBroadcast && call.collective != Collective::kAllGather)
      return fail(INA_ERR_UNSUPPORTED,
                  std::string(call.function) +
                      ": recv lies in a result buffer, to which the switch writes only what all "
                      "ranks receive (all-reduce, broadcast, all-gather)");
    const Mapping& mapping = results->mapping;
    const auto at = spec.recv - mapping.data();
    if (at < 0 || static_cast<size_t>(at) + offset + bytes > mapping.size())
      return invalid("recv reaches beyond its result buffer of " + std::to_string(mapping.size()) +
                     " bytes");
    if (at % wire::kTargetUnitBytes != 0 || offset % wire::kTargetUnitBytes != 0)
      return invalid("a block is received at byte " +
                     std::to_string(static_cast<size_t>(at) + offset) +
                     " of a result buffer: it must be a multiple of " +
                     std::to_string(wire::kTargetUnitBytes) + ", and so must be recv");
    spec.target = 1 + *results->first_unit +
                  static_cast<uint32_t>(static_cast<size_t>(at) / wire::kTargetUnitBytes);
  }
  return {};
}

Result<void> ResultBuffers::refuse(const void* memory, uint64_t bytes,
                                   std::string_view what) const {
  for (const SharedResults& results : all_)
    if (overlaps(results.mapping.data(), results.mapping.size(),
                 static_cast<const std::byte*>(memory), bytes))
      return fail(INA_ERR_UNSUPPORTED,
                  std::string(what) + " lies in a result buffer, which its users cannot write");
  return {};
}

}  // namespace ina::client
