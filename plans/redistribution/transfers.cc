#include "plans/redistribution/transfers.h"

#include <algorithm>
#include <cstring>

#include "plans/redistribution/routes.h"

namespace ina::redistribution {
namespace {

/// The number that a rank has among those that differ in `axes` alone.
uint64_t index_in_group(const Mesh& mesh, const std::vector<PrimeId>& axes, uint32_t rank) {
  uint64_t index = 0;
  for (const PrimeId axis : axes) index = index * mesh.size(axis) + mesh.coordinate(rank, axis);
  return index;
}

/// The ranks that differ from `rank` in `axes` alone, itself among them.
std::vector<uint32_t> group_of(const Mesh& mesh, const std::vector<PrimeId>& axes, uint32_t rank) {
  uint32_t base = rank;
  for (const PrimeId axis : axes) base -= mesh.coordinate(rank, axis) * mesh.primes()[axis].stride;
  std::vector<uint32_t> members{base};
  for (const PrimeId axis : axes) {
    const size_t before = members.size();
    for (uint32_t i = 1; i < mesh.size(axis); ++i)
      for (size_t k = 0; k < before; ++k)
        members.push_back(members[k] + i * mesh.primes()[axis].stride);
  }
  return members;
}

}  // namespace

StepTransfers::StepTransfers(const Mesh& mesh, const Step& step, const Shape& shape)
    : mesh_(mesh),
      step_(step),
      before_(tile_shape(mesh, step.before, shape)),
      after_(tile_shape(mesh, step.after, shape)) {
  if (step.operation == Operation::kAllPermute)
    sources_ = permutation(mesh, step.before, step.after);
}

std::vector<Transfer> StepTransfers::to(uint32_t rank) const {
  switch (step_.operation) {
    case Operation::kDynamicSlice:
      return slice(rank);
    case Operation::kAllToAll:
      return all_to_all(rank);
    case Operation::kAllGather:
      return gather(rank);
    case Operation::kAllPermute:
      return {{sources_[rank], origin(), origin(), before_}};
    case Operation::kExchange:
      return exchange(rank);
  }
  return {};
}

std::vector<Transfer> StepTransfers::slice(uint32_t rank) const {
  Shape first = origin();
  for (const Move& move : step_.moves)
    first[move.to] = index_in_group(mesh_, move.pushed, rank) * after_[move.to];
  return {{rank, first, origin(), after_}};
}

/// Each member of the group has a chunk for this rank, and these are put behind one another.
std::vector<Transfer> StepTransfers::all_to_all(uint32_t rank) const {
  const Move& move = step_.moves.front();
  Shape extent = before_;
  extent[move.to] = after_[move.to];
  Shape chunk = origin();
  chunk[move.to] = index_in_group(mesh_, move.pushed, rank) * extent[move.to];
  std::vector<Transfer> transfers;
  for (const uint32_t member : group_of(mesh_, move.popped, rank)) {
    Shape place = origin();
    place[move.from] = index_in_group(mesh_, move.popped, member) * extent[move.from];
    transfers.push_back({member, chunk, place, extent});
  }
  return transfers;
}

std::vector<Transfer> StepTransfers::gather(uint32_t rank) const {
  std::vector<PrimeId> axes;
  for (const Move& move : step_.moves)
    axes.insert(axes.end(), move.popped.begin(), move.popped.end());
  std::vector<Transfer> transfers;
  for (const uint32_t member : group_of(mesh_, axes, rank)) {
    Shape place = origin();
    for (const Move& move : step_.moves)
      place[move.from] = index_in_group(mesh_, move.popped, member) * before_[move.from];
    transfers.push_back({member, origin(), place, before_});
  }
  return transfers;
}

/// A transfer from each source tile that touches the rank's target tile: the part that they share.
std::vector<Transfer> StepTransfers::exchange(uint32_t rank) const {
  const size_t dimensions = before_.size();
  Shape first(dimensions), low(dimensions), high(dimensions);
  for (size_t d = 0; d < dimensions; ++d) {
    first[d] = part_index(mesh_, step_.after[d], rank) * after_[d];
    low[d] = first[d] / before_[d];
    high[d] = (first[d] + after_[d] - 1) / before_[d];
  }
  std::vector<Transfer> transfers;
  std::vector<uint64_t> part = low;
  for (bool more = true; more;) {
    Shape from(dimensions), to(dimensions), extent(dimensions);
    for (size_t d = 0; d < dimensions; ++d) {
      const uint64_t begin = std::max(first[d], part[d] * before_[d]);
      from[d] = begin - part[d] * before_[d];
      to[d] = begin - first[d];
      extent[d] = std::min(first[d] + after_[d], (part[d] + 1) * before_[d]) - begin;
    }
    transfers.push_back({holder(mesh_, step_.before, part, rank), from, to, extent});
    more = false;
    for (size_t d = dimensions; d-- > 0 && !more;) {
      more = part[d] < high[d];
      part[d] = more ? part[d] + 1 : low[d];
    }
  }
  return transfers;
}

void copy_box(const std::byte* source, const Box& from, std::byte* target, const Box& to,
              const Shape& extent, size_t element_bytes) {
  const size_t last = extent.size() - 1;
  if (elements_of(extent) == 0) return;
  Shape at(extent.size(), 0);
  for (;;) {
    uint64_t read = 0, write = 0;
    for (size_t d = 0; d <= last; ++d) {
      read = read * from.tile[d] + from.first[d] + at[d];
      write = write * to.tile[d] + to.first[d] + at[d];
    }
    std::memcpy(target + write * element_bytes, source + read * element_bytes,
                extent[last] * element_bytes);
    size_t d = last;
    do {
      if (d == 0) return;
      --d;
      at[d] = at[d] + 1 == extent[d] ? 0 : at[d] + 1;
    } while (at[d] == 0);
  }
}

}  // namespace ina::redistribution
