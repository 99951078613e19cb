// The program that decides, in the kernel, which frames of an interface an AF_XDP device gets.
//
// DPDK's driver (22.11) has a program that takes everything, and leaves it behind when the process
// is killed. This program takes the frames that its map names, and goes with the process: it is
// attached by a link. The driver loads it as it would load a user's program (xdp_prog=).
#pragma once

#include <bpf/libbpf.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/fd.h"
#include "common/result.h"

struct ina_xdp_take;

namespace ina::io {

class XdpProgram {
 public:
  /// Nothing is attached yet. An error if the interface has an XDP program already that somebody
  /// uses. Needs root, or CAP_BPF and CAP_NET_ADMIN.
  static Result<std::unique_ptr<XdpProgram>> make(const std::string& interface);

  /// For xdp_prog=, until the device is set up.
  std::string path() const;
  /// The driver has attached it, and now it is ours: it is detached with this object or at the end
  /// of the process, however that ends. It takes nothing yet.
  Result<void> take_over();
  /// After take_over(): the interface is there, as the same one.
  bool is_attached() const;
  /// From now on the device gets all frames.
  Result<void> take_all();
  /// From now on the device gets UDP datagrams to this address and port, and the kernel all else.
  Result<void> take_datagrams(uint32_t ip, uint16_t udp_port);

 private:
  XdpProgram(std::string interface, int if_index, Fd file);
  Result<void> take(const ina_xdp_take& what);

  const std::string interface_;
  const int if_index_;
  Fd file_;  ///< the object file, in memory
  Fd link_;
  Fd take_map_;
};

/// While it lives, libbpf's messages go to take_eal_errors() instead of stderr.
class BpfMessages {
 public:
  BpfMessages();
  ~BpfMessages();
  BpfMessages(const BpfMessages&) = delete;
  BpfMessages& operator=(const BpfMessages&) = delete;

 private:
  const libbpf_print_fn_t before_;
};

}  // namespace ina::io
