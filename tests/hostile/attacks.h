// The attacks: each makes one frame after another.
#pragma once

#include <span>
#include <string_view>

#include "tests/hostile/forge.h"

namespace ina::hostile {

struct Attack {
  std::string_view name;
  std::string_view tenant;  ///< whose job it needs; empty: a stranger's attack
  /// Makes frame number `i` of the attack.
  void (*make)(Forge& forge, uint64_t i);
};

std::span<const Attack> attacks();

}  // namespace ina::hostile
