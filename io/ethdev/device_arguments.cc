#include "io/ethdev/device_arguments.h"

#include <charconv>

namespace ina::io {

std::string_view device_argument(std::string_view device, std::string_view key) {
  for (size_t comma = device.find(','); comma != std::string_view::npos; comma = device.find(',')) {
    device.remove_prefix(comma + 1);
    if (device.starts_with(key) && device.substr(key.size()).starts_with('='))
      return device.substr(key.size() + 1, device.find(',') - key.size() - 1);
  }
  return {};
}

uint32_t device_number(std::string_view device, std::string_view key, uint32_t otherwise) {
  const std::string_view text = device_argument(device, key);
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty() ? number
                                                                                   : otherwise;
}

}  // namespace ina::io
