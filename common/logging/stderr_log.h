// The log of a program that has no configuration file: on standard error.
#pragma once

#include "common/log_format.h"
#include "common/result.h"

namespace ina::logging {

/// Has the process's records written in `format`. Fails where nothing takes fields of journald.
Result<void> log_to_stderr(LogFormat format);

}  // namespace ina::logging
