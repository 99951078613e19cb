// Sets of workers as tests write them: 0b101_workers has ranks 0 and 2.
#pragma once

#include "wire/worker_set.h"

namespace ina {

consteval WorkerSet operator""_workers(unsigned long long bits) {
  return WorkerSet::from_bits(bits);
}

}  // namespace ina
