// The cost of an operation in one dimension, for each participant.
//
// Bytes for s bytes held before it, over P participants. Point to point (ring, direct,
// halving-doubling): reduce-scatter s(P-1)/P, all-gather s(P-1), each way alike. By an aggregating
// switch: reduce-scatter sends s and gets s/P, all-gather the mirror image, all-reduce s each way.
#pragma once

#include <cstdint>

#include "plans/themis/plan.h"

namespace ina::themis {

/// How long `bytes` take at `bits_per_s`, rounded up. At most 2^40 bytes at kLeastBitsPerS or more.
Picos transfer_ps(uint64_t bytes, uint64_t bits_per_s);

/// The latency of an operation apart from its bytes: ring P-1 steps, direct 1, halving-doubling
/// log2 P; one trip by an aggregating switch. All-to-all over a switch goes to all at once, in one
/// step.
Picos latency_ps(const Dimension& dimension, Phase phase, bool in_network);

/// How long a rank of a carried topology sends the frames that it has put on the ring of its link.
Picos ring_ps(const Dimension& dimension);

/// True if an aggregating switch can do it. Rows of an all-to-all have nothing to add up.
bool can_aggregate(const Dimension& dimension, Phase phase);

/// The operation with its costs. `held_bytes` is divisible by the dimension's size where the
/// operation divides it. `piece_bytes`: Stage::piece_bytes.
///
/// In a carried topology, bytes go in frames. A switch passes a frame on once it has all of it. It
/// passes a frame of an all-to-all on once all ranks have come so far, each of which sends a piece
/// of 16 fragments in turn. After a reduce-scatter and an all-to-all a closing fragment goes there
/// and back. Windows that grow are taken to have grown (window.h has the one that does not).
Stage make_stage(const Topology& topology, uint8_t dimension, Phase phase, bool in_network,
                 uint64_t held_bytes, uint64_t piece_bytes = 0);

}  // namespace ina::themis
