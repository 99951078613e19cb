#include "membership/switch_connection.h"

#include <optional>
#include <utility>

#include "membership/forks.h"

namespace ina::membership {

Result<void> SwitchConnection::resolve(const client::Url& url, const Settings& settings) {
  path_ = url.scheme == "shm" ? url.path : url.get("control", control::kDefaultSocket);
  trust_ = {.tls = {settings.tls, control::is_tls(path_) ? control::host_of(path_) : ""},
            .user = settings.switch_user};
  // Only once: a re-join must not wait for a name server while a fork() waits for the re-join.
  auto resolved = control::resolve(path_);
  if (!resolved) return tl::unexpected(resolved.error());
  path_ = std::move(*resolved);
  return {};
}

/// A child that is forked meanwhile must find the connection in control_ or not at all: a fork
/// waits for this, over TCP up to half a second while the switch's host does not answer.
Result<void> SwitchConnection::open(Nanos timeout_ns, Nanos absent_ns) {
  std::unique_lock<std::mutex> forks;
  if (forks_wait_.load()) forks = Forks::instance().hold();
  auto connection = control::Connection::open(path_, timeout_ns, trust_, absent_ns);
  if (!connection) return tl::unexpected(connection.error());
  const std::lock_guard lock(mutex_);
  control_ = std::move(*connection);
  leaves_sent_.clear();
  return {};
}

void SwitchConnection::close() {
  const auto forks = Forks::instance().hold();
  const std::lock_guard lock(mutex_);
  control_.close();
}

bool SwitchConnection::send(uint32_t channel, const request::Message& message,
                            const std::vector<int>& descriptors) {
  const auto of_group = channel != 0 ? std::optional(channel) : std::nullopt;
  const std::string text = control::to_text(message, of_group);
  const std::lock_guard lock(mutex_);
  const bool sent = control_.send_text(text, descriptors).has_value();
  if (control_.pending()) unsent_();
  return sent;
}

bool SwitchConnection::send_leave(uint32_t channel, const request::Leave& leave) {
  {
    const std::lock_guard lock(mutex_);
    if (!leaves_sent_.insert(channel).second) return true;
  }
  if (send(channel, leave)) return true;
  const std::lock_guard lock(mutex_);
  leaves_sent_.erase(channel);
  return false;
}

}  // namespace ina::membership
