// Reading a device's arguments, "net_af_packet0,iface=eth0,framesz=2048".
#pragma once

#include <string_view>

namespace ina::io {

/// Value of `key`, empty if it is not there.
std::string_view device_argument(std::string_view device, std::string_view key);

}  // namespace ina::io
