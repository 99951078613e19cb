// Checks whether results can be written to where a caller wants them. Without this a buffer that
// is only read would end the process, once the others' contributions have come.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "client/operations.h"
#include "common/result.h"

namespace ina::client {

/// The checks of one context; under the lock of Progress.
class WritableMemory {
 public:
  WritableMemory(uint32_t workers, uint32_t rank) : workers_(workers), rank_(rank) {}

  /// INA_ERR_INVALID: the first or the last byte of what an operation will write cannot be written
  /// to. The kernel is asked, so a page that was fine a moment ago is not asked for again.
  Result<void> check(const OperationSpec& spec, const OperationSource& source, Nanos now);
  /// For `memory`, which the text calls the `argument` of `function`.
  Result<void> check(std::span<const std::byte> memory, std::string_view function,
                     std::string_view argument, Nanos now);

 private:
  struct Page {
    uintptr_t number = 0;
    Nanos until = 0;
  };
  bool is_writable(const std::byte* byte, Nanos now);

  const uint32_t workers_;
  const uint32_t rank_;
  std::array<Page, 64> known_{};
};

}  // namespace ina::client
