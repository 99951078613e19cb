// The mesh of a redistribution: named axes, whose sizes multiply to the number of ranks. Axes are
// taken apart into primes, so that a layout may move a part of an axis.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace ina::redistribution {

/// A value, or a sentence that says what is wrong with the input.
template <class T>
using Expected = tl::expected<T, std::string>;

/// Index of a prime axis within its mesh.
using PrimeId = uint8_t;

inline constexpr size_t kMostPrimes = 16;
inline constexpr uint32_t kMostRanks = 1 << kMostPrimes;

struct MeshAxis {
  std::string name;
  uint32_t size = 1;

  bool operator==(const MeshAxis&) const = default;
};

/// One prime factor of an axis: a digit of the rank's coordinate on that axis.
struct PrimeAxis {
  uint32_t axis = 0;    ///< index of the axis that it is a part of
  uint32_t digit = 0;   ///< its place in that axis' coordinate, 0 the least significant
  uint32_t size = 2;    ///< a prime
  uint32_t stride = 1;  ///< between ranks that differ by one in this digit alone
};

/// Named axes. Ranks are numbered in row-major order: the last axis varies fastest.
class Mesh {
 public:
  /// Errors: no name, a name twice or with other characters than letters, digits and "_", a size
  /// of 0, more than kMostRanks ranks.
  static Expected<Mesh> create(std::vector<MeshAxis> axes);
  /// "x=4,y=2"
  static Expected<Mesh> parse(std::string_view text);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  const std::vector<PrimeAxis>& primes() const { return primes_; }
  /// At most kMostPrimes.
  PrimeId prime_count() const { return static_cast<PrimeId>(primes_.size()); }
  uint32_t ranks() const { return ranks_; }
  std::optional<uint32_t> find(std::string_view name) const;
  /// The prime axes of an axis, the most significant digit first.
  std::vector<PrimeId> primes_of(uint32_t axis) const;
  uint32_t size(PrimeId prime) const { return primes_[prime].size; }
  uint32_t coordinate(uint32_t rank, PrimeId prime) const {
    return rank / primes_[prime].stride % primes_[prime].size;
  }
  /// As parse() takes it.
  std::string text() const;

  bool operator==(const Mesh& other) const { return axes_ == other.axes_; }

 private:
  std::vector<MeshAxis> axes_;
  std::vector<PrimeAxis> primes_;
  uint32_t ranks_ = 1;
};

/// Error where the mesh has not as many positions as the job has ranks.
Expected<void> check_ranks(const Mesh& mesh, uint64_t ranks);

/// Prime factors, the smallest first.
std::vector<uint32_t> prime_factors(uint64_t number);

/// The parts between separators; one empty part of an empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

/// A whole decimal number and nothing else.
std::optional<uint64_t> parse_number(std::string_view text);

}  // namespace ina::redistribution
