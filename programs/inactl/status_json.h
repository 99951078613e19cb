// The names by which inactl reads a status (control/diagnosis/status_json.h).
#pragma once

#include "control/diagnosis/status_json.h"

namespace ina::cli {

using diagnosis::child;
using diagnosis::describe_drop;
using diagnosis::job_label;
using diagnosis::number;
using diagnosis::printable;
using diagnosis::ranks;
using diagnosis::ranks_text;
using diagnosis::real;
using diagnosis::text;
using diagnosis::with_separators;

}  // namespace ina::cli
