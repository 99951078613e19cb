#include "switchd/config/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "common/cpu_list.h"

namespace ina::config {

std::string printable(std::string_view text) {
  size_t bytes = std::min<size_t>(text.size(), 48);
  // Do not cut a UTF-8 sequence in two.
  while (bytes != 0 && bytes < text.size() && (static_cast<uint8_t>(text[bytes]) & 0xc0) == 0x80)
    --bytes;
  std::string out;
  for (const char c : text.substr(0, bytes)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return bytes < text.size() ? out + "..." : out;
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kScalar:
      return node.text.empty() ? "\"\"" : printable(node.text);
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
    case Node::Kind::kNull:
    case Node::Kind::kRefused:
      break;
  }
  return "nothing";
}

std::string format_count(uint64_t count) {
  if (count >= 65536 && std::has_single_bit(count))
    return fmt::format("2^{}", std::countr_zero(count));
  return std::to_string(count);
}

namespace {

struct Suffix {
  std::string_view text;
  uint64_t factor;
};
// Nanoseconds.
constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kS = 1'000'000'000;
// Largest last: formatting takes the last that divides.
constexpr Suffix kSizeSuffixes[] = {
    {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}};
constexpr Suffix kTimeSuffixes[] = {{"us", kUs}, {"ms", kMs}, {"s", kS}};

std::string format_with_suffix(uint64_t value, std::span<const Suffix> suffixes) {
  std::string out = std::to_string(value);
  for (const Suffix& suffix : suffixes)
    if (value != 0 && value % suffix.factor == 0)
      out = fmt::format("{} {}", value / suffix.factor, suffix.text);
  return out;
}

struct Integer {
  uint64_t value = 0;  ///< the largest number if it is larger still
  bool negative = false;
  std::string_view rest;  ///< what follows the digits
};

/// A decimal number at the front of `text`; nothing if there is none.
std::optional<Integer> parse_integer(std::string_view text, int base = 10) {
  Integer integer;
  if (text.starts_with('-')) {
    integer.negative = true;
    text.remove_prefix(1);
  }
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, integer.value, base);
  if (error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) integer.value = std::numeric_limits<uint64_t>::max();
  integer.rest = {next, static_cast<size_t>(end - next)};
  return integer;
}

/// Takes a suffix off `integer`; false if what follows the digits is none of them.
bool apply_suffix(Integer& integer, std::span<const Suffix> suffixes) {
  while (integer.rest.starts_with(' ')) integer.rest.remove_prefix(1);
  for (const Suffix& suffix : suffixes) {
    if (integer.rest != suffix.text) continue;
    if (__builtin_mul_overflow(integer.value, suffix.factor, &integer.value))
      integer.value = std::numeric_limits<uint64_t>::max();
    integer.rest = {};
    return true;
  }
  return integer.rest.empty();
}

std::string expected_scalar(const Node& node, std::string_view what) {
  return fmt::format("{} is not {}", describe(node), what);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

enum class Notation { kCount, kSize, kTime };

std::string format_number(uint64_t value, Notation notation) {
  switch (notation) {
    case Notation::kSize:
      return format_with_suffix(value, kSizeSuffixes);
    case Notation::kTime:
      return format_with_suffix(value, kTimeSuffixes);
    case Notation::kCount:
      break;
  }
  return std::to_string(value);
}

/// Reads a number in `notation`; on failure says what is wrong.
tl::expected<Integer, std::string> read_number(const Node& node, Notation notation) {
  const auto refuse = [&](std::string_view what) {
    return tl::unexpected<std::string>(expected_scalar(node, what));
  };
  auto integer =
      node.kind == Node::Kind::kScalar ? parse_integer(node.text) : std::optional<Integer>();
  switch (notation) {
    case Notation::kCount:
      if (!integer || !integer->rest.empty()) return refuse("a whole number");
      break;
    case Notation::kSize:
      if (!integer || !apply_suffix(*integer, kSizeSuffixes))
        return refuse("a size, e.g. 4096, 64 KiB or 1 GiB");
      break;
    case Notation::kTime:
      // A bare number would leave the reader guessing.
      if (!integer || integer->rest.empty() || !apply_suffix(*integer, kTimeSuffixes))
        return refuse("a time with its unit, e.g. 500 us, 20 ms or 30 s");
      break;
  }
  return *integer;
}

// What follows builds one Key each. `at` gives the field of a Target.

template <class At>
Key number(std::string_view section, std::string_view name, std::string_view unit, uint64_t low,
           uint64_t high, std::string_view help, At at, Notation notation = Notation::kCount) {
  const auto limit = [=](uint64_t value) {
    return notation == Notation::kCount ? format_count(value) : format_number(value, notation);
  };
  std::string range = fmt::format("{}..{}", limit(low), limit(high));
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const auto integer = read_number(node, notation);
    if (!integer) return integer.error();
    if (integer->negative || integer->value < low || integer->value > high)
      return fmt::format("{} is not in {}", describe(node), range);
    at(target) = static_cast<std::decay_t<decltype(at(target))>>(integer->value);
    return {};
  };
  auto show = [=](const Target& target) {
    return format_number(static_cast<uint64_t>(at(target)), notation);
  };
  return {section, name, unit, range, help, set, show};
}

/// Wraps the setter of `key` with one more condition on the node's value, given as the Target's
/// field after it was set. `problem` returns what is wrong, empty if nothing.
template <class Problem>
Key with_check(Key key, std::string_view range_suffix, Problem problem) {
  key.range += range_suffix;
  key.set = [set = key.set, problem](const Node& node, const Target& target) {
    std::string text = set(node, target);
    return text.empty() ? problem(target) : text;
  };
  return key;
}

/// `names` outlive the key.
template <class At, class Enum, size_t kCount>
Key choice(std::string_view section, std::string_view name, const Names<Enum, kCount>& names,
           std::string_view help, At at) {
  std::string range;
  for (const Named<Enum>& named : names)
    range += fmt::format("{}{}", range.empty() ? "" : ", ", named.name);
  auto set = [=, &names](const Node& node, const Target& target) -> std::string {
    const auto value = value_in(names, node.text);
    if (node.kind != Node::Kind::kScalar || !value)
      return fmt::format("{} is unknown (known: {})", describe(node), range);
    at(target) = *value;
    return {};
  };
  auto show = [=, &names](const Target& target) { return std::string(name_in(names, at(target))); };
  return {section, name, "", range, help, set, show};
}

/// `problem` gets the text and returns what is wrong with it, empty if nothing.
template <class At, class Problem>
Key text(std::string_view section, std::string_view name, std::string range, std::string_view help,
         At at, Problem problem) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kScalar) return expected_scalar(node, "a text");
    if (std::ranges::any_of(node.text, [](char c) { return static_cast<uint8_t>(c) < 0x20; }))
      return fmt::format("{} has control characters", describe(node));
    if (std::string wrong = problem(node.text); !wrong.empty())
      return fmt::format("{} {}", describe(node), wrong);
    at(target) = node.text;
    return {};
  };
  auto show = [=](const Target& target) { return quoted(at(target)); };
  return {section, name, "", std::move(range), help, set, show};
}

std::string any_text(std::string_view) {
  return {};
}

std::string not_empty(std::string_view value) {
  return value.empty() ? "is empty" : "";
}

/// sockaddr_un::sun_path less its terminating zero.
constexpr size_t kMaxSocketPathBytes = 107;

std::string socket_path(std::string_view value) {
  if (value.empty()) return "is empty";
  if (value.size() > kMaxSocketPathBytes)
    return fmt::format("has {} bytes; a socket path has at most {}", value.size(),
                       kMaxSocketPathBytes);
  return {};
}

std::string socket_path_or_empty(std::string_view value) {
  return value.empty() ? std::string() : socket_path(value);
}

/// A name that fits metrics labels, file names and shells without quoting.
constexpr size_t kMaxNameBytes = 31;
constexpr std::string_view kNameRange = "1..31 of letters, digits, '_', '-', '.'";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

std::string identifier(std::string_view value) {
  if (value.empty() || value.size() > kMaxNameBytes ||
      !std::ranges::all_of(value, is_name_character))
    return fmt::format("is not a name: {}", kNameRange);
  return {};
}

std::string identifier_or_empty(std::string_view value) {
  return value.empty() ? std::string() : identifier(value);
}

std::string host_name(std::string_view value) {
  constexpr size_t kMostBytes = 253;
  if (value.empty() || value.size() > kMostBytes || !std::ranges::all_of(value, is_name_character))
    return "is not a host's name without a port, e.g. switch1.example";
  return {};
}

/// "*", "uid:1000", or a name.
std::string tenant_name(std::string_view value) {
  if (value == scheduler::kOtherTenants) return {};
  if (!value.starts_with("uid:")) return identifier(value);
  const auto uid = parse_integer(value.substr(4));
  if (!uid || uid->negative || !uid->rest.empty() || uid->value >= UINT32_MAX)
    return "is not a user: uid: and a number below 2^32 - 1";
  return {};
}

template <class At>
Key boolean(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const bool yes = node.kind == Node::Kind::kScalar && node.text == "true";
    const bool no = node.kind == Node::Kind::kScalar && node.text == "false";
    if (!yes && !no) return expected_scalar(node, "true or false");
    at(target) = yes;
    return {};
  };
  auto show = [=](const Target& target) { return std::string(at(target) ? "true" : "false"); };
  return {section, name, "", "true, false", help, set, show};
}

template <class At>
Key octal_mode(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const bool octal = node.kind == Node::Kind::kScalar && !node.text.empty() &&
                       node.text.find_first_not_of("01234567") == std::string::npos;
    const auto integer = octal ? parse_integer(node.text, 8) : std::optional<Integer>();
    if (!integer) return expected_scalar(node, "an octal mode, e.g. 0660");
    if (integer->value > 0777) return fmt::format("{} is not in 0000..0777", describe(node));
    at(target) = static_cast<uint32_t>(integer->value);
    return {};
  };
  auto show = [=](const Target& target) { return fmt::format("{:04o}", at(target)); };
  return {section, name, "", "0000..0777, octal", help, set, show};
}

template <class At>
Key cpu_list(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    auto cpus = node.kind == Node::Kind::kScalar ? parse_cpus(node.text) : std::nullopt;
    if (!cpus)
      return expected_scalar(node,
                             fmt::format("a list of CPUs below {}, e.g. 2 or \"0-1,3\"", kMaxCpus));
    at(target) = std::move(*cpus);
    return {};
  };
  auto show = [=](const Target& target) { return quoted(format_cpus(at(target))); };
  return {section, name, "", "e.g. \"0-1,3\"", help, set, show};
}

template <class At>
Key text_list(std::string_view section, std::string_view name, std::string_view help, At at,
              std::string (*check)(std::string_view) = any_text) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kList) return expected_scalar(node, "a list of texts");
    std::vector<std::string> texts;
    for (const Node& item : node.items) {
      if (item.kind != Node::Kind::kScalar)
        return fmt::format("item {} is {}, not a text", texts.size() + 1, describe(item));
      if (const std::string problem = check(item.text); !problem.empty())
        return fmt::format("item {}, {}, {}", texts.size() + 1, describe(item), problem);
      texts.push_back(item.text);
    }
    at(target) = std::move(texts);
    return {};
  };
  auto show = [=](const Target& target) {
    std::vector<std::string> items;
    for (const std::string& item : at(target)) items.push_back(quoted(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  };
  return {section, name, "", "list of texts", help, set, show};
}

constexpr uint64_t kLastVlan = 4094;

template <class At>
Key vlan_list(std::string_view section, std::string_view name, std::string_view help, At at) {
  const std::string range = fmt::format("list of 0..{}", kLastVlan);
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kList) return expected_scalar(node, "a list of VLANs");
    std::vector<uint16_t> vlans;
    for (const Node& item : node.items) {
      const auto vlan = read_number(item, Notation::kCount);
      if (!vlan) return vlan.error();
      if (vlan->negative || vlan->value > kLastVlan)
        return fmt::format("{} is not in 0..{}", describe(item), kLastVlan);
      vlans.push_back(static_cast<uint16_t>(vlan->value));
    }
    at(target) = std::move(vlans);
    return {};
  };
  auto show = [=](const Target& target) {
    return fmt::format("[{}]", fmt::join(at(target), ", "));
  };
  return {section, name, "", range, help, set, show};
}

/// Four decimal numbers; nothing if it is anything else.
std::optional<uint32_t> parse_ipv4(std::string_view text) {
  uint32_t ip = 0;
  for (int i = 0; i < 4; ++i) {
    const auto byte = parse_integer(text);
    if (!byte || byte->negative || byte->value > 255) return std::nullopt;
    // "010" is octal to inet_aton and decimal to others.
    if (text.starts_with('0') && text.size() - byte->rest.size() > 1) return std::nullopt;
    ip = ip << 8 | static_cast<uint32_t>(byte->value);
    text = byte->rest;
    if (i == 3) break;
    if (!text.starts_with('.')) return std::nullopt;
    text.remove_prefix(1);
  }
  if (!text.empty()) return std::nullopt;
  return ip;
}

std::string format_ipv4(uint32_t ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

template <class At>
Key ipv4(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const auto ip = node.kind == Node::Kind::kScalar ? parse_ipv4(node.text) : std::nullopt;
    if (!ip) return expected_scalar(node, "an IPv4 address, e.g. 10.0.0.1");
    const uint32_t first = *ip >> 24;
    if (first == 0 || first == 127 || first >= 224)
      return fmt::format("{} is not an address that a host can have on a network", describe(node));
    at(target) = *ip;
    return {};
  };
  auto show = [=](const Target& target) { return format_ipv4(at(target)); };
  return {section, name, "", "IPv4 address", help, set, show};
}

/// "02:00:00:00:00:01 10.0.0.1", or the first part alone, as in /etc/ethers.
std::optional<HostConfig> parse_host(std::string_view text) {
  HostConfig host;
  for (size_t i = 0; i < host.mac.size(); ++i) {
    const char* const end = text.data() + std::min<size_t>(text.size(), 2);
    const auto [next, error] = std::from_chars(text.data(), end, host.mac[i], 16);
    if (error != std::errc() || next != text.data() + 2) return std::nullopt;
    text.remove_prefix(2);
    if (i + 1 == host.mac.size()) break;
    if (!text.starts_with(':')) return std::nullopt;
    text.remove_prefix(1);
  }
  if (text.empty()) return host;
  const auto ip = text.starts_with(' ') ? parse_ipv4(text.substr(1)) : std::nullopt;
  if (!ip) return std::nullopt;
  host.ip = *ip;
  return host;
}

template <class At>
Key host_list(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kList) return expected_scalar(node, "a list of hosts");
    std::vector<HostConfig> hosts;
    for (const Node& item : node.items) {
      const auto host = item.kind == Node::Kind::kScalar ? parse_host(item.text) : std::nullopt;
      if (!host)
        return fmt::format("item {} is {}, not a host, e.g. \"02:00:00:00:00:01 10.0.0.1\"",
                           hosts.size() + 1, describe(item));
      hosts.push_back(*host);
    }
    at(target) = std::move(hosts);
    return {};
  };
  auto show = [=](const Target& target) {
    std::vector<std::string> items;
    for (const HostConfig& host : at(target))
      items.push_back(quoted(
          host.ip == 0 ? fmt::format("{:02x}", fmt::join(host.mac, ":"))
                       : fmt::format("{:02x} {}", fmt::join(host.mac, ":"), format_ipv4(host.ip))));
    return fmt::format("[{}]", fmt::join(items, ", "));
  };
  return {section, name, "", "list of \"MAC IP\" or \"MAC\"", help, set, show};
}

/// "ADDRESS:PORT", or empty.
std::string listen_address(std::string_view value) {
  if (value.empty()) return {};
  const size_t colon = value.rfind(':');
  const auto port = parse_integer(colon == std::string_view::npos ? "" : value.substr(colon + 1));
  if (!port || port->negative || !port->rest.empty() || port->value < 1 || port->value > 65535 ||
      !parse_ipv4(value.substr(0, colon)))
    return "is not an IPv4 address and a port, e.g. 10.0.0.1:7584";
  return {};
}

Key for_ethdev(Key key) {
  key.port_type = PortType::kEthdev;
  return key;
}

Key required(Key key) {
  key.required = true;
  return key;
}

// clang-format off
constexpr Section kSections[] = {
    {"aggregator", "The array in which fragments are added. Fixed at start."},
    {"static", "Allocation policy static: each job has a pool of slots of its own."},
    {"esa", "Allocation policy esa: preemption by priority. Its parts, each of which can be switched off."},
    {"fallback", "The fallback aggregator puts together what left the switch as partial sums, and finds results that got lost."},
    {"recovery", "When workers ask for a result that does not come."},
    {"congestion", "How workers learn that they send too much."},
    {"straggler", "Help where one worker is slow and all others wait for it. Policies fcfs and esa."},
    {"jobs", "What each job gets."},
    {"switch", "The packet loops."},
    {"bridge", "Between its ethdev ports the switch forwards what is not for itself, by the MAC addresses that it learns."},
    {"eal", "DPDK's environment, and the memory and CPUs of the packet loops. DPDK runs only if there is an ethdev port, telemetry or extra_args: a switch without is sooner there. The shm port needs no hugepages."},
    {"control", "The socket over which workers join."},
    {"admin", "Administration over gRPC, by `inactl`: jobs with tickets, ending jobs, draining the switch."},
    {"tenants", "What tenants may have at most, and what is kept for them: a list. A tenant that is not in it has no limits but the switch's own."},
    {"security", "Whom a frame on an ethdev port is believed to come from."},
    {"ports", "Where packets come from: at least one port, and at most one of type shm."},
    {"log", "What is written about the switch's work. Never anything per packet."},
    {"metrics", "What the switch counts, over HTTP: for Prometheus as http://ADDRESS:PORT/metrics, for people as a page."},
};

#define INA_AT(field) [](const Target& t) -> auto& { return t.field; }

/// "How jobs get slots. static: each has a pool of its own. ..."
std::string policies_text() {
  std::string text = "How jobs get slots.";
  for (const Named<scheduler::PolicyKind>& policy : scheduler::kPolicyNames)
    text += fmt::format(" {}: {}.", policy.name, scheduler::traits(policy.value).summary);
  return text;
}

std::vector<Key> make_keys() {
  using enum Notation;
  static const std::string policies = policies_text();
  std::vector<Key> table = {
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
               "Slots side by side that a fragment has to choose from, under fcfs and esa. 1 is what hardware has.",
               INA_AT(config->aggregator.policy.ways)),
        ", a power of two",
        [](const Target& t) -> std::string {
          const uint32_t ways = t.config->aggregator.policy.ways;
          return std::has_single_bit(ways) ? "" : fmt::format("{} is not 1, 2, 4 or 8", ways);
        }),

    with_check(
        number("static", "slots_per_job", "slots", 2, 1 << 24,
               "Slots of a job's pool. Half of them are its window: the fragments that a worker may have in flight.",
               INA_AT(config->static_pools.slots_per_job)),
        ", even",
        [](const Target& t) -> std::string {
          const uint32_t slots = t.config->static_pools.slots_per_job;
          return slots % 2 == 0 ? "" : fmt::format("{} is odd; the pool is used in two equal halves", slots);
        }),

    boolean("esa", "residual",
            "Know of each fragment what has gone to the fallback, so that the rest need not be collected.",
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

    choice("fallback", "home", kHomeNames,
           "Where it runs. workers: each worker for its share of the fragments; dedicated: a server of its own, ina-psd; spill: in the switch's memory.",
           INA_AT(config->fallback.home)),

    number("recovery", "rto_min", "time", 100 * kUs, 60 * kS,
           "Least time before a worker asks; above it, it follows the measured round trips.",
           INA_AT(config->recovery.rto_min_ns), kTime),
    number("recovery", "rto_max", "time", 100 * kUs, 60 * kS,
           "Most time between two questions for the same fragment.",
           INA_AT(config->recovery.rto_max_ns), kTime),

    boolean("congestion", "ecn",
            "Mark messages to workers that lag behind, so that they send less.",
            INA_AT(config->congestion.ecn)),
    boolean("congestion", "aggregator_window",
            "Whether workers keep a second window, that shrinks when their fragments meet no free slots, and have over a network no more under way than some round trips deliver. Policies fcfs and esa.",
            INA_AT(config->congestion.aggregator_window)),

    choice("straggler", "help", kHelpNames,
           "Who keeps what waits for a slow worker, so that the others go on. leader: one of those that are ahead; fallback: the fallback, wherever it runs; spill: the switch's memory, which needs fallback.home: spill.",
           INA_AT(config->straggler.help)),
    number("straggler", "run_ahead", "bytes", 64ull << 10, 1ull << 30,
           "Bytes that a worker may then run ahead of its oldest incomplete fragment; jobs.window_bytes bounds what it has in the switch. It costs memory alone: a job's result ring has twice as much.",
           INA_AT(config->straggler.run_ahead_bytes), kSize),
    number("straggler", "park_memory", "bytes", 64ull << 10, 1ull << 30,
           "Bytes that a worker keeps for others; what is more goes to the fallback.",
           INA_AT(config->straggler.park_bytes), kSize),
    number("straggler", "patience", "time", 0, 3'600 * kS,
           "How long a worker must have held others up, without a pause, before it counts as slow.",
           INA_AT(config->straggler.patience_ns), kTime),

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
           "Memory for all jobs together: result rings, rings to the workers, fallback in the switch. A job that does not fit is refused.",
           INA_AT(config->jobs.memory_bytes), kSize),

    number("switch", "lcores", "cores", 1, 64,
           "Packet loops, one core each.",
           INA_AT(config->switchd.lcores)),
    number("switch", "burst", "packets", 1, 512,
           "Most packets taken from a port at once.",
           INA_AT(config->switchd.burst)),
    choice("switch", "idle", kIdleModeNames,
           "What a loop does without packets. auto: spin, then yield, then sleep until woken; spin needs a core of its own.",
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
           "Frames that a port may send to everyone: broadcast, multicast and unknown destinations; a tenth of it at once. What is more is dropped; 0: no limit.",
           INA_AT(config->bridge.storm_limit_frames_per_s)),

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

    text("control", "socket", fmt::format("path of 1..{} bytes", kMaxSocketPathBytes),
         "Path of the unix socket. The workers' URL is shm: and this path.",
         INA_AT(config->control.socket), socket_path),
    octal_mode("control", "mode",
               "Permissions of the socket: who may write to it may join.",
               INA_AT(config->control.mode)),
    number("control", "join_timeout", "time", kMs, 3'600 * kS,
           "A connection that has joined no job by then is closed.",
           INA_AT(config->control.join_timeout_ns), kTime),
    number("control", "rejoin_timeout", "time", kMs, 3'600 * kS,
           "How long a job's workers may take to come back after the switch was restarted.",
           INA_AT(config->control.rejoin_timeout_ns), kTime),
    number("control", "max_connections", "connections", 1, 65536,
           "Most connections at a time; a worker has one.",
           INA_AT(config->control.max_connections)),
    number("control", "max_connections_per_user", "connections", 0, 65536,
           "Most of them of one user of this host, or of one tenant; not for root and the switch's own user. 0: half of max_connections.",
           INA_AT(config->control.max_connections_per_user)),
    text("control", "listen", "IPv4 address and port, or empty",
         "Where workers on other hosts join, over TCP, e.g. 10.0.0.1:7584; 0.0.0.0 is every address "
         "of this host. Empty: nowhere. Without tls_certificate not encrypted: for a trusted network or a tunnel.",
         INA_AT(config->control.listen), listen_address),
    text("control", "token_file", "path, or empty",
         "Who may join over TCP: a file of lines \"TENANT TOKEN\", which others may not read. A job "
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
         "Whose signature a worker's certificate must have, in PEM. Its common name is the worker's tenant, "
         "and takes the place of a token.",
         INA_AT(config->control.tls.ca), any_text),
    boolean("control", "tls_require_client_certificate",
            "Whether each worker must show a certificate. If not, one without shows a token.",
            INA_AT(config->control.require_client_certificate)),
    text("control", "state", "path, or empty",
         "File in which the switch keeps what it must know after a restart: which jobs run, and "
         "their keys. Empty: the socket's path and \".state\".",
         INA_AT(config->control.state), any_text),

    boolean("admin", "enabled",
            "Whether administrators are listened to.",
            INA_AT(config->admin.enabled)),
    text("admin", "socket", fmt::format("path of 1..{} bytes, or empty", kMaxSocketPathBytes),
         "Path of the unix socket for administrators: root and the switch's own user. Empty: the control "
         "socket's path and \".admin\".",
         INA_AT(config->admin.socket), socket_path_or_empty),
    text("admin", "group", "name or number of a group, or empty",
         "Whose members may administer over the unix socket, too. Empty: nobody else.",
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
         "Whose signature an administrator's certificate must have, in PEM. Whoever has one may administer.",
         INA_AT(config->admin.tls.ca), any_text),

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
    choice("security", "tag", kTagNames,
           "siphash: each frame carries a tag that only its worker and the switch can make, by keys that the worker gets when it joins. For links that others can read and send on.",
           INA_AT(config->security.tag)),

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
                      "VLAN of the switch's address on this port: of what it takes, answers and sends there. 0: without a tag.",
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

    choice("log", "level", kLogLevelNames,
           "Least severe message to write.",
           INA_AT(config->log.level)),
    choice("log", "format", kLogFormatNames,
           "text: a line with values as key=\"value\". json: an object a line. journal: fields of journald, for a switch with libsystemd on a host with systemd.",
           INA_AT(config->log.format)),
    text("log", "file", "path, or empty",
         "File to append to, unless the format is journal. Empty: standard error.",
         INA_AT(config->log.file), any_text),

    text("metrics", "listen", "IPv4 address and port, or empty",
         "Where to listen, e.g. 127.0.0.1:7586. Whoever reaches it reads names and figures of all jobs, without a password and not encrypted. Empty: nowhere.",
         INA_AT(config->metrics.listen), listen_address),
    number("metrics", "jobs", "jobs", 0, 1000,
           "Jobs that have figures of their own, those with most contributions, and as many tenants. All others are one, named other.",
           INA_AT(config->metrics.jobs)),
    boolean("metrics", "page",
            "Serve a page for people as http://ADDRESS:PORT/, too, and what it shows as /status.json and /slots.json. It can change nothing.",
            INA_AT(config->metrics.page)),
    text_list("metrics", "hosts",
              "Host names by which requests may come, besides addresses and localhost. Others are refused: a web site could let its own name point here.",
              INA_AT(config->metrics.hosts), host_name),
  };
  return table;
}

#undef INA_AT
// clang-format on

}  // namespace

std::span<const Section> sections() {
  return kSections;
}

std::span<const Key> keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

}  // namespace ina::config
