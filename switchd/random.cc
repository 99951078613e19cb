#include "switchd/random.h"

#include <sys/random.h>

namespace ina::switchd {

uint64_t random_u64() {
  uint64_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

}  // namespace ina::switchd
