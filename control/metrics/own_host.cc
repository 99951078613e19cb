#include "control/metrics/own_host.h"

#include <algorithm>

namespace ina::metrics {

namespace {

constexpr std::string_view kDigits = "0123456789";

bool is_all(std::string_view text, std::string_view of) {
  return !text.empty() && text.find_first_not_of(of) == std::string_view::npos;
}

/// "10.0.0.1"; nobody's name ends in a number.
bool is_ipv4(std::string_view host) {
  for (int part = 0; part < 3; ++part) {
    const size_t dot = host.find('.');
    if (dot == std::string_view::npos || !is_all(host.substr(0, dot), kDigits)) return false;
    host.remove_prefix(dot + 1);
  }
  return is_all(host, kDigits);
}

/// "[::1]"; brackets are in no name.
bool is_ipv6(std::string_view host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' &&
         is_all(host.substr(1, host.size() - 2), "0123456789abcdefABCDEF:.");
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string_view::npos &&
                        is_all(host.substr(colon + 1), kDigits) &&
                        (host.find(':') == colon || (colon > 0 && host[colon - 1] == ']'));
  return has_port ? host.substr(0, colon) : host;
}

}  // namespace

bool is_own_host(std::string_view host, std::span<const std::string> names) {
  const std::string_view name = without_port(host);
  return is_ipv4(name) || is_ipv6(name) || same(name, "localhost") ||
         std::ranges::any_of(names, [&](const std::string& own) { return same(name, own); });
}

}  // namespace ina::metrics
