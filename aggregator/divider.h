// Division by a number that is fixed when a job or a lane is set up. Windows and lanes are mostly
// powers of two, and a shift divides by these many times faster than a division.
#pragma once

#include <bit>
#include <cstdint>

namespace ina::aggregator {

class Divider {
 public:
  constexpr Divider() : Divider(1) {}
  /// `divisor` is not 0.
  constexpr explicit Divider(uint64_t divisor)
      : divisor_(divisor),
        shift_(static_cast<uint32_t>(std::countr_zero(divisor))),
        is_power_of_two_(std::has_single_bit(divisor)) {}

  constexpr uint64_t divisor() const { return divisor_; }
  constexpr uint64_t quotient(uint64_t number) const {
    return is_power_of_two_ ? number >> shift_ : number / divisor_;
  }
  constexpr uint64_t remainder(uint64_t number) const {
    return is_power_of_two_ ? number & (divisor_ - 1) : number % divisor_;
  }

 private:
  uint64_t divisor_;
  uint32_t shift_;
  bool is_power_of_two_;
};

}  // namespace ina::aggregator
