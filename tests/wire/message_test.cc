// validate() and payload_bytes(): what any receiver checks without knowing the job.
#include "wire/message.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ina::wire {
namespace {

constexpr uint32_t kSlotBytes = 1024;
constexpr Type kAllTypes[] = {Type::kGrad,  Type::kPart,   Type::kResult, Type::kQuery,
                              Type::kPoll,  Type::kSent,   Type::kNotYet, Type::kHave,
                              Type::kDefer, Type::kRemind, Type::kPark,   Type::kParked,
                              Type::kStale};

Message grad(DType dtype, Op op, uint16_t elements) {
  Message message;
  message.type = Type::kGrad;
  message.dtype = dtype;
  message.op = op;
  message.collective = Collective::kAllReduce;
  message.elements = elements;
  message.operation_elements = elements;
  message.bitmap = 1;
  return message;
}

std::string verdict(const Message& message, uint32_t bytes, uint32_t slot_bytes = kSlotBytes) {
  const auto reason = validate(message, bytes, slot_bytes);
  return reason ? std::string(name(*reason)) : "valid";
}

TEST(Validate, EveryDTypeAndOp) {
  for (const DType dtype : kAllDTypes)
    for (const Op op : kAllOps) {
      const auto full = static_cast<uint16_t>(elements_per_fragment(dtype, kSlotBytes));
      for (const uint16_t elements : {uint16_t{0}, uint16_t{1}, full}) {
        const Message message = grad(dtype, op, elements);
        EXPECT_EQ(verdict(message, elements * wire_bytes(dtype)),
                  op != Op::kAvg || is_float(dtype) ? "valid" : "bad_op")
            << name(dtype) << ' ' << name(op);
      }
      if (op == Op::kAvg) continue;
      EXPECT_EQ(verdict(grad(dtype, op, full + 1), (full + 1) * wire_bytes(dtype)), "bad_length");
    }
}

// Which types carry what: docs/protocol.md, "Payload".
TEST(Validate, PayloadOfEveryType) {
  const std::set<Type> wire_payload = {Type::kGrad, Type::kResult, Type::kHave};
  const std::set<Type> accumulators = {Type::kPart, Type::kPark};
  for (const Type type : kAllTypes)
    for (const DType dtype : kAllDTypes) {
      Message message = grad(dtype, Op::kSum, 10);
      message.type = type;
      const uint32_t expected = wire_payload.contains(type) ? 10 * wire_bytes(dtype)
                                : accumulators.contains(type)
                                    ? 10 * wire_bytes(accumulator_of(dtype))
                                    : 0;
      EXPECT_EQ(payload_bytes(message), expected) << name(type) << ' ' << name(dtype);
      EXPECT_EQ(verdict(message, expected), "valid") << name(type) << ' ' << name(dtype);
      EXPECT_EQ(verdict(message, expected + 1), "bad_length") << name(type) << ' ' << name(dtype);
    }
}

TEST(Validate, DeferCarriesARawContributionIfItSaysSo) {
  Message message = grad(DType::kBFloat16, Op::kSum, 10);
  message.type = Type::kDefer;
  EXPECT_EQ(verdict(message, 0), "valid");
  EXPECT_EQ(verdict(message, 20), "bad_length");
  message.flags = kFlagRaw;
  EXPECT_EQ(verdict(message, 20), "valid");
  EXPECT_EQ(verdict(message, 0), "bad_length");
}

// Without a payload there is nothing that a wrong data type could misread.
TEST(Validate, MessagesWithoutPayloadNeedNoSignature) {
  for (const Type type : {Type::kQuery, Type::kPoll, Type::kSent, Type::kNotYet, Type::kDefer,
                          Type::kRemind, Type::kParked, Type::kStale}) {
    Message message;
    message.type = type;
    EXPECT_EQ(verdict(message, 0), "valid") << name(type);
    EXPECT_EQ(verdict(message, 8), "bad_length") << name(type);
  }
}

TEST(Validate, ElementsAgainstOperation) {
  Message message = grad(DType::kInt32, Op::kSum, 10);
  message.operation_elements = uint64_t{1} << 40;
  EXPECT_EQ(verdict(message, 40), "valid");
  message.operation_elements = 9;
  EXPECT_EQ(verdict(message, 40), "bad_length");
  message.elements = 0;
  EXPECT_EQ(verdict(message, 0), "bad_length") << "only an operation of 0 elements is empty";
  message.operation_elements = 0;
  EXPECT_EQ(verdict(message, 0), "valid");
}

TEST(Validate, EveryValueOfEveryEnumerator) {
  const Message right = grad(DType::kFloat32, Op::kSum, 4);
  for (int raw = 0; raw < 256; ++raw) {
    SCOPED_TRACE(raw);
    const auto byte = static_cast<uint8_t>(raw);
    Message message = right;
    message.type = Type{byte};
    EXPECT_EQ(verdict(message, payload_bytes(message)),
              raw >= 1 && raw <= 13 ? "valid" : "bad_type");
    message = right;
    message.dtype = DType{byte};
    EXPECT_EQ(verdict(message, payload_bytes(message)),
              raw >= 1 && raw <= 7 ? "valid" : "bad_dtype");
    message = right;
    message.op = Op{byte};
    EXPECT_EQ(verdict(message, 16), raw >= 1 && raw <= 4 ? "valid" : "bad_op");
    message = right;
    message.collective = Collective{byte};
    EXPECT_EQ(verdict(message, 16), raw >= 1 && raw <= 2 ? "valid" : "bad_op");
    message = right;
    message.origin = Origin{byte};
    EXPECT_EQ(verdict(message, 16), raw <= 3 ? "valid" : "bad_type");
    message = right;
    message.phase = Phase{byte};
    EXPECT_EQ(verdict(message, 16), raw <= 2 ? "valid" : "bad_type");
    message = right;
    message.rank = Rank{byte};
    EXPECT_EQ(verdict(message, 16), raw <= 64 ? "valid" : "bad_rank");
  }
}

TEST(Validate, PartialSumsNeedContributors) {
  for (const Type type : {Type::kPart, Type::kPark}) {
    Message message = grad(DType::kFloat32, Op::kSum, 4);
    message.type = type;
    EXPECT_EQ(verdict(message, 16), "valid");
    message.bitmap = 0;
    EXPECT_EQ(verdict(message, 16), "bad_rank");
  }
}

TEST(Names, AreDistinct) {
  std::set<std::string_view> types;
  for (const Type type : kAllTypes) types.insert(name(type));
  EXPECT_EQ(types.size(), std::size(kAllTypes));
  EXPECT_EQ(name(Type{0}), "?");
  EXPECT_EQ(name(Type{14}), "?");
  std::set<std::string_view> reasons;
  for (size_t i = 0; i < kDropReasons; ++i) {
    reasons.insert(name(static_cast<DropReason>(i)));
    EXPECT_FALSE(describe(static_cast<DropReason>(i)).empty());
  }
  EXPECT_EQ(reasons.size(), kDropReasons);
}

}  // namespace
}  // namespace ina::wire
