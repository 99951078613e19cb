// Entries of sparse tensors as bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace ina::plugin {

/// Entries of a COO tensor on the CPU. An entry is as many indices as it has sparse dimensions, and
/// a value, which is a tensor where it has dense ones.
class SparseEntries {
 public:
  explicit SparseEntries(const at::Tensor& tensor);

  int64_t count() const { return values_.size(0); }
  size_t entry_bytes() const;
  /// The indices of all entries, and then the values.
  at::Tensor packed() const;
  /// `to` becomes the sum of ranks' packed() entries in `all`, one rank's after the other's.
  /// `counts`: of their entries.
  void add_up(const at::Tensor& to, const at::Tensor& counts, const at::Tensor& all) const;

 private:
  at::Tensor indices_;  ///< [sparse dimensions, entries]
  at::Tensor values_;   ///< [entries, dense dimensions...]
};

}  // namespace ina::plugin
