#include "switchd/reports/peer_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "common/fd.h"

namespace ina::switchd {

namespace {

/// The begin of a small file; empty: there is none.
std::string begin_of(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

/// What stands in the line of /proc/PID/cgroup of a hierarchy behind "NUMBER:CONTROLLERS:", the
/// control group's path.
std::string group_in(std::string_view lines, std::string_view controllers) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controllers)
      return std::string(line.substr(second + 1));
  }
  return {};
}

/// By its control group, or one above it: version 2 of the kernel's interface, or version 1.
bool is_frozen(const std::string& root, const std::string& proc) {
  const std::string groups = begin_of(proc + "/cgroup");
  const std::string mounted = root + "sys/fs/cgroup";
  if (const std::string group = group_in(groups, ""); !group.empty())
    for (const char* place : {"", "/unified"})
      if (begin_of(mounted + place + group + "/cgroup.events").find("frozen 1") !=
          std::string::npos)
        return true;
  const std::string group = group_in(groups, "freezer");
  return !group.empty() &&
         begin_of(mounted + "/freezer" + group + "/freezer.state").starts_with("FRO");
}

}  // namespace

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
    case 'D':
      return "blocked";
    default:
      return "runs";
  }
}

std::string process_state(const control::PeerCredentials& peer, const std::string& root) {
  if (peer.remote || peer.pid <= 0) return {};
  const std::string proc = root + "proc/" + std::to_string(peer.pid);
  const std::string state(process_state(begin_of(proc + "/status")));
  // The kernel shows a frozen process as one that sleeps (version 2), or is blocked (version 1).
  if ((state == "runs" || state == "blocked") && is_frozen(root, proc)) return "frozen";
  return state;
}

}  // namespace ina::switchd
