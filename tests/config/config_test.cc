// Configurations that are accepted: defaults, what every key sets, and what is set besides the
// file.
#include "switchd/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/policies.h"
#include "switchd/config/keys.h"
#include "switchd/config/values.h"
#include "tests/config/config_texts.h"

namespace ina::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Config, LongTextIsCutBetweenCharactersAndEscaped) {
  EXPECT_EQ(printable("short\n"), "short\\x0a");
  EXPECT_EQ(printable(std::string(48, 'a')), std::string(48, 'a'));
  EXPECT_EQ(printable(std::string(49, 'a')), std::string(48, 'a') + "...");
  EXPECT_EQ(printable(std::string(47, 'a') + "\u00e9"), std::string(47, 'a') + "...");
  std::string escaped;
  for (int i = 0; i < 48; ++i) escaped += "\\x7f";
  EXPECT_EQ(printable(std::string(100, '\x7f')), escaped + "...");
}

// ---- what is set besides the file

TEST(Overrides, TakeThePlaceOfWhatTheTextSays) {
  const std::vector<Override> overrides = {{"aggregator.policy", "esa"}, {"esa.decay", "time"}};
  for (const char* text : {"", "aggregator:\n", "aggregator: {policy: fcfs}\n",
                           "aggregator: {slots: 64}\nesa: {decay: none}\n"}) {
    const auto config = load_config(text, "x.yaml", overrides);
    ASSERT_TRUE(config) << text << config.error().front().to_string();
    EXPECT_EQ(config->aggregator.policy.kind, scheduler::PolicyKind::kEsa) << text;
    EXPECT_EQ(config->aggregator.policy.decay, scheduler::Decay::kTime) << text;
  }
}

TEST(Overrides, AreCheckedLikeTheText) {
  const auto unknown = load_config("aggregator: {slots: 0}\n", "x.yaml",
                                   {{"aggregator.policy", "best"}, {"aggregator.wais", "2"}});
  ASSERT_FALSE(unknown);
  std::vector<std::string> lines;
  for (const ConfigError& error : unknown.error()) lines.push_back(error.to_string());
  EXPECT_THAT(lines, ElementsAre("x.yaml: aggregator.policy: best is unknown (known: " +
                                     policies(", ", false) + ")",
                                 "x.yaml: aggregator.wais: unknown key; did you mean \"ways\"?",
                                 "x.yaml:1:21: aggregator.slots: 0 is not in 1..2^24"));
  const auto together = load_config("aggregator: {policy: esa}\nstraggler: {help: leader}\n",
                                    "x.yaml", {{"aggregator.policy", "static"}});
  ASSERT_FALSE(together);
  EXPECT_THAT(together.error().front().to_string(),
              HasSubstr("x.yaml:2:19: straggler.help: leader does not go with aggregator.policy: "
                        "static, "));
  EXPECT_FALSE(load_config("[]", "x.yaml", {{"aggregator.policy", "esa"}}));
}

TEST(Overrides, PolicyKeysAreThoseOfTheOptions) {
  std::vector<std::string> names;
  for (const Key& key : keys())
    if (is_of_policy(key)) names.push_back(full_name(key));
  EXPECT_THAT(names, ElementsAre("aggregator.policy", "aggregator.ways", "esa.residual",
                                 "esa.decay", "esa.decay_half_life", "esa.near_full_bonus"));
}

// ---- what is accepted

TEST(Config, EmptyTextsAreTheDefaults) {
  for (const char* text :
       {"", "\n\n", "# nothing\n", "---\n", "{}", "~", "switch:\nlog:\n", "tenants:\n"})
    EXPECT_EQ(load(text), Config{}) << text;
}

TEST(Config, DefaultsAreTheDocumentedOnes) {
  const Config config;
  EXPECT_EQ(config.aggregator.slots, 4096u);
  EXPECT_EQ(config.aggregator.slot_bytes, 1024u);
  EXPECT_EQ(config.static_pools.slots_per_job, 512u);
  EXPECT_EQ(config.switchd.burst, 32u);
  EXPECT_EQ(config.eal.memory_bytes, 64u << 20);
  EXPECT_EQ(config.control.socket, "/run/ina/switch.sock");
  EXPECT_EQ(config.control.mode, 0660u);
  EXPECT_EQ(config.control.join_timeout_ns, 30'000'000'000);
  EXPECT_EQ(config.control.rejoin_timeout_ns, 30'000'000'000);
  EXPECT_EQ(config.control.state_path(), "/run/ina/switch.sock.state");
  EXPECT_EQ(config.control.listen, "");
  EXPECT_FALSE(config.control.allow_anonymous);
  EXPECT_EQ(config.control.dead_peer_timeout_ns, 10'000'000'000);
  ASSERT_THAT(config.ports, SizeIs(1));
  EXPECT_EQ(config.ports[0].name, "shm0");
  EXPECT_EQ(config.ports[0].type, PortType::kShm);
}

TEST(Config, ThePoolsSizeMattersToPolicyStaticOnly) {
  EXPECT_EQ(load("aggregator: {slots: 16, policy: esa}").aggregator.slots, 16u);
  EXPECT_EQ(load("jobs: {slots_floor: 5000}").jobs.slots_floor, 5000u);
}

TEST(Config, EveryKeyReachesItsField) {
  const Config config = load(R"(
aggregator: {slots: 16777216, slot_bytes: 8KiB, policy: esa, ways: 8}
static: {slots_per_job: 1024}
esa: {residual: false, decay: time, decay_half_life: 3 ms, near_full_bonus: true}
fallback: {home: spill}
recovery: {rto_min: 5 ms, rto_max: 1 s}
congestion: {ecn: false, aggregator_window: true}
jobs: {window_bytes: 1 MiB, slots_floor: 16, slots_ceiling: 1024, priority_max: 100, memory: 2 GiB}
switch: {lcores: 64, burst: 512, idle: backoff, max_jobs: 4096}
eal:
  huge: "no"
  memory: 1 GiB
  file_prefix: ina-1
  cpus: 3,0-1,1
  extra_args: [--no-pci, "--log-level=8", 7]
  telemetry: true
control: {socket: /tmp/a b/ä.sock, mode: 777, join_timeout: 1500 ms, rejoin_timeout: 2 s,
          max_connections: 65536, max_connections_per_user: 9, state: /var/lib/ina, listen: "0.0.0.0:65535",
          token_file: /etc/ina/tokens, allow_anonymous: true, dead_peer_timeout: 2 s,
          max_unjoined: 7, tls_certificate: /c, tls_key: /k, tls_client_ca: /a,
          tls_require_client_certificate: false, switches_below: "rack, uid:0"}
uplink: {url: "tls:root:7584", port: eth0, port_above: rack1, token_file: /t, certificate: /uc,
         key: /uk, ca: /ua}
admin: {enabled: false, socket: /tmp/admin, group: ops, listen: "10.0.0.1:7585", certificate: /c,
        key: /k, client_ca: /a}
tenants:
  - {name: vision, slots_floor: 100, slots_ceiling: 200, jobs_max: 3, workers_max: 40,
     memory: 64 MiB, priority_max: 50}
  - {name: "uid:1000"}
  - {name: "*", jobs_max: 1}
security: {tag: siphash}
metrics: {listen: "127.0.0.1:7586", jobs: 5, page: false, hosts: [switch1, switch1.example]}
ports:
  - {name: shm0, type: shm}
  - name: eth0
    ip: 192.168.1.254
    device: "net_memif0,role=server,id=0"
    type: ethdev
    vlan: 4094
    vlans: [0, 10, 4094]
    results: multicast
    udp_port: 65472
    mtu: 9000
    rx_descriptors: 64
    tx_descriptors: 4096
    hosts: ["02:0a:ff:00:00:01 10.0.0.1", "02:00:00:00:00:02"]
log: {level: critical, format: json, file: /var/log/ina.log}
)");
  Config expected;
  expected.aggregator = {
      1 << 24,
      8192,
      {scheduler::PolicyKind::kEsa, false, scheduler::Decay::kTime, 3'000'000, true, 8}};
  expected.static_pools = {1024};
  expected.rules = {.home = Home::kSpill,
                    .ecn = false,
                    .aggregator_window = true,
                    .rto_min_ns = 5'000'000,
                    .rto_max_ns = 1'000'000'000};
  expected.jobs = {1 << 20, 16, 1024, 100, 2ull << 30};
  expected.switchd = {64, 512, IdleMode::kBackoff, 4096};
  expected.eal = {
      HugePages::kNo, 1u << 30, "ina-1", {0, 1, 3}, {"--no-pci", "--log-level=8", "7"}, true};
  expected.control = {"/tmp/a b/ä.sock",
                      0777,
                      1'500'000'000,
                      2'000'000'000,
                      65536,
                      9,
                      "/var/lib/ina",
                      "0.0.0.0:65535",
                      "/etc/ina/tokens",
                      true,
                      2'000'000'000,
                      7,
                      "rack, uid:0",
                      {"/c", "/k", "/a"},
                      false};
  expected.uplink = {"tls:root:7584", "eth0", "rack1", "/t", {"/uc", "/uk", "/ua"}};
  expected.admin = {false, "/tmp/admin", "ops", "10.0.0.1:7585", {"/c", "/k", "/a"}};
  expected.tenants = {{"vision", 100, 200, 3, 40, 64 << 20, 50},
                      {.name = "uid:1000"},
                      {.name = "*", .jobs_max = 1}};
  expected.security = {Tag::kSiphash};
  expected.metrics = {"127.0.0.1:7586", 5, false, {"switch1", "switch1.example"}};
  expected.ports.push_back({"eth0",
                            PortType::kEthdev,
                            "net_memif0,role=server,id=0",
                            0xc0a801fe,
                            4094,
                            {0, 10, 4094},
                            Results::kMulticast,
                            65472,
                            9000,
                            64,
                            4096,
                            {{{2, 10, 255, 0, 0, 1}, 0x0a000001}, {{2, 0, 0, 0, 0, 2}, 0}}});
  expected.log = {LogLevel::kCritical, LogFormat::kJson, "/var/log/ina.log"};
  EXPECT_EQ(config, expected);
  EXPECT_EQ(config.control.state_path(), "/var/lib/ina");
}

TEST(Config, ListeningTakesTokensOrTheWordThatNoneAreMeant) {
  EXPECT_EQ(load("control: {listen: \"10.0.0.1:7584\", token_file: /t}").control.token_file, "/t");
  EXPECT_TRUE(
      load("control: {listen: \"10.0.0.1:7584\", allow_anonymous: true}").control.allow_anonymous);
}

TEST(Config, AnUplinkNeedsItsPortAndHashedSlots) {
  const std::string up = "uplink: {url: /run/ina/root.sock, port: up}\n";
  EXPECT_THAT(errors_of(up + "aggregator: {policy: esa}"),
              ElementsAre(HasSubstr("uplink.port: 'up' is not the name of an ethdev port")));
  EXPECT_THAT(
      errors_of("control: {switches_below: rack}"),
      ElementsAre(HasSubstr("control.switches_below: needs aggregator.policy esa or fcfs")));
}

TEST(Config, MemifPortsMayShareASocketOrAnId) {
  std::string ports = "ports:\n";
  for (const char* device : {"role=server,id=0,socket=/m", "role=server,id=1,socket=/m",
                             "role=server,socket=/n", "role=client,socket=/m", "socket=/m"})
    ports += "  - {name: p" + std::to_string(ports.size()) +
             ", type: ethdev, ip: 10.0.0.1, device: \"net_memif0," + device + "\"}\n";
  EXPECT_EQ(load(ports).ports.size(), 5u);
}

TEST(Config, TheAdministratorsSocketIsBesideTheWorkers) {
  EXPECT_EQ(load("control: {socket: /tmp/s}").admin_socket_path(), "/tmp/s.admin");
  EXPECT_EQ(load("admin: {socket: /tmp/a}").admin_socket_path(), "/tmp/a");
}

TEST(Config, AnMtuThatJustFitsIsAccepted) {
  EXPECT_EQ(load(on_ethdev("mtu: 1124")).ports.at(0).mtu_bytes, 1124u);
}

}  // namespace
}  // namespace ina::config
