// Messages of any datatype as contiguous bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "plugins/mpi/abi.h"

namespace ina::mpi {

/// The bytes of `count` elements, which all ranks of a call agree about although their datatypes
/// may differ; none if there are more than 2 GiB - 1, or the arguments are wrong. An element of
/// more bytes than that cannot be packed, and may be one rank's alone.
std::optional<size_t> bytes_of(MPI_Count count, MPI_Datatype type);

enum class Use { kRead, kWrite };

/// Elements that are read or written as bytes: where they lie, if they have no gaps, or else
/// packed. bytes_of() says how many there are.
class Bytes {
 public:
  Bytes(const void* buffer, MPI_Count count, MPI_Datatype type, Use use, MPI_Comm comm);

  char* data() { return data_; }
  /// Puts what was received where it belongs.
  int deliver();

 private:
  char* const buffer_;
  const MPI_Count count_;
  const MPI_Datatype type_;
  const MPI_Comm comm_;
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
  MPI_Count operator[](int at) const {
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
    std::vector<MPI_Count> counts;  ///< by rank, in elements
    std::vector<MPI_Count> places;  ///< by rank, in extents of the datatype; may be negative
  };
  /// `apart`: the bytes are a copy in any case.
  Blocks(const void* buffer, Layout layout, MPI_Datatype type, Use use, MPI_Comm comm,
         bool apart = false);

  /// Counts, or a datatype, that nothing can be done with. MPI has its own word for them, but other
  /// ranks may wait in the switch already.
  bool wrong() const { return wrong_; }
  char* data() { return data_; }
  const size_t* counts() const { return bytes_.data(); }
  const size_t* places() const { return offsets_.data(); }
  size_t total() const { return total_; }
  int deliver();

 private:
  void lay_out();
  void pack_all();
  char* element(size_t rank) const;

  char* const buffer_;
  const Layout layout_;
  const MPI_Datatype type_;
  const MPI_Comm comm_;
  MPI_Aint extent_ = 0;
  bool wrong_ = false;
  bool plain_ = true;
  size_t total_ = 0;
  std::vector<size_t> bytes_, offsets_;
  std::vector<char> packed_;
  char* data_;
};

}  // namespace ina::mpi
