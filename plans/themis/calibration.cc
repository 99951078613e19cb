#include "plans/themis/calibration.h"

#include <algorithm>
#include <charconv>

namespace ina::themis {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kNanosPerS = 1'000'000'000;
constexpr Picos kPicosPerNano = 1000;

uint64_t bits_per_s(uint64_t bytes, int64_t ns) {
  return static_cast<uint64_t>(Wide{bytes} * (kBitsPerByte * kNanosPerS) /
                               static_cast<uint64_t>(std::max<int64_t>(ns, 1)));
}

std::string number(double value) {
  constexpr int kDigits = 6;
  char text[32];
  return {text,
          std::to_chars(text, text + sizeof(text), value, std::chars_format::general, kDigits).ptr};
}

std::string gbps(uint64_t rate) {
  // With six digits no rate has an exponent below 10^6 Gb/s, the most that a rate may be.
  return number(static_cast<double>(rate) * 1e-9);
}

/// In double quotes, as YAML has them. Names that were read have no control characters.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

uint64_t measured_bits_per_s(const DimensionTimes& times, const DimensionTimes::Pair& pair) {
  if (pair.larger_ns <= pair.smaller_ns) return bits_per_s(times.larger_bytes, pair.larger_ns);
  return bits_per_s(times.larger_bytes - times.smaller_bytes, pair.larger_ns - pair.smaller_ns);
}

Dimension calibrated(Dimension dimension, const DimensionTimes& times) {
  const auto within = [](uint64_t rate) { return std::clamp(rate, kLeastBitsPerS, kMostBitsPerS); };
  dimension.kind = DimensionKind::kIna;
  dimension.point_to_point = DimensionKind::kDirect;
  dimension.bits_per_s = within(measured_bits_per_s(times, times.all_gather));
  const uint64_t sums = std::min(measured_bits_per_s(times, times.all_reduce),
                                 measured_bits_per_s(times, times.reduce_scatter));
  // The switch shares its capacity out among all participants.
  dimension.aggregation_bits_per_s =
      sums < dimension.bits_per_s ? std::min(within(sums) * dimension.size, kMostBitsPerS) : 0;
  dimension.step_latency_ps =
      std::clamp<Picos>(times.least_ns * kPicosPerNano, 0, kMostStepLatencyPs);
  return dimension;
}

std::string to_yaml(const Topology& topology) {
  std::string yaml;
  if (!topology.name.empty()) yaml += "name: " + quoted(topology.name) + "\n";
  yaml += "dimensions:\n";
  for (const Dimension& dimension : topology.dimensions) {
    yaml += "  - {kind: " + std::string(name(dimension.kind)) +
            ", size: " + std::to_string(dimension.size) + ", gbps: " + gbps(dimension.bits_per_s) +
            ", step_latency_ns: " +
            number(static_cast<double>(dimension.step_latency_ps) / kPicosPerNano);
    if (dimension.aggregates()) {
      if (dimension.aggregation_bits_per_s != 0)
        yaml += ", aggregation_gbps: " + gbps(dimension.aggregation_bits_per_s);
      yaml += ", point_to_point: " + std::string(name(dimension.point_to_point));
    }
    if (!dimension.name.empty()) yaml += ", name: " + quoted(dimension.name);
    yaml += "}\n";
  }
  return yaml;
}

}  // namespace ina::themis
