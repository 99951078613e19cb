#include "plans/redistribution/rearrangement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace ina::redistribution {
namespace {

/// Bits for elements that were seen, where there is no other room.
constexpr size_t kLeastRoomBytes = 1024;
/// The bytes of a unit that are moved at once on its way round.
constexpr size_t kStepBytes = 4096;
/// The most bytes of a block that is ordered by itself: it stays in a core's cache.
constexpr size_t kMostBlockBytes = 256 << 10;

uint64_t largest_divisor(uint64_t number, uint64_t most) {
  uint64_t divisor = std::min(number, most);
  while (divisor > 1 && number % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

void Rearrangement::Boxes::add(const Shape& first, const Shape& extent) {
  for (size_t d = 0; d < tile_.size(); ++d)
    for (const uint64_t cut : {first[d], first[d] + extent[d]})
      if (cut < tile_[d]) cuts_[d].push_back(cut);
}

Rearrangement::Rearrangement(Boxes boxes, size_t element_bytes)
    : dimensions_(boxes.tile_.size()),
      elements_(elements_of(boxes.tile_)),
      element_bytes_(element_bytes),
      unit_(elements_) {
  const Shape& tile = boxes.tile_;
  for (size_t d = tile.size() - 1; d-- > 0;)
    dimensions_[d].stride = dimensions_[d + 1].stride * tile[d + 1];
  bool breaks_rows = false;  // a cut behind a dimension with intervals of several elements does
  for (size_t d = 0; d < tile.size(); ++d) {
    std::vector<uint64_t>& cuts = boxes.cuts_[d];
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    identity_ = identity_ && (cuts.size() == 1 || !breaks_rows);
    cuts.push_back(tile[d]);
    Dimension& dimension = dimensions_[d];
    dimension.grain = tile[d];
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      dimension.grain = std::gcd(dimension.grain, cuts[i + 1] - cuts[i]);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const uint64_t size = cuts[i + 1] - cuts[i];
      dimension.intervals.insert(dimension.intervals.end(), size / dimension.grain,
                                 {cuts[i], size});
      breaks_rows = breaks_rows || size > 1;
    }
    if (dimension.grain != tile[d]) unit_ = dimension.grain * dimension.stride;
  }
  stripes_ = find_stripes();
}

Rearrangement::Rearrangement(const Stripes& stripes, size_t element_bytes)
    : Rearrangement(
          [&] {
            Boxes boxes({stripes.rows, stripes.cells, stripes.width});
            for (uint64_t cell = 0; cell < stripes.cells; ++cell)
              boxes.add({0, cell, 0}, {stripes.rows, 1, stripes.width});
            return boxes;
          }(),
          element_bytes) {}

Rearrangement::Stripes Rearrangement::find_stripes() const {
  Stripes found;
  uint64_t before = 1;
  for (const Dimension& dimension : dimensions_) {
    const uint64_t grains = dimension.intervals.size();
    if (grains > 1) {
      // Each interval is one grain, and no other dimension is cut.
      const bool are_grains = std::ranges::all_of(
          dimension.intervals, [&](const Interval& one) { return one.size == dimension.grain; });
      if (found.cells != 0 || !are_grains) return {};
      found = {before, grains, dimension.grain * dimension.stride};
    }
    before *= grains * dimension.grain;
  }
  return found;
}

/// The pieces of a tile are the cells of one that is cut at every place of its middle dimension.
Rearrangement Rearrangement::into_pieces(const Shape& tile, const Pieces& pieces,
                                         size_t element_bytes) {
  const size_t d = pieces.dimension;
  const uint64_t width = pieces.grain / pieces.count;
  uint64_t behind = width;
  for (size_t after = d + 1; after < tile.size(); ++after) behind *= tile[after];
  const Shape shape{elements_of(tile) / behind / pieces.count, pieces.count, behind};
  Boxes boxes(shape);
  for (uint64_t piece = 0; piece < pieces.count; ++piece)
    boxes.add({0, piece, 0}, {shape[0], 1, behind});
  return {std::move(boxes), element_bytes};
}

uint64_t Rearrangement::offset_of(const Shape& first) const {
  uint64_t element = 0;
  for (size_t d = 0; d < first.size(); ++d) element += first[d] * dimensions_[d].stride;
  return place_of(element).element * element_bytes_;
}

Rearrangement::Place Rearrangement::place_of(uint64_t element) const {
  uint64_t cells = 0, within = 0, rows = 1, neighbours = 1;
  for (const Dimension& dimension : dimensions_) {
    const uint64_t at = element / dimension.stride;
    element -= at * dimension.stride;
    const Interval& interval = dimension.intervals[at / dimension.grain];
    cells += interval.first * rows * dimension.stride;
    within = within * interval.size + (at - interval.first);
    rows *= interval.size;
    neighbours = interval.size - (at - interval.first);
  }
  return {cells + within, neighbours};
}

template <class Copy>
void Rearrangement::for_each_run(Copy copy) const {
  if (stripes_.cells != 0) {
    const uint64_t bytes = stripes_.width * element_bytes_;
    for (uint64_t row = 0; row < stripes_.rows; ++row)
      for (uint64_t cell = 0; cell < stripes_.cells; ++cell)
        copy((row * stripes_.cells + cell) * bytes, (cell * stripes_.rows + row) * bytes, bytes);
    return;
  }
  for (uint64_t element = 0; element < elements_;) {
    const Place place = place_of(element);
    // A unit ends where a run does, and may be several rows.
    const uint64_t run =
        element % unit_ == 0 ? std::max(unit_, place.neighbours) : place.neighbours;
    copy(element * element_bytes_, place.element * element_bytes_, run * element_bytes_);
    element += run;
  }
}

void Rearrangement::pack(const std::byte* from, std::byte* to) const {
  for_each_run([&](uint64_t row_major, uint64_t in_cells, uint64_t bytes) {
    std::memcpy(to + in_cells, from + row_major, bytes);
  });
}

void Rearrangement::unpack(const std::byte* from, std::byte* to) const {
  for_each_run([&](uint64_t row_major, uint64_t in_cells, uint64_t bytes) {
    std::memcpy(to + row_major, from + in_cells, bytes);
  });
}

void Rearrangement::pack(std::byte* data, std::span<std::byte> room) const {
  in_place(data, room, false);
}

void Rearrangement::unpack(std::byte* data, std::span<std::byte> room) const {
  in_place(data, room, true);
}

/// Moves the units of one cycle to where they belong, a few bytes of each at a time.
void Rearrangement::turn(std::byte* data, uint64_t start, bool inverse) const {
  const uint64_t bytes = unit_ * element_bytes_;
  for (uint64_t done = 0; done < bytes; done += kStepBytes) {
    const size_t step = std::min<uint64_t>(kStepBytes, bytes - done);
    const auto at = [&](uint64_t unit) { return data + unit * bytes + done; };
    std::array<std::byte, kStepBytes> held;
    std::memcpy(held.data(), at(start), step);
    uint64_t unit = start;
    for (;;) {
      const uint64_t next = place_of(unit * unit_).element / unit_;
      if (next == start) break;
      if (inverse)
        std::memcpy(at(unit), at(next), step);
      else
        std::swap_ranges(held.data(), held.data() + step, at(next));
      unit = next;
    }
    std::memcpy(inverse ? at(unit) : at(start), held.data(), step);
  }
}

void Rearrangement::in_place(std::byte* data, std::span<std::byte> room, bool inverse) const {
  if (!identity_ && !in_blocks(data, room, inverse)) in_cycles(data, room, inverse);
}

/// Blocks of several rows are ordered one by one, through the room. The remaining work is the same
/// with wider stripes, so that cycles are few and their steps long.
bool Rearrangement::in_blocks(std::byte* data, std::span<std::byte> room, bool inverse) const {
  if (stripes_.cells == 0) return false;
  const uint64_t row_bytes = stripes_.cells * stripes_.width * element_bytes_;
  const uint64_t block_rows =
      largest_divisor(stripes_.rows, std::min(room.size(), kMostBlockBytes) / row_bytes);
  if (block_rows < 2) return false;
  const uint64_t blocks = stripes_.rows / block_rows, block_bytes = block_rows * row_bytes;
  const Rearrangement within(Stripes{block_rows, stripes_.cells, stripes_.width}, element_bytes_);
  const Rearrangement among(Stripes{blocks, stripes_.cells, block_rows * stripes_.width},
                            element_bytes_);
  if (inverse) among.in_cycles(data, room, true);
  for (std::byte* block = data; block != data + blocks * block_bytes; block += block_bytes) {
    std::memcpy(room.data(), block, block_bytes);
    inverse ? within.unpack(room.data(), block) : within.pack(room.data(), block);
  }
  if (!inverse) among.in_cycles(data, room, false);
  return true;
}

/// Along the cycles of the permutation. Bits tell which units were met, of a window of them: a
/// cycle that was met in an earlier window has a unit before this one.
void Rearrangement::in_cycles(std::byte* data, std::span<std::byte> room, bool inverse) const {
  if (identity_) return;
  std::array<std::byte, kLeastRoomBytes> least;
  if (room.size() < least.size()) room = least;
  const uint64_t units = elements_ / unit_;
  const uint64_t window = std::min<uint64_t>(units, room.size() * 8);
  for (uint64_t begin = 0; begin < units; begin += window) {
    const uint64_t end = std::min(units, begin + window);
    std::fill_n(room.begin(), (window + 7) / 8, std::byte{0});
    for (uint64_t start = begin; start < end; ++start) {
      const auto bit = [&](uint64_t unit) {
        return std::byte{1} << static_cast<int>((unit - begin) % 8);
      };
      if ((room[(start - begin) / 8] & bit(start)) != std::byte{0}) continue;
      bool is_new = true;
      for (uint64_t unit = start;;) {
        unit = place_of(unit * unit_).element / unit_;
        if (unit == start) break;
        is_new = is_new && unit >= begin;
        if (unit >= begin && unit < end) room[(unit - begin) / 8] |= bit(unit);
      }
      if (is_new) turn(data, start, inverse);
    }
  }
}

}  // namespace ina::redistribution
