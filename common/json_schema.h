// The version of the JSON that the programs print for others.
#pragma once

namespace ina {

/// The member "schema" of each object that the switch tells, or that a program prints with --json.
/// Grows when a member goes or changes its meaning; new members may come at any time.
inline constexpr int kJsonSchema = 1;

}  // namespace ina
