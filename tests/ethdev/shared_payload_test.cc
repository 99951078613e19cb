// One buffer stands for a payload as long as that lies in the same place.
#include "io/ethdev/shared_payload.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/ethdev/buffers.h"
#include "tests/ethdev/eal_fixture.h"

namespace ina::io {
namespace {

TEST(SharedPayload, FramesOfOneResultShareABuffer) {
  const Buffers buffers;
  std::vector<std::byte> row(1024);
  SharedPayload shared(buffers.pool());
  rte_mbuf* const first = shared.share(row);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(rte_pktmbuf_mtod(first, std::byte*), row.data()) << "it is not copied";
  EXPECT_EQ(first->data_len, row.size());
  EXPECT_EQ(shared.share(row), first);
  EXPECT_EQ(buffers.in_use(), 1u);
  rte_mbuf* const part = shared.share(std::span(row).first(512));
  EXPECT_NE(part, first);
  EXPECT_EQ(part->data_len, 512);
  EXPECT_EQ(buffers.in_use(), 2u);
  rte_pktmbuf_free(first);
  rte_pktmbuf_free(first);
  EXPECT_EQ(buffers.in_use(), 1u) << "nobody has a reference to the first any more";
  rte_pktmbuf_free(part);
}

TEST(SharedPayload, WhatIsDroppedStaysWithTheFramesThatHaveIt) {
  const Buffers buffers;
  std::vector<std::byte> row(1024);
  SharedPayload shared(buffers.pool());
  rte_mbuf* const sent = shared.share(row);
  shared.drop();
  EXPECT_EQ(buffers.in_use(), 1u);
  rte_mbuf* const again = shared.share(row);
  EXPECT_NE(again, sent);
  rte_pktmbuf_free(sent);
  rte_pktmbuf_free(again);
  EXPECT_EQ(buffers.in_use(), 1u);
  shared.drop();
  EXPECT_EQ(buffers.in_use(), 0u);
}

TEST(SharedPayload, WithoutABufferThereIsNone) {
  const Buffers buffers;
  std::vector<rte_mbuf*> all(Buffers::kBuffers);
  ASSERT_EQ(rte_pktmbuf_alloc_bulk(buffers.pool(), all.data(), Buffers::kBuffers), 0);
  std::vector<std::byte> row(1024);
  SharedPayload shared(buffers.pool());
  EXPECT_EQ(shared.share(row), nullptr);
  rte_pktmbuf_free_bulk(all.data(), Buffers::kBuffers);
  rte_mbuf* const later = shared.share(row);
  EXPECT_NE(later, nullptr);
  rte_pktmbuf_free(later);
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
