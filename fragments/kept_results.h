// The last results of a worker whose transport does not keep them: others may still need them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "wire/types.h"

namespace ina::client {

class KeptResults {
 public:
  /// Room for the results of so many fragments in a row, of at most `row_bytes` each.
  KeptResults(size_t fragments, size_t row_bytes) : fragments_(fragments), row_bytes_(row_bytes) {}

  /// Where the result of a fragment is kept. Takes the memory when it is first called.
  std::byte* row(Seq seq) {
    if (!rows_) {
      const size_t bytes = (fragments_ * row_bytes_ + 63) / 64 * 64;
      rows_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
      if (!rows_) throw std::bad_alloc();
    }
    return rows_.get() + seq.value % fragments_ * row_bytes_;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  size_t fragments_;
  size_t row_bytes_;
  std::unique_ptr<std::byte[], Free> rows_;
};

}  // namespace ina::client
