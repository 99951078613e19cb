// DPDK's device arguments, "name,key=value,...".
#pragma once

#include <string_view>

namespace ina {

/// Value of `key` in `devargs`, `otherwise` if it is not there.
inline std::string_view device_argument(std::string_view devargs, std::string_view key,
                                        std::string_view otherwise = {}) {
  for (size_t comma = devargs.find(','); comma != std::string_view::npos;
       comma = devargs.find(',')) {
    devargs.remove_prefix(comma + 1);
    if (devargs.starts_with(key) && devargs.substr(key.size()).starts_with('='))
      return devargs.substr(key.size() + 1, devargs.find(',') - key.size() - 1);
  }
  return otherwise;
}

}  // namespace ina
