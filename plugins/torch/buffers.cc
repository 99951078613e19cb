#include "plugins/torch/buffers.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "plugins/torch/writable.h"

namespace ina::plugin {

namespace {

// The bound of libina's displacements.
constexpr size_t kMostElements = (size_t{1} << 46) - 1;

// Bound of the memory that a group keeps between its operations.
constexpr int64_t kMostKeptBytes = int64_t{64} << 20;

uintptr_t address(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data_ptr());
}

/// `flat` divided, one part after the other, into tensors of the shapes of `like`.
std::vector<at::Tensor> parts_of(const at::Tensor& flat, const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> parts;
  int64_t at = 0;
  for (const at::Tensor& tensor : like) {
    parts.push_back(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
  return parts;
}

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  for (size_t i = 0; i < to.size(); ++i) copy_into(to[i], from[i]);
}

}  // namespace

void require_dense_cpu(const char* function, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "ina: ", function, " takes dense tensors, not ",
              tensor.layout() == at::kMkldnn ? "those of MKL-DNN (to_dense() makes them dense)"
                                             : "sparse ones");
  TORCH_CHECK(tensor.device().is_cpu(), "ina: ", function, " takes tensors on the CPU, not on ",
              tensor.device().str());
}

void require_type(const char* function, const std::vector<at::Tensor>& tensors,
                  const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    require_dense_cpu(function, tensor);
    TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), "ina: ", function,
                ": a tensor has type ", c10::toString(tensor.scalar_type()), ", another one ",
                c10::toString(like.scalar_type()));
  }
}

void require_count(const char* function, const char* what, size_t found, size_t size) {
  TORCH_CHECK(found == size, "ina: ", function, ": ", std::to_string(found), " ", what, " where ",
              std::to_string(size), " are needed");
}

void require_writable(const char* function, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    require_dense_cpu(function, tensor);
    if (tensor.numel() == 0) continue;
    const auto [begin, end] = extent(tensor);
    TORCH_CHECK(is_writable(reinterpret_cast<void*>(begin), end - begin), "ina: ", function,
                ": the memory of a tensor for results is read-only; give a copy (clone())");
  }
}

std::pair<uintptr_t, uintptr_t> extent(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    last += tensor.stride(dim) * (tensor.size(dim) - 1);
  const uintptr_t begin = address(tensor);
  return {begin, begin + (static_cast<uintptr_t>(last) + 1) * tensor.element_size()};
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0 || !a.is_alias_of(b)) return false;
  // Tensors that are not contiguous count as overlapping: their extent is not known so easily.
  if (!a.is_contiguous() || !b.is_contiguous()) return true;
  return address(a) < address(b) + b.nbytes() && address(b) < address(a) + a.nbytes();
}

bool in_a_row(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_contiguous()) return false;
    if (i != 0 && address(tensors[i]) != address(tensors[i - 1]) + tensors[i - 1].nbytes())
      return false;
  }
  return true;
}

std::vector<at::Tensor> Staging::copy(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  const std::vector<at::Tensor> copies =
      parts_of(room(bytes).narrow(0, 0, bytes).view(tensors.front().scalar_type()), tensors);
  copy_all(copies, tensors);
  return copies;
}

at::Tensor Staging::room(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  // Its tensors hold memory that an operation still reads.
  const bool free = kept_.defined() && kept_.use_count() == 1 && kept_.storage().use_count() == 1;
  if (free && kept_.numel() >= bytes) return kept_;
  const at::Tensor fresh = at::empty({bytes}, at::kByte);
  if (bytes <= kMostKeptBytes) kept_ = fresh;
  return fresh;
}

Blocks::Blocks(const std::vector<at::Tensor>& tensors, Use use, size_t units) : tensors_(tensors) {
  for (const at::Tensor& tensor : tensors)
    counts_.push_back(static_cast<size_t>(tensor.numel()) * units);
  if (tensors.empty()) return;
  if (!lie_in_place(tensors.front().element_size() / units)) stage(use);
}

bool Blocks::lie_in_place(size_t unit_bytes) {
  uintptr_t base = UINTPTR_MAX;
  for (const at::Tensor& tensor : tensors_) {
    if (!tensor.is_contiguous()) return false;
    if (tensor.numel() != 0) base = std::min(base, address(tensor));
  }
  if (base == UINTPTR_MAX) base = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const size_t offset = counts_[i] == 0 ? 0 : address(tensors_[i]) - base;
    if (offset % unit_bytes != 0 || offset / unit_bytes > kMostElements) return false;
    for (size_t j = 0; j < i; ++j)
      if (overlap(tensors_[i], tensors_[j])) return false;
    displacements_.push_back(offset / unit_bytes);
  }
  data_ = reinterpret_cast<void*>(base);
  held_ = tensors_;
  return true;
}

void Blocks::stage(Use use) {
  size_t total = 0;
  int64_t elements = 0;
  displacements_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    displacements_.push_back(total);
    total += counts_[i];
    elements += tensors_[i].numel();
  }
  staged_ = at::empty({elements}, tensors_.front().options());
  if (use == Use::kRead) copy_all(parts_of(staged_, tensors_), tensors_);
  data_ = staged_.data_ptr();
  held_ = {staged_};
}

std::function<void()> Blocks::deliver() const {
  if (!staged_.defined()) return {};
  return [parts = parts_of(staged_, tensors_), tensors = tensors_] { copy_all(tensors, parts); };
}

at::Tensor Blocks::flat(const at::Tensor& tensor, Use use) {
  if (tensor.is_contiguous()) return tensor;
  const c10::AutoGradMode no_gradients(false);
  return use == Use::kRead ? tensor.contiguous() : at::empty(tensor.sizes(), tensor.options());
}

void copy_into(const at::Tensor& to, const at::Tensor& from) {
  // As a write of the library's: it asks for no gradients, and not whether the tensor was made in
  // inference mode.
  const at::AutoDispatchBelowADInplaceOrView plain;
  at::Tensor target = to, source = from;
  for (int64_t dim = 0; to.layout() == at::kStrided && dim < to.dim(); ++dim) {
    if (to.size(dim) < 2 || to.stride(dim) != 0) continue;
    target = target.narrow(dim, 0, 1);
    source = source.narrow(dim, 0, 1);
  }
  target.copy_(source);
}

}  // namespace ina::plugin
