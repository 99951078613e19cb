// CPU time of another process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace ina::perf {

/// CPU time of all the process's threads, in ns; nothing if there is no such process.
std::optional<int64_t> process_cpu_ns(pid_t pid);

}  // namespace ina::perf
