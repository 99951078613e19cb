// validate() and payload_bytes(): the checks that need no knowledge of the job.
#include "wire/message.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>

#include "wire/header_check.h"

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
  message.bitmap = WorkerSet::of(Rank{0});
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
                  is_valid(dtype, op) ? "valid" : "bad_op")
            << name(dtype) << ' ' << name(op);
      }
      if (!is_valid(dtype, op)) continue;
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

TEST(Validate, WhatIsMovedFillsARowWithItsElements) {
  Message message = grad(DType::kInt8, Op::kSum, 200);
  EXPECT_EQ(wire::validate(message, 200, 256), DropReason::kBadLength) << "as accumulators";
  message.collective = Collective::kAllGather;
  EXPECT_EQ(wire::validate(message, 200, 256), std::nullopt);
  message.type = Type::kPart;
  message.bitmap = WorkerSet::first(3);
  EXPECT_EQ(wire::payload_bytes(message), 200u);
  EXPECT_EQ(wire::validate(message, 200, 256), std::nullopt);
}

TEST(Validate, BareMessages) {
  Message message = grad(DType::kFloat32, Op::kSum, 4);
  message.flags = wire::kFlagBare;
  message.collective = Collective::kBroadcast;
  EXPECT_EQ(verdict(message, 0), "valid");
  EXPECT_EQ(verdict(message, 16), "bad_length") << "with a payload";
  message.elements = 60000;
  EXPECT_EQ(verdict(message, 0), "valid") << "a run of marks";
  message.elements = 0;
  EXPECT_EQ(verdict(message, 0), "bad_length") << "marks nothing";
  message.elements = 1;
  for (const Type type : {Type::kPart, Type::kDefer, Type::kResult}) {
    message.type = type;
    EXPECT_EQ(verdict(message, 0), "valid");
  }
  message.type = Type::kHave;
  EXPECT_EQ(verdict(message, 0), "bad_length") << "who has it has bytes";
  message.collective = Collective::kReduce;
  message.type = Type::kResult;
  EXPECT_EQ(verdict(message, 0), "valid") << "of a sum for somebody else";
  message.type = Type::kGrad;
  EXPECT_EQ(verdict(message, 0), "bad_length") << "all contribute to a sum";
}

TEST(Validate, AClosingFragmentIsEmpty) {
  Message message = grad(DType::kFloat32, Op::kSum, 4);
  message.elements = 0;
  for (int raw = 1; raw <= 10; ++raw) {
    message.collective = Collective{static_cast<uint8_t>(raw)};
    EXPECT_EQ(verdict(message, 0), has_closing(message.collective) ? "valid" : "bad_length") << raw;
  }
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
              raw >= 1 && raw <= 9 ? "valid" : "bad_dtype");
    message = right;
    message.op = Op{byte};
    EXPECT_EQ(verdict(message, 16), raw >= 1 && raw <= 5 ? "valid" : "bad_op") << "of float32";
    message.dtype = DType::kInt32;
    EXPECT_EQ(verdict(message, 16), raw >= 1 && raw <= 8 && raw != 4 ? "valid" : "bad_op")
        << "of int32";
    message = right;
    message.collective = Collective{byte};
    EXPECT_EQ(verdict(message, 16), raw >= 1 && raw <= 10 ? "valid" : "bad_op");
    message = right;
    if (raw < 8) {
      message.origin = Origin{byte};
      EXPECT_EQ(verdict(message, 16), raw <= 3 ? "valid" : "bad_type");
      message = right;
      message.phase = Phase{byte};
      EXPECT_EQ(verdict(message, 16), raw <= 4 ? "valid" : "bad_type");
      message = right;
    }
    if (raw >= 128) continue;
    message.rank = Rank{byte};
    EXPECT_EQ(verdict(message, 16), raw <= 64 ? "valid" : "bad_rank");
  }
  Message message = right;
  for (const uint16_t receiver : {0, 1, 64, 65, 300, 4096, 4097, 8191}) {
    message.receiver = receiver;
    EXPECT_EQ(verdict(message, 16), receiver <= kMaxRanks ? "valid" : "bad_rank") << receiver;
  }
}

TEST(Validate, PartialSumsNeedContributors) {
  for (const Type type : {Type::kPart, Type::kPark}) {
    Message message = grad(DType::kFloat32, Op::kSum, 4);
    message.type = type;
    EXPECT_EQ(verdict(message, 16), "valid");
    message.bitmap = {};
    EXPECT_EQ(verdict(message, 16), "bad_rank");
  }
}

// With any message before: the memory of it decides nothing that the message itself does not.
TEST(HeaderCheck, SaysWhatValidateSays) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  const auto one_of = [&](std::initializer_list<uint32_t> values) {
    return static_cast<uint8_t>(values.begin()[below(static_cast<uint32_t>(values.size()))]);
  };
  const std::function<void(Message&)> changes[] = {
      [&](Message& m) {
        m.type = Type{one_of({0, 1, 2, 3, 4, 11, 14})};
      },
      [&](Message& m) {
        m.dtype = DType{one_of({0, 1, 2, 3, 4, 9, 10})};
      },
      [&](Message& m) {
        m.op = Op{one_of({0, 1, 2, 6, 8, 9})};
      },
      [&](Message& m) {
        m.collective = Collective{one_of({0, 1, 2, 6, 10, 11})};
      },
      [&](Message& m) {
        m.origin = Origin{one_of({0, 3, 4, 7})};
      },
      [&](Message& m) {
        m.phase = Phase{one_of({0, 2, 3, 7})};
      },
      [&](Message& m) {
        m.rank = Rank{one_of({0, 1, 64, 65})};
      },
      [&](Message& m) {
        m.receiver = static_cast<uint16_t>(one_of({0, 1, 64, 65}) << below(8));
      },
      [&](Message& m) { m.flags ^= static_cast<uint16_t>(1u << below(9)); },
      [&](Message& m) {
        m.elements = one_of({0, 1, 4, 8});
      },
      [&](Message& m) {
        m.operation_elements = one_of({0, 3, 4, 100});
      },
      [&](Message& m) { m.bitmap = WorkerSet::from_bits(below(3)); },
      [&](Message& m) { m.seq = random(); },
  };
  uint32_t valid = 0;
  uint32_t repeated = 0;
  HeaderCheck check;
  for (uint32_t i = 0; i < 300'000; ++i) {
    Message message = grad(DType::kFloat32, Op::kSum, 4);
    uint32_t bytes = 16;
    for (uint32_t change = below(4); change != 0; --change) {
      changes[below(std::size(changes))](message);
      if (below(2) == 0) bytes = wire::payload_bytes(message);
    }
    if (below(20) == 0) bytes = 4 * below(6);
    const auto expected = validate(message, bytes, 20);
    if (check.repeats(message, bytes)) {
      ASSERT_EQ(expected, std::nullopt) << i;
      ++repeated;
    }
    ASSERT_EQ(check.validate(message, bytes, 20), expected) << i;
    valid += !expected;
  }
  EXPECT_GT(valid, 50'000u);
  EXPECT_LT(valid, 250'000u);
  EXPECT_GT(repeated, 50'000u);
}

TEST(HeaderCheck, KnowsNothingInTheBeginning) {
  HeaderCheck check;
  EXPECT_FALSE(check.repeats(Message{}, 0));
  EXPECT_EQ(check.validate(Message{}, 0, kSlotBytes), DropReason::kBadType);
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
  std::set<std::string_view> dtypes, ops;
  for (const DType dtype : kAllDTypes) dtypes.insert(name(dtype));
  for (const Op op : kAllOps) ops.insert(name(op));
  EXPECT_EQ(dtypes.size(), std::size(kAllDTypes));
  EXPECT_EQ(ops.size(), std::size(kAllOps));
  EXPECT_FALSE(dtypes.contains("?") || ops.contains("?"));
}

}  // namespace
}  // namespace ina::wire
