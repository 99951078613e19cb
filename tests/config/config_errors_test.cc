// Wrong configurations: one wrong thing, one exact line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/config_texts.h"

namespace ina::config {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

struct BadCase {
  const char* name;
  std::string yaml;
  std::string line;
};

const BadCase kBadCases[] = {
    // ranges, both ends
    {"slots_zero", "aggregator:\n  slots: 0\n", "2:10: aggregator.slots: 0 is not in 1..2^24"},
    {"slots_large", "aggregator:\n  slots: 16777217\n",
     "2:10: aggregator.slots: 16777217 is not in 1..2^24"},
    {"slots_negative", "aggregator: {slots: -1}", "1:21: aggregator.slots: -1 is not in 1..2^24"},
    {"slots_beyond_64_bits", "aggregator: {slots: 18446744073709551617}",
     "1:21: aggregator.slots: 18446744073709551617 is not in 1..2^24"},
    {"slots_wraps_32_bits", "aggregator: {slots: 4294967300}",
     "1:21: aggregator.slots: 4294967300 is not in 1..2^24"},
    {"slot_bytes", "aggregator: {slot_bytes: 1000}",
     "1:26: aggregator.slot_bytes: 1000 is not a multiple of 64, which are the bytes of a cache "
     "line"},
    {"slot_bytes_large", "aggregator: {slot_bytes: 65 KiB}",
     "1:26: aggregator.slot_bytes: 65 KiB is not in 256..64 KiB"},
    {"policy", "aggregator: {policy: lru}",
     "1:22: aggregator.policy: lru is unknown (known: " + policies(", ", false) + ")"},
    {"residual", "esa: {residual: yes}", "1:17: esa.residual: yes is not true or false"},
    {"residual_list", "esa: {residual: [true]}", "1:17: esa.residual: a list is not true or false"},
    {"decay", "esa: {decay: slow}",
     "1:14: esa.decay: slow is unknown (known: preemption, time, none)"},
    {"half_life", "esa: {decay_half_life: 1}",
     "1:24: esa.decay_half_life: 1 is not a time with its unit, e.g. 500 us, 20 ms or 30 s"},
    {"home", "fallback: {home: cloud}",
     "1:18: fallback.home: cloud is unknown (known: workers, dedicated, spill)"},
    {"rto_min", "recovery: {rto_min: 99 us}",
     "1:21: recovery.rto_min: 99 us is not in 100 us..60 s"},
    {"rto_max", "recovery: {rto_max: 61 s}", "1:21: recovery.rto_max: 61 s is not in 100 us..60 s"},
    {"help", "straggler: {help: maybe}",
     "1:19: straggler.help: maybe is unknown (known: off, leader, fallback, spill)"},
    {"run_ahead", "straggler: {run_ahead: 1}",
     "1:24: straggler.run_ahead: 1 is not in 64 KiB..1 GiB"},
    {"park_memory", "straggler: {park_memory: 2 GiB}",
     "1:26: straggler.park_memory: 2 GiB is not in 64 KiB..1 GiB"},
    {"patience", "straggler: {patience: 20}",
     "1:23: straggler.patience: 20 is not a time with its unit, e.g. 500 us, 20 ms or 30 s"},
    {"window_bytes", "jobs: {window_bytes: 65535}",
     "1:22: jobs.window_bytes: 65535 is not in 64 KiB..1 GiB"},
    {"priority_max", "jobs: {priority_max: 256}", "1:22: jobs.priority_max: 256 is not in 1..255"},
    {"jobs_memory", "jobs: {memory: 1 KiB}", "1:16: jobs.memory: 1 KiB is not in 1 MiB..1 TiB"},
    {"pool_odd", "static: {slots_per_job: 7}",
     "1:25: static.slots_per_job: 7 is odd; the pool is used in two equal halves"},
    {"ways", "aggregator: {ways: 3}", "1:20: aggregator.ways: 3 is not 1, 2, 4 or 8"},
    {"pool_small", "static: {slots_per_job: 1}", "1:25: static.slots_per_job: 1 is not in 2..2^24"},
    {"lcores", "switch: {lcores: 65}", "1:18: switch.lcores: 65 is not in 1..64"},
    {"burst", "switch: {burst: 513}", "1:17: switch.burst: 513 is not in 1..512"},
    {"idle", "switch: {idle: sleep}",
     "1:16: switch.idle: sleep is unknown (known: auto, spin, yield, backoff, interrupt)"},
    {"max_jobs", "switch: {max_jobs: 4097}", "1:20: switch.max_jobs: 4097 is not in 1..4096"},
    {"huge", "eal: {huge: true}", "1:13: eal.huge: true is unknown (known: auto, yes, no)"},
    {"memory_small", "eal: {memory: 31 MiB}", "1:15: eal.memory: 31 MiB is not in 32 MiB..1 TiB"},
    {"memory_overflow", "eal: {memory: 17592186044416 MiB}",
     "1:15: eal.memory: 17592186044416 MiB is not in 32 MiB..1 TiB"},
    {"memory_uneven", "eal: {memory: 67108865}",
     "1:15: eal.memory: 67108865 bytes are not whole MiB"},
    {"memory_suffix", "eal: {memory: 64 MB}",
     "1:15: eal.memory: 64 MB is not a size, e.g. 4096, 64 KiB or 1 GiB"},
    {"file_prefix", "eal: {file_prefix: a/b}",
     "1:20: eal.file_prefix: a/b is not a name: 1..31 of letters, digits, '_', '-', '.'"},
    {"cpus", "eal: {cpus: \"3-1\"}",
     "1:13: eal.cpus: 3-1 is not a list of CPUs below 1024, e.g. 2 or \"0-1,3\""},
    {"cpus_trailing_comma", "eal: {cpus: \"1,\"}",
     "1:13: eal.cpus: 1, is not a list of CPUs below 1024, e.g. 2 or \"0-1,3\""},
    {"cpus_huge_range", "eal: {cpus: 0-4294967295}",
     "1:13: eal.cpus: 0-4294967295 is not a list of CPUs below 1024, e.g. 2 or \"0-1,3\""},
    {"extra_args", "eal: {extra_args: --no-pci}",
     "1:19: eal.extra_args: --no-pci is not a list of texts"},
    {"extra_args_item", "eal: {extra_args: [a, [b]]}",
     "1:19: eal.extra_args: item 2 is a list, not a text"},
    {"metrics_hosts_item", "metrics: {hosts: [switch1, 'switch1:80']}",
     "1:18: metrics.hosts: item 2, switch1:80, is not a host's name without a port, e.g. "
     "switch1.example"},
    {"metrics_page", "metrics: {page: maybe}", "1:17: metrics.page: maybe is not true or false"},
    {"socket_empty", "control: {socket: \"\"}", "1:19: control.socket: \"\" is empty"},
    {"socket_long", "control: {socket: /" + std::string(107, 's') + "}",
     "1:19: control.socket: /" + std::string(47, 's') +
         "... has 108 bytes; a socket path has at most 107"},
    {"mode_large", "control: {mode: 1000}", "1:17: control.mode: 1000 is not in 0000..0777"},
    {"mode_digit", "control: {mode: 0680}",
     "1:17: control.mode: 0680 is not an octal mode, e.g. 0660"},
    {"timeout_unit", "control: {join_timeout: 30}",
     "1:25: control.join_timeout: 30 is not a time with its unit, e.g. 500 us, 20 ms or 30 s"},
    {"timeout_range", "control: {join_timeout: 999us}",
     "1:25: control.join_timeout: 999us is not in 1 ms..3600 s"},
    {"rejoin_timeout_range", "control: {rejoin_timeout: 2 ks}",
     "1:27: control.rejoin_timeout: 2 ks is not a time with its unit, e.g. 500 us, 20 ms or 30 s"},
    {"listen_name", "control: {listen: \"localhost:7584\", allow_anonymous: true}",
     "1:19: control.listen: localhost:7584 is not an IPv4 address and a port, e.g. 10.0.0.1:7584"},
    {"listen_port", "control: {listen: \"10.0.0.1:65536\", allow_anonymous: true}",
     "1:19: control.listen: 10.0.0.1:65536 is not an IPv4 address and a port, e.g. 10.0.0.1:7584"},
    {"listen_no_port", "control: {listen: 10.0.0.1, allow_anonymous: true}",
     "1:19: control.listen: 10.0.0.1 is not an IPv4 address and a port, e.g. 10.0.0.1:7584"},
    {"listen_to_anybody", "control: {listen: \"10.0.0.1:7584\"}",
     "1:19: control.listen: without control.token_file anybody who reaches the port could join; "
     "set "
     "it, or control.allow_anonymous: true if that is meant"},
    {"dead_peer_timeout", "control: {dead_peer_timeout: 999 ms}",
     "1:30: control.dead_peer_timeout: 999 ms is not in 1 s..3600 s"},
    {"max_unjoined", "control: {max_unjoined: 0}",
     "1:25: control.max_unjoined: 0 is not in 1..2^16"},
    {"max_connections", "control: {max_connections: 0}",
     "1:28: control.max_connections: 0 is not in 1..2^16"},
    {"log_level", "log: {level: warn}",
     "1:14: log.level: warn is unknown (known: trace, debug, info, warning, error, critical)"},
    {"log_file_control", "log: {file: \"a\\nb\"}",
     "1:13: log.file: a\\x0ab has control characters"},
    // types and nesting
    {"text_for_number", "switch: {lcores: two}", "1:18: switch.lcores: two is not a whole number"},
    {"fraction", "switch: {lcores: 1.5}", "1:18: switch.lcores: 1.5 is not a whole number"},
    {"hexadecimal", "switch: {lcores: 0x10}", "1:18: switch.lcores: 0x10 is not a whole number"},
    {"list_for_number", "switch: {lcores: [1]}",
     "1:18: switch.lcores: a list is not a whole number"},
    {"map_for_text", "log: {file: {a: b}}", "1:13: log.file: a map is not a text"},
    {"map_for_choice", "switch: {idle: {}}",
     "1:16: switch.idle: a map is unknown (known: auto, spin, yield, backoff, interrupt)"},
    {"no_value", "switch:\n  lcores:\n", "2:3: switch.lcores: has no value"},
    {"scalar_for_section", "switch: 3", "1:9: switch: a map of keys is expected, not 3"},
    {"list_for_section", "switch:\n  - lcores: 3",
     "2:3: switch: a map of keys is expected, not a list"},
    {"scalar_for_all", "hello", "1:1: a map of sections is expected, not hello"},
    {"list_for_all", "- a\n- b", "1:1: a map of sections is expected, not a list"},
    {"map_as_key", "? {a: b}\n: c\n", "1:3: a map as a key; a name is expected"},
    // keys
    {"unknown_key", "aggregator:\n  slot: 4\n",
     "2:3: aggregator.slot: unknown key; did you mean \"slots\"?"},
    {"unknown_section", "agregator:\n  slots: 4\n",
     "1:1: agregator: unknown key; did you mean \"aggregator\"?"},
    {"key_of_another_section", "switch: {slots_per_job: 4}",
     "1:10: switch.slots_per_job: unknown key; did you mean \"static.slots_per_job\"?"},
    {"unknown_far", "frobnicate: 1", "1:1: frobnicate: unknown key"},
    {"unknown_unicode", "größe: 1", "1:1: größe: unknown key"},
    {"unknown_empty", "\"\": 1", "1:1: : unknown key"},
    {"duplicate_key", "switch:\n  lcores: 1\n  burst: 2\n  lcores: 1\n",
     "4:3: switch.lcores: given twice, first in line 2"},
    {"duplicate_section", "log: {level: info}\nlog: {level: info}\n",
     "2:1: log: given twice, first in line 1"},
    // ports
    {"ports_scalar", "ports: shm", "1:8: ports: a list of ports is expected, not shm"},
    {"ports_nothing", "ports:\n", "1:1: ports: a list of ports is expected, not nothing"},
    {"ports_empty", "ports: []", "1:8: ports: at least one port is needed"},
    {"port_scalar", "ports: [shm]", "1:9: ports[0]: a map of keys is expected, not shm"},
    {"port_without_name", "ports:\n  - type: shm\n",
     "2:5: ports[0]: name is missing (1..31 of letters, digits, '_', '-', '.')"},
    {"port_without_type", "ports:\n  - name: a\n", "2:5: ports[0]: type is missing (shm, ethdev)"},
    {"port_type", "ports: [{name: a, type: tap}]",
     "1:25: ports[0].type: tap is unknown (known: shm, ethdev)"},
    {"port_name", "ports: [{name: a b, type: shm}]",
     "1:16: ports[0].name: a b is not a name: 1..31 of letters, digits, '_', '-', '.'"},
    {"shm_with_mtu", on_shm("mtu: 9000"), "4:5: ports[0].mtu: not a key of a port of type shm"},
    {"ethdev_without_ip", "ports: [{name: a, type: ethdev, device: net_null0}]",
     "1:9: ports[0]: ip is missing (IPv4 address)"},
    {"ethdev_without_device", "ports: [{name: a, type: ethdev, ip: 10.0.0.1}]",
     "1:9: ports[0]: device is missing (devargs or PCI address)"},
    {"port_unknown_key", on_ethdev("udp_prt: 1"),
     "6:5: ports[0].udp_prt: unknown key; did you mean \"udp_port\"?"},
    {"ip_text", "ports: [{name: a, type: ethdev, device: d, ip: 10.0.0}]",
     "1:48: ports[0].ip: 10.0.0 is not an IPv4 address, e.g. 10.0.0.1"},
    {"ip_leading_zero", "ports: [{name: a, type: ethdev, device: d, ip: 10.0.0.010}]",
     "1:48: ports[0].ip: 10.0.0.010 is not an IPv4 address, e.g. 10.0.0.1"},
    {"ip_multicast", "ports: [{name: a, type: ethdev, device: d, ip: 224.0.0.1}]",
     "1:48: ports[0].ip: 224.0.0.1 is not an address that a host can have on a network"},
    {"udp_port", on_ethdev("udp_port: 65536"), "6:15: ports[0].udp_port: 65536 is not in 1..65535"},
    {"mtu", on_ethdev("mtu: 20000"), "6:10: ports[0].mtu: 20000 is not in 576..16000"},
    {"rx_descriptors", on_ethdev("rx_descriptors: 63"),
     "6:21: ports[0].rx_descriptors: 63 is not in 64..4096"},
    {"tx_descriptors", on_ethdev("tx_descriptors: 4097"),
     "6:21: ports[0].tx_descriptors: 4097 is not in 64..4096"},
    {"hosts_no_list", on_ethdev("hosts: 02:00:00:00:00:01"),
     "6:12: ports[0].hosts: 02:00:00:00:00:01 is not a list of hosts"},
    {"host_mac", on_ethdev("hosts: [\"02:00:00:00:00:01\", \"02:00:00:00:00\"]"),
     "6:12: ports[0].hosts: item 2 is 02:00:00:00:00, not a host, e.g. \"02:00:00:00:00:01 "
     "10.0.0.1\""},
    {"host_mac_digits", on_ethdev("hosts: [\"2:00:00:00:00:01\"]"),
     "6:12: ports[0].hosts: item 1 is 2:00:00:00:00:01, not a host, e.g. \"02:00:00:00:00:01 "
     "10.0.0.1\""},
    {"host_ip", on_ethdev("hosts: [\"02:00:00:00:00:01 10.0.0\"]"),
     "6:12: ports[0].hosts: item 1 is 02:00:00:00:00:01 10.0.0, not a host, e.g. "
     "\"02:00:00:00:00:01 10.0.0.1\""},
    {"host_tail", on_ethdev("hosts: [\"02:00:00:00:00:01,10.0.0.1\"]"),
     "6:12: ports[0].hosts: item 1 is 02:00:00:00:00:01,10.0.0.1, not a host, e.g. "
     "\"02:00:00:00:00:01 10.0.0.1\""},
    {"host_mac_group", on_ethdev("hosts: [\"01:00:5e:00:00:01 10.0.0.9\"]"),
     "6:12: ports[0].hosts: item 1 is 01:00:5e:00:00:01 10.0.0.9: its MAC address is one of a "
     "group, or of all hosts"},
    {"host_mac_all", on_ethdev("hosts: [\"ff:ff:ff:ff:ff:ff\"]"),
     "6:12: ports[0].hosts: item 1 is ff:ff:ff:ff:ff:ff: its MAC address is one of a group, or of "
     "all hosts"},
    {"host_mac_zero", on_ethdev("hosts: [\"00:00:00:00:00:00\"]"),
     "6:12: ports[0].hosts: item 1 is 00:00:00:00:00:00: its MAC address is 0"},
    {"host_ip_multicast", on_ethdev("hosts: [\"02:00:00:00:00:01 239.1.2.3\"]"),
     "6:12: ports[0].hosts: item 1 is 02:00:00:00:00:01 239.1.2.3: its IP address is not one that "
     "a host can have on a network"},
    {"host_ip_all", on_ethdev("hosts: [\"02:00:00:00:00:01 255.255.255.255\"]"),
     "6:12: ports[0].hosts: item 1 is 02:00:00:00:00:01 255.255.255.255: its IP address is not one "
     "that a host can have on a network"},
    {"host_ip_zero", on_ethdev("hosts: [\"02:00:00:00:00:01 0.0.0.0\"]"),
     "6:12: ports[0].hosts: item 1 is 02:00:00:00:00:01 0.0.0.0: its IP address is not one that a "
     "host can have on a network"},
    {"host_ip_own", on_ethdev("hosts: [\"02:00:00:00:00:01 10.0.0.1\"]"),
     "6:12: ports[0].hosts: 02:00:00:00:00:01 10.0.0.1: this is the switch's own address on port "
     "a"},
    {"host_ip_twice",
     on_ethdev("hosts: [\"02:00:00:00:00:01 10.0.0.9\", \"02:00:00:00:00:02 10.0.0.9\"]"),
     "6:12: ports[0].hosts: 02:00:00:00:00:02 10.0.0.9: 02:00:00:00:00:01 10.0.0.9 has this "
     "address already"},
    {"security_tag", "security: {tag: hmac}",
     "1:17: security.tag: hmac is unknown (known: none, siphash)"},
    {"two_shm", "ports: [{name: a, type: shm}, {name: b, type: shm}]",
     "1:47: ports[1].type: only one port may be of type shm; ports[0] is"},
    {"two_names",
     "ports:\n  - {name: a, type: shm}\n  - {name: a, type: ethdev, device: d, ip: 10.0.0.1}\n",
     "3:12: ports[1].name: a is the name of ports[0] already"},
    {"two_memif_servers",
     "ports:\n"
     "  - {name: a, type: ethdev, ip: 10.0.0.1, device: "
     "\"net_memif0,role=server,id=1,socket=/m\"}\n"
     "  - {name: b, type: ethdev, ip: 10.0.0.1, device: "
     "\"net_memif1,socket=/m,id=1,role=server\"}\n",
     "3:51: ports[1].device: ports[0] is the memif server for id 1 on /m already; give it another "
     "id or socket"},
    {"tls_without_key", "control: {tls_certificate: /c, tls_client_ca: /a}",
     "1:28: control.tls_certificate and control.tls_key go together: one is set"},
    {"tls_without_certificate", "control: {tls_key: /k}",
     "1:20: control.tls_certificate and control.tls_key go together: one is set"},
    {"tls_without_ca", "control: {tls_certificate: /c, tls_key: /k}",
     "1:28: control.tls_certificate: needs control.tls_client_ca, whose signature workers' "
     "certificates must have, or control.tls_require_client_certificate: false"},
    {"tls_for_anybody",
     "control:\n  listen: \"10.0.0.1:1\"\n  tls_certificate: /c\n  tls_key: /k\n"
     "  tls_require_client_certificate: false\n",
     "2:11: control.listen: without control.token_file anybody who reaches the port could join; "
     "set "
     "it, or control.allow_anonymous: true if that is meant"},
    {"admin_without_ca", "admin: {listen: \"10.0.0.1:7585\", certificate: /c, key: /k}",
     "1:17: admin.listen: needs admin.client_ca"},
    {"admin_listen", "admin: {listen: here}",
     "1:17: admin.listen: here is not an IPv4 address and a port, e.g. 10.0.0.1:7584"},
    // tenants
    {"tenants_scalar", "tenants: red", "1:10: tenants: a list of tenants is expected, not red"},
    {"tenant_scalar", "tenants: [red]", "1:11: tenants[0]: a map of keys is expected, not red"},
    {"tenant_without_name", "tenants: [{jobs_max: 1}]", "1:11: tenants[0]: name is missing"},
    {"tenant_name", "tenants: [{name: a b}]",
     "1:18: tenants[0].name: a b is not a name: 1..31 of letters, digits, '_', '-', '.'"},
    {"tenant_user", "tenants: [{name: \"uid:root\"}]",
     "1:18: tenants[0].name: uid:root is not a user: uid: and a number below 2^32 - 1"},
    {"tenant_nobodys_user", "tenants: [{name: \"uid:4294967295\"}]",
     "1:18: tenants[0].name: uid:4294967295 is not a user: uid: and a number below 2^32 - 1"},
    {"tenant_twice", "tenants: [{name: a}, {name: b}, {name: a}]",
     "1:40: tenants[2].name: a is the name of tenants[0] already"},
    {"tenant_unknown_key", "tenants: [{name: a, job_max: 1}]",
     "1:21: tenants[0].job_max: unknown key; did you mean \"jobs_max\"?"},
    {"tenant_priority", "tenants: [{name: a, priority_max: 0}]",
     "1:35: tenants[0].priority_max: 0 is not in 1..255"},
    {"help_static", "straggler: {help: leader}",
     "1:19: straggler.help: leader does not go with aggregator.policy: static (the default), whose "
     "slots wait for everybody; set aggregator.policy: " +
         policies(" or ", true) + ", or straggler.help: off"},
    {"help_spill", "aggregator: {policy: esa}\nstraggler: {help: spill}",
     "2:19: straggler.help: spill needs fallback.home: spill, not workers (the default); set it, "
     "or "
     "straggler.help: fallback"},
    {"run_ahead_below_window",
     "aggregator: {policy: esa}\nstraggler: {help: leader, run_ahead: 2 MiB}",
     "2:38: jobs.window_bytes: 4194304 (the default) is more than straggler.run_ahead, 2097152"},
    {"tenant_floor_exceeds_ceiling", "tenants: [{name: a, slots_floor: 9, slots_ceiling: 8}]",
     "1:34: tenants[0].slots_floor: 9 is more than its slots_ceiling, 8"},
    {"tenant_floor_of_nobody", "tenants: [{name: \"*\", slots_floor: 9}]",
     "1:36: tenants[0].slots_floor: 9 cannot be kept for tenants that are not named"},
    {"tenant_floors_exceed_slots",
     "aggregator: {slots: 512}\nswitch: {lcores: 2}\ntenants:\n  - {name: a, slots_floor: 255}\n"
     "  - {name: b, slots_floor: 257}\n",
     "5:28: tenants[1].slots_floor: 257 and those before it are 2 slots more than there are "
     "(aggregator.slots)"},
    // keys that belong together
    {"pool_exceeds_slots", "aggregator:\n  slots: 256\nstatic:\n  slots_per_job: 258\n",
     "4:18: static.slots_per_job: 258 is more than aggregator.slots, 256"},
    {"default_pool_exceeds_slots", "aggregator:\n  slots: 256\n",
     "2:10: static.slots_per_job: 512 (the default) is more than aggregator.slots, 256"},
    {"pool_exceeds_default_slots", "static: {slots_per_job: 4098}",
     "1:25: static.slots_per_job: 4098 is more than aggregator.slots, 4096 (the default)"},
    {"floor_exceeds_slots", "aggregator: {policy: esa, slots: 8}\njobs: {slots_floor: 9}",
     "2:21: jobs.slots_floor: 9 is more than aggregator.slots, 8"},
    {"floor_exceeds_ceiling", "jobs: {slots_floor: 9, slots_ceiling: 8}",
     "1:21: jobs.slots_floor: 9 is more than jobs.slots_ceiling, 8"},
    {"rto_order", "recovery: {rto_max: 1 ms}",
     "1:21: recovery.rto_min: 20000 us (the default) is more than recovery.rto_max, 1000 us"},
    {"mtu_too_small", on_ethdev("mtu: 1123"),
     "6:10: ports[0].mtu: 1123 is 1 bytes too small for aggregator.slot_bytes, 1024 (the default), "
     "with 100 bytes of headers"},
    {"slot_too_large", "aggregator: {slot_bytes: 8192}\n" + on_ethdev(""),
     "1:26: ports[0].mtu: 1500 (the default) is 6792 bytes too small for aggregator.slot_bytes, "
     "8192, with 100 bytes of headers"},
    {"vlan", on_ethdev("vlan: 4095"), "6:11: ports[0].vlan: 4095 is not in 0..4094"},
    {"vlans_number", on_ethdev("vlans: 5"), "6:12: ports[0].vlans: 5 is not a list of VLANs"},
    {"vlans_too_large", on_ethdev("vlans: [0, 4095]"),
     "6:12: ports[0].vlans: 4095 is not in 0..4094"},
    {"vlans_word", on_ethdev("vlans: [red]"), "6:12: ports[0].vlans: red is not a whole number"},
    {"vlans_without_own", on_ethdev("vlans: [10, 20]"),
     "6:12: ports[0].vlans: 0 is missing, which is ports[0].vlan (the default)"},
    {"udp_port_of_each_lcore", "switch: {lcores: 3}\n" + on_ethdev("udp_port: 65534"),
     "7:15: ports[0].udp_port: 65534 leaves no UDP ports up to 65536 for 3 lcores, one each"},
    // YAML itself
    {"syntax_tab", "switch:\n\tlcores: 1\n",
     "2:8: YAML syntax: illegal map value; the line is indented by a tab, which YAML forbids"},
    {"syntax_flow", "switch: {lcores: 1\n", "2:1: YAML syntax: end of map flow not found"},
    {"alias", "switch: &a {lcores: 1}\n", "1:9: anchors are not supported"},
    {"tag", "switch: {lcores: !!int 1}", "1:18: tags are not supported"},
    {"second_document", "log: {level: info}\n---\nlog: {level: info}\n",
     "2:1: a second document; only one is read"},
    {"not_utf8", "log:\n  file: a\xffz\n", "2:10: byte 0xff is not UTF-8 text"},
    {"utf8_cut_short", "log: {file: \xc3", "1:13: byte 0xc3 is not UTF-8 text"},
    {"utf8_overlong", "a: \xc0\xaf", "1:4: byte 0xc0 is not UTF-8 text"},
    {"utf8_surrogate", "a: \xed\xa0\x80", "1:4: byte 0xed is not UTF-8 text"},
    {"nul", std::string("a: b\0c", 6), "1:5: byte 0x00 is not UTF-8 text"},
    {"columns_are_characters", "log: {file: \"äöü€𝄞\", level: x}",
     "1:29: log.level: x is unknown (known: trace, debug, info, warning, error, critical)"},
    {"byte_order_mark", "\xef\xbb\xbflog: {level: x}",
     "1:14: log.level: x is unknown (known: trace, debug, info, warning, error, critical)"},
    {"carriage_returns", "switch:\r\n  burst: 2\r\n  lcores: 0\r\n",
     "3:11: switch.lcores: 0 is not in 1..64"},
};

class Bad : public testing::TestWithParam<BadCase> {};

TEST_P(Bad, IsReportedWithItsPlace) {
  EXPECT_THAT(errors_of(GetParam().yaml), ElementsAre("x.yaml:" + GetParam().line))
      << GetParam().yaml;
}

INSTANTIATE_TEST_SUITE_P(Config, Bad, testing::ValuesIn(kBadCases),
                         [](const auto& test) { return test.param.name; });

TEST(ConfigErrors, AllAtOnceInTheOrderOfTheFile) {
  EXPECT_THAT(
      errors_of("ports:\n"
                "  - name: shm0\n"
                "    type: shm\n"
                "    ip: 300.0.0.1\n"
                "aggregator:\n"
                "  slots: 0\n"
                "  slots: 5\n"
                "  slot_byte: 1\n"
                "static:\n"
                "  slots_per_job: 3\n"
                "log: [x]\n"),
      ElementsAre("x.yaml:4:5: ports[0].ip: not a key of a port of type shm",
                  "x.yaml:4:9: ports[0].ip: 300.0.0.1 is not an IPv4 address, e.g. 10.0.0.1",
                  "x.yaml:6:10: aggregator.slots: 0 is not in 1..2^24",
                  "x.yaml:7:3: aggregator.slots: given twice, first in line 6",
                  "x.yaml:8:3: aggregator.slot_byte: unknown key; did you mean "
                  "\"slot_bytes\"?",
                  "x.yaml:10:18: static.slots_per_job: 3 is odd; the pool is used in two "
                  "equal halves",
                  "x.yaml:11:6: log: a map of keys is expected, not a list"));
}

TEST(ConfigErrors, AWrongValueIsNotComparedWithOthers) {
  // slots 0 is smaller than the pool too, but that would be the same mistake told twice.
  EXPECT_THAT(errors_of("aggregator: {slots: 0}\nstatic: {slots_per_job: 512}"), SizeIs(1));
}

TEST(ConfigErrors, AnAliasIsReportedOnceAtItsAnchorAndOnceAtItself) {
  EXPECT_THAT(errors_of("switch:\n  lcores: &n 2\n  burst: *n\n"),
              ElementsAre("x.yaml:2:11: anchors are not supported",
                          "x.yaml:3:10: aliases are not supported; write the value out"));
}

}  // namespace
}  // namespace ina::config
