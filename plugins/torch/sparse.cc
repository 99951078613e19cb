#include "plugins/torch/sparse.h"

#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "plugins/torch/buffers.h"

namespace ina::plugin {

namespace {

at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.contiguous().reshape({-1}).view(at::kByte);
}

at::Tensor from_bytes(const at::Tensor& bytes, const at::Tensor& like, std::vector<int64_t> sizes) {
  // Bytes of its own, because a view of another type must begin at a multiple of its size.
  return bytes.clone().view(like.scalar_type()).view(sizes);
}

}  // namespace

SparseEntries::SparseEntries(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_cpu(), "ina: sparse tensors must be on the CPU, not on ",
              tensor.device().str());
  const at::Tensor coalesced = tensor.detach().coalesce();
  indices_ = coalesced.indices();
  values_ = coalesced.values();
}

size_t SparseEntries::entry_bytes() const {
  size_t values = 1;
  for (int64_t i = 1; i < values_.dim(); ++i) values *= static_cast<size_t>(values_.size(i));
  return static_cast<size_t>(indices_.size(0)) * indices_.element_size() +
         values * values_.element_size();
}

at::Tensor SparseEntries::packed() const {
  return at::cat({as_bytes(indices_), as_bytes(values_)});
}

void SparseEntries::add_up(const at::Tensor& to, const at::Tensor& counts,
                           const at::Tensor& all) const {
  std::vector<at::Tensor> indices, values;
  const int64_t index_bytes = indices_.size(0) * static_cast<int64_t>(indices_.element_size());
  const int64_t value_bytes = static_cast<int64_t>(entry_bytes()) - index_bytes;
  int64_t at = 0;
  for (int64_t rank = 0; rank < counts.size(0); ++rank) {
    const auto count = counts[rank].item<int64_t>();
    indices.push_back(
        from_bytes(all.narrow(0, at, count * index_bytes), indices_, {indices_.size(0), count}));
    at += count * index_bytes;
    std::vector<int64_t> sizes = values_.sizes().vec();
    sizes.front() = count;
    values.push_back(from_bytes(all.narrow(0, at, count * value_bytes), values_, sizes));
    at += count * value_bytes;
  }
  copy_into(to, at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values), to.sizes()).coalesce());
}

}  // namespace ina::plugin
