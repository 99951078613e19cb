// How programs that are one rank of a job are started: PROGRAM URL JOB RANK WORLD ...
#pragma once

#include <cstdlib>

#include "ina/ina.h"

namespace ina {

/// Configuration by the first four arguments, which must be there; all else is as by default.
inline ina_config config_of(char** argv) {
  ina_config config;
  ina_config_init(&config);
  config.url = argv[1];
  config.job = argv[2];
  config.rank = std::atoi(argv[3]);
  config.world_size = std::atoi(argv[4]);
  return config;
}

}  // namespace ina
