// A program's sentence on standard error.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "common/printable.h"

namespace ina {

/// "PROGRAM: TEXT". The text may have several lines, and names of foreign origin in them.
inline void tell_stderr(const char* program, std::string_view text) {
  std::fprintf(stderr, "%s: %s\n", program, printable(text, "\n").c_str());
}

}  // namespace ina
