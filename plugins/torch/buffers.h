// Tensors as the contiguous blocks that libina reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ina::plugin {

// Texts of TORCH_CHECK get numbers as texts (std::to_string): PyTorch's wheels bring streams of
// their own, and a number put into one of these from outside can end the process.

/// Throws unless `tensor` is dense and in this process's memory.
void require_dense_cpu(const char* function, const at::Tensor& tensor);
/// Throws unless all of `tensors` have the type of `like`.
void require_type(const char* function, const std::vector<at::Tensor>& tensors,
                  const at::Tensor& like);
/// Throws unless there are `size` of them.
void require_count(const char* function, const char* what, size_t found, size_t size);

/// Throws unless the memory of `tensors` can be written.
void require_writable(const char* function, const std::vector<at::Tensor>& tensors);

/// The addresses of its first byte, and behind its last one. `tensor` has elements.
std::pair<uintptr_t, uintptr_t> extent(const at::Tensor& tensor);
bool overlap(const at::Tensor& a, const at::Tensor& b);

/// True if the tensors lie contiguous, one directly after the other.
bool in_a_row(const std::vector<at::Tensor>& tensors);

/// Copies of tensors, at least one and all of one type, one directly after the other. Their memory
/// is kept for the next ones: a large piece of fresh memory costs more than the copy. From any
/// thread.
class Staging {
 public:
  std::vector<at::Tensor> copy(const std::vector<at::Tensor>& tensors);

 private:
  at::Tensor room(int64_t bytes);
  std::mutex mutex_;
  at::Tensor kept_;  ///< under mutex_; bytes
};

/// Tensors that an operation reads or writes as one buffer with a block for each: where they lie,
/// if displacements can say so, or else in a buffer of its own. `units`: of one element.
class Blocks {
 public:
  enum class Use { kRead, kWrite };
  Blocks(const std::vector<at::Tensor>& tensors, Use use, size_t units);
  /// A contiguous tensor for one that holds the blocks of all ranks, one after the other.
  static at::Tensor flat(const at::Tensor& tensor, Use use);

  void* data() const { return data_; }
  const std::vector<size_t>& counts() const { return counts_; }
  const std::vector<size_t>& displacements() const { return displacements_; }
  /// The tensors that must live until the end.
  const std::vector<at::Tensor>& held() const { return held_; }
  /// Copies what was written to the tensors; empty if it is there already.
  std::function<void()> deliver() const;

 private:
  bool lie_in_place(size_t unit_bytes);
  void stage(Use use);

  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> held_;
  std::vector<size_t> counts_;
  std::vector<size_t> displacements_;
  void* data_ = nullptr;
  at::Tensor staged_;
};

/// Copies without gradients, whatever the thread's modes are. Of elements of `to` that share
/// memory, as in an expanded tensor, one is written.
void copy_into(const at::Tensor& to, const at::Tensor& from);

}  // namespace ina::plugin
