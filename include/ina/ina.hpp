// libina for C++20: ownership, spans and exceptions over the C ABI. ina.h has the semantics.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "ina/ina.h"

namespace ina {

/// Every failing call of this header throws this exception; what() is the library's full text.
class Exception : public std::runtime_error {
 public:
  Exception(int status, const std::string& text)
      : std::runtime_error(std::string(ina_status_name(status)) + ": " + text), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

namespace detail {
inline void check(int status, const ina_context* context) {
  if (status < 0) throw Exception(status, ina_last_error(context));
}
inline int64_t count_us(std::chrono::microseconds timeout) {
  return timeout.count();
}
}  // namespace detail

/// 16-bit floats as bit patterns: C++20 has no types for them.
enum class bfloat16 : uint16_t {};
enum class float16 : uint16_t {};

/// The ina_dtype of an element type.
template <class T>
constexpr ina_dtype dtype_of() {
  if constexpr (std::is_same_v<T, int8_t>)
    return INA_INT8;
  else if constexpr (std::is_same_v<T, int32_t>)
    return INA_INT32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return INA_INT64;
  else if constexpr (std::is_same_v<T, float>)
    return INA_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return INA_FLOAT64;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return INA_BFLOAT16;
  else if constexpr (std::is_same_v<T, float16>)
    return INA_FLOAT16;
  else
    static_assert(sizeof(T) == 0, "no ina_dtype for this element type");
}

/// An operation in flight. Its buffers must outlive it; wait() or the destructor ends it.
class Request {
 public:
  Request(ina_request* request, ina_context* context) : request_(request), context_(context) {}
  Request(Request&& other) noexcept
      : request_(std::exchange(other.request_, nullptr)), context_(other.context_) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      finish();
      request_ = std::exchange(other.request_, nullptr);
      context_ = other.context_;
    }
    return *this;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  /// Waits, because the library still owns the buffers. The next call reports errors.
  ~Request() { finish(); }

  /// timeout 0: the context's default. A time-out throws and leaves the operation running.
  void wait(std::chrono::microseconds timeout = {}) {
    if (!request_) return;
    const int status = ina_wait(request_, detail::count_us(timeout));
    if (status != INA_ERR_TIMEOUT) request_ = nullptr;
    detail::check(status, context_);
  }
  /// True once complete.
  bool test() {
    if (!request_) return true;
    const int status = ina_test(request_);
    if (status == INA_IN_PROGRESS) return false;
    request_ = nullptr;
    detail::check(status, context_);
    return true;
  }

 private:
  void finish() noexcept {
    if (request_) ina_request_free(std::exchange(request_, nullptr));
  }
  ina_request* request_;
  ina_context* context_;
};

/// Memory of a context (ina_alloc, ina_alloc_result). Destroy it before its context.
template <class T>
class Buffer {
 public:
  Buffer(ina_context* context, T* data, size_t count)
      : context_(context), data_(data), count_(count) {}
  Buffer(Buffer&& other) noexcept
      : context_(other.context_),
        data_(std::exchange(other.data_, nullptr)),
        count_(other.count_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_) ina_free(context_, const_cast<std::remove_const_t<T>*>(data_));
  }
  T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }

 private:
  ina_context* context_;
  T* data_;
  size_t count_;
};

/// One worker's membership in a job. The destructor leaves the job. With config.numeric
/// INA_NUMERIC_REPRODUCIBLE, sums of floats have the same bits in every run (see ina_numeric).
class Context {
 public:
  /// `config`: initialised by ina_config_init. Without it all settings come from the environment.
  explicit Context(const ina_config& config) { init(&config); }
  Context() { init(nullptr); }

  int rank() const { return ina_rank(context_.get()); }
  int world_size() const { return ina_world_size(context_.get()); }

  template <class T>
  void allreduce(std::span<const T> send, std::span<T> recv, ina_op op = INA_SUM,
                 std::chrono::microseconds timeout = {}) {
    check_sizes(send.size(), recv.size());
    detail::check(ina_allreduce(context_.get(), send.data(), recv.data(), send.size(),
                                dtype_of<T>(), op, detail::count_us(timeout)),
                  context_.get());
  }
  /// In place.
  template <class T>
  requires(!std::is_const_v<T>) void allreduce(std::span<T> data, ina_op op = INA_SUM,
                                               std::chrono::microseconds timeout = {}) {
    allreduce<T>(std::span<const T>(data), data, op, timeout);
  }
  template <class T>
  [[nodiscard]] Request allreduce_async(std::span<const T> send, std::span<T> recv,
                                        ina_op op = INA_SUM) {
    check_sizes(send.size(), recv.size());
    ina_request* request = nullptr;
    detail::check(ina_allreduce_async(context_.get(), send.data(), recv.data(), send.size(),
                                      dtype_of<T>(), op, &request),
                  context_.get());
    return Request(request, context_.get());
  }
  /// In place.
  template <class T>
  requires(!std::is_const_v<T>) [[nodiscard]] Request
      allreduce_async(std::span<T> data, ina_op op = INA_SUM) {
    return allreduce_async<T>(std::span<const T>(data), data, op);
  }

  /// Memory that the switch reads without a copy in between.
  template <class T>
  [[nodiscard]] Buffer<T> alloc(size_t count) {
    void* memory = nullptr;
    detail::check(ina_alloc(context_.get(), count * sizeof(T), &memory), context_.get());
    return {context_.get(), static_cast<T*>(memory), count};
  }
  /// Read-only memory that the switch writes for all ranks. All ranks must ask for it. Give its
  /// parts as `recv` to allreduce_into().
  template <class T>
  [[nodiscard]] Buffer<const T> alloc_result(size_t count) {
    void* memory = nullptr;
    detail::check(ina_alloc_result(context_.get(), count * sizeof(T), &memory), context_.get());
    return {context_.get(), static_cast<const T*>(memory), count};
  }
  /// An allreduce(); the switch writes its result to `recv`, a part of a result buffer.
  template <class T>
  void allreduce_into(std::span<const T> recv, std::span<const T> send, ina_op op = INA_SUM,
                      std::chrono::microseconds timeout = {}) {
    allreduce<T>(send, {const_cast<T*>(recv.data()), recv.size()}, op, timeout);
  }

  void barrier(std::chrono::microseconds timeout = {}) {
    detail::check(ina_barrier(context_.get(), detail::count_us(timeout)), context_.get());
  }
  /// Leaves the job and reports errors, which the destructor cannot do.
  void finalize(std::chrono::microseconds timeout = {}) {
    const int status = ina_finalize(context_.release(), detail::count_us(timeout));
    detail::check(status, nullptr);
  }
  /// Hints for the operations started afterwards (ina_set_hints). The call fills in struct_size.
  void set_hints(ina_hints hints) {
    hints.struct_size = sizeof hints;
    detail::check(ina_set_hints(context_.get(), &hints), context_.get());
  }
  void reset_hints() { detail::check(ina_set_hints(context_.get(), nullptr), context_.get()); }
  ina_stats stats() const {
    ina_stats stats{};
    stats.struct_size = sizeof stats;
    detail::check(ina_get_stats(context_.get(), &stats), context_.get());
    return stats;
  }
  bool overflowed(bool clear = false) { return ina_overflowed(context_.get(), clear) > 0; }

  ina_context* get() const { return context_.get(); }

 private:
  void init(const ina_config* config) {
    ina_context* raw = nullptr;
    detail::check(ina_init(config, &raw), nullptr);
    context_.reset(raw);
  }
  static void check_sizes(size_t send, size_t recv) {
    if (send != recv)
      throw Exception(INA_ERR_INVALID, "allreduce: send has " + std::to_string(send) +
                                           " elements, recv has " + std::to_string(recv));
  }
  struct Deleter {
    void operator()(ina_context* context) const { ina_finalize(context, 0); }
  };
  std::unique_ptr<ina_context, Deleter> context_;
};

/// Fuses the small all-reduces that are started during its lifetime (ina_group_start). end()
/// reports errors, the destructor does not. Wait for the requests after either.
class Group {
 public:
  explicit Group(Context& context) : context_(context.get()) {
    detail::check(ina_group_start(context_), context_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (context_) ina_group_end(context_);
  }
  void end() {
    ina_context* context = std::exchange(context_, nullptr);
    if (context) detail::check(ina_group_end(context), context);
  }

 private:
  ina_context* context_;
};

}  // namespace ina
