#include "io/ethdev/ethdev_port_config.h"

#include <gtest/gtest.h>

namespace ina::io {
namespace {

EthdevPortConfig good() {
  EthdevPortConfig config;
  config.name = "p0";
  config.ip = 0x0a000001;
  return config;
}

/// The error of a good configuration after `change`; empty: there is none.
template <class Change>
std::string error_after(Change change) {
  EthdevPortConfig config = good();
  change(config);
  const auto fine = check(config);
  return fine ? std::string() : fine.error().text;
}

TEST(EthdevPortConfig, TheDefaultsNeedAnAddressAlone) {
  EXPECT_EQ(error_after([](EthdevPortConfig&) {}), "");
  EXPECT_EQ(error_after([](EthdevPortConfig& config) { config.ip = 0; }),
            "Port p0: it has no IP address.");
}

TEST(EthdevPortConfig, LanesHaveUdpPorts) {
  const auto with = [](uint16_t udp_port, uint16_t lanes) {
    return error_after([=](EthdevPortConfig& config) {
      config.udp_port = udp_port;
      config.lanes = lanes;
    });
  };
  EXPECT_EQ(with(65535, 1), "");
  EXPECT_NE(with(65535, 2).find("UDP ports 65535 and the 2 lanes"), std::string::npos);
  EXPECT_NE(with(0, 1), "");
  EXPECT_NE(with(1, 0), "");
}

TEST(EthdevPortConfig, ASlotFitsIntoAFrame) {
  const auto with = [](uint32_t mtu, uint32_t slot_bytes) {
    return error_after([=](EthdevPortConfig& config) {
      config.mtu = mtu;
      config.slot_bytes = slot_bytes;
    });
  };
  EXPECT_EQ(with(8292, 8192), "");
  EXPECT_NE(with(8291, 8192).find("need an mtu of 8292, it has 8291"), std::string::npos);
}

TEST(EthdevPortConfig, NumbersHaveTheirRanges) {
  const auto with_vlan = [](uint16_t vlan) {
    return error_after([=](EthdevPortConfig& config) { config.vlan = vlan; });
  };
  EXPECT_EQ(with_vlan(4094), "");
  EXPECT_NE(with_vlan(4095).find("VLAN 4095"), std::string::npos);
  const auto with_endpoints = [](uint16_t endpoints) {
    return error_after([=](EthdevPortConfig& config) { config.max_endpoints = endpoints; });
  };
  EXPECT_EQ(with_endpoints(4096), "");
  EXPECT_NE(with_endpoints(0), "");
  EXPECT_NE(with_endpoints(4097).find("max_endpoints 4097"), std::string::npos);
}

}  // namespace
}  // namespace ina::io
