// Several operations as one.
#pragma once

#include <memory>
#include <vector>

#include "plugins/torch/operation.h"

namespace ina::plugin {

/// Ends when all of `parts` have ended, with the first of their errors. When `timeout` passes, the
/// parts that still run are given up.
std::shared_ptr<Operation> together(const char* name, std::vector<std::shared_ptr<Operation>> parts,
                                    milliseconds timeout);

}  // namespace ina::plugin
