// Functions that the fuzz targets share.
#pragma once

#include <cstdio>
#include <cstdlib>

/// Ends the process, and with it the run, if `condition` does not hold; also in release builds.
#define INA_FUZZ_CHECK(condition)                                                         \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)
