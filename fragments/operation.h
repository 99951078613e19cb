// A collective that a worker has under way, and its fragments: the elements of each, their place,
// and the part that this worker sends and receives. The engine, not this class, knows which
// fragments have been sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fragments/transport.h"
#include "plans/blocks.h"
#include "wire/message.h"

namespace ina::client {

struct Operation;

/// Hears from the driving thread of operations. May call release_hold() of the engine, nothing
/// else of it.
class OperationListener {
 public:
  virtual ~OperationListener() = default;
  /// Only of operations with a closing fragment that give this worker bytes: it has them all now.
  /// Others may still need what it sent, but for the fragments whose results it has got.
  virtual void received(Operation&) {}
  /// Before `done` is set.
  virtual void completed(Operation& operation) = 0;
};

struct OperationSpec {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;  ///< may equal send
  uint64_t elements = 0;
  DType dtype = DType::kInt8;
  Op op = Op::kSum;
  Collective collective = Collective::kAllReduce;
  /// Needed by collectives other than all-reduce and barrier: `elements` is its elements(). All
  /// send from and receive to the places that it names. `recv` may equal `send` where a rank's
  /// blocks lie at the same place in both.
  std::shared_ptr<const scheduler::BlockTable> blocks{};
  /// 1 + the unit at which `recv` lies in the job's result buffers: the results appear there. 0:
  /// they are copied to `recv`.
  uint32_t target = 0;
  /// Nothing of it, nor of any later operation, is sent before release_hold().
  bool held = false;
  OperationListener* listener = nullptr;
  uint32_t stage = 0;           ///< the listener's own
  const void* owner = nullptr;  ///< of an operation that is not the engine's
  uint64_t fused = 0;           ///< wire::fused_bits() of an operation made of several
  bool deferrable = false;      ///< may be started later, together with others
};

/// The result of a fragment that a worker expects.
struct ExpectedResult {
  bool bytes = true;  ///< otherwise they are for others
  /// It is what this worker has sent, in place: `to` has it, and may be memory that is only read.
  bool is_there = false;
  wire::Signature signature;
  uint32_t elements = 0;
  std::byte* to = nullptr;
};

/// Owned by the engine; valid until Engine::release(). Questions about a fragment need `placed`.
struct Operation {
  OperationSpec spec;
  uint32_t number = 0;
  uint32_t elements_per_fragment = 0;
  Seq first_seq;           ///< known when its first fragment is sent
  uint64_t fragments = 0;  ///< at least 1: an operation of no elements still synchronises
  uint64_t sent = 0;
  uint64_t complete = 0;
  uint64_t to_receive = 0;  ///< fragments of which it gets bytes that it has not got yet
  bool closes = false;      ///< the last fragment closes it: has_closing()
  Nanos started = 0;
  uint8_t priority = 1;
  bool placed = false;            ///< first_seq is known
  std::atomic<bool> done{false};  ///< set by the driving thread, read by any

  /// Cuts it into fragments.
  void cut(uint32_t slot_bytes, Rank rank);

  /// 1 + its last fragment.
  Seq end() const { return first_seq + fragments; }
  /// True if it is the fragment that closes the operation.
  bool is_closing(Seq seq) const { return closes && seq + 1 == end(); }
  /// The signature of a fragment that all contribute to and all receive.
  wire::Signature signature() const;
  /// Says in `packet` what is this worker's own of a fragment: a contribution, a mark, or nothing.
  void describe(Seq seq, Rank rank, TxPacket& packet) const;
  ExpectedResult expected(Seq seq, Rank rank) const;
  /// Fragments from this one on that the worker adds nothing to. Needs `spec.blocks`.
  uint64_t marks_from(Seq seq, Rank rank) const {
    return spec.blocks->end_of_marks(index_of(seq), rank) - index_of(seq);
  }
  /// True if the result has no bytes for this worker. Needs `spec.blocks`.
  bool is_for_others(Seq seq, Rank rank) const {
    const uint64_t index = index_of(seq);
    return index < spec.blocks->fragments() &&
           !has_role(spec.blocks->place_of(index).block->receiver, rank);
  }
  /// Payload of a contribution.
  uint64_t contribution_bytes(Seq seq) const;

 private:
  uint64_t index_of(Seq seq) const { return seq - first_seq; }
  void describe_block(uint64_t index, Rank rank, TxPacket& packet) const;
};

}  // namespace ina::client
