// What the control plane is told when it is made.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/idle.h"
#include "common/result.h"
#include "control/socket.h"
#include "control/tls_files.h"
#include "io/bridge/mac_table.h"
#include "scheduler/admission.h"
#include "scheduler/policies.h"
#include "switchd/config/config.h"
#include "switchd/work_budget.h"
#include "wire/frame.h"

namespace ina::switchd {

struct FramePortInfo {
  std::string name;
  wire::Address address;
  bool multicast = false;   ///< results are sent to groups
  bridge::VlanId vlan = 0;  ///< of the switch itself behind this port
};

struct ConductorConfig {
  std::string socket_path;
  mode_t socket_mode = 0660;
  std::string listen;      ///< "ADDRESS:PORT" for workers on other hosts; empty: none
  std::string token_file;  ///< who may join over TCP
  /// TLS for workers on other hosts (control::kControlTlsNames); no certificate: none.
  control::TlsFiles tls;
  bool require_client_certificate = true;
  bool allow_anonymous = false;               ///< who shows no token may join over TCP, too
  Nanos dead_peer_ns = control::kDeadPeerNs;  ///< a host that answers nothing over TCP is dead then
  uint32_t max_connections = 1024;
  uint32_t max_connections_per_user = 0;  ///< or tenant; 0: half of max_connections
  uint32_t max_unjoined = 128;            ///< of connections over TCP, from one address
  /// How long a host may take to hear why its connection over TCP is closed.
  Nanos farewell_ns = 1'000'000'000;
  Nanos join_timeout_ns = 30'000'000'000;  ///< a connection that joins no job is closed after this
  Nanos rejoin_timeout_ns = 30'000'000'000;  ///< for all workers of a job, after a restart
  uint32_t max_jobs = 64;
  uint32_t max_groups = 1024;         ///< of ranks, of all jobs together
  uint32_t max_groups_per_user = 0;   ///< or tenant; 0: half of max_groups
  uint32_t max_groups_per_job = 256;  ///< groups of its groups included
  uint32_t slots = 0;                 ///< of the whole array
  uint32_t slot_bytes = 0;
  uint32_t slots_per_job = 0;
  scheduler::PolicyKind policy{};
  Home home = Home::kWorkers;
  config::JobsConfig jobs;
  config::RecoveryConfig recovery;
  config::CongestionConfig congestion;
  /// Straggler help: bytes that a worker may run ahead; jobs.window_bytes bounds what it has in the
  /// switch. 0: none.
  uint64_t run_ahead_bytes = 0;
  uint64_t park_bytes = 0;  ///< that each worker keeps; 0: the fallback does
  bool park_home = false;   ///< aggregator::JobSpec::park_home
  Nanos park_patience_ns = 0;
  /// Mappings and descriptors for all jobs together; 0: what the process's limits let it have.
  uint64_t mappings = 0;
  uint64_t descriptors = 0;
  uint32_t handles_share_percent = 50;  ///< of them, what one tenant or user may have
  std::vector<scheduler::TenantQuota> tenants;
  scheduler::TenantQuota other_tenants;  ///< of each that is not in `tenants`
  bool tags = false;                     ///< frames carry tags
  IdleMode idle = IdleMode::kAuto;
  bool has_shm = true;
  std::string shm_name = "shm0";
  std::vector<FramePortInfo> frame_ports;
  WorkBudget::Limits work = {};  ///< how much of the conductor's time one user or address may take
  /// Has the log go on in the file that is at its path now; empty: there is no file.
  std::function<Result<void>()> reopen_log = {};
  /// Called when every lane has answered: when the switch begins to serve, and from then on each
  /// `heartbeat_ns` (0: not again).
  std::function<void()> heartbeat = {};
  Nanos heartbeat_ns = 0;

  /// How many jobs and groups a lane must have room for.
  uint32_t job_places() const { return max_jobs + max_groups; }
  /// Each job has slots of its own; otherwise the jobs share all.
  bool fixed_slots() const { return !scheduler::traits(policy).hashed; }
  bool helps() const { return run_ahead_bytes != 0 && !fixed_slots(); }
};

}  // namespace ina::switchd
