// The bridge: memif interfaces, the sessions of their workers, and the one thread that serves them.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/idle.h"
#include "control/doorman.h"
#include "control/socket.h"
#include "control/work_budget.h"
#include "io/ethdev/ethdev_port.h"
#include "programs/memif/places.h"
#include "programs/memif/relay.h"
#include "programs/memif/session.h"

namespace ina::memif {

struct ServerConfig {
  std::string switch_socket;
  control::Trust trust;      ///< of the switch there
  std::string socket;        ///< own control socket
  std::string memif_socket;  ///< on which all interfaces listen
  /// Access to the two sockets; none: for the bridge's own user and root.
  std::optional<mode_t> mode;
  uint32_t interfaces = 8;  ///< numbered from 0
  uint32_t ip = 0;          ///< of all interfaces, host byte order
  uint32_t mtu = 9000;
  IdleMode idle = IdleMode::kAuto;
};

/// Memory that DPDK needs for the packet buffers of `config`, in bytes.
uint64_t packet_memory_bytes(const ServerConfig& config);

class Server final : private Interfaces {
 public:
  /// `doorman`: closes the workers' connections, and outlives the server.
  Server(ServerConfig config, control::Doorman* doorman);
  ~Server() override;

  /// Makes the interfaces, then the control socket. DPDK runs.
  Result<void> open();
  /// Serves until stop().
  void run();
  /// From any thread or signal handler: ends run(), or has it log what was counted.
  void stop();
  void request_report();

 private:
  struct Interface {
    explicit Interface(std::unique_ptr<io::EthdevPort> opened)
        : port(std::move(opened)), relay(*port) {}
    std::unique_ptr<io::EthdevPort> port;
    Relay<io::EthdevPort> relay;
  };
  struct Connected {
    std::unique_ptr<Session> session;
    Nanos since = 0;
    bool heard = true;  ///< in this turn: its user has not taken too much time
  };

  Result<wire::Address> attach(uint32_t interface, const Binding& binding,
                               client::ShmTransport& transport) override;
  void detach(uint32_t interface) override;

  bool poll_interfaces();
  void turn(Nanos timeout_ns);
  bool wait(Nanos timeout_ns);
  Nanos free_at(const Connected& one, Nanos now);
  bool serve(Connected& one, bool worker_ready, bool switch_ready);
  void charge_for_doorman();
  void accept_workers();
  void take_in(control::Connection worker);
  std::string no_room(const control::PeerCredentials& peer);
  bool make_room(uint64_t newcomer, const std::vector<Place>& places);
  void close(Connected& one);
  void report() const;
  void ring();

  ServerConfig config_;
  control::Doorman* doorman_;
  Fd event_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> report_wanted_{false};
  std::vector<std::unique_ptr<Interface>> interfaces_;  ///< by number
  std::optional<control::Listener> listener_;
  std::vector<Connected> connected_;  ///< in the order they came
  std::vector<pollfd> polled_;
  /// Share of the users in the time of this thread and of the doorman. The thread has packets to
  /// pass on, so that their share is less than that of the switch's conductor.
  control::WorkBudget budget_{{.burst_ns = 2'000'000, .one_in = 10}};
  Nanos accept_again_ = 0;  ///< until then connections wait in the backlog
};

}  // namespace ina::memif
