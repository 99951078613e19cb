// Buffers of the direct path: the gradient in memory that the switch reads, the result in memory
// that it writes once for all workers.
#pragma once

#include <fmt/format.h>

#include <stdexcept>

#include "ina/ina.h"

namespace ina::perf {

/// A send and a result buffer. Collective: all ranks make them together, with the same size. Must
/// go before the context does.
class RegisteredBuffers {
 public:
  /// Throws std::runtime_error.
  RegisteredBuffers(ina_context* context, size_t bytes) : context_(context) {
    require(ina_alloc(context, bytes, &send_), "ina_alloc");
    if (const int status = ina_alloc_result(context, bytes, &result_); status != INA_OK) {
      ina_free(context, send_);
      require(status, "ina_alloc_result");
    }
  }
  ~RegisteredBuffers() {
    ina_free(context_, send_);
    ina_free(context_, result_);
  }
  RegisteredBuffers(const RegisteredBuffers&) = delete;
  RegisteredBuffers& operator=(const RegisteredBuffers&) = delete;

  void* send() const { return send_; }
  const void* result() const { return result_; }

 private:
  void require(int status, const char* what) const {
    if (status != INA_OK)
      throw std::runtime_error(
          fmt::format("{}: {}: {}", what, ina_status_name(status), ina_last_error(context_)));
  }

  ina_context* context_;
  void* send_ = nullptr;
  void* result_ = nullptr;
};

}  // namespace ina::perf
