#include "wire/message.h"

namespace ina {

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return "int8";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kUInt8:
      return "uint8";
    case DType::kBool:
      return "bool";
  }
  return "?";
}

std::string_view name(Op op) {
  switch (op) {
    case Op::kSum:
      return "sum";
    case Op::kMin:
      return "min";
    case Op::kMax:
      return "max";
    case Op::kAvg:
      return "avg";
    case Op::kProduct:
      return "prod";
    case Op::kBand:
      return "band";
    case Op::kBor:
      return "bor";
    case Op::kBxor:
      return "bxor";
  }
  return "?";
}

std::string_view name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "allreduce";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kReduce:
      return "reduce";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kPermute:
      return "permute";
  }
  return "?";
}

std::string_view name(DropReason reason) {
  static constexpr std::string_view kNames[] = {
#define INA_X(enumerator, counter, text) counter,
      INA_DROP_REASONS(INA_X)
#undef INA_X
  };
  return kNames[static_cast<size_t>(reason)];
}

std::string_view describe(DropReason reason) {
  static constexpr std::string_view kTexts[] = {
#define INA_X(enumerator, counter, text) text,
      INA_DROP_REASONS(INA_X)
#undef INA_X
  };
  return kTexts[static_cast<size_t>(reason)];
}

}  // namespace ina

namespace ina::wire {

std::string_view name(Type type) {
  switch (type) {
    case Type::kGrad:
      return "GRAD";
    case Type::kPart:
      return "PART";
    case Type::kResult:
      return "RESULT";
    case Type::kQuery:
      return "QUERY";
    case Type::kPoll:
      return "POLL";
    case Type::kSent:
      return "SENT";
    case Type::kNotYet:
      return "NOTYET";
    case Type::kHave:
      return "HAVE";
    case Type::kDefer:
      return "DEFER";
    case Type::kRemind:
      return "REMIND";
    case Type::kPark:
      return "PARK";
    case Type::kParked:
      return "PARKED";
    case Type::kStale:
      return "STALE";
  }
  return "?";
}

std::string_view name(Origin origin) {
  switch (origin) {
    case Origin::kNone:
      return "none";
    case Origin::kSwitch:
      return "switch";
    case Origin::kFallback:
      return "fallback";
    case Origin::kParker:
      return "parker";
  }
  return "?";
}

namespace {

bool is_valid_type(Type type) {
  return type >= Type::kGrad && type <= Type::kStale;
}

bool is_partial(Type type) {
  return type == Type::kPart || type == Type::kPark;
}

/// Partial sums travel as accumulators, everything else in the operation's own data type.
bool carries_accumulators(const Message& message) {
  return is_partial(message.type) && (message.flags & kFlagRaw) == 0 &&
         !is_moved(message.collective);
}

/// Bytes of one element in a slot's row.
uint32_t row_width(const Message& message) {
  return wire_bytes(is_moved(message.collective) ? message.dtype : accumulator_of(message.dtype));
}

bool may_be_bare(const Message& message) {
  switch (message.type) {
    case Type::kGrad:
    case Type::kPart:
    case Type::kDefer:
      return is_moved(message.collective);
    case Type::kResult:
      return true;
    default:
      return false;
  }
}

bool carries_payload(const Message& message) {
  switch (message.type) {
    case Type::kGrad:
    case Type::kPart:
    case Type::kResult:
    case Type::kHave:
    case Type::kPark:
      return true;
    case Type::kDefer:
      return (message.flags & kFlagRaw) != 0;
    default:
      return false;
  }
}

}  // namespace

uint32_t payload_bytes(const Message& message) {
  if (!carries_payload(message) || message.bare()) return 0;
  const DType dtype = carries_accumulators(message) ? accumulator_of(message.dtype) : message.dtype;
  return message.elements * wire_bytes(dtype);
}

std::optional<DropReason> validate_any(const Message& message, uint32_t bytes,
                                       uint32_t slot_bytes) {
  if (!is_valid_type(message.type) || message.origin > Origin::kParker ||
      message.phase > kLastPhase)
    return DropReason::kBadType;
  // WorkerSet::of() of a larger rank is undefined; a partial sum of nobody cannot be merged.
  if (value(message.rank) > kMaxWorkers || (is_partial(message.type) && message.bitmap.empty()))
    return DropReason::kBadRank;
  if (is_partial(message.type) && (message.flags & kFlagRaw) && !is_moved(message.collective) &&
      !message.bitmap.is_single())
    return DropReason::kBadRank;
  if (message.receiver > kMaxRanks) return DropReason::kBadRank;
  if (!carries_payload(message))
    return bytes == 0 ? std::nullopt : std::optional(DropReason::kBadLength);
  if (!is_valid(message.dtype)) return DropReason::kBadDtype;
  if (!is_valid(message.dtype, message.op) || !is_valid(message.collective))
    return DropReason::kBadOp;
  if (message.bare())
    return may_be_bare(message) && bytes == 0 && message.elements != 0
               ? std::nullopt
               : std::optional(DropReason::kBadLength);
  const uint32_t row_bytes = message.elements * row_width(message);
  const uint32_t expected_bytes =
      carries_accumulators(message) ? row_bytes : message.elements * wire_bytes(message.dtype);
  if (row_bytes > slot_bytes || message.elements > message.operation_elements ||
      bytes != expected_bytes)
    return DropReason::kBadLength;
  // Only an operation of no elements has an empty fragment, or one that has a closing fragment.
  if (message.elements == 0 && message.operation_elements != 0 && !has_closing(message.collective))
    return DropReason::kBadLength;
  return std::nullopt;
}

}  // namespace ina::wire
