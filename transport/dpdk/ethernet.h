// The device of a dpdk: URL, see dpdk_transport.h, and the address at which the worker is reached
// by it.
#pragma once

#include <memory>
#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "io/ethdev/device.h"
#include "transport/url.h"
#include "wire/frame.h"

namespace ina::client {

class Ethernet {
 public:
  /// Asks the kernel for parameters that the URL leaves open. Nothing is opened yet.
  static Result<Ethernet> resolve(const Url& url);

  Result<std::unique_ptr<io::Device>> open();
  /// Has datagrams for the worker's address come to `device`. On an interface of the kernel the UDP
  /// port is one that nobody else on the host has, another at each call.
  Result<void> take_port(io::Device& device);

  uint32_t mtu() const { return mtu_; }
  /// Without a MAC address, which the device has.
  wire::Address own() const { return {{}, ip_, udp_port_}; }

 private:
  enum class Driver { kAfPacket, kAfXdp, kOther };

  Ethernet() = default;
  Result<void> resolve_interface(const Url& url);
  Result<void> claim_interface();
  std::string arguments() const;
  uint16_t descriptors() const;

  Driver driver_ = Driver::kOther;
  std::string device_;     ///< as the URL gives it; empty: made of driver and interface
  std::string interface_;  ///< of the kernel; empty: none
  uint32_t ip_ = 0;
  uint16_t udp_port_ = 0;
  uint32_t mtu_ = 0;
  Fd claim_;
  Fd reservation_;
};

}  // namespace ina::client
