#include "switchd/peer_process.h"

#include <fstream>
#include <iterator>

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
  std::ifstream file("/proc/" + std::to_string(peer.pid) + "/status");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return std::string(process_state(text));
}

}  // namespace ina::switchd
