// The order of a tile's cells against a naive model, out of place, and in place with any room.
#include "plans/redistribution/rearrangement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ina::redistribution {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // or the test would take long

struct Grid {
  Shape tile;
  std::vector<std::vector<uint64_t>> ends;  ///< of intervals, by dimension
};

/// Calls `visit(first, extent)` with each cell in row-major order.
template <class Visit>
void each_cell(const Grid& grid, Visit visit) {
  std::vector<size_t> at(grid.tile.size());
  for (;;) {
    Shape first, extent;
    for (size_t d = 0; d < at.size(); ++d) {
      first.push_back(at[d] == 0 ? 0 : grid.ends[d][at[d] - 1]);
      extent.push_back(grid.ends[d][at[d]] - first[d]);
    }
    visit(first, extent);
    size_t d = at.size();
    do {
      if (d == 0) return;
      --d;
      at[d] = at[d] + 1 == grid.ends[d].size() ? 0 : at[d] + 1;
    } while (at[d] == 0);
  }
}

Grid draw(std::mt19937& random) {
  Grid grid;
  for (uint32_t d = 1 + random() % 4; d-- > 0;) {
    const uint64_t step = 1 + random() % 5;
    std::vector<uint64_t> ends;
    for (uint32_t i = 1 + random() % 4; i-- > 0;)
      ends.push_back((ends.empty() ? 0 : ends.back()) + step * (1 + random() % 3));
    grid.tile.push_back(ends.back());
    grid.ends.push_back(ends);
  }
  return grid;
}

TEST(Rearrangement, PutsCellsOneAfterTheOther) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const Grid grid = draw(random);
    size_t width = std::array<size_t, 4>{1, 4, 12, 700}[random() % 4];
    if (elements_of(grid.tile) * width > kMostBytes) width = 1;
    Rearrangement::Boxes boxes(grid.tile);
    each_cell(grid, [&](const Shape& first, const Shape& extent) { boxes.add(first, extent); });
    const Rearrangement order(std::move(boxes), width);
    std::vector<std::byte> tile(elements_of(grid.tile) * width);
    for (size_t i = 0; i < tile.size(); ++i)
      tile[i] = static_cast<std::byte>((i + 1) * 0x9e3779b97f4a7c15 >> 56);
    std::vector<std::byte> packed(tile.size()), got(tile.size());
    uint64_t offset = 0;
    each_cell(grid, [&](const Shape& first, const Shape& extent) {
      EXPECT_EQ(order.offset_of(first), offset);
      const Shape origin(extent.size());
      copy_box(tile.data(), {grid.tile, first}, packed.data() + offset, {extent, origin}, extent,
               width);
      offset += elements_of(extent) * width;
    });
    EXPECT_TRUE(!order.is_identity() || packed == tile);
    order.pack(tile.data(), got.data());
    ASSERT_EQ(got, packed);
    order.unpack(packed.data(), got.data());
    ASSERT_EQ(got, tile);
    for (const size_t room_bytes : {size_t{0}, tile.size() / 3, tile.size()}) {
      std::vector<std::byte> room(room_bytes);
      order.pack(got.data(), room);
      ASSERT_EQ(got, packed) << "in place, " << room_bytes;
      order.unpack(got.data(), room);
      ASSERT_EQ(got, tile) << "in place, " << room_bytes;
    }
  }
}

/// Equal cells along one dimension: ordered in blocks of rows, of each number that the room allows.
TEST(Rearrangement, EqualCellsAreOrderedInBlocks) {
  for (const Shape& tile : {Shape{24, 5, 3}, Shape{4, 6, 5, 7}, Shape{1, 5, 8}, Shape{23, 5}})
    for (size_t room_bytes = 0; room_bytes < 2 * elements_of(tile); room_bytes += 30) {
      const size_t cut = tile.size() - (tile.size() > 2 ? 2 : 1);
      Rearrangement::Boxes boxes(tile);
      for (uint64_t i = 0; i < tile[cut]; ++i) {
        Shape first(tile.size()), extent = tile;
        first[cut] = i;
        extent[cut] = 1;
        boxes.add(first, extent);
      }
      const Rearrangement order(std::move(boxes), 2);
      std::vector<uint16_t> values(elements_of(tile)), packed(values.size());
      std::iota(values.begin(), values.end(), uint16_t{0});
      std::vector<uint16_t> got = values;
      order.pack(reinterpret_cast<const std::byte*>(values.data()),
                 reinterpret_cast<std::byte*>(packed.data()));
      const uint64_t width = cut + 1 == tile.size() ? 1 : tile.back();
      const uint64_t rows = values.size() / width / tile[cut];
      for (uint64_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(packed[i], (i / width % rows * tile[cut] + i / width / rows) * width + i % width);
      std::vector<std::byte> room(room_bytes);
      order.pack(reinterpret_cast<std::byte*>(got.data()), room);
      ASSERT_EQ(got, packed) << room_bytes;
      order.unpack(reinterpret_cast<std::byte*>(got.data()), room);
      ASSERT_EQ(got, values) << room_bytes;
    }
}

/// More elements than there are bits: several windows.
TEST(Rearrangement, NeedsNoRoom) {
  const Shape tile{60, 500, 3};
  Pieces pieces{1, 4, 20};
  const auto order = Rearrangement::into_pieces(tile, pieces, 2);
  std::vector<uint16_t> values(elements_of(tile)), packed(values.size());
  std::iota(values.begin(), values.end(), uint16_t{0});
  size_t at = 0;
  for (uint64_t piece = 0; piece < 4; ++piece)
    for (uint64_t row = 0; row < 60; ++row)
      for (uint64_t i = 0; i < 500; ++i)
        for (uint64_t k = 0; k < 3; ++k)
          if (i % 20 / 5 == piece) packed[at++] = values[(row * 500 + i) * 3 + k];
  std::vector<uint16_t> got = values;
  auto* const bytes = reinterpret_cast<std::byte*>(got.data());
  order.pack(bytes, std::span<std::byte>{});
  EXPECT_EQ(got, packed);
  order.unpack(bytes, std::span<std::byte>{});
  EXPECT_EQ(got, values);
  // Every element by itself: a transposition, of more units than a window has.
  Rearrangement::Boxes boxes({300, 100});
  for (uint64_t i = 0; i < 100; ++i) boxes.add({0, i}, {300, 1});
  const Rearrangement columns(std::move(boxes), 2);
  got.resize(30'000);
  values.resize(30'000);
  columns.pack(reinterpret_cast<std::byte*>(got.data()), std::span<std::byte>{});
  for (size_t row = 0; row < 300; ++row)
    for (size_t i = 0; i < 100; ++i) ASSERT_EQ(got[i * 300 + row], values[row * 100 + i]);
  columns.unpack(reinterpret_cast<std::byte*>(got.data()), std::span<std::byte>{});
  EXPECT_EQ(got, values);
}

}  // namespace
}  // namespace ina::redistribution
