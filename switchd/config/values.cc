#include "switchd/config/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <span>

namespace ina::config {

namespace {

struct Suffix {
  std::string_view text;
  uint64_t factor;
};
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

/// A name that fits metrics labels, file names and shells without quoting.
constexpr size_t kMaxNameBytes = 31;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

}  // namespace

// ---- texts

std::string format_count(uint64_t count) {
  if (count >= 65536 && std::has_single_bit(count))
    return fmt::format("2^{}", std::countr_zero(count));
  return std::to_string(count);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string expected_scalar(const Node& node, std::string_view what) {
  return fmt::format("{} is not {}", describe(node), what);
}

// ---- numbers

std::optional<Integer> parse_integer(std::string_view text, int base) {
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

// ---- addresses

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

std::string format_host(const HostConfig& host) {
  const std::string mac = fmt::format("{:02x}", fmt::join(host.mac, ":"));
  return host.ip == 0 ? mac : fmt::format("{} {}", mac, format_ipv4(host.ip));
}

bool is_host_address(uint32_t ip) {
  const uint32_t first = ip >> 24;
  return first != 0 && first != 127 && first < 224;
}

std::string host_problem(const HostConfig& host, std::string_view text) {
  if ((host.mac[0] & 1) != 0) return "its MAC address is one of a group, or of all hosts";
  if (std::ranges::all_of(host.mac, [](uint8_t byte) { return byte == 0; }))
    return "its MAC address is 0";
  if (text.find(' ') != std::string_view::npos && !is_host_address(host.ip))
    return "its IP address is not one that a host can have on a network";
  return {};
}

// ---- what is wrong with a text

std::string any_text(std::string_view) {
  return {};
}

std::string not_empty(std::string_view value) {
  return value.empty() ? "is empty" : "";
}

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

std::string tenant_name(std::string_view value) {
  if (value == scheduler::kOtherTenants) return {};
  if (!value.starts_with("uid:")) return identifier(value);
  const auto uid = parse_integer(value.substr(4));
  if (!uid || uid->negative || !uid->rest.empty() || uid->value >= UINT32_MAX)
    return "is not a user: uid: and a number below 2^32 - 1";
  return {};
}

std::string listen_address(std::string_view value) {
  if (value.empty()) return {};
  const size_t colon = value.rfind(':');
  const auto port = parse_integer(colon == std::string_view::npos ? "" : value.substr(colon + 1));
  if (!port || port->negative || !port->rest.empty() || port->value < 1 || port->value > 65535 ||
      !parse_ipv4(value.substr(0, colon)))
    return "is not an IPv4 address and a port, e.g. 10.0.0.1:7584";
  return {};
}

}  // namespace ina::config
