// Collectives in registered memory and result buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ina/ina.hpp"
#include "tests/client/collective_values.h"
#include "tests/support/client_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::on_ranks;
using test::TestSwitch;
using test::value_of;
using test::values;
using testing::HasSubstr;

TEST(CollectivesMemory, WhatAllReceiveGoesToResultBuffers) {
  constexpr size_t kBlock = 1600;  // not of whole fragments
  TestSwitch sw;
  on_ranks(sw, 3, [](Context& context, int rank) {
    const auto results = context.alloc_result<int32_t>(3 * kBlock);
    const std::span recv(const_cast<int32_t*>(results.data()), results.size());
    for (int round = 0; round < 3; ++round) {
      context.all_gather<int32_t>(values<int32_t>(rank, round, kBlock), recv);
      for (int r = 0; r < 3; ++r)
        for (size_t i = 0; i < kBlock; ++i)
          ASSERT_EQ(results[static_cast<size_t>(r) * kBlock + i], value_of<int32_t>(r, round, i));
      context.barrier();
      const auto send = values<int32_t>(2, 7 + round, 1000);
      ASSERT_EQ(
          ina_broadcast(context.get(), send.data(), recv.data() + 64, send.size(), INA_INT32, 1, 0),
          INA_OK);
      for (size_t i = 0; i < send.size(); ++i) ASSERT_EQ(results[64 + i], send[i]);
      context.barrier();
    }
    // Those of which each rank receives something else need memory of their own.
    const std::vector<int32_t> send(3000);
    const auto expect = [&](int status, int wanted, const char* text) {
      EXPECT_EQ(status, wanted);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr(text));
    };
    expect(ina_all_to_all(context.get(), send.data(), recv.data(), 100, INA_INT32, 0),
           INA_ERR_UNSUPPORTED,
           "ina_all_to_all: recv lies in a result buffer, to which the switch");
    expect(ina_all_gather(context.get(), send.data(), recv.data(), 100, INA_INT32, 0),
           INA_ERR_INVALID, "a block is received at byte 400 of a result buffer");
    expect(ina_broadcast(context.get(), send.data(), recv.data() + 1, 10, INA_INT32, 0, 0),
           INA_ERR_INVALID, "a block is received at byte 4 of a result buffer");
    expect(ina_broadcast(context.get(), send.data(), recv.data() + 64 * 70, 2000, INA_INT32, 0, 0),
           INA_ERR_INVALID, "recv reaches beyond its result buffer of 19200 bytes");
  });
}

TEST(CollectivesMemory, RegisteredMemoryIsReadWhereItLies) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Context& context, int rank) {
    auto send = context.alloc<int32_t>(50'000);
    std::ranges::fill(send, rank + 1);
    std::vector<int32_t> recv(100'000), sums(25'000);
    context.all_gather<int32_t>(std::span<const int32_t>(send.data(), send.size()), recv);
    EXPECT_EQ(recv.front(), 1);
    EXPECT_EQ(recv.back(), 2);
    context.reduce_scatter<int32_t>(std::span<const int32_t>(send.data(), send.size()), sums);
    EXPECT_EQ(sums.back(), 3);
    Request request =
        context.all_gather_async<int32_t>(std::span<const int32_t>(send.data(), send.size()), recv);
    request.wait();
  });
}

}  // namespace
}  // namespace ina
