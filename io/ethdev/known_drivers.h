// The check that a device's name and arguments are spelt right. DPDK's own errors about that are
// those of the system, such as "Bad address".
#pragma once

#include <string>
#include <string_view>

namespace ina::io {

/// Why DPDK (22.11) could not take `device`, a PCI address or "net_DRIVER...,key=value,...": a
/// sentence that says what to type; empty: nothing is wrong that can be seen.
std::string device_problem(std::string_view device);

}  // namespace ina::io
