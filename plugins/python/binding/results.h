// Result buffers (ina_alloc_result) as memory that outlives its context.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ina::python {

/// A result buffer of libina's, and memory where Python sees the same results. libina takes its
/// buffer away when its context goes, and puts ordinary memory in its place when the switch starts
/// again; what Python sees stays. A second mapping of the same pages makes that possible without a
/// copy.
class Result {
 public:
  /// `memory`: of ina_alloc_result, with `bytes`; `give_back(memory)`: frees it. Throws
  /// ina::Exception, and has given the memory back then.
  static std::shared_ptr<Result> make(std::byte* memory, size_t bytes,
                                      std::function<void(void*)> give_back);
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result();

  /// What Python sees. Readable only, as long as the switch writes there.
  std::byte* data() const { return seen_; }
  size_t bytes() const { return bytes_; }
  /// The library's address of the same place.
  std::byte* target(std::byte* seen) const;

  /// An operation has written so many bytes at an address of target(): shows them. Any thread.
  /// False if there is no memory for it.
  bool deliver(const std::byte* target, size_t bytes);
  /// The context goes: the contents stay, in memory of this process.
  void keep();

 private:
  Result(std::byte* seen, std::byte* memory, size_t bytes, std::function<void(void*)> give_back)
      : bytes_(bytes),
        give_back_(std::move(give_back)),
        memory_(memory),
        seen_(seen),
        same_pages_(memory != nullptr) {}
  bool make_ordinary();

  mutable std::mutex mutex_;
  const size_t bytes_;
  const std::function<void(void*)> give_back_;
  std::byte* const memory_;  ///< libina's; nullptr: given back
  std::byte* const seen_;
  bool same_pages_;  ///< as those of memory_; otherwise ordinary ones
  bool kept_ = false;
};

/// The result buffers of a context. Any thread.
class Results {
 public:
  /// Those of a group of the context's ranks, which goes with it.
  void add_group(const std::shared_ptr<Results>& group);
  void add(const std::shared_ptr<Result>& result);
  /// The one in which the memory lies; nullptr: none. With the GIL.
  std::shared_ptr<Result> find(const void* memory) const;
  /// The context goes. Their ends need the GIL and the context: the caller has them end where it
  /// holds the one, and no lock.
  [[nodiscard]] std::vector<std::shared_ptr<Result>> keep_all();

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Result>> all_;
  std::vector<std::weak_ptr<Results>> groups_;
};

}  // namespace ina::python
