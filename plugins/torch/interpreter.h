// Python's interpreter, whose lock its objects need.
#pragma once

#include <functional>

namespace ina::plugin {

/// Lets other threads of Python run meanwhile, if this one holds its lock. `task` does not throw.
void run_without_gil(const std::function<void()>& task);

/// True if the interpreter ends or has ended: a thread that wants its lock then never gets it.
bool python_ends();

}  // namespace ina::plugin
