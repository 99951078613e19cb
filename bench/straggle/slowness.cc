#include "bench/straggle/slowness.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

namespace ina::straggle {

namespace {

constexpr Time kForever = std::numeric_limits<Time>::max();

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

}  // namespace

tl::expected<Pattern, std::string> parse_pattern(const std::string& text) {
  using Kind = Pattern::Kind;
  const auto bad = [&] {
    return tl::unexpected(text +
                          " is not none, permanent:SEVERITY, rotating:SEVERITY:PERIOD, "
                          "random:SEVERITY:PERIOD or link:SEVERITY, e.g. rotating:4:250ms");
  };
  const auto parts = split(text);
  Pattern pattern;
  if (parts[0] == "permanent")
    pattern.kind = Kind::kPermanent;
  else if (parts[0] == "rotating")
    pattern.kind = Kind::kRotating;
  else if (parts[0] == "random")
    pattern.kind = Kind::kRandom;
  else if (parts[0] == "link")
    pattern.kind = Kind::kLink;
  else if (parts[0] != "none")
    return bad();
  const bool timed = pattern.kind == Kind::kRotating || pattern.kind == Kind::kRandom;
  if (parts.size() != (pattern.kind == Kind::kNone ? 1u : timed ? 3u : 2u)) return bad();
  if (pattern.kind == Kind::kNone) return pattern;
  const auto number = [](const std::string& part, double& value, const char* unit) {
    const char* const end = part.data() + part.size();
    const auto [next, error] = std::from_chars(part.data(), end, value);
    return error == std::errc() && std::string(next, end) == unit;
  };
  double period_ms = 0;
  if (!number(parts[1], pattern.severity, "") || !(pattern.severity >= 1 && pattern.severity < 1e6))
    return bad();
  if (timed && (!number(parts[2], period_ms, "ms") || !(period_ms >= 1 && period_ms < 1e6)))
    return bad();
  pattern.period = static_cast<Time>(period_ms * 1e6);
  return pattern;
}

Slowness::Slowness(const Pattern& pattern, int rank, int ranks, uint64_t seed)
    : pattern_(pattern),
      rank_(rank),
      ranks_(ranks),
      random_(seed * 1'000'003 + static_cast<uint64_t>(rank)) {}

bool Slowness::slow_at(Time now, Time& until) {
  until = kForever;
  switch (pattern_.kind) {
    case Pattern::Kind::kNone:
    case Pattern::Kind::kLink:
      return false;
    case Pattern::Kind::kPermanent:
      return rank_ == 0;
    case Pattern::Kind::kRotating:
      until = (now / pattern_.period + 1) * pattern_.period;
      return now / pattern_.period % ranks_ == rank_;
    case Pattern::Kind::kRandom:
      while (change_ <= now) {
        slow_ = !slow_;
        const double mean = static_cast<double>(pattern_.period) * (slow_ ? 1 : ranks_ - 1);
        const double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;
        change_ += 1 + static_cast<Time>(-std::log(1 - uniform) * mean);
      }
      until = change_;
      return slow_;
  }
  return false;
}

Time Slowness::done(Time start, Time work) {
  Time now = start;
  auto left = static_cast<double>(work);
  for (;;) {
    Time until = 0;
    const double factor = slow_at(now, until) ? pattern_.severity : 1;
    if (until == kForever || left * factor <= static_cast<double>(until - now))
      return now + static_cast<Time>(left * factor);
    left -= static_cast<double>(until - now) / factor;
    now = until;
  }
}

}  // namespace ina::straggle
