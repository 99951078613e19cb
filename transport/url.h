// URLs by which a worker names its switch: "scheme:path?key=value&key=value".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ina::client {

/// Taken literally: there is no percent-encoding.
struct Url {
  std::string text;  ///< the whole, for error texts
  std::string scheme;
  std::string path;
  std::map<std::string, std::string, std::less<>> query;

  bool has(std::string_view key) const { return query.contains(key); }
  /// Value of `key`, or `otherwise` if it is not given.
  std::string get(std::string_view key, std::string_view otherwise = "") const;
  /// Decimal number within minimum..maximum.
  Result<uint64_t> number(std::string_view key, uint64_t otherwise, uint64_t minimum,
                          uint64_t maximum) const;
  /// IPv4 address in host byte order; must be given.
  Result<uint32_t> ipv4(std::string_view key) const;
  /// An error if a key is given that is not among `known`.
  Result<void> check_keys(std::initializer_list<std::string_view> known) const;
};

Result<Url> parse_url(std::string_view text);

/// "10.0.0.2" to 0x0a000002; exactly four decimal numbers.
Result<uint32_t> parse_ipv4(std::string_view text);

}  // namespace ina::client
