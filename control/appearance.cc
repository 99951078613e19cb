#include "control/appearance.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>

#include "control/tcp.h"

namespace ina::control {

Appearance::Appearance(const std::string& path) {
  if (is_remote(path)) return;
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  name_ = slash == std::string::npos ? path : path.substr(slash + 1);
  Fd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  constexpr uint32_t kEvents = IN_CREATE | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR;
  if (fd && ::inotify_add_watch(fd.get(), folder.c_str(), kEvents) >= 0) fd_ = std::move(fd);
}

bool Appearance::appeared() {
  bool found = false;
  alignas(inotify_event) char events[4096];
  for (ssize_t got; (got = ::read(fd_.get(), events, sizeof(events))) > 0;)
    for (ssize_t at = 0; at < got;) {
      inotify_event event{};
      std::memcpy(&event, events + at, sizeof(event));
      const char* const name = events + at + sizeof(event);
      found |= event.len != 0 && name_ == name;
      at += static_cast<ssize_t>(sizeof(event) + event.len);
    }
  return found;
}

}  // namespace ina::control
