// The switch's answer to a worker that has asked for a group.
#pragma once

#include <cstdint>
#include <optional>

#include "common/result.h"
#include "control/messages.h"

namespace ina::membership {

struct GroupOffer {
  Error error{INA_OK, ""};
  std::optional<control::answer::GroupPlace> place = std::nullopt;  ///< none: it is in no group
  uint64_t losses = 0;  ///< of connections to a switch, before it came
};

}  // namespace ina::membership
