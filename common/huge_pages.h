// The setting that decides if memory is to come from huge pages.
#pragma once

#include <cstdint>

#include "wire/named.h"

namespace ina {

/// kAuto: if enough of them are free at start; ordinary pages otherwise.
enum class HugePages : uint8_t { kAuto, kYes, kNo };
inline constexpr Names<HugePages, 3> kHugePagesNames = {
    {{"auto", HugePages::kAuto}, {"yes", HugePages::kYes}, {"no", HugePages::kNo}}};

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
/// `bytes`, rounded up to whole huge pages.
constexpr uint64_t whole_huge_pages(uint64_t bytes) {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

}  // namespace ina
