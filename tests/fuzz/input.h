// A fuzzer's bytes as decisions, for targets that make a sequence of calls of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ina::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  /// The next byte; 0 after the end.
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  /// A number below `limit`, which is at most 256.
  uint32_t below(uint32_t limit) { return byte() % limit; }
  bool flag() { return (byte() & 1) != 0; }
  /// Fills `out` with the next bytes, and zeros after the end.
  void fill(std::span<std::byte> out) {
    const size_t count = std::min(out.size(), rest_.size());
    if (count != 0) std::memcpy(out.data(), rest_.data(), count);
    std::fill(out.begin() + static_cast<ptrdiff_t>(count), out.end(), std::byte{});
    rest_ = rest_.subspan(count);
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace ina::fuzz
