// The fusion of operations, in the layer above an engine: without transport or clock.
#include "operations/fused.h"

#include <gtest/gtest.h>

#include <cstring>

#include "wire/text.h"

namespace ina::client {
namespace {

struct PlainCopier {
  void copy(std::span<const CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

class FusedTest : public testing::Test {
 protected:
  static constexpr size_t kCoalesceBytes = 1024;

  static EngineConfig config() {
    EngineConfig config;
    config.workers = 2;
    config.window = 256;
    config.slot_bytes = 1024;
    return config;
  }

  static OperationSpec spec_of(std::vector<float>& data, Op op = Op::kSum) {
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    return {bytes, bytes, data.size(), DType::kFloat32, op, Collective::kAllReduce};
  }

  /// The packets that the engine sends.
  std::vector<TxPacket> send() {
    TxPacket packets[Engine::kBurst];
    const size_t count = engine_.prepare(packets, 0);
    engine_.sent(count, 0);
    return {packets, packets + count};
  }

  /// Twice what was sent, as the sum of two workers with the same values.
  void answer(const TxPacket& sent) {
    std::vector<float> payload(sent.message.elements);
    if (!payload.empty()) std::memcpy(payload.data(), sent.payload, sent.payload_bytes);
    for (float& value : payload) value *= 2;
    RxPacket packet{sent.message, reinterpret_cast<std::byte*>(payload.data()), sent.payload_bytes};
    packet.message.type = wire::Type::kResult;
    PlainCopier copier;
    engine_.on_packets({&packet, 1}, 0, copier);
  }
  void answer_all() {
    for (const TxPacket& packet : send()) answer(packet);
  }

  Engine engine_{config()};
  EngineChannel channel_{engine_};
  Channel* channels_[1] = {&channel_};
  Executor executor_{channels_, 0};
  Fused fused_{executor_, kCoalesceBytes};
};

using Floats = std::vector<float>;

TEST_F(FusedTest, GathersAndScattersEachTensor) {
  Floats a{1, 2, 3}, b{}, c{4};
  const Floats sent_d{5, 6};
  Floats d(2);
  OperationSpec out_of_place = spec_of(d);
  out_of_place.send = reinterpret_cast<const std::byte*>(sent_d.data());

  fused_.start_group(0);
  Operation* const operations[] = {
      fused_.collect(spec_of(a), true, 0), fused_.collect(spec_of(b), true, 0),
      fused_.collect(spec_of(c), true, 0), fused_.collect(out_of_place, true, 0)};
  EXPECT_TRUE(send().empty()) << "before the group's end";
  fused_.end_group(0);
  const auto packets = send();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].message.elements, 6);
  for (const Operation* operation : operations) {
    ASSERT_NE(operation, nullptr);
    EXPECT_FALSE(operation->done.load());
  }
  answer(packets[0]);
  for (Operation* operation : operations) {
    EXPECT_TRUE(operation->done.load());
    EXPECT_TRUE(fused_.release(operation));
  }
  EXPECT_EQ(a, (Floats{2, 4, 6}));
  EXPECT_EQ(c, (Floats{8}));
  EXPECT_EQ(d, (Floats{10, 12}));
  EXPECT_EQ(sent_d, (Floats{5, 6}));
  EXPECT_EQ(fused_.counters().tensors, 4u);
  EXPECT_EQ(fused_.counters().operations, 1u);
}

TEST_F(FusedTest, AGroupHasABucketForEachTypeAndOperation) {
  Floats sums[3] = {{1}, {2}, {3}}, maxima[2] = {{4}, {5}};
  fused_.start_group(0);
  fused_.collect(spec_of(sums[0]), true, 0);
  fused_.collect(spec_of(maxima[0], Op::kMax), true, 0);
  fused_.collect(spec_of(sums[1]), true, 0);
  fused_.collect(spec_of(maxima[1], Op::kMax), true, 0);
  fused_.collect(spec_of(sums[2]), true, 0);
  fused_.end_group(0);
  const auto packets = send();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].message.op, Op::kSum);
  EXPECT_EQ(packets[0].message.elements, 3);
  EXPECT_EQ(packets[1].message.op, Op::kMax);
  EXPECT_EQ(packets[1].message.elements, 2);
  EXPECT_EQ(engine_.running(), 2u);
}

TEST_F(FusedTest, LargeTensorsAreTheCallersAndDoNotEndAGroup) {
  Floats large(Fused::kLargeBytes / sizeof(float)), almost(large.size() - 1), small(1);
  fused_.start_group(0);
  EXPECT_NE(fused_.collect(spec_of(small), true, 0), nullptr);
  EXPECT_EQ(fused_.collect(spec_of(large), true, 0), nullptr);
  EXPECT_NE(fused_.collect(spec_of(almost), true, 0), nullptr);
  EXPECT_EQ(fused_.collect(spec_of(small), false, 0), nullptr) << "not to be fused";
  EXPECT_EQ(engine_.running(), 0u);
  fused_.end_group(0);
  EXPECT_EQ(engine_.running(), 1u);
}

TEST_F(FusedTest, AFullBucketOfAGroupGoesAtOnce) {
  Floats data(Fused::kLargeBytes / sizeof(float) / 2);
  const size_t fit = Fused::kGroupBytes / (data.size() * sizeof(float));
  fused_.start_group(0);
  for (size_t i = 0; i < fit; ++i) {
    EXPECT_EQ(engine_.running(), 0u);
    fused_.collect(spec_of(data), true, 0);
  }
  EXPECT_EQ(engine_.running(), 1u);
  EXPECT_FALSE(fused_.has_collected());
}

TEST_F(FusedTest, CoalescingStartsWhenFullOrWhenTheNextDoesNotFit) {
  Floats half(kCoalesceBytes / sizeof(float) / 2), more(half.size() + 1);
  fused_.collect(spec_of(half), true, 0);
  EXPECT_EQ(engine_.running(), 0u);
  fused_.collect(spec_of(half), true, 0);
  EXPECT_EQ(engine_.running(), 1u) << "full";
  Operation* first = fused_.collect(spec_of(half), true, 0);
  Operation* next = fused_.collect(spec_of(more), true, 0);
  EXPECT_EQ(engine_.running(), 2u) << "the next did not fit";
  EXPECT_FALSE(fused_.is_collected(*first));
  EXPECT_TRUE(fused_.is_collected(*next));
}

TEST_F(FusedTest, CoalescingStartsBeforeWhatCannotJoin) {
  Floats data(4), large(kCoalesceBytes / sizeof(float) + 1);
  const auto collected_before = [&](const OperationSpec& next, bool fusable) {
    EXPECT_NE(fused_.collect(spec_of(data), true, 0), nullptr);
    const size_t running = engine_.running();
    fused_.collect(next, fusable, 0);
    const bool started = engine_.running() == running + 1;
    fused_.submit_collected(0);
    return started;
  };
  EXPECT_FALSE(collected_before(spec_of(data), true));
  EXPECT_TRUE(collected_before(spec_of(data, Op::kMin), true)) << "another operation";
  EXPECT_TRUE(collected_before(spec_of(large), true)) << "larger than a bucket";
  EXPECT_TRUE(collected_before(spec_of(data), false)) << "not to be fused, e.g. a blocking one";
  OperationSpec integers = spec_of(data);
  integers.dtype = DType::kInt32;
  EXPECT_TRUE(collected_before(integers, true)) << "another data type";
  EXPECT_NE(fused_.collect(spec_of(data), true, 0), nullptr);
  const size_t running = engine_.running();
  fused_.start_group(0);
  EXPECT_EQ(engine_.running(), running + 1) << "a group";
}

TEST_F(FusedTest, NothingIsCollectedWithoutAGroupWhenCoalescingIsOff) {
  Fused off(executor_, 0);
  Floats data(4);
  EXPECT_EQ(off.collect(spec_of(data), true, 0), nullptr);
  off.start_group(0);
  EXPECT_NE(off.collect(spec_of(data), true, 0), nullptr);
  off.end_group(0);
  EXPECT_EQ(off.collect(spec_of(data), true, 0), nullptr);
}

TEST_F(FusedTest, ATensorAloneIsSentFromItsOwnBufferWithAPlainSignature) {
  Floats data(10);
  fused_.collect(spec_of(data), true, 0);
  fused_.submit_collected(0);
  const auto packets = send();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].payload, reinterpret_cast<std::byte*>(data.data()));
  EXPECT_EQ(packets[0].message.operation_elements, 10u);
}

/// Signature of the fused operation of tensors with these sizes, by a worker of its own.
wire::Signature signature_of(std::initializer_list<size_t> sizes) {
  EngineConfig config;
  config.workers = 2;
  config.window = 4;
  config.slot_bytes = 1024;
  Engine engine(config);
  EngineChannel channel(engine);
  Channel* const channels[] = {&channel};
  Executor executor(channels, 0);
  Fused fused(executor, 1024);
  std::vector<Floats> data;
  for (const size_t size : sizes) data.emplace_back(size);
  for (Floats& floats : data) {
    auto* bytes = reinterpret_cast<std::byte*>(floats.data());
    fused.collect({bytes, bytes, floats.size(), DType::kFloat32, Op::kSum}, true, 0);
  }
  fused.submit_collected(0);
  TxPacket packet;
  EXPECT_EQ(engine.prepare({&packet, 1}, 0), 1u);
  EXPECT_FALSE(wire::validate(packet.message, packet.payload_bytes, 1024).has_value());
  return packet.message.signature();
}

TEST(FusedSignature, TellsApartTensorsWithTheSameSumOfSizes) {
  EXPECT_EQ(signature_of({3, 7}), signature_of({3, 7}));
  EXPECT_NE(signature_of({3, 7}), signature_of({7, 3}));
  EXPECT_NE(signature_of({3, 7}), signature_of({10}));
  EXPECT_NE(signature_of({3, 7}), signature_of({3, 7, 0}));
  EXPECT_NE(signature_of({3, 7}), signature_of({4, 6}));
}

TEST(FusedSignature, IsPutInWords) {
  const std::string text = wire::text_of(signature_of({3, 7}));
  EXPECT_EQ(text.substr(0, text.find("(sizes")),
            "operation 0: allreduce of 10 float32 sum, fused from 2 tensors ");
  EXPECT_EQ(wire::text_of(signature_of({10})), "operation 0: allreduce of 10 float32 sum");
}

TEST(FusedSignature, OfNothingIsStillValid) {
  EXPECT_EQ(signature_of({0, 0}).elements, 0u);
}

TEST_F(FusedTest, AfterTheJobEndedNoBufferIsTouched) {
  Floats running{1, 1}, open{7};
  Operation* submitted = fused_.collect(spec_of(running), true, 0);
  Operation* beside = fused_.collect(spec_of(running), true, 0);
  fused_.submit_collected(0);
  const auto packets = send();
  Operation* collected = fused_.collect(spec_of(open), true, 0);
  // The caller is told of the end and has its buffers again, although nothing has completed.
  EXPECT_TRUE(fused_.release(submitted));
  EXPECT_TRUE(fused_.release(collected));
  answer(packets[0]);
  EXPECT_EQ(running, (Floats{1, 1}));
  const size_t left = engine_.running();
  fused_.submit_collected(0);
  EXPECT_EQ(engine_.running(), left);
  EXPECT_TRUE(fused_.release(beside));
}

TEST_F(FusedTest, LeavesTheEnginesOwnOperationsAlone) {
  Floats data(3);
  Operation* own = engine_.submit(spec_of(data), 0);
  EXPECT_FALSE(fused_.is_collected(*own));
  answer_all();
  EXPECT_FALSE(fused_.release(own));
}

TEST_F(FusedTest, UsesItsMemoryAgain) {
  // Tensors of several buckets that wait to be released in any order.
  std::vector<Floats> data(40, Floats(50, 1));
  for (int round = 1; round <= 6; ++round) {
    std::vector<Operation*> operations;
    for (Floats& floats : data) operations.push_back(fused_.collect(spec_of(floats), true, 0));
    fused_.submit_collected(0);
    answer_all();
    for (size_t i = operations.size(); i-- > 0;) {
      ASSERT_TRUE(operations[i]->done.load());
      fused_.release(operations[i]);
    }
    for (const Floats& floats : data) ASSERT_EQ(floats, Floats(50, static_cast<float>(1 << round)));
  }
}

}  // namespace
}  // namespace ina::client
