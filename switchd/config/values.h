// Values of configuration keys as texts: how they are read, checked and shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "common/yaml/tree.h"
#include "switchd/config/config.h"

namespace ina::config {

using yaml::describe;
using yaml::printable;

// Nanoseconds.
inline constexpr uint64_t kUs = 1'000;
inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kS = 1'000'000'000;
/// sockaddr_un::sun_path less its terminating zero.
inline constexpr size_t kMaxSocketPathBytes = 107;
inline constexpr std::string_view kNameRange = "1..31 of letters, digits, '_', '-', '.'";

/// For YAML.
std::string quoted(std::string_view text);
/// "... is not a text"
std::string expected_scalar(const Node& node, std::string_view what);

struct Integer {
  uint64_t value = 0;  ///< the largest number if it is larger still
  bool negative = false;
  std::string_view rest;  ///< the text behind the digits
};

/// A number at the front of `text`; nothing if there is none.
std::optional<Integer> parse_integer(std::string_view text, int base = 10);
/// kTime: nanoseconds.
enum class Notation { kCount, kSize, kTime };
std::string format_number(uint64_t value, Notation notation);
/// Plain decimal, 2^16 and larger powers of two as "2^n".
std::string format_count(uint64_t count);
/// Reads a number in `notation`; on failure says what is wrong.
tl::expected<Integer, std::string> read_number(const Node& node, Notation notation);

/// Four decimal numbers; nothing if it is anything else.
std::optional<uint32_t> parse_ipv4(std::string_view text);
std::string format_ipv4(uint32_t ip);
/// "02:00:00:00:00:01 10.0.0.1", or the first part alone, as in /etc/ethers.
std::optional<HostConfig> parse_host(std::string_view text);
std::string format_host(const HostConfig& host);
/// True if a host can have the address on a network: not in 0/8, in 127/8, or from 224.0.0.0 on.
bool is_host_address(uint32_t ip);
/// Why no host has these addresses, which `text` says; empty: one may have them.
std::string host_problem(const HostConfig& host, std::string_view text);

// The problem of a text; empty: none.
std::string any_text(std::string_view value);
std::string not_empty(std::string_view value);
std::string socket_path(std::string_view value);
std::string socket_path_or_empty(std::string_view value);
/// kNameRange
std::string identifier(std::string_view value);
std::string identifier_or_empty(std::string_view value);
std::string host_name(std::string_view value);
/// "*", "uid:1000", or a name.
std::string tenant_name(std::string_view value);
/// "ADDRESS:PORT", or empty.
std::string listen_address(std::string_view value);

}  // namespace ina::config
