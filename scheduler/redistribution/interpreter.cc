#include "scheduler/redistribution/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scheduler/redistribution/routes.h"

namespace ina::redistribution {
namespace {

/// Counts what the buffers of one rank hold.
class Meter {
 public:
  void take(uint64_t elements) {
    held_ += elements;
    peak_ = std::max(peak_, held_);
    largest_ = std::max(largest_, elements);
  }
  void give_back(uint64_t elements) { held_ -= elements; }
  uint64_t peak() const { return peak_; }
  uint64_t largest() const { return largest_; }

 private:
  uint64_t held_ = 0;
  uint64_t peak_ = 0;
  uint64_t largest_ = 0;
};

/// A tile that is counted as long as it is there.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Meter& meter, Tile tile) : meter_(&meter), tile_(std::move(tile)) {
    meter_->take(tile_.size());
  }
  Buffer(Buffer&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), tile_(std::move(other.tile_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    free();
    meter_ = std::exchange(other.meter_, nullptr);
    tile_ = std::move(other.tile_);
    return *this;
  }
  ~Buffer() { free(); }

  Tile& tile() { return tile_; }
  const Tile& tile() const { return tile_; }

 private:
  void free() {
    if (meter_ != nullptr) meter_->give_back(tile_.size());
    meter_ = nullptr;
    Tile().swap(tile_);
  }

  Meter* meter_ = nullptr;
  Tile tile_;
};

/// A box within a tile.
struct Box {
  const Shape& tile;  ///< the shape of the whole tile
  Shape first;
};

/// Copies a box of `extent`, row by row.
void copy_box(const Tile& source, const Box& from, Tile& target, const Box& to,
              const Shape& extent) {
  const size_t last = extent.size() - 1;
  if (elements_of(extent) == 0) return;
  Shape at(extent.size(), 0);
  for (;;) {
    uint64_t read = 0, write = 0;
    for (size_t d = 0; d <= last; ++d) {
      read = read * from.tile[d] + from.first[d] + at[d];
      write = write * to.tile[d] + to.first[d] + at[d];
    }
    std::copy_n(source.begin() + static_cast<ptrdiff_t>(read), extent[last],
                target.begin() + static_cast<ptrdiff_t>(write));
    size_t d = last;
    do {
      if (d == 0) return;
      --d;
      at[d] = at[d] + 1 == extent[d] ? 0 : at[d] + 1;
    } while (at[d] == 0);
  }
}

/// The number that a rank has among those that differ in `axes` alone.
uint64_t index_in_group(const Mesh& mesh, const std::vector<PrimeId>& axes, uint32_t rank) {
  uint64_t index = 0;
  for (const PrimeId axis : axes) index = index * mesh.size(axis) + mesh.coordinate(rank, axis);
  return index;
}

/// The ranks that differ from `rank` in `axes` alone, itself among them.
std::vector<uint32_t> group_of(const Mesh& mesh, const std::vector<PrimeId>& axes, uint32_t rank) {
  uint32_t base = rank;
  for (const PrimeId axis : axes) base -= mesh.coordinate(rank, axis) * mesh.primes()[axis].stride;
  std::vector<uint32_t> members{base};
  for (const PrimeId axis : axes) {
    const size_t before = members.size();
    for (uint32_t i = 1; i < mesh.size(axis); ++i)
      for (size_t k = 0; k < before; ++k)
        members.push_back(members[k] + i * mesh.primes()[axis].stride);
  }
  return members;
}

/// Carries out the steps for one piece, on an array of `shape`.
class Machine {
 public:
  Machine(const Plan& plan, Shape shape, std::vector<Meter>& meters, Observation& observation)
      : mesh_(plan.problem().mesh),
        element_bytes_(plan.problem().element_bytes),
        shape_(std::move(shape)),
        meters_(meters),
        observation_(observation) {}

  std::vector<Buffer> run(const std::vector<Step>& steps, std::vector<Buffer> input) {
    for (const Step& step : steps) {
      before_ = tile_shape(mesh_, step.before, shape_);
      after_ = tile_shape(mesh_, step.after, shape_);
      std::vector<Buffer> output(mesh_.ranks());
      for (uint32_t rank = 0; rank < mesh_.ranks(); ++rank)
        output[rank] = Buffer(meters_[rank], Tile(elements_of(after_)));
      carry_out(step, input, output);
      input = std::move(output);
    }
    return input;
  }

 private:
  void carry_out(const Step& step, const std::vector<Buffer>& input, std::vector<Buffer>& output) {
    const std::vector<uint32_t> sources = step.operation == Operation::kAllPermute
                                              ? permutation(mesh_, step.before, step.after)
                                              : std::vector<uint32_t>();
    for (uint32_t rank = 0; rank < mesh_.ranks(); ++rank) switch (step.operation) {
        case Operation::kDynamicSlice:
          slice(step, rank, input, output);
          break;
        case Operation::kAllToAll:
          all_to_all(step.moves.front(), rank, input, output);
          break;
        case Operation::kAllGather:
          gather(step, rank, input, output);
          break;
        case Operation::kAllPermute:
          copy(sources[rank], Shape(shape_.size()), rank, Shape(shape_.size()), before_, input,
               output);
          break;
        case Operation::kExchange:
          exchange(step, rank, input, output);
          break;
      }
  }

  void slice(const Step& step, uint32_t rank, const std::vector<Buffer>& input,
             std::vector<Buffer>& output) {
    Shape first(shape_.size());
    for (const Move& move : step.moves)
      first[move.to] = index_in_group(mesh_, move.pushed, rank) * after_[move.to];
    copy(rank, first, rank, Shape(shape_.size()), after_, input, output);
  }

  /// Each member of the group has a chunk for this rank, and these are put behind one another.
  void all_to_all(const Move& move, uint32_t rank, const std::vector<Buffer>& input,
                  std::vector<Buffer>& output) {
    Shape extent = before_;
    extent[move.to] = after_[move.to];
    Shape chunk(shape_.size());
    chunk[move.to] = index_in_group(mesh_, move.pushed, rank) * extent[move.to];
    for (const uint32_t member : group_of(mesh_, move.popped, rank)) {
      Shape place(shape_.size());
      place[move.from] = index_in_group(mesh_, move.popped, member) * extent[move.from];
      copy(member, chunk, rank, place, extent, input, output);
    }
  }

  void gather(const Step& step, uint32_t rank, const std::vector<Buffer>& input,
              std::vector<Buffer>& output) {
    std::vector<PrimeId> axes;
    for (const Move& move : step.moves)
      axes.insert(axes.end(), move.popped.begin(), move.popped.end());
    for (const uint32_t member : group_of(mesh_, axes, rank)) {
      Shape place(shape_.size());
      for (const Move& move : step.moves)
        place[move.from] = index_in_group(mesh_, move.popped, member) * before_[move.from];
      copy(member, Shape(shape_.size()), rank, place, before_, input, output);
    }
  }

  /// Of every source tile that touches this rank's target tile, the part that they share.
  void exchange(const Step& step, uint32_t rank, const std::vector<Buffer>& input,
                std::vector<Buffer>& output) {
    const size_t dimensions = shape_.size();
    Shape first(dimensions), low(dimensions), high(dimensions);
    for (size_t d = 0; d < dimensions; ++d) {
      first[d] = part_index(mesh_, step.after[d], rank) * after_[d];
      low[d] = first[d] / before_[d];
      high[d] = (first[d] + after_[d] - 1) / before_[d];
    }
    std::vector<uint64_t> part = low;
    for (bool more = true; more;) {
      Shape from(dimensions), to(dimensions), extent(dimensions);
      for (size_t d = 0; d < dimensions; ++d) {
        const uint64_t begin = std::max(first[d], part[d] * before_[d]);
        from[d] = begin - part[d] * before_[d];
        to[d] = begin - first[d];
        extent[d] = std::min(first[d] + after_[d], (part[d] + 1) * before_[d]) - begin;
      }
      copy(holder(mesh_, step.before, part, rank), from, rank, to, extent, input, output);
      more = false;
      for (size_t d = dimensions; d-- > 0 && !more;) {
        more = part[d] < high[d];
        part[d] = more ? part[d] + 1 : low[d];
      }
    }
  }

  void copy(uint32_t source, const Shape& from, uint32_t target, const Shape& to,
            const Shape& extent, const std::vector<Buffer>& input, std::vector<Buffer>& output) {
    copy_box(input[source].tile(), {before_, from}, output[target].tile(), {after_, to}, extent);
    if (source != target) observation_.sent_bytes[source] += elements_of(extent) * element_bytes_;
  }

  const Mesh& mesh_;
  uint64_t element_bytes_;
  Shape shape_;
  std::vector<Meter>& meters_;
  Observation& observation_;
  Shape before_;  ///< of the tiles of the step under way
  Shape after_;
};

/// Takes the elements of one piece out of a tile, or puts them into it.
class Cutter {
 public:
  Cutter(const Pieces& pieces, Shape tile) : pieces_(pieces), tile_(std::move(tile)) {
    piece_ = tile_;
    piece_[pieces.dimension] /= pieces.count;
  }

  Tile take(const Tile& whole, uint64_t piece) const {
    Tile part(elements_of(piece_));
    walk(piece, [&](const Box& in_whole, const Box& in_piece, const Shape& extent) {
      copy_box(whole, in_whole, part, in_piece, extent);
    });
    return part;
  }
  void put(const Tile& part, uint64_t piece, Tile& whole) const {
    walk(piece, [&](const Box& in_whole, const Box& in_piece, const Shape& extent) {
      copy_box(part, in_piece, whole, in_whole, extent);
    });
  }

 private:
  template <class Visit>
  void walk(uint64_t piece, Visit visit) const {
    const size_t d = pieces_.dimension;
    const uint64_t width = pieces_.grain / pieces_.count;
    Shape extent = piece_;
    extent[d] = width;
    for (uint64_t block = 0; block < tile_[d] / pieces_.grain; ++block) {
      Shape in_whole(tile_.size()), in_piece(tile_.size());
      in_whole[d] = block * pieces_.grain + piece * width;
      in_piece[d] = block * width;
      visit(Box{tile_, in_whole}, Box{piece_, in_piece}, extent);
    }
  }

  Pieces pieces_;
  Shape tile_;
  Shape piece_;
};

/// tiles[piece][rank], each counted.
using PiecesOfRanks = std::vector<std::vector<Buffer>>;

PiecesOfRanks cut(const Plan& plan, std::vector<Tile> tiles, std::vector<Meter>& meters) {
  const Problem& problem = plan.problem();
  const Cutter cutter(plan.pieces(), tile_shape(problem.mesh, problem.from, problem.shape));
  PiecesOfRanks cut(plan.pieces().count);
  for (uint32_t rank = 0; rank < problem.mesh.ranks(); ++rank) {
    for (uint64_t piece = 0; piece < cut.size(); ++piece)
      cut[piece].emplace_back(
          meters[rank], cut.size() == 1 ? std::move(tiles[rank]) : cutter.take(tiles[rank], piece));
    Tile().swap(tiles[rank]);
  }
  return cut;
}

std::vector<Tile> join(const Plan& plan, PiecesOfRanks pieces) {
  const Problem& problem = plan.problem();
  const Shape shape = tile_shape(problem.mesh, problem.to, problem.shape);
  const Cutter cutter(plan.pieces(), shape);
  std::vector<Tile> tiles(problem.mesh.ranks());
  for (uint32_t rank = 0; rank < problem.mesh.ranks(); ++rank) {
    if (pieces.size() == 1) {
      tiles[rank] = std::move(pieces[0][rank].tile());
      continue;
    }
    tiles[rank].resize(elements_of(shape));
    for (uint64_t piece = 0; piece < pieces.size(); ++piece)
      cutter.put(pieces[piece][rank].tile(), piece, tiles[rank]);
  }
  return tiles;
}

Expected<void> check_tiles(const Problem& problem, const std::vector<Tile>& tiles) {
  if (tiles.size() != problem.mesh.ranks())
    return tl::unexpected(
        fmt::format("{} tiles were given for {} ranks", tiles.size(), problem.mesh.ranks()));
  for (size_t rank = 0; rank < tiles.size(); ++rank)
    if (tiles[rank].size() != problem.source_elements())
      return tl::unexpected(fmt::format("rank {} has {} elements, its tile {}", rank,
                                        tiles[rank].size(), problem.source_elements()));
  return {};
}

/// Visits a rank's elements in row-major order with their global indices, row by row.
template <class Visit>
void each_row(const Mesh& mesh, const Layout& layout, const Shape& shape, uint32_t rank,
              Visit visit) {
  const Shape tile = tile_shape(mesh, layout, shape);
  const size_t last = shape.size() - 1;
  Shape first(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) first[d] = part_index(mesh, layout[d], rank) * tile[d];
  const uint64_t rows = elements_of(tile) / tile[last];
  for (uint64_t row = 0; row < rows; ++row) {
    uint64_t index = 0, rest = row, scale = shape[last];
    for (size_t d = last; d-- > 0; rest /= tile[d], scale *= shape[d])
      index += (first[d] + rest % tile[d]) * scale;
    visit(row * tile[last], index + first[last], tile[last]);
  }
}

}  // namespace

uint64_t Observation::most_sent_bytes() const {
  return sent_bytes.empty() ? 0 : *std::max_element(sent_bytes.begin(), sent_bytes.end());
}

Expected<std::vector<Tile>> interpret(const Plan& plan, std::vector<Tile> tiles,
                                      Observation& observation) {
  const Problem& problem = plan.problem();
  if (auto checked = check_tiles(problem, tiles); !checked) return tl::unexpected(checked.error());
  observation.sent_bytes.assign(problem.mesh.ranks(), 0);
  std::vector<Meter> meters(problem.mesh.ranks());
  Shape shape = problem.shape;
  shape[plan.pieces().dimension] /= plan.pieces().count;
  PiecesOfRanks pieces = cut(plan, std::move(tiles), meters);
  Machine machine(plan, shape, meters, observation);
  for (auto& piece : pieces) piece = machine.run(plan.steps(), std::move(piece));
  for (const Meter& meter : meters) {
    observation.peak_bytes = std::max(observation.peak_bytes, meter.peak() * problem.element_bytes);
    observation.largest_tile_bytes =
        std::max(observation.largest_tile_bytes, meter.largest() * problem.element_bytes);
  }
  return join(plan, std::move(pieces));
}

Tile index_tile(const Mesh& mesh, const Layout& layout, const Shape& shape, uint32_t rank) {
  Tile tile(elements_of(tile_shape(mesh, layout, shape)));
  each_row(mesh, layout, shape, rank, [&](uint64_t at, uint64_t index, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) tile[at + i] = static_cast<uint32_t>(index + i);
  });
  return tile;
}

Expected<Observation> verify(const Plan& plan) {
  const auto& [mesh, shape, element_bytes, from, to, costs, limit] = plan.problem();
  if (elements_of(shape) > uint64_t{1} << 32)
    return tl::unexpected<std::string>("an array of more than 2^32 elements cannot be verified");
  std::vector<Tile> tiles;
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    tiles.push_back(index_tile(mesh, from, shape, rank));
  Observation observation;
  const auto moved = interpret(plan, std::move(tiles), observation);
  if (!moved) return tl::unexpected(moved.error());
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    each_row(mesh, to, shape, rank, [&](uint64_t at, uint64_t index, uint64_t count) {
      const Tile& tile = (*moved)[rank];
      for (uint64_t i = 0; i < count; ++i)
        observation.wrong_elements += tile[at + i] != static_cast<uint32_t>(index + i) ? 1 : 0;
      observation.elements_checked += count;
    });
  return observation;
}

}  // namespace ina::redistribution
