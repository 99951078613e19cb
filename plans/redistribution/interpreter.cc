#include "plans/redistribution/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plans/redistribution/transfers.h"

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

void copy_box(const Tile& source, const Box& from, Tile& target, const Box& to,
              const Shape& extent) {
  redistribution::copy_box(reinterpret_cast<const std::byte*>(source.data()), from,
                           reinterpret_cast<std::byte*>(target.data()), to, extent,
                           sizeof(Tile::value_type));
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
      const StepTransfers transfers(mesh_, step, shape_);
      std::vector<Buffer> output(mesh_.ranks());
      for (uint32_t rank = 0; rank < mesh_.ranks(); ++rank)
        output[rank] = Buffer(meters_[rank], Tile(elements_of(transfers.after())));
      for (uint32_t rank = 0; rank < mesh_.ranks(); ++rank)
        for (const Transfer& transfer : transfers.to(rank))
          copy(transfer, transfers, rank, input, output);
      input = std::move(output);
    }
    return input;
  }

 private:
  void copy(const Transfer& transfer, const StepTransfers& transfers, uint32_t target,
            const std::vector<Buffer>& input, std::vector<Buffer>& output) {
    copy_box(input[transfer.source].tile(), {transfers.before(), transfer.from},
             output[target].tile(), {transfers.after(), transfer.to}, transfer.extent);
    if (transfer.source != target)
      observation_.sent_bytes[transfer.source] += elements_of(transfer.extent) * element_bytes_;
  }

  const Mesh& mesh_;
  uint64_t element_bytes_;
  Shape shape_;
  std::vector<Meter>& meters_;
  Observation& observation_;
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
