// Buffers of the direct path: the gradient in memory that the switch reads, the result in memory
// that it writes once for all workers.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <stdexcept>

#include "ina/ina.h"

namespace ina::perf {

/// Whether libina offers them. Templates, so that this compiles with a library that does not.
template <class Context>
concept HasRegistered = requires(Context* context, void** memory, const void** result) {
  { ina_alloc(context, size_t{}, memory) } -> std::same_as<int>;
  { ina_alloc_result(context, size_t{}, result) } -> std::same_as<int>;
  { ina_free(context, *result) } -> std::same_as<int>;
};

inline constexpr bool kHasRegistered = HasRegistered<ina_context>;

/// A send and a result buffer. Collective: all ranks make them together, with the same size.
template <class Context>
class BasicRegisteredBuffers {
 public:
  /// Throws std::runtime_error.
  BasicRegisteredBuffers(Context* context, size_t bytes) : context_(context) {
    if constexpr (HasRegistered<Context>) {
      require(ina_alloc(context, bytes, &send_), "ina_alloc");
      try {
        require(ina_alloc_result(context, bytes, &result_), "ina_alloc_result");
      } catch (...) {
        ina_free(context, send_);
        throw;
      }
    } else {
      throw std::runtime_error("this libina has no registered buffers");
    }
  }
  ~BasicRegisteredBuffers() {
    if constexpr (HasRegistered<Context>) {
      ina_free(context_, send_);
      ina_free(context_, result_);
    }
  }
  BasicRegisteredBuffers(const BasicRegisteredBuffers&) = delete;
  BasicRegisteredBuffers& operator=(const BasicRegisteredBuffers&) = delete;

  void* send() const { return send_; }
  const void* result() const { return result_; }

 private:
  void require(int status, const char* what) const {
    if (status != INA_OK)
      throw std::runtime_error(
          fmt::format("{}: {}: {}", what, ina_status_name(status), ina_last_error(context_)));
  }

  Context* context_;
  void* send_ = nullptr;
  const void* result_ = nullptr;
};

using RegisteredBuffers = BasicRegisteredBuffers<ina_context>;

}  // namespace ina::perf
