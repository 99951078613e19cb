// Configuration of ina-switchd: one plain struct, filled from YAML by one table
// (switchd/config/keys.cc).
//
// The initialisers below are the defaults; the commented sample and the manual page are generated
// from them and the table.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "common/huge_pages.h"
#include "common/idle.h"
#include "common/log_format.h"
#include "common/yaml/tree.h"
#include "control/tls_files.h"
#include "scheduler/policies.h"
#include "scheduler/rules.h"
#include "scheduler/tenant_quota.h"
#include "wire/named.h"
#include "wire/types.h"

namespace ina::config {

// Settings for which other layers have an enumeration or a struct use that: there is no second one
// here. A section goes to its users as it is, so that a new key is a field, a line in the table and
// the place that reads it. Times are in nanoseconds, as everywhere in the switch.
enum class Help : uint8_t { kOff, kLeader, kFallback, kSpill };
enum class PortType : uint8_t { kShm, kEthdev };
enum class Tag : uint8_t { kNone, kSiphash };
enum class Results : uint8_t { kUnicast, kMulticast };
enum class LogLevel : uint8_t { kTrace, kDebug, kInfo, kWarning, kError, kCritical };

/// Names as they stand in the file.
inline constexpr Names<Help, 4> kHelpNames = {{{"off", Help::kOff},
                                               {"leader", Help::kLeader},
                                               {"fallback", Help::kFallback},
                                               {"spill", Help::kSpill}}};
inline constexpr Names<PortType, 2> kPortTypeNames = {
    {{"shm", PortType::kShm}, {"ethdev", PortType::kEthdev}}};
inline constexpr Names<Tag, 2> kTagNames = {{{"none", Tag::kNone}, {"siphash", Tag::kSiphash}}};
inline constexpr Names<Results, 2> kResultsNames = {
    {{"unicast", Results::kUnicast}, {"multicast", Results::kMulticast}}};
/// spdlog's names.
inline constexpr Names<LogLevel, 6> kLogLevelNames = {{{"trace", LogLevel::kTrace},
                                                       {"debug", LogLevel::kDebug},
                                                       {"info", LogLevel::kInfo},
                                                       {"warning", LogLevel::kWarning},
                                                       {"error", LogLevel::kError},
                                                       {"critical", LogLevel::kCritical}}};

constexpr std::string_view name(Help v) {
  return name_in(kHelpNames, v);
}
constexpr std::string_view name(PortType v) {
  return name_in(kPortTypeNames, v);
}
constexpr std::string_view name(LogLevel v) {
  return name_in(kLogLevelNames, v);
}

struct AggregatorConfig {
  uint32_t slots = 4096;
  uint32_t slot_bytes = 1024;
  scheduler::PolicyOptions policy;  ///< with section "esa"

  /// Each job has slots of its own; otherwise the jobs share all.
  bool fixed_slots() const { return !scheduler::traits(policy.kind).hashed; }
  bool operator==(const AggregatorConfig&) const = default;
};

/// Policy static: each job has a pool of its own, used in two halves of W slots.
struct StaticConfig {
  uint32_t slots_per_job = 512;
  bool operator==(const StaticConfig&) const = default;
};

/// The treatment of fragments that wait for a slow worker.
struct StragglerConfig {
  Help help = Help::kOff;
  uint64_t run_ahead_bytes = 16ull << 20;
  uint64_t park_bytes = 16ull << 20;
  Nanos patience_ns = 20'000'000;
  bool operator==(const StragglerConfig&) const = default;
};

/// The resources of each job.
struct JobsConfig {
  uint64_t window_bytes = 4ull << 20;
  uint32_t slots_floor = 0;
  uint32_t slots_ceiling = 0;  ///< 0: all
  uint8_t priority_max = 255;
  uint64_t memory_bytes = 1ull << 30;  ///< of all jobs together
  bool operator==(const JobsConfig&) const = default;
};

struct SwitchConfig {
  uint32_t lcores = 1;
  uint32_t burst = 32;  ///< packets
  IdleMode idle = IdleMode::kAuto;
  uint32_t max_jobs = 64;
  uint32_t max_groups = 1024;
  uint32_t max_groups_per_user = 0;  ///< or tenant; 0: half of max_groups
  uint32_t max_groups_per_job = 512;
  /// Jobs and groups that a lane must have room for.
  uint32_t job_places() const { return max_jobs + max_groups; }
  bool operator==(const SwitchConfig&) const = default;
};

/// Frames that are not for the switch: between its ethdev ports.
struct BridgeConfig {
  bool enabled = true;
  uint32_t mac_entries = 8192;
  Nanos ageing_ns = 300'000'000'000;
  uint32_t storm_limit_frames_per_s = 10'000;  ///< 0: none
  bool loop_protection = true;
  bool operator==(const BridgeConfig&) const = default;
};

struct EalConfig {
  HugePages huge = HugePages::kAuto;
  uint64_t memory_bytes = 64ull << 20;  ///< whole MiB
  std::string file_prefix;              ///< empty: derived from the process id
  std::vector<uint32_t> cpus;           ///< sorted, unique; empty: not pinned
  std::vector<std::string> extra_args;
  bool telemetry = false;
  bool operator==(const EalConfig&) const = default;
};

struct ControlConfig {
  std::string socket = "/run/ina/switch.sock";
  uint32_t mode = 0660;
  Nanos join_timeout_ns = 30'000'000'000;    ///< a connection that joins no job is closed then
  Nanos rejoin_timeout_ns = 30'000'000'000;  ///< for all workers of a job, after a restart
  uint32_t max_connections = 1024;
  uint32_t max_connections_per_user = 0;  ///< or tenant; 0: half of max_connections
  std::string state;                      ///< empty: derived from the socket
  std::string listen;                     ///< "ADDRESS:PORT"; empty: no TCP
  std::string token_file;
  bool allow_anonymous = false;
  Nanos dead_peer_timeout_ns = 10'000'000'000;
  uint32_t max_unjoined = 128;  ///< over TCP, from one address
  /// Owners of switches below, separated by commas; empty: none may join.
  std::string switches_below;
  control::TlsFiles tls;  ///< keys tls_certificate, tls_key, tls_client_ca; none: no TLS
  bool require_client_certificate = true;

  /// Path of the state file.
  std::string state_path() const { return state.empty() ? socket + ".state" : state; }
  bool operator==(const ControlConfig&) const = default;
};

/// The switch above, in a tree of switches.
struct UplinkConfig {
  std::string url;         ///< "tcp:HOST:PORT", "tls:HOST:PORT" or a path; empty: there is none
  std::string port;        ///< name of the Ethernet port that leads there
  std::string port_above;  ///< the one there that leads here; empty: the switch above finds it
  std::string token_file;
  control::TlsFiles tls;  ///< keys certificate, key, ca
  bool operator==(const UplinkConfig&) const = default;
};

/// A host behind a port.
struct HostConfig {
  std::array<uint8_t, 6> mac{};
  uint32_t ip = 0;  ///< host byte order; 0: none
  bool operator==(const HostConfig&) const = default;
};

/// The sockets of administrators.
struct AdminConfig {
  bool enabled = true;
  std::string socket;  ///< empty: derived from the control socket
  std::string group;
  std::string listen;     ///< "ADDRESS:PORT"; empty: no TCP
  control::TlsFiles tls;  ///< keys certificate, key, client_ca
  bool operator==(const AdminConfig&) const = default;
};

struct PortConfig {
  std::string name{};
  PortType type = PortType::kShm;
  // The rest is meaningful for PortType::kEthdev only.
  std::string device{};           ///< devargs or PCI address
  uint32_t ip = 0;                ///< host byte order
  uint16_t vlan = 0;              ///< of the switch itself; 0: no tag
  std::vector<uint16_t> vlans{};  ///< that may pass; empty: all
  Results results = Results::kUnicast;
  uint16_t udp_port = 7584;
  uint32_t mtu_bytes = 1500;
  uint16_t rx_descriptors = 512;
  uint16_t tx_descriptors = 512;
  std::vector<HostConfig> hosts{};  ///< empty: anybody may send
  bool operator==(const PortConfig&) const = default;
};

/// The HTTP server: metrics and a page.
struct MetricsConfig {
  std::string listen;              ///< "ADDRESS:PORT"; empty: none
  uint32_t jobs = 20;              ///< and tenants, with series of their own
  bool page = true;                ///< for people
  std::vector<std::string> hosts;  ///< names by which the address is asked, besides localhost
  bool operator==(const MetricsConfig&) const = default;
};

/// How frames on ethdev ports are authenticated.
struct SecurityConfig {
  Tag tag = Tag::kNone;
  bool tags() const { return tag != Tag::kNone; }
  bool operator==(const SecurityConfig&) const = default;
};

struct LogConfig {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string file;  ///< empty: standard error
  bool operator==(const LogConfig&) const = default;
};

struct Config {
  AggregatorConfig aggregator;
  StaticConfig static_pools;  ///< section "static"
  /// Sections "fallback", "recovery" and "congestion"; each job's policy and priority are filled in
  /// with it.
  scheduler::Rules rules;
  StragglerConfig straggler;
  JobsConfig jobs;
  SwitchConfig switchd;  ///< section "switch"
  BridgeConfig bridge;
  EalConfig eal;
  ControlConfig control;
  UplinkConfig uplink;
  AdminConfig admin;
  std::vector<scheduler::TenantQuota> tenants;
  SecurityConfig security;
  std::vector<PortConfig> ports = {PortConfig{.name = "shm0"}};
  LogConfig log;
  MetricsConfig metrics;

  /// Path of the administrators' socket.
  std::string admin_socket_path() const {
    return admin.socket.empty() ? control.socket + ".admin" : admin.socket;
  }
  /// True if DPDK is to run: for Ethernet ports, or because it is to answer or was given arguments.
  bool needs_dpdk() const {
    return eal.telemetry || !eal.extra_args.empty() ||
           std::ranges::any_of(ports,
                               [](const PortConfig& p) { return p.type == PortType::kEthdev; });
  }
  bool operator==(const Config&) const = default;
};

/// Bytes of headers that count against a port's MTU: IPv4, UDP, INA.
inline constexpr uint32_t kHeaderBytesInMtu = 20 + 8 + 72;

using ConfigError = yaml::Error;
using yaml::kMaxFileBytes;
using yaml::Node;
using yaml::Place;
using yaml::Tree;

/// A key that has another value than the file says.
struct Override {
  std::string key;    ///< "aggregator.policy"; no key of a port or tenant
  std::string value;  ///< as in the file
  bool operator==(const Override&) const = default;
};

/// Reads a configuration. Keys that the text does not mention keep their defaults, so an empty text
/// is valid. On failure all errors, in the order of their places; a YAML syntax error hides what
/// comes with it, because the structure is not known then. `file_name` is for the messages only.
/// `overrides` take the place of the text's values; errors in one have line 0.
tl::expected<Config, std::vector<ConfigError>> load_config(
    std::string_view text, std::string_view file_name, const std::vector<Override>& overrides = {});

/// Reads a configuration from a file; failing to read it is reported like any other error.
tl::expected<Config, std::vector<ConfigError>> load_config_file(const std::string& path);

/// A commented YAML file with every key at its default. Loads to Config{}.
std::string sample_config();

/// ina-switchd.yaml(5) in roff (man macros).
std::string manual_page();

}  // namespace ina::config
