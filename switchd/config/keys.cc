#include "switchd/config/keys.h"

#include <fmt/format.h>

#include <bit>

#include "switchd/config/key_kinds.h"

namespace ina::config {

namespace {

// clang-format off
constexpr Section kSections[] = {
    {"aggregator", "The array in which fragments are added. Fixed at start."},
    {"static", "Allocation policy static: each job has a pool of slots of its own."},
    {"esa", "Allocation policy esa: preemption by priority. Its parts, each of which can be switched off."},
    {"fallback", "The fallback aggregator completes partial sums that left the switch, and recovers lost results."},
    {"recovery", "When workers ask for a result that does not come."},
    {"congestion", "How workers learn that they send too much."},
    {"straggler", "Help where one worker is slow and all others wait for it. Policies fcfs and esa."},
    {"jobs", "The resources of each job."},
    {"switch", "The packet loops."},
    {"bridge", "The switch forwards other hosts' frames between its ethdev ports, by the MAC addresses that it learns."},
    {"eal", "DPDK's environment, and the memory and CPUs of the packet loops. DPDK runs only if there is an ethdev port, telemetry or extra_args: a switch without is sooner there. The shm port needs no hugepages."},
    {"control", "The socket over which workers join."},
    {"uplink", "The switch above, in a tree of switches: what workers of both have in common is added there. docs/switch.md has a rack of racks."},
    {"admin", "Administration by `inactl`: jobs with tickets, ending jobs, draining the switch."},
    {"tenants", "The limits of tenants, and the slots kept for them: a list. A tenant that is not in it has no limits but the switch's own."},
    {"security", "How the sender of a frame on an ethdev port is checked."},
    {"ports", "The ports by which packets come: at least one, and at most one of type shm."},
    {"log", "The log of the switch's work. Never anything per packet."},
    {"metrics", "The switch's counters over HTTP: for Prometheus as http://ADDRESS:PORT/metrics, for people as a page."},
};

#define INA_AT(field) [](const Target& t) -> auto& { return t.field; }

/// "How jobs get slots. static: each has a pool of its own. ..."
std::string policies_text() {
  std::string text = "How jobs get slots.";
  for (const Named<scheduler::PolicyKind>& policy : scheduler::kPolicyNames)
    text += fmt::format(" {}: {}.", policy.name, scheduler::traits(policy.value).summary);
  return text;
}

// The keys of each section, in the order of the sample and the manual page.

std::vector<Key> aggregator_keys() {
  using enum Notation;
  static const std::string policies = policies_text();  // outlives the keys
  return {
    number("aggregator", "slots", "slots", 1, 1 << 24,
           "Slots of the switch, shared by all jobs. Best while slots x slot_bytes fits a core's L2 cache.",
           INA_AT(config->aggregator.slots)),
    with_check(
        number("aggregator", "slot_bytes", "bytes", 256, 65536,
               "Bytes of one slot's accumulators, so the payload of a packet. Larger is faster; ethdev ports need an mtu 100 bytes larger (1344 is the most at 1500, 8896 at 9000), so above that there is the shm port alone. Results appear in place (ina_alloc_result) with multiples of 1024 only.",
               INA_AT(config->aggregator.slot_bytes), kSize),
        ", a multiple of 64",
        [](const Target& t) -> std::string {
          const uint32_t bytes = t.config->aggregator.slot_bytes;
          return bytes % 64 == 0 ? "" : fmt::format("{} is not a multiple of 64, which are the bytes of a cache line", bytes);
        }),
    choice("aggregator", "policy", scheduler::kPolicyNames, policies,
           INA_AT(config->aggregator.policy.kind)),
    with_check(
        number("aggregator", "ways", "slots", 1, 8,
               "Slots side by side that a fragment has to choose from, under fcfs and esa. Hardware has 1.",
               INA_AT(config->aggregator.policy.ways)),
        ", a power of two",
        [](const Target& t) -> std::string {
          const uint32_t ways = t.config->aggregator.policy.ways;
          return std::has_single_bit(ways) ? "" : fmt::format("{} is not 1, 2, 4 or 8", ways);
        }),
  };
}

std::vector<Key> static_keys() {
  return {
    with_check(
        number("static", "slots_per_job", "slots", 2, 1 << 24,
               "Slots of a job's pool. Half of them are its window: the fragments that a worker may have in flight.",
               INA_AT(config->static_pools.slots_per_job)),
        ", even",
        [](const Target& t) -> std::string {
          const uint32_t slots = t.config->static_pools.slots_per_job;
          return slots % 2 == 0 ? "" : fmt::format("{} is odd; the pool is used in two equal halves", slots);
        }),
  };
}

std::vector<Key> esa_keys() {
  using enum Notation;
  return {
    boolean("esa", "residual",
            "Remember the contributions to each fragment that have gone to the fallback, so that it need not collect the rest.",
            INA_AT(config->aggregator.policy.residual)),
    choice("esa", "decay", scheduler::kDecayNames,
           "How the priority of a held fragment sinks. preemption: halved by each attempt to preempt it; time: halved in each half-life.",
           INA_AT(config->aggregator.policy.decay)),
    number("esa", "decay_half_life", "time", kUs, 3'600 * kS,
           "Half-life of priorities under decay: time.",
           INA_AT(config->aggregator.policy.decay_half_life_ns), kTime),
    boolean("esa", "near_full_bonus",
            "Whether a fragment that lacks few workers is harder to preempt.",
            INA_AT(config->aggregator.policy.near_full_bonus)),
  };
}

std::vector<Key> fallback_keys() {
  return {
    choice("fallback", "home", kHomeNames,
           "Where it runs. workers: each worker for its share of the fragments; dedicated: a server of its own, ina-psd; spill: in the switch's memory.",
           INA_AT(config->rules.home)),
  };
}

std::vector<Key> recovery_keys() {
  using enum Notation;
  return {
    number("recovery", "rto_min", "time", 100 * kUs, 60 * kS,
           "Least time before a worker asks; above it, it follows the measured round trips.",
           INA_AT(config->rules.rto_min_ns), kTime),
    number("recovery", "rto_max", "time", 100 * kUs, 60 * kS,
           "Most time between two questions for the same fragment.",
           INA_AT(config->rules.rto_max_ns), kTime),
  };
}

std::vector<Key> congestion_keys() {
  return {
    boolean("congestion", "ecn",
            "Mark messages to workers that lag behind, so that they send less.",
            INA_AT(config->rules.ecn)),
    boolean("congestion", "aggregator_window",
            "Whether workers keep a second window, which shrinks when their fragments find no free slots. Over a network they then have no more under way than a few round trips deliver. Policies fcfs and esa.",
            INA_AT(config->rules.aggregator_window)),
  };
}

std::vector<Key> straggler_keys() {
  using enum Notation;
  return {
    choice("straggler", "help", kHelpNames,
           "The keeper of fragments that wait for a slow worker, so that the others go on. leader: one of the workers that are ahead; fallback: the fallback, at any home; spill: the switch's memory, which needs fallback.home: spill. Jobs of more than 64 workers, or at several switches, always have the switch's memory.",
           INA_AT(config->straggler.help)),
    number("straggler", "run_ahead", "bytes", 64ull << 10, 1ull << 30,
           "Bytes that a worker may then run ahead of its oldest incomplete fragment; jobs.window_bytes bounds its part in the switch. It costs memory alone: a job's result ring has twice as much.",
           INA_AT(config->straggler.run_ahead_bytes), kSize),
    number("straggler", "park_memory", "bytes", 64ull << 10, 1ull << 30,
           "Bytes that a worker keeps for others; the rest goes to the fallback.",
           INA_AT(config->straggler.park_bytes), kSize),
    number("straggler", "patience", "time", 0, 3'600 * kS,
           "How long a worker must have held others up, without a pause, before it counts as slow.",
           INA_AT(config->straggler.patience_ns), kTime),
  };
}

std::vector<Key> jobs_keys() {
  using enum Notation;
  return {
    number("jobs", "window_bytes", "bytes", 64ull << 10, 1ull << 30,
           "Bytes that a worker may run ahead of its oldest incomplete fragment; a job may ask for less. Under policy static at most half of the pool.",
           INA_AT(config->jobs.window_bytes), kSize),
    number("jobs", "slots_floor", "slots", 0, 1 << 24,
           "Slots kept for a job. Policies fcfs and esa; a job whose floor is not free is refused.",
           INA_AT(config->jobs.slots_floor)),
    number("jobs", "slots_ceiling", "slots", 0, 1 << 24,
           "Most slots that a job may hold; 0: all. Policies fcfs and esa.",
           INA_AT(config->jobs.slots_ceiling)),
    number("jobs", "priority_max", "", 1, 255,
           "Highest priority of a job's fragments; higher ones count as this. Policy esa.",
           INA_AT(config->jobs.priority_max)),
    number("jobs", "memory", "bytes", 1 << 20, 1ull << 40,
           "Memory for all jobs together: result rings, rings to the workers, fallback in the switch or in ina-psd. A job that does not fit is refused.",
           INA_AT(config->jobs.memory_bytes), kSize),
  };
}

std::vector<Key> switch_keys() {
  return {
    number("switch", "lcores", "cores", 1, 64,
           "Packet loops, one core each.",
           INA_AT(config->switchd.lcores)),
    number("switch", "burst", "packets", 1, 512,
           "Most packets taken from a port at once.",
           INA_AT(config->switchd.burst)),
    choice("switch", "idle", kIdleModeNames,
           "How a loop waits for packets. auto: spin, then yield, then sleep until woken; spin needs a core of its own.",
           INA_AT(config->switchd.idle)),
    number("switch", "max_jobs", "jobs", 1, 4096,
           "Most jobs at a time.",
           INA_AT(config->switchd.max_jobs)),
    number("switch", "max_groups", "groups", 0, 4096,
           "Most groups of ranks (ina_split) at a time, of all jobs together.",
           INA_AT(config->switchd.max_groups)),
    number("switch", "max_groups_per_user", "groups", 0, 4096,
           "Most groups of the jobs of one user of this host, or of one tenant. 0: half of max_groups.",
           INA_AT(config->switchd.max_groups_per_user)),
    number("switch", "max_groups_per_job", "groups", 0, 4096,
           "Most groups of one job, those of its groups included.",
           INA_AT(config->switchd.max_groups_per_job)),
  };
}

std::vector<Key> bridge_keys() {
  using enum Notation;
  return {
    boolean("bridge", "enabled",
            "Whether to forward. If not, frames for others are dropped. Nothing happens with fewer than two ethdev ports.",
            INA_AT(config->bridge.enabled)),
    number("bridge", "mac_entries", "addresses", 16, 1 << 20,
           "Most MAC addresses known at a time, rounded up to a power of two. No port gets more than half of them.",
           INA_AT(config->bridge.mac_entries)),
    number("bridge", "ageing", "time", kS, 3'600 * kS,
           "How long an address is known after its last frame.",
           INA_AT(config->bridge.ageing_ns), kTime),
    number("bridge", "storm_limit_frames_per_s", "frames", 0, 10'000'000,
           "Frames that a port may send to everyone: broadcast, multicast and unknown destinations; a tenth of them at once. Further frames are dropped; 0: no limit.",
           INA_AT(config->bridge.storm_limit_frames_per_s)),
    boolean("bridge", "loop_protection",
            "Whether to look for loops between ports, and to block a port of each. The ports send a frame for that five times a second.",
            INA_AT(config->bridge.loop_protection)),
  };
}

std::vector<Key> eal_keys() {
  using enum Notation;
  return {
    choice("eal", "huge", kHugePagesNames,
           "Whether to use hugepages. auto: if there are any.",
           INA_AT(config->eal.huge)),
    with_check(
        number("eal", "memory", "bytes", 32ull << 20, 1ull << 40,
               "Memory for packet buffers, if DPDK runs.",
               INA_AT(config->eal.memory_bytes), kSize),
        ", whole MiB",
        [](const Target& t) -> std::string {
          const uint64_t bytes = t.config->eal.memory_bytes;
          return bytes % (1 << 20) == 0 ? "" : fmt::format("{} bytes are not whole MiB", bytes);
        }),
    text("eal", "file_prefix", fmt::format("{}, or empty", kNameRange),
         "Prefix of DPDK's run-time files. Empty: derived from the process id, so that switches do not meet.",
         INA_AT(config->eal.file_prefix), identifier_or_empty),
    cpu_list("eal", "cpus",
             "CPUs for the packet loops. Empty: the kernel places them.",
             INA_AT(config->eal.cpus)),
    text_list("eal", "extra_args",
              "Further arguments for DPDK, passed on as they are.",
              INA_AT(config->eal.extra_args)),
    boolean("eal", "telemetry",
            "Whether dpdk-telemetry.py may ask: DPDK's own questions, and /ina/info, /ina/job/list and /ina/job/stats,ID. Its socket lies in DPDK's run-time folder of file_prefix. Starts DPDK on a switch without ethdev ports, too.",
            INA_AT(config->eal.telemetry)),
  };
}

std::vector<Key> control_keys() {
  using enum Notation;
  return {
    text("control", "socket", fmt::format("path of 1..{} bytes", kMaxSocketPathBytes),
         "Path of the unix socket. The workers' URL is shm: and this path.",
         INA_AT(config->control.socket), socket_path),
    octal_mode("control", "mode",
               "Permissions of the socket: users that may write to it may join.",
               INA_AT(config->control.mode)),
    number("control", "join_timeout", "time", kMs, 3'600 * kS,
           "A connection that has joined no job by then is closed.",
           INA_AT(config->control.join_timeout_ns), kTime),
    number("control", "rejoin_timeout", "time", kMs, 3'600 * kS,
           "How long a job's workers may take to come back after the switch was restarted.",
           INA_AT(config->control.rejoin_timeout_ns), kTime),
    number("control", "max_connections", "connections", 1, 65536,
           "Most connections at a time; a worker has one. Those of ina-psd are beside them.",
           INA_AT(config->control.max_connections)),
    number("control", "max_connections_per_user", "connections", 0, 65536,
           "Most of them of one user of this host, or of one tenant; not for root and the switch's own user. 0: half of max_connections.",
           INA_AT(config->control.max_connections_per_user)),
    text("control", "listen", "IPv4 address and port, or empty",
         "Where workers on other hosts join, over TCP, e.g. 10.0.0.1:7584; 0.0.0.0 is every address "
         "of this host. Empty: nowhere. Without tls_certificate not encrypted: for a trusted network or a tunnel.",
         INA_AT(config->control.listen), listen_address),
    text("control", "token_file", "path, or empty",
         "The tokens for joining over TCP: a file of lines \"TENANT TOKEN\", which others may not read. A job "
         "belongs to the tenant whose token its workers show.",
         INA_AT(config->control.token_file), any_text),
    boolean("control", "allow_anonymous",
            "Whether workers may join over TCP without a token. They are one tenant, anonymous.",
            INA_AT(config->control.allow_anonymous)),
    number("control", "dead_peer_timeout", "time", kS, 3'600 * kS,
           "How long a host may answer nothing over TCP before its workers count as dead. A process "
           "that ends is noticed at once.",
           INA_AT(config->control.dead_peer_timeout_ns), kTime),
    number("control", "max_unjoined", "connections", 1, 65536,
           "Most connections over TCP from one address that have joined no job yet.",
           INA_AT(config->control.max_unjoined)),
    text("control", "tls_certificate", "path, or empty",
         "The switch's certificate for control.listen, in PEM, with the chain behind it; it must name the "
         "address by which workers reach the switch. Empty: no TLS. Otherwise TLS 1.3 and nothing else.",
         INA_AT(config->control.tls.certificate), any_text),
    text("control", "tls_key", "path, or empty",
         "Its private key, in PEM, in a file that others may not read.",
         INA_AT(config->control.tls.key), any_text),
    text("control", "tls_client_ca", "path, or empty",
         "The authority that must have signed a worker's certificate, in PEM. The certificate's common name is the worker's tenant, "
         "and takes the place of a token.",
         INA_AT(config->control.tls.ca), any_text),
    boolean("control", "tls_require_client_certificate",
            "Whether each worker must show a certificate. If not, one without shows a token.",
            INA_AT(config->control.require_client_certificate)),
    text("control", "switches_below", "tenants, separated by commas, or empty",
         "Switches whose uplink leads here join as one of these: a tenant over TCP, or uid:NUMBER over the socket. They "
         "join for the workers of all owners. Empty: no switch may.",
         INA_AT(config->control.switches_below), any_text),
    text("control", "state", "path, or empty",
         "File with the switch's state for the time after a restart: the running jobs and "
         "their keys. Empty: the socket's path and \".state\".",
         INA_AT(config->control.state), any_text),
  };
}

std::vector<Key> uplink_keys() {
  return {
    text("uplink", "url", "tcp:HOST:PORT, tls:HOST:PORT, a path, or empty",
         "Its control socket: control.listen there, with this switch's tenant in control.switches_below. Empty: there is no switch above.",
         INA_AT(config->uplink.url), any_text),
    text("uplink", "port", "name of an ethdev port, or empty",
         "The port behind which it is.",
         INA_AT(config->uplink.port), any_text),
    text("uplink", "port_above", "name of a port, or empty",
         "The port of the switch above behind which this one is. Empty: that switch finds it, if it has one port, or has seen a frame of this one.",
         INA_AT(config->uplink.port_above), any_text),
    text("uplink", "token_file", "path, or empty",
         "A file with the token that this switch shows over TCP, which others may not read.",
         INA_AT(config->uplink.token_file), any_text),
    text("uplink", "certificate", "path, or empty",
         "This switch's certificate over TLS, in PEM, if the switch above wants one.",
         INA_AT(config->uplink.tls.certificate), any_text),
    text("uplink", "key", "path, or empty",
         "Its private key, in PEM, in a file that others may not read.",
         INA_AT(config->uplink.tls.key), any_text),
    text("uplink", "ca", "path, or empty",
         "The authority that signed the certificate of the switch above, in PEM. Empty: those that this host trusts.",
         INA_AT(config->uplink.tls.ca), any_text),
  };
}

std::vector<Key> admin_keys() {
  return {
    boolean("admin", "enabled",
            "Whether administrators are listened to.",
            INA_AT(config->admin.enabled)),
    text("admin", "socket", fmt::format("path of 1..{} bytes, or empty", kMaxSocketPathBytes),
         "Path of the unix socket for administrators: root and the switch's own user. Empty: the control "
         "socket's path and \".admin\".",
         INA_AT(config->admin.socket), socket_path_or_empty),
    text("admin", "group", "name or number of a group, or empty",
         "Group whose members may administer over the unix socket, too. Empty: nobody else.",
         INA_AT(config->admin.group), any_text),
    text("admin", "listen", "IPv4 address and port, or empty",
         "Where administrators on other hosts are listened to, over TLS, e.g. 10.0.0.1:7585. Empty: nowhere.",
         INA_AT(config->admin.listen), listen_address),
    text("admin", "certificate", "path, or empty",
         "The switch's certificate for admin.listen, in PEM, with the chain behind it.",
         INA_AT(config->admin.tls.certificate), any_text),
    text("admin", "key", "path, or empty",
         "Its private key, in PEM, in a file that others may not read.",
         INA_AT(config->admin.tls.key), any_text),
    text("admin", "client_ca", "path, or empty",
         "The authority that must have signed an administrator's certificate, in PEM. Each such certificate gives the right to administer.",
         INA_AT(config->admin.tls.ca), any_text),
  };
}

std::vector<Key> tenants_keys() {
  using enum Notation;
  return {
    required(text("tenants", "name", fmt::format("{}; or uid:NUMBER; or \"*\"", kNameRange),
                  "The tenant of a token or certificate, or anonymous; uid:1000: a user of this host, over the unix socket; \"*\": each tenant that is not listed.",
                  INA_AT(tenant->name), tenant_name)),
    number("tenants", "slots_floor", "slots", 0, 1 << 24,
           "Slots kept for the tenant even while it has no job. Policy static: a part of the array of its own.",
           INA_AT(tenant->slots_floor)),
    number("tenants", "slots_ceiling", "slots", 0, 1 << 24,
           "Most slots of its jobs together: their pools, or their ceilings; 0: no limit. A job gets a share of it, one of jobs_max.",
           INA_AT(tenant->slots_ceiling)),
    number("tenants", "jobs_max", "jobs", 0, 4096,
           "Most jobs at a time; 0: no limit.",
           INA_AT(tenant->jobs_max)),
    number("tenants", "workers_max", "workers", 0, 1 << 20,
           "Most workers of its jobs together, present or not; 0: no limit.",
           INA_AT(tenant->workers_max)),
    number("tenants", "memory", "bytes", 0, 1ull << 40,
           "Most memory of its jobs together; 0: no limit.",
           INA_AT(tenant->memory_bytes), kSize),
    number("tenants", "priority_max", "", 1, 255,
           "Highest priority of its jobs' fragments, as jobs.priority_max.",
           INA_AT(tenant->priority_max)),
  };
}

std::vector<Key> security_keys() {
  return {
    choice("security", "tag", kTagNames,
           "siphash: each frame carries a tag that only its worker and the switch can make, by keys that the worker gets when it joins. For links that others can read and send on.",
           INA_AT(config->security.tag)),
  };
}

std::vector<Key> ports_keys() {
  return {
    required(text("ports", "name", std::string(kNameRange),
                  "Name of the port in logs and metrics; unique.",
                  INA_AT(port->name), identifier)),
    required(choice("ports", "type", kPortTypeNames,
                    "shm: workers on this host, by shared memory. ethdev: a DPDK device.",
                    INA_AT(port->type))),
    required(for_ethdev(text("ports", "device", "devargs or PCI address",
                             "The DPDK device, e.g. 0000:01:00.0 or net_memif0,role=server,socket=/run/ina/memif.sock.",
                             INA_AT(port->device), not_empty))),
    required(for_ethdev(ipv4("ports", "ip",
                             "The switch's address on this port.",
                             INA_AT(port->ip)))),
    for_ethdev(number("ports", "vlan", "", 0, kLastVlan,
                      "VLAN of the switch's address on this port: of the frames that it takes, answers and sends there. 0: without a tag.",
                      INA_AT(port->vlan))),
    for_ethdev(vlan_list("ports", "vlans",
                         "VLANs whose frames may pass the port when they are forwarded; 0: without a tag. Empty: all.",
                         INA_AT(port->vlans))),
    for_ethdev(choice("ports", "results", kResultsNames,
                      "How results go to the workers of a job behind this port. unicast: a frame each; multicast: one for all that can take it so, for networks that replicate it.",
                      INA_AT(port->results))),
    for_ethdev(number("ports", "udp_port", "", 1, 65535,
                      "UDP port of the first lcore; the others listen on the ports after it.",
                      INA_AT(port->udp_port))),
    for_ethdev(number("ports", "mtu", "bytes", 576, 16000,
                      "Largest IPv4 packet.",
                      INA_AT(port->mtu_bytes))),
    for_ethdev(number("ports", "rx_descriptors", "packets", 64, 4096,
                      "Length of the receive queue.",
                      INA_AT(port->rx_descriptors))),
    for_ethdev(number("ports", "tx_descriptors", "packets", 64, 4096,
                      "Length of the transmit queue.",
                      INA_AT(port->tx_descriptors))),
    for_ethdev(host_list("ports", "hosts",
                         "The hosts behind the port, by MAC and IPv4 address: nobody else may send there, and none in another's name. A host with several addresses is listed with each. Empty: anybody.",
                         INA_AT(port->hosts))),
  };
}

std::vector<Key> log_keys() {
  return {
    choice("log", "level", kLogLevelNames,
           "Least severe message to write.",
           INA_AT(config->log.level)),
    choice("log", "format", kLogFormatNames,
           "text: a line with values as key=\"value\". json: an object a line. journal: fields of journald, for a switch with libsystemd on a host with systemd.",
           INA_AT(config->log.format)),
    text("log", "file", "path, or empty",
         "File to append to, unless the format is journal. Empty: standard error.",
         INA_AT(config->log.file), any_text),
  };
}

std::vector<Key> metrics_keys() {
  return {
    text("metrics", "listen", "IPv4 address and port, or empty",
         "Where to listen, e.g. 127.0.0.1:7586. Anybody who reaches it reads names and figures of all jobs, without a password and not encrypted. Empty: nowhere.",
         INA_AT(config->metrics.listen), listen_address),
    number("metrics", "jobs", "jobs", 0, 1000,
           "Jobs that have figures of their own, those with most contributions, and as many tenants. All others are one, named other.",
           INA_AT(config->metrics.jobs)),
    boolean("metrics", "page",
            "Serve a page for people as http://ADDRESS:PORT/, too, and its data as /status.json and /slots.json. It can change nothing.",
            INA_AT(config->metrics.page)),
    text_list("metrics", "hosts",
              "Host names by which requests may come, besides addresses and localhost. Others are refused: a web site could let its own name point here.",
              INA_AT(config->metrics.hosts), host_name),
  };
}

/// The keys of all sections, in the order of kSections.
std::vector<Key> make_keys() {
  std::vector<Key> table;
  for (const auto keys_of_section :
       {aggregator_keys, static_keys, esa_keys, fallback_keys, recovery_keys, congestion_keys,
        straggler_keys, jobs_keys, switch_keys, bridge_keys, eal_keys, control_keys, uplink_keys, admin_keys,
        tenants_keys, security_keys, ports_keys, log_keys, metrics_keys})
    for (Key& key : keys_of_section()) table.push_back(std::move(key));
  return table;
}

#undef INA_AT
// clang-format on

}  // namespace

std::string full_name(const Key& key) {
  return fmt::format("{}.{}", key.section, key.name);
}

bool is_of_policy(const Key& key) {
  return key.section == "esa" ||
         (key.section == "aggregator" && (key.name == "policy" || key.name == "ways"));
}

std::span<const Section> sections() {
  return kSections;
}

std::span<const Key> keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

}  // namespace ina::config
