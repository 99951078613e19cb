#include "sim/faults/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "sim/faults/redistribution.h"
#include "sim/faults/reproducible.h"

namespace ina::sim {

namespace {

using scheduler::Block;
using scheduler::BlockTable;
using Random = std::mt19937_64;
using Bytes = std::vector<std::byte>;

// The value of bytes that nobody has written to.
constexpr std::byte kUntouched{0xa7};
constexpr size_t kWidestGap = 5;  // elements between blocks

uint64_t upto(Random& random, uint64_t most) {
  return random() % (most + 1);
}
bool chance(Random& random, uint32_t percent) {
  return random() % 100 < percent;
}

float from_bfloat16(const std::byte* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

double value_at(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kInt32: {
      int32_t element;
      std::memcpy(&element, at, 4);
      return element;
    }
    case DType::kFloat32: {
      float element;
      std::memcpy(&element, at, 4);
      return static_cast<double>(element);
    }
    default:
      return static_cast<double>(from_bfloat16(at));
  }
}

/// By how much a sum may differ from the model's, which adds in another order.
double slack_of(const PlannedOperation& plan, double expected) {
  if (plan.dtype == DType::kInt32) return 0;
  if (plan.dtype == DType::kFloat32) return 0.02;
  return std::abs(expected) / 128 + 0.05;
}

/// Writes a random element to `at`. Floats are of many magnitudes, so that another order of adding
/// gives another sum.
void draw_element(Random& random, DType dtype, std::byte* at) {
  if (dtype == DType::kInt32) {
    const auto element = static_cast<int32_t>(random() % 2'000'001) - 1'000'000;
    std::memcpy(at, &element, 4);
    return;
  }
  const auto element =
      static_cast<float>(std::ldexp(static_cast<double>(random() % 2'000'001) - 1'000'000,
                                    -10 - static_cast<int>(random() % 16)));
  if (dtype == DType::kFloat32) {
    std::memcpy(at, &element, 4);
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &element, 4);
  const auto half = static_cast<uint16_t>(bits >> 16);
  std::memcpy(at, &half, 2);
}

double combined(Op op, double sum, double next, double workers) {
  switch (op) {
    case Op::kMin:
      return std::min(sum, next);
    case Op::kMax:
      return std::max(sum, next);
    case Op::kAvg:
      return sum + next / workers;
    default:
      return sum + next;
  }
}

/// Blocks by source and receiver with their sizes, before they are cut up.
std::vector<Block> draw_roles(Random& random, Collective collective, const OperationLimits& limits,
                              uint32_t per_fragment) {
  const uint32_t n = limits.workers;
  const auto root = static_cast<uint8_t>(1 + random() % n);
  std::vector<Block> blocks;
  const auto add = [&](uint32_t source, uint32_t receiver) {
    Block block;
    block.source = static_cast<uint16_t>(source);
    block.receiver = static_cast<uint16_t>(receiver);
    blocks.push_back(block);
  };
  switch (collective) {
    case Collective::kReduce:
      add(0, root);
      break;
    case Collective::kBroadcast:
      add(root, 0);
      break;
    case Collective::kPermute: {
      std::vector<uint32_t> to(n);
      std::iota(to.begin(), to.end(), 1);
      std::shuffle(to.begin(), to.end(), random);
      for (uint32_t r = 0; r < n; ++r) add(1 + r, to[r]);
      break;
    }
    case Collective::kAllToAll:
      for (uint32_t k = 0; k < n; ++k)
        for (uint32_t r = 0; r < n; ++r) add(1 + r, 1 + (r + k) % n);
      break;
    default:
      for (uint32_t r = 1; r <= n; ++r) {
        if (collective == Collective::kReduceScatter) add(0, r);
        if (collective == Collective::kAllGather) add(r, 0);
        if (collective == Collective::kGather) add(r, root);
        if (collective == Collective::kScatter) add(root, r);
      }
  }
  // Some of many are empty, and all of them together no more than was asked for.
  const uint64_t elements = upto(random, uint64_t{limits.max_fragments} * per_fragment);
  const uint64_t filled = std::min<uint64_t>(blocks.size(), limits.max_fragments);
  const bool even = chance(random, 40);
  for (Block& block : blocks) {
    if (random() % blocks.size() >= filled) continue;
    if (even)
      block.elements = elements / filled;
    else if (!chance(random, 20))
      block.elements = upto(random, 2 * elements / filled);
  }
  return blocks;
}

/// Cuts blocks into chunks, in any order: their owners need not lie next to each other.
std::vector<Block> cut_up(Random& random, const std::vector<Block>& blocks, uint32_t per_fragment) {
  if (chance(random, 30)) return blocks;
  const uint64_t chunk = chance(random, 70) ? per_fragment * (1 + upto(random, 3))
                                            : 1 + upto(random, 3 * uint64_t{per_fragment});
  std::vector<Block> chunks;
  for (const Block& block : blocks)
    for (uint64_t done = 0; done < block.elements; done += chunk) {
      chunks.push_back(block);
      chunks.back().elements = std::min(chunk, block.elements - done);
    }
  if (chance(random, 60)) std::shuffle(chunks.begin(), chunks.end(), random);
  return chunks;
}

bool may_be_in_place(Collective collective) {
  return collective != Collective::kAllToAll && collective != Collective::kPermute;
}

bool sends(const Block& block, uint32_t rank) {
  return block.source == 0 || block.source == 1 + rank;
}
bool receives(const Block& block, uint32_t rank) {
  return block.receiver == 0 || block.receiver == 1 + rank;
}

/// Lays the blocks for which `is_there` one after the other, with gaps, in any order. Returns the
/// elements that they take.
template <class IsThere, class Place>
size_t lay_out(Random& random, std::vector<Block>& blocks, IsThere&& is_there, Place&& place) {
  std::vector<Block*> order;
  for (Block& block : blocks)
    if (is_there(block)) order.push_back(&block);
  if (chance(random, 30)) std::shuffle(order.begin(), order.end(), random);
  const bool gaps = chance(random, 50);
  size_t end = gaps ? upto(random, kWidestGap) : 0;
  for (Block* block : order) {
    place(*block, end);
    end += block->elements + (gaps ? upto(random, kWidestGap) : 0);
  }
  return end;
}

/// Places and inputs of one rank.
void draw_rank(Random& random, uint32_t rank, std::vector<Block> blocks, uint32_t per_fragment,
               uint16_t fingerprint, PlannedOperation& plan) {
  const uint32_t width = wire_bytes(plan.dtype);
  size_t send_elements = 0;
  size_t recv_elements = 0;
  if (plan.in_place) {
    send_elements = recv_elements = lay_out(
        random, blocks, [&](const Block& b) { return sends(b, rank) || receives(b, rank); },
        [](Block& b, size_t at) { b.send_offset = b.receive_offset = at; });
  } else {
    send_elements = lay_out(
        random, blocks, [&](const Block& b) { return sends(b, rank); },
        [](Block& b, size_t at) { b.send_offset = at; });
    recv_elements = lay_out(
        random, blocks, [&](const Block& b) { return receives(b, rank); },
        [](Block& b, size_t at) { b.receive_offset = at; });
  }
  auto table = std::make_shared<BlockTable>(blocks, per_fragment, fingerprint);
  Bytes input(send_elements * width, kUntouched);
  for (const Block& block : table->blocks()) {
    if (!sends(block, rank)) continue;
    std::byte* at = &input[block.send_offset * width];
    for (uint64_t e = 0; e < block.elements; ++e, at += width) {
      if (!is_moved(plan.collective)) {
        draw_element(random, plan.dtype, at);
      } else {
        const uint64_t bits = random();  // not to be looked at on the way: a NaN, too
        std::memcpy(at, &bits, width);
      }
    }
  }
  plan.inputs.push_back(std::move(input));
  plan.received_bytes.push_back(recv_elements * width);
  plan.tables.push_back(std::move(table));
}

void add_up(PlannedOperation& plan) {
  const uint32_t width = wire_bytes(plan.dtype);
  const double workers = static_cast<double>(plan.inputs.size());
  for (uint32_t rank = 0; rank < plan.inputs.size(); ++rank) {
    size_t element = 0;
    for (const Block& block : plan.tables[rank]->blocks())
      for (uint64_t e = 0; e < block.elements; ++e, ++element) {
        const double next =
            value_at(plan.dtype, &plan.inputs[rank][(block.send_offset + e) * width]);
        if (rank == 0)
          plan.sums.push_back(plan.op == Op::kAvg ? next / workers : next);
        else
          plan.sums[element] = combined(plan.op, plan.sums[element], next, workers);
      }
  }
}

}  // namespace

PlannedOperation draw_allreduce(Random& random, const OperationLimits& limits) {
  PlannedOperation plan;
  const DType dtypes[] = {DType::kInt32, DType::kFloat32, DType::kInt32, DType::kBFloat16};
  plan.dtype = limits.floats_only ? DType::kFloat32 : dtypes[random() % 4];
  plan.op = is_float(plan.dtype) && random() % 4 == 0 ? Op::kAvg : Op::kSum;
  const uint32_t per_fragment = elements_per_fragment(plan.dtype, limits.slot_bytes);
  plan.elements = random() % (size_t{limits.max_fragments} * per_fragment + 1);
  plan.in_place = random() % 3 == 0;
  plan.sums.assign(plan.elements, 0);
  const uint32_t width = wire_bytes(plan.dtype);
  for (uint32_t w = 0; w < limits.workers; ++w) {
    Bytes input(plan.elements * width);
    for (size_t e = 0; e < plan.elements; ++e) {
      draw_element(random, plan.dtype, &input[e * width]);
      plan.sums[e] =
          combined(plan.op, plan.sums[e], value_at(plan.dtype, &input[e * width]), limits.workers);
    }
    plan.received_bytes.push_back(input.size());
    plan.inputs.push_back(std::move(input));
  }
  return plan;
}

PlannedOperation draw_operation(Random& random, Collective collective,
                                const OperationLimits& limits) {
  if (collective == Collective::kAllReduce) return draw_allreduce(random, limits);
  PlannedOperation plan;
  plan.collective = collective;
  const DType sums[] = {DType::kInt32, DType::kFloat32, DType::kBFloat16};
  const DType moved[] = {DType::kInt8, DType::kInt32, DType::kFloat32, DType::kInt64,
                         DType::kBFloat16};
  plan.dtype = is_moved(collective) ? moved[random() % std::size(moved)]
               : limits.floats_only ? DType::kFloat32
                                    : sums[random() % std::size(sums)];
  if (collective == Collective::kBarrier) {
    plan.inputs.resize(limits.workers);
    plan.received_bytes.resize(limits.workers);
    return plan;
  }
  const Op ops[] = {Op::kSum, Op::kMin, Op::kMax, Op::kAvg};
  if (!is_moved(collective) && !limits.floats_only)
    plan.op = ops[random() % (is_float(plan.dtype) ? 4 : 3)];
  plan.in_place = may_be_in_place(collective) && chance(random, 33);
  const uint32_t per_fragment = elements_per_fragment(collective, plan.dtype, limits.slot_bytes);
  const std::vector<Block> blocks =
      cut_up(random, draw_roles(random, collective, limits, per_fragment), per_fragment);
  const auto fingerprint = static_cast<uint16_t>(random());
  for (uint32_t rank = 0; rank < limits.workers; ++rank)
    draw_rank(random, rank, blocks, per_fragment, fingerprint, plan);
  plan.elements = plan.tables[0]->elements();
  if (!is_moved(collective)) add_up(plan);
  return plan;
}

Bytes PlannedOperation::fresh_recv(uint32_t rank) const {
  return in_place ? Bytes{} : Bytes(received_bytes[rank], kUntouched);
}

std::optional<std::string> PlannedOperation::wrong(uint32_t rank, const Bytes& got) const {
  if (redistribution) return wrong_redistribution(*this, rank, got);
  if (reproducible) return wrong_reproducible(*this, rank, got);
  const uint32_t width = wire_bytes(dtype);
  Bytes expected = in_place ? inputs[rank] : fresh_recv(rank);
  if (got.size() != expected.size()) return "a buffer of another size";
  const Block everything{.elements = elements, .send_offset = 0, .receive_offset = 0};
  const auto blocks = tables.empty() ? std::span(&everything, 1) : tables[rank]->blocks();
  size_t element = 0;  // of the operation
  for (size_t i = 0; i < blocks.size(); element += blocks[i++].elements) {
    const Block& block = blocks[i];
    if (!receives(block, rank)) continue;
    std::byte* const to = expected.data() + block.receive_offset * width;
    const std::byte* const at = got.data() + block.receive_offset * width;
    if (is_moved(collective)) {
      const uint32_t source = block.source - 1u;
      const uint64_t from = tables[source]->blocks()[i].send_offset;
      std::memcpy(to, inputs[source].data() + from * width, block.elements * width);
      continue;
    }
    for (uint64_t e = 0; e < block.elements; ++e) {
      const double sum = sums[element + e];
      const double value = value_at(dtype, at + e * width);
      if (!(std::abs(value - sum) <= slack_of(*this, sum)))
        return fmt::format("element {}: {} instead of {}", block.receive_offset + e, value, sum);
    }
    // Right, or the bytes of another contribution.
    if (block.elements != 0) std::memcpy(to, at, block.elements * width);
  }
  const auto [at, _] = std::ranges::mismatch(got, expected);
  if (at == got.end()) return std::nullopt;
  return fmt::format("byte {}: {:#04x}, which should not be there", at - got.begin(),
                     std::to_integer<unsigned>(*at));
}

uint64_t PlannedOperation::payload_up(uint32_t rank) const {
  if (redistribution) return payloads[rank].first;
  if (tables.empty()) return inputs[rank].size();
  uint64_t sum = 0;
  for (const Block& block : tables[rank]->blocks())
    if (sends(block, rank)) sum += block.elements * wire_bytes(dtype);
  return sum;
}

uint64_t PlannedOperation::payload_down(uint32_t rank) const {
  if (redistribution) return payloads[rank].second;
  if (tables.empty()) return received_bytes[rank];
  uint64_t sum = 0;
  for (const Block& block : tables[rank]->blocks())
    if (receives(block, rank)) sum += block.elements * wire_bytes(dtype);
  return sum;
}

}  // namespace ina::sim
