// A protocol message in host form, as the aggregator and the client engine read and write it.
//
// Transports carry it in different ways. Ethernet frames encode it little-endian behind an envelope
// that names the job (wire/frame.h). The shm port copies it into a ring descriptor, where the
// connection itself names job and worker (io/shm/layout.h).
#pragma once

#include <array>
#include <optional>
#include <type_traits>

#include "wire/drop_reason.h"
#include "wire/types.h"
#include "wire/worker_set.h"

namespace ina::wire {

/// docs/protocol.md has the senders and receivers of each.
enum class Type : uint8_t {
  kGrad = 1,  ///< worker -> switch: one contribution
  kPart,      ///< -> fallback: partial sum with its bitmap
  kResult,    ///< -> workers: the sum
  kQuery,     ///< worker -> fallback: where is the result?
  kPoll,      ///< fallback -> workers: how do you stand? (phase)
  kSent,      ///< worker -> fallback: sent, waiting
  kNotYet,    ///< worker -> fallback: not sent yet
  kHave,      ///< worker -> fallback: here is the result
  kDefer,     ///< worker -> fallback: bound to your result
  kRemind,    ///< fallback -> switch: flush the slot of this key
  kPark,      ///< switch -> leading worker: keep this partial sum
  kParked,    ///< switch -> contributors: the key left its slot
  kStale,     ///< switch -> worker: your epoch is old
};

enum class Origin : uint8_t { kNone = 0, kSwitch, kFallback, kParker };
enum class Phase : uint8_t {
  kNone = 0,
  kStatus,  ///< asks for the state of the fragment at the worker
  kBind,    ///< take nobody's result but mine from now on
  kAgain,   ///< of the switch itself: your contribution has not come, send it again if it is lost
  kLost,    ///< of the switch itself: it is lost, since what you sent later has come
};
inline constexpr Phase kLastPhase = Phase::kLost;

/// Bits of Message::flags.
enum Flag : uint16_t {
  kFlagOverflow = 1u << 0,  ///< the result saturated (8-bit integers) or became Inf from finite
                            ///< values (16-bit floats)
  kFlagEcn = 1u << 1,       ///< congestion experienced; echoed by the receiver
  kFlagRaw = 1u << 2,       ///< the payload is one contribution in the operation's data type (PART,
                            ///< DEFER)
  kFlagSplit = 1u << 3,     ///< the fallback put the result together from several PARTs (RESULT)
  kFlagFull = 1u << 4,      ///< the worker has more to send than its window lets it (GRAD)
  /// The fragment left the array because a worker is slow, not for want of a slot (PART, RESULT).
  kFlagParked = 1u << 5,
  kFlagKept = 1u << 6,  ///< the worker that says so has it: it need not come back (RESULT)
  /// No payload. GRAD: a mark, of a worker that adds nothing to so many fragments as `elements`
  /// says, one after the other in their lane. RESULT: so many fragments are decided, of which the
  /// receiver of this message gets nothing. PART, DEFER: the workers in `bitmap` add nothing.
  kFlagBare = 1u << 7,
  /// The worker's window is too small now for bare results to be kept from it (GRAD).
  kFlagPrompt = 1u << 8,
  kFlagQuick = 1u << 9,  ///< the switch may answer what is for the fallback (QUERY)
  /// Sent again, because the switch lacked it (GRAD). RESULT: given again, because a worker asked,
  /// or with such a contribution in it.
  kFlagAgain = 1u << 10,
};
inline constexpr uint16_t kAllFlags = kFlagOverflow | kFlagEcn | kFlagRaw | kFlagSplit | kFlagFull |
                                      kFlagParked | kFlagKept | kFlagBare | kFlagPrompt |
                                      kFlagQuick | kFlagAgain;
/// Those of a contribution that its result has, too.
inline constexpr uint16_t kResultFlags = kFlagEcn | kFlagAgain;

/// The parameters that workers must agree on before their contributions may be added.
struct Signature {
  uint64_t elements = 0;   ///< of the whole operation, with fused_bits()
  uint32_t operation = 0;  ///< number of the operation within its job
  DType dtype{};
  Op op{};
  Collective collective{};
  uint32_t target = 0;    ///< of the fragment: Message::target
  uint16_t receiver = 0;  ///< of the fragment: Message::receiver
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// True if two fragments are of the same operation. Their roles in it may differ.
constexpr bool same_operation(const Signature& a, const Signature& b) {
  return a.elements == b.elements && a.operation == b.operation && a.dtype == b.dtype &&
         a.op == b.op && a.collective == b.collective;
}

/// An operation that a worker has made of several all-reduces has more to agree on. Its
/// operation_elements have the elements in bits 0..31, a fingerprint of the tensors' sizes in
/// 32..47, the number of tensors in 48..62, and bit 63, which no number of elements reaches. The
/// switch only compares the number.
inline constexpr uint64_t kFusedBit = uint64_t{1} << 63;
inline constexpr uint32_t kMaxFusedTensors = (1u << 15) - 1;
/// The bits to be or-ed to `elements`, which must be below 2^32. 0 for an operation without any:
/// validate() wants it to say so.
constexpr uint64_t fused_bits(uint64_t elements, uint32_t tensors, uint16_t fingerprint) {
  if (elements == 0) return 0;
  return kFusedBit | uint64_t{tensors & kMaxFusedTensors} << 48 | uint64_t{fingerprint} << 32;
}

/// An operation of several blocks, as workers' shares of uneven size, has their table to agree on.
/// Its operation_elements have the elements of all blocks in bits 0..45, a fingerprint of root and
/// sizes in 46..61, and bit 62.
inline constexpr uint64_t kBlocksBit = uint64_t{1} << 62;
inline constexpr uint32_t kBlocksShift = 46;
inline constexpr uint64_t kMaxBlocksElements = (uint64_t{1} << kBlocksShift) - 1;
/// The bits to be or-ed to `elements`; 0 for an operation without any.
constexpr uint64_t blocks_bits(uint64_t elements, uint16_t fingerprint) {
  return elements == 0 ? 0 : kBlocksBit | uint64_t{fingerprint} << kBlocksShift;
}

inline constexpr uint32_t kTargetUnitBytes = 256;
inline constexpr uint32_t kMaxTargetUnits = (1u << 24) - 1;

struct Message {
  WorkerSet bitmap = {};  ///< workers whose contributions the payload holds
  uint64_t operation_elements =
      0;  ///< signature: of the whole operation, with fused_bits() or blocks_bits()
  uint32_t operation = 0;  ///< signature: number of the operation within its job
  uint32_t epoch = 0;
  uint32_t seq = 0;       ///< low 32 bits of the fragment's Seq
  uint32_t instance = 0;  ///< fallback instance
  uint16_t elements = 0;  ///< in this fragment's payload; with kFlagBare as said there
  uint16_t flags = 0;     ///< Flag
  Type type{};
  DType dtype{};  ///< of the operation; PART and PARK carry accumulator_of(dtype), unless raw
  Op op{};
  Collective collective{};
  uint16_t receiver : 13 = 0;  ///< of the fragment's result: 1 + its rank; 0: all workers
  Phase phase : 3 = Phase::kNone;
  Rank rank : 7 {};  ///< the switch believes its bindings only, and writes what it forwards
  uint32_t lane : 6 = 0;
  Origin origin : 3 = Origin::kNone;
  uint8_t priority = 0;
  /// Where the fragment's result goes: 0: the job's result ring, otherwise 1 + the unit of
  /// kTargetUnitBytes in the job's result buffers. Not in frames: result buffers are shared memory.
  uint32_t target : 24 = 0;

  Signature signature() const {
    return {operation_elements, operation, dtype, op, collective, target, receiver};
  }
  void set_signature(const Signature& s) {
    operation_elements = s.elements;
    operation = s.operation;
    dtype = s.dtype;
    op = s.op;
    collective = s.collective;
    target = s.target & kMaxTargetUnits;
    receiver = s.receiver;
  }
  bool bare() const { return (flags & kFlagBare) != 0; }
};
static_assert(sizeof(Message) == 48 && std::is_trivially_copyable_v<Message>);

/// A message to send and a view of its payload, whose memory is the sender's.
struct Outgoing {
  Message message;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
};

/// Makes the checks that need no knowledge of the job. They are of type, origin and phase, and that
/// the rank has a bit and a partial sum contributors. For messages with a payload: data type,
/// operation, and that `elements`, `payload_bytes` and `slot_bytes` (the size of a value row)
/// agree. Without a payload the signature and `elements` are not looked at. Does not look at the
/// payload. Returns why the message must be dropped, or nothing.
inline std::optional<DropReason> validate(const Message& message, uint32_t payload_bytes,
                                          uint32_t slot_bytes);

/// Makes all checks of validate() one by one, at leisure.
std::optional<DropReason> validate_any(const Message& message, uint32_t payload_bytes,
                                       uint32_t slot_bytes);

namespace detail {
/// The properties of a data type in contributions; no operation for a value that is no DType.
struct Kind {
  uint8_t wire_bytes = 0;
  uint8_t accumulator_bytes = 0;
  uint16_t ops = 0;  ///< bit o: Op o is defined
};
static_assert(std::size(kAllOps) < 16);
inline constexpr auto kKinds = [] {
  std::array<Kind, 256> kinds{};
  for (const DType dtype : kAllDTypes) {
    Kind& kind = kinds[static_cast<size_t>(dtype)];
    kind.wire_bytes = static_cast<uint8_t>(ina::wire_bytes(dtype));
    kind.accumulator_bytes = static_cast<uint8_t>(ina::wire_bytes(accumulator_of(dtype)));
    for (const Op op : kAllOps)
      if (is_valid(dtype, op)) kind.ops |= static_cast<uint16_t>(1u << static_cast<uint32_t>(op));
  }
  return kinds;
}();
}  // namespace detail

// Nearly every message is a contribution in order, which one chain without branches recognises.
inline std::optional<DropReason> validate(const Message& message, uint32_t payload_bytes,
                                          uint32_t slot_bytes) {
  const detail::Kind kind = detail::kKinds[static_cast<size_t>(message.dtype)];
  const uint32_t elements = message.elements;
  const bool in_order = int{message.type == Type::kGrad} & (message.origin <= Origin::kParker) &
                        (message.phase <= kLastPhase) & (value(message.rank) <= kMaxWorkers) &
                        (message.op <= Op::kBxor) &
                        ((kind.ops >> (static_cast<uint32_t>(message.op) & 15) & 1) != 0) &
                        (message.collective >= Collective::kAllReduce) &
                        (message.collective <= Collective::kReduceScatter) &
                        (elements * kind.accumulator_bytes <= slot_bytes) &
                        ((message.flags & kFlagBare) == 0) & (message.receiver <= kMaxRanks) &
                        (elements * kind.wire_bytes == payload_bytes) & (elements != 0) &
                        (elements <= message.operation_elements);
  if (in_order) [[likely]]
    return std::nullopt;
  return validate_any(message, payload_bytes, slot_bytes);
}

/// Bytes that the payload of `message` has by its type, data type and element count.
uint32_t payload_bytes(const Message& message);

std::string_view name(Type type);
std::string_view name(Origin origin);

}  // namespace ina::wire
