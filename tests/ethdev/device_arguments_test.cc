#include "io/ethdev/device_arguments.h"

#include <gtest/gtest.h>

namespace ina::io {
namespace {

constexpr std::string_view kDevice = "net_af_packet0,iface=eth0,framesz=2048,frames=,x=12y";

TEST(DeviceArguments, AreFoundByTheirWholeKey) {
  EXPECT_EQ(device_argument(kDevice, "iface"), "eth0");
  EXPECT_EQ(device_argument(kDevice, "framesz"), "2048");
  EXPECT_EQ(device_argument(kDevice, "frames"), "");
  EXPECT_EQ(device_argument(kDevice, "face"), "");
  EXPECT_EQ(device_argument(kDevice, "net_af_packet0"), "");
  EXPECT_EQ(device_argument("iface=eth0", "iface"), "") << "that is the name";
}

}  // namespace
}  // namespace ina::io
