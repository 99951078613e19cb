// The control connections: their admission, their life, their messages, and the conductor's time
// that each may take. No user or address takes any of these from the others: see docs/security.md,
// "What a peer may use".
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/doorman.h"
#include "control/messages.h"
#include "control/socket.h"
#include "control/work_budget.h"
#include "control/work_timer.h"
#include "switchd/admin_sockets.h"
#include "switchd/client.h"
#include "switchd/conductor_config.h"
#include "switchd/epoll.h"
#include "switchd/farewells.h"
#include "switchd/jobs/job_table.h"

namespace ina::switchd {

/// Used by one thread.
class Connections {
 public:
  struct Handlers {
    /// A peer has said something.
    std::function<void(Client&, control::Received&)> message;
    /// Its connection is closed after this; it is not among the others any more.
    std::function<void(Client&)> closed;
  };

  /// All of them must outlive it. `doorman`: closes what carries descriptors; nullptr: nobody does.
  Connections(const ConductorConfig& config, const JobTable& jobs, control::Doorman* doorman,
              Epoll& epoll, Handlers handlers);

  /// Opens the control socket, the port for workers on other hosts, and the sockets of
  /// administrators, if there are any. Nobody is let in before accept_from_now_on().
  Result<void> open();
  Result<void> accept_from_now_on();
  /// nullptr: no port for workers on other hosts.
  control::Listener* tcp_listener() { return tcp_listener_ ? &*tcp_listener_ : nullptr; }
  /// After open(), from any thread; 0: there is none.
  uint16_t tcp_port() const { return tcp_port_; }
  uint16_t admin_port() const { return admin_sockets_.tcp_port(); }

  /// Something has come on `fd`. False: it is none of these descriptors.
  bool serve(int fd);
  /// Handles messages that were received and not handled yet.
  void serve_unread();
  bool has_unread() const { return !unread_.empty(); }
  /// At the end of each turn of the thread: closes the connections due for it, and hears again
  /// those that have waited.
  void turn(Nanos now);
  /// When the next turn is due, at `until` the latest.
  Nanos next_turn(Nanos until) const;
  void close_all();

  /// Closed at the end of the turn, so that handlers may keep references.
  void close_later(Client& client) { to_close_.insert(client.line().connection.fd()); }
  /// Stops reading from a client while the doorman or the mapper works for it. An epoll event of
  /// the client then means that its connection has ended.
  void hold(Client& client) { epoll_.change(client.connection.fd(), 0); }
  void release(Client& client);

  void send(Client& client, const control::answer::Message& message,
            const std::vector<int>& fds = {});
  void refuse(Client& client, ina_status status, const std::string& text);
  void refuse(Client& client, const Error& error) { refuse(client, error.status, error.text); }
  void refuse_malformed(Client& client, const Error& error);
  /// A refusal that time may change: libina tries again.
  void refuse_for_now(Client& client, const std::string& text);
  /// True: refused, because its tenant has enough connections.
  bool refuse_if_crowded(Client& client);
  /// False: refused. A place that is kept for members that come back is for nothing else.
  bool may_say(Client& client, const std::string& type);
  /// Time of the conductor, or of a thread or process that works for it.
  void charge_time(const control::PeerCredentials& peer, Nanos spent);

  /// By descriptor.
  const std::map<int, std::unique_ptr<Client>>& all() const { return clients_; }
  /// nullptr: there is none.
  Client* find(int fd) const;
  uint32_t count(auto&& matches) const {
    uint32_t found = 0;
    for (const auto& [fd, client] : clients_) found += matches(*client) ? 1 : 0;
    return found;
  }

 private:
  /// The use of the connections' places.
  struct Places {
    struct Use {
      uint32_t total = 0;
      uint32_t idle = 0;
      uint32_t unjoined = 0;
      uint32_t guests = 0;
    };
    std::map<uint64_t, Use> of;  ///< by PeerCredentials::key()
    uint32_t guests = 0;         ///< on places that are kept for those that come back
    uint32_t missing = 0;        ///< workers that may come back
    // Administrators have connections beside all others, and so has a fallback server: one, and one
    // for each job.
    uint32_t not_workers = 0;
    uint32_t servers_missing = 0;
  };
  uint32_t per_user() const;
  Places count_places() const;
  uint32_t missing_of(const control::PeerCredentials& peer) const;
  std::string no_room(const control::PeerCredentials& peer, Places& places, bool& returning);
  bool make_room(const control::PeerCredentials& peer, Places& places);

  bool doorman_busy() const;
  std::vector<int> listening() const;
  void accept(const control::Listener& listener, bool of_administrators);
  void take_in(control::Connection connection, Places& places, const control::WorkTimer& timer);
  void take_in_administrator(control::Connection connection, const control::WorkTimer& timer);
  void turn_away(control::Connection connection, const std::string& text, bool retry, Nanos now);
  void serve(Client& client);
  void read(Client& client);
  void watch_output(Client& client);
  void pause(Client& client, Nanos until);
  void resume_paused(Nanos now);
  Nanos longest_silence(const Client& client) const;
  void close_silent(Nanos now);
  void close(int fd);

  const ConductorConfig& config_;
  const JobTable& jobs_;
  control::Doorman* doorman_;
  Epoll& epoll_;
  Handlers handlers_;
  std::optional<control::Listener> listener_;
  std::optional<control::Listener> tcp_listener_;
  uint16_t tcp_port_ = 0;  ///< stays after close_all(): other threads read it
  AdminSockets admin_sockets_;
  std::map<int, std::unique_ptr<Client>> clients_;
  std::set<int> unread_;  ///< clients that have said more than was read, and the socket is silent
  std::set<int> to_close_;
  std::set<std::pair<Nanos, int>> paused_;  ///< clients that are not heard until then
  Farewells farewells_;
  control::WorkBudget budget_;
  Nanos looked_for_silent_ = 0;
  Nanos accept_again_ = 0;  ///< when the listeners are watched again; 0: they are
};

}  // namespace ina::switchd
