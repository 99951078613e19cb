#include "switchd/peer_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/fd.h"

namespace ina::switchd {

std::string_view process_state(std::string_view proc_status) {
  constexpr std::string_view kKey = "\nState:\t";
  const size_t at = proc_status.find(kKey);
  if (at == std::string_view::npos || at + kKey.size() >= proc_status.size()) return {};
  switch (proc_status[at + kKey.size()]) {
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "ended";
    default:
      return "runs";
  }
}

std::string process_state(const control::PeerCredentials& peer) {
  if (peer.remote || peer.pid <= 0) return {};
  const std::string path = "/proc/" + std::to_string(peer.pid) + "/status";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> begun;  // the state is in the third line
  const ssize_t got = file ? ::read(file.get(), begun.data(), begun.size()) : 0;
  return std::string(process_state({begun.data(), static_cast<size_t>(std::max<ssize_t>(0, got))}));
}

}  // namespace ina::switchd
