#include "io/ethdev/device_arguments.h"

namespace ina::io {

std::string_view device_argument(std::string_view device, std::string_view key) {
  for (size_t comma = device.find(','); comma != std::string_view::npos; comma = device.find(',')) {
    device.remove_prefix(comma + 1);
    if (device.starts_with(key) && device.substr(key.size()).starts_with('='))
      return device.substr(key.size() + 1, device.find(',') - key.size() - 1);
  }
  return {};
}

}  // namespace ina::io
