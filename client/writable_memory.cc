#include "client/writable_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "client/collective_call.h"
#include "common/sealed_memory.h"

namespace ina::client {

namespace {

constexpr uintptr_t kPageBytes = 4096;
constexpr Nanos kKnownForNs = 1'000'000;

/// What an operation writes, from its first byte to its last.
std::span<std::byte> written(const CollectiveCall& call, uint32_t workers, uint32_t rank) {
  const CallRegions regions(call, workers, rank);
  const size_t width = wire_bytes(call.dtype);
  const auto* const send = static_cast<const std::byte*>(call.send);
  auto* const recv = static_cast<std::byte*>(call.recv);
  uint64_t first = UINT64_MAX, end = 0;
  for (size_t i = 0; i < regions.recv.size(); ++i) {
    const CallRegions::Region& region = regions.recv[i];
    // In place: what is moved there is there.
    const bool own =
        is_moved(call.collective) && i == regions.own_receive && !regions.send.empty() &&
        recv + region.offset * width == send + regions.send[regions.own_send].offset * width;
    if (region.count == 0 || own) continue;
    first = std::min(first, region.offset);
    end = std::max(end, region.offset + region.count);
  }
  return end == 0 ? std::span<std::byte>() : std::span(recv + first * width, (end - first) * width);
}

std::span<std::byte> written(const OperationSpec& spec, const OperationSource& source,
                             uint32_t workers, uint32_t rank) {
  if (source.call) return written(*source.call, workers, rank);
  return {spec.recv,
          source.plan ? (*source.plan)->peak_bytes() : spec.elements * wire_bytes(spec.dtype)};
}

/// By the kernel's list. Memory of devices, which cannot be populated, is in it, too.
bool is_mapped_writable(uintptr_t address) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose);
  if (!maps) return true;  // nobody knows
  std::array<char, 512> line;
  for (bool whole = true; std::fgets(line.data(), line.size(), maps.get());) {
    uintptr_t first = 0, end = 0;
    std::array<char, 5> rights{};
    const bool begins = whole;
    whole = std::string_view(line.data()).ends_with('\n');
    if (begins &&
        std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR " %4s", &first, &end, rights.data()) ==
            3 &&
        address >= first && address < end)
      return rights[1] == 'w';
  }
  return false;
}

}  // namespace

bool WritableMemory::is_writable(const std::byte* byte, Nanos now) {
  const uintptr_t number = reinterpret_cast<uintptr_t>(byte) / kPageBytes;
  Page& known = known_[number % known_.size()];
  if (known.number == number && now < known.until) return true;
  auto* const page = reinterpret_cast<void*>(number * kPageBytes);
  if (::madvise(page, kPageBytes, MADV_POPULATE_WRITE) != 0 &&
      !is_mapped_writable(number * kPageBytes))
    return false;
  known = {number, now + kKnownForNs};
  return true;
}

Result<void> WritableMemory::check(std::span<const std::byte> memory, std::string_view function,
                                   std::string_view argument, Nanos now) {
  if (memory.empty() || (is_writable(&memory.front(), now) && is_writable(&memory.back(), now)))
    return {};
  return fail(INA_ERR_INVALID,
              std::string(function) + ": " + std::string(argument) +
                  " is memory that cannot be written to; see /proc/PID/maps of this process");
}

Result<void> WritableMemory::check(const OperationSpec& spec, const OperationSource& source,
                                   Nanos now) {
  if (spec.target != 0) return {};  // the switch writes there
  const std::span<std::byte> memory = written(spec, source, workers_, rank_);
  if (source.plan) return check(memory, "ina_redistribute", "buffer", now);
  const std::string_view function = source.call       ? source.call->function
                                    : spec.deferrable ? "ina_allreduce_async"
                                                      : "ina_allreduce";
  return check(memory, function, "recv", now);
}

}  // namespace ina::client
