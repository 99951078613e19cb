// Messages of any datatype as contiguous bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "plugins/mpi/abi.h"

namespace ina::mpi {

/// The bytes of `count` elements, which all ranks of a call agree about although their datatypes
/// may differ; none if there are more than 2 GiB - 1, or the arguments are wrong. An element of
/// more bytes than that cannot be packed, and may be one rank's alone. No elements are no bytes,
/// of whatever type.
std::optional<size_t> bytes_of(MPI_Count count, MPI_Datatype type);

enum class Use { kRead, kWrite, kBoth };

/// A datatype that the program may free before the call has ended.
class HeldType {
 public:
  explicit HeldType(MPI_Datatype type);
  ~HeldType();
  HeldType(HeldType&& other) noexcept;
  HeldType(const HeldType&) = delete;
  HeldType& operator=(const HeldType&) = delete;

  MPI_Datatype get() const { return type_; }
  MPI_Aint extent() const { return extent_; }
  /// Bytes of one element; none if they are more than MPI's functions for packing count.
  std::optional<size_t> bytes() const { return bytes_; }
  /// A predefined type without gaps. The elements of others may lie in another order than they are
  /// sent in.
  bool plain() const { return plain_; }

 private:
  MPI_Datatype type_;
  MPI_Aint extent_ = 0;
  std::optional<size_t> bytes_;
  bool plain_ = false, made_ = false;
};

/// Elements that are read or written as bytes: where they lie, if they have no gaps, or else
/// packed. bytes_of() says how many there are.
class Bytes {
 public:
  /// `apart`: the bytes are a copy in any case.
  Bytes(const void* buffer, MPI_Count count, MPI_Datatype type, Use use, bool apart = false);

  char* data() { return data_; }
  size_t size() const { return size_; }
  /// Puts what was received where it belongs.
  int deliver();

 private:
  char* const buffer_;
  const MPI_Count count_;
  const size_t size_;
  std::optional<HeldType> type_;  ///< of packed elements
  std::vector<char> packed_;
  char* data_;
};

/// Counts or displacements of a call: `int` in MPI's older functions, 8 bytes in its `_c` forms.
class Numbers {
 public:
  template <class T>
  Numbers(const T* values) : values_(values), wide_(sizeof(T) == 8) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  }
  const void* address() const { return values_; }
  /// -1 where the program gave no array.
  MPI_Count operator[](int at) const {
    if (!values_) return -1;
    return wide_ ? static_cast<const MPI_Count*>(values_)[at]
                 : static_cast<const int*>(values_)[at];
  }
  std::vector<MPI_Count> first(int size) const;

 private:
  const void* values_;
  bool wide_;
};

/// A block for each rank in one buffer, read or written as bytes.
class Blocks {
 public:
  struct Layout {
    std::vector<MPI_Count> counts;  ///< by rank, in elements, not negative
    std::vector<MPI_Count> places;  ///< by rank, in extents of the datatype; may be negative
  };
  /// `apart`: the bytes are a copy in any case. So are those of blocks that are written and
  /// overlap: the last rank's is delivered last.
  Blocks(const void* buffer, Layout layout, MPI_Datatype type, Use use, bool apart = false);

  /// An element has more bytes than can be packed.
  bool too_large() const { return too_large_; }
  char* data() { return data_; }
  const size_t* counts() const { return bytes_.data(); }
  const size_t* places() const { return offsets_.data(); }
  size_t total() const { return total_; }
  /// From the first byte to the last, gaps included.
  size_t span() const;
  /// Neither sends nor receives the block of `rank`.
  void leave_out(size_t rank) { bytes_[rank] = 0; }
  int deliver();

 private:
  void lay_out(Use use);
  void lay_out_packed();
  bool overlap() const;
  void pack_all();
  char* element(size_t rank) const;

  char* const buffer_;
  const Layout layout_;
  std::optional<HeldType> type_;  ///< none if there are no elements
  bool too_large_ = false;
  bool plain_ = true;
  size_t total_ = 0;
  std::vector<size_t> bytes_, offsets_;
  std::vector<char> packed_;
  char* data_;
};

/// True if two ranges of memory have a byte in common.
bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes);

}  // namespace ina::mpi
