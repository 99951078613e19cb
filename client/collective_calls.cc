// Context: collectives other than all-reduce and barrier.
#include <cstring>

#include "client/context.h"
#include "common/clock.h"

namespace ina::client {

namespace {

/// What a rank has for itself and nobody else sends.
void copy_own(const CollectiveCall& call, const CallRegions& regions) {
  if (!regions.copies_own) return;
  const CallRegions::Region& from = regions.send[regions.own_send];
  const CallRegions::Region& to = regions.recv[regions.own_receive];
  const size_t width = wire_bytes(call.dtype);
  const auto* source = static_cast<const std::byte*>(call.send) + from.offset * width;
  auto* target = static_cast<std::byte*>(call.recv) + to.offset * width;
  if (from.count != 0 && source != target) std::memcpy(target, source, from.count * width);
}

}  // namespace

Result<Operation*> Context::start(CollectiveCall& call) {
  const uint32_t workers = settings_.world_size;
  const auto rank = static_cast<uint32_t>(settings_.rank);
  if (auto fine = check(call, workers, rank); !fine) return tl::unexpected(fine.error());
  OperationSpec spec;
  spec.send = static_cast<const std::byte*>(call.send);
  spec.recv = static_cast<std::byte*>(call.recv);
  spec.dtype = call.dtype;
  spec.op = call.op;
  spec.collective = call.collective;
  if (!call.counted) {
    spec.blocks = call_tables_.table_for(call, workers, link_.engine().config().slot_bytes);
    spec.elements = spec.blocks->elements();
  }
  auto operation = start(std::move(spec), {.call = &call});
  if (operation) copy_own(call, CallRegions(call, workers, rank));
  return operation;
}

}  // namespace ina::client
