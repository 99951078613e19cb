#include "plans/themis/cost.h"

#include <algorithm>
#include <bit>

#include "plans/collectives.h"

namespace ina::themis {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kPicosPerS = 1'000'000'000'000;

struct Volume {
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
};

/// Bytes of an all-to-all, each way. A ring passes on rows for others: for 1 to P-1 hops, s/P each.
uint64_t all_to_all_bytes(const Dimension& dimension, uint64_t held_bytes) {
  const uint64_t row_bytes = held_bytes / dimension.size;
  const uint64_t others = dimension.size - 1;
  if (dimension.algorithm() != DimensionKind::kRing) return row_bytes * others;
  return row_bytes * others * dimension.size / 2;
}

Volume volume_of(const Dimension& dimension, Phase phase, bool in_network, uint64_t held_bytes) {
  const uint64_t participants = dimension.size;
  const uint64_t share = held_bytes / participants;
  uint64_t both_bytes = held_bytes;
  switch (phase) {
    case Phase::kReduceScatter:
      if (in_network) return {held_bytes, share};
      both_bytes = share * (participants - 1);
      break;
    case Phase::kAllGather:
      if (in_network) return {held_bytes, held_bytes * participants};
      both_bytes = held_bytes * (participants - 1);
      break;
    case Phase::kAllReduce:
      break;
    case Phase::kAllToAll:
      both_bytes = all_to_all_bytes(dimension, held_bytes);
      break;
  }
  return {both_bytes, both_bytes};
}

// A fragment of default size, and what a frame has around it: preamble, headers, check sequence and
// gap.
constexpr uint64_t kFragmentBytes = 8192;
constexpr uint64_t kFrameOverheadBytes = 138;
// Frames of full length that a rank keeps on the ring of its link, as its card does in sim/nic.h.
constexpr uint64_t kRingFrames = 8;

/// None has parts of two pieces.
uint64_t fragments_of(uint64_t bytes, uint64_t piece_bytes) {
  return bytes / piece_bytes * ((piece_bytes + kFragmentBytes - 1) / kFragmentBytes);
}

/// Bytes on the link.
uint64_t framed(uint64_t bytes, uint64_t piece_bytes) {
  return bytes + fragments_of(bytes, piece_bytes) * kFrameOverheadBytes;
}

/// The number of one participant's bytes that lie together.
uint64_t piece_of(const Topology& topology, const Stage& stage) {
  uint64_t bytes = stage.piece_bytes;
  if (stage.phase == Phase::kAllToAll)
    bytes = stage.held_bytes / topology.participants();
  else if (bytes == 0)
    bytes = stage.phase == Phase::kReduceScatter ? stage.rx_bytes : stage.held_bytes;
  return std::max<uint64_t>(bytes, 1);
}

/// The times of an operation through one of libina's switches.
void carry(const Topology& topology, uint64_t rate, Stage& stage) {
  const Dimension& own = topology.dimensions[stage.dimension];
  const uint64_t piece = piece_of(topology, stage);
  stage.tx_ps = transfer_ps(framed(stage.tx_bytes, piece), rate);
  stage.rx_ps = transfer_ps(framed(stage.rx_bytes, piece), rate);
  stage.fragments = fragments_of(std::max(stage.tx_bytes, stage.rx_bytes), piece);
  if (stage.phase == Phase::kAllToAll) stage.fragments *= own.size;
  if (stage.fragments != 0)
    stage.fragment_ps = std::max(stage.tx_ps, stage.rx_ps) / static_cast<Picos>(stage.fragments);
  uint64_t first_bytes = framed(std::min(piece, kFragmentBytes), kFragmentBytes);
  if (stage.phase == Phase::kAllToAll) {
    const uint64_t fragments = (piece + kFragmentBytes - 1) / kFragmentBytes;
    const uint64_t pieces =
        scheduler::pieces_in_turn(topology.participants() / own.size, fragments);
    const uint64_t turn = std::min(piece, scheduler::kTurnFragments * kFragmentBytes);
    first_bytes = framed(pieces * turn, turn);
  }
  stage.first_ps = transfer_ps(first_bytes, rate);
  if (stage.phase == Phase::kReduceScatter || stage.phase == Phase::kAllToAll)
    stage.close_ps = own.step_latency_ps + transfer_ps(2 * kFrameOverheadBytes, rate);
}

}  // namespace

Picos transfer_ps(uint64_t bytes, uint64_t bits_per_s) {
  const Wide scaled = Wide{bytes} * (kBitsPerByte * kPicosPerS);
  return static_cast<Picos>((scaled + bits_per_s - 1) / bits_per_s);
}

Picos latency_ps(const Dimension& dimension, Phase phase, bool in_network) {
  uint32_t steps = 1;
  if (!in_network) {
    if (dimension.algorithm() == DimensionKind::kRing)
      steps = dimension.size - 1;
    else if (dimension.algorithm() == DimensionKind::kHalvingDoubling && phase != Phase::kAllToAll)
      steps = static_cast<uint32_t>(std::bit_width(dimension.size) - 1);
  }
  return steps * dimension.step_latency_ps;
}

Picos ring_ps(const Dimension& dimension) {
  return transfer_ps(kRingFrames * (kFragmentBytes + kFrameOverheadBytes), dimension.bits_per_s);
}

bool can_aggregate(const Dimension& dimension, Phase phase) {
  return dimension.aggregates() && phase != Phase::kAllToAll;
}

Stage make_stage(const Topology& topology, uint8_t dimension, Phase phase, bool in_network,
                 uint64_t held_bytes, uint64_t piece_bytes) {
  const Dimension& own = topology.dimensions[dimension];
  const Volume volume = volume_of(own, phase, in_network, held_bytes);
  const uint64_t rate = in_network ? own.in_network_bits_per_s() : own.bits_per_s;
  Stage stage{.dimension = dimension,
              .phase = phase,
              .in_network = in_network,
              .held_bytes = held_bytes,
              .tx_bytes = volume.tx_bytes,
              .rx_bytes = volume.rx_bytes,
              .tx_ps = transfer_ps(volume.tx_bytes, rate),
              .rx_ps = transfer_ps(volume.rx_bytes, rate),
              .latency_ps = latency_ps(own, phase, in_network),
              .piece_bytes = piece_bytes};
  if (topology.carried) carry(topology, rate, stage);
  return stage;
}

}  // namespace ina::themis
