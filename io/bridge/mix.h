// The finisher of SplitMix64 (Steele et al., 2014): every bit of a number reaches every bit.
#pragma once

#include <cstdint>

namespace ina::bridge {

constexpr uint64_t mix(uint64_t number) {
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
  number = (number ^ number >> 27) * 0x94d049bb133111ebu;
  return number ^ number >> 31;
}

}  // namespace ina::bridge
