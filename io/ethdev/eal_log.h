// Log lines of DPDK's drivers whose level is too severe.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "io/ethdev/eal.h"

namespace ina::io {

/// The level at which a person should find `line`, which DPDK gave `level`. At kInfo are three
/// harmless ones. TAP devices without the kernel's multiq qdisc only lose flow rules, which this
/// project does not use. The TAP and memif drivers send messages to secondary processes, of which
/// there are none. And telemetry has no socket of an older kind.
inline EalLogLevel proper_level(EalLogLevel level, std::string_view line) {
  constexpr std::array<std::string_view, 7> kHarmless = {
      "Specified qdisc kind is unknown",
      "Could not add multiq qdisc",
      "failed to create multiq qdisc",
      "Disabling rte flow support",
      "Failed to send start req to secondary",
      "Failed to register mp action callback: Operation not supported",
      "No legacy callbacks, legacy socket not created"};
  const bool harmless = std::ranges::any_of(
      kHarmless, [line](std::string_view part) { return line.find(part) != line.npos; });
  return harmless ? EalLogLevel::kInfo : level;
}

}  // namespace ina::io
