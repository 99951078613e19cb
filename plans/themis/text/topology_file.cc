#include "plans/themis/text/topology_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace ina::themis {
namespace {

using yaml::describe;
using yaml::Node;
using yaml::Place;
using yaml::printable;

constexpr double kBitsPerGbit = 1e9;
constexpr double kPicosPerNano = 1e3;
constexpr size_t kLongestName = 64;

/// The kinds, by name; "a, b, c" of the first `count`.
std::string kind_names(size_t count) {
  std::string names;
  for (size_t i = 0; i < count; ++i)
    names += (names.empty() ? "" : ", ") + std::string(kDimensionKindNames[i]);
  return names;
}

class TopologyReader {
 public:
  TopologyReader(std::string_view file_name, std::vector<yaml::Error> errors)
      : file_name_(file_name), errors_(std::move(errors)) {}

  void read(const Node& root) {
    if (!is_map(root, "a topology", {"name", "dimensions"})) return;
    if (const Node* name = find(root, "name")) topology_.name = text(*name, "name");
    const Node* list = need(root, "a topology", "dimensions");
    if (!list) return;
    if (list->kind != Node::Kind::kList) {
      report(list->place,
             fmt::format("dimensions: a list of dimensions is expected, not {}", describe(*list)));
      return;
    }
    for (size_t i = 0; i < list->items.size(); ++i) read_dimension(list->items[i], i);
    if (!errors_.empty()) return;
    // Errors that only the whole topology can have.
    if (const auto valid = validate(topology_); !valid)
      report(list->place, fmt::format("dimensions: {}", valid.error().text));
  }

  tl::expected<Topology, std::vector<yaml::Error>> result() && {
    if (errors_.empty()) return std::move(topology_);
    std::ranges::stable_sort(errors_, {},
                             [](const yaml::Error& e) { return std::pair(e.line, e.column); });
    return tl::unexpected(std::move(errors_));
  }

 private:
  void report(Place place, std::string text) {
    errors_.push_back({file_name_, place.line, place.column, std::move(text)});
  }

  /// True if the node is a map. Reports keys that are not in `known`, and those that come twice.
  bool is_map(const Node& node, const std::string& what,
              std::initializer_list<std::string_view> known) {
    if (node.kind == Node::Kind::kRefused) return false;
    if (node.kind != Node::Kind::kMap) {
      report(node.place,
             fmt::format("{}: a map of keys is expected, not {}", what, describe(node)));
      return false;
    }
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const Node& key = node.keys[i];
      if (std::ranges::find(known, key.text) == known.end())
        report(key.place, fmt::format("{}: unknown key {} (known: {})", what, describe(key),
                                      fmt::join(known, ", ")));
      for (size_t before = 0; before < i; ++before)
        if (node.keys[before].text == key.text)
          report(key.place, fmt::format("{}: {} is given twice, first in line {}", what,
                                        describe(key), node.keys[before].place.line));
    }
    return true;
  }

  static const Node* find(const Node& map, std::string_view key) {
    const auto found = std::ranges::find(map.keys, key, &Node::text);
    return found == map.keys.end() ? nullptr : &map.items[found - map.keys.begin()];
  }

  const Node* need(const Node& map, const std::string& what, std::string_view key) {
    const Node* found = find(map, key);
    if (!found) report(map.place, fmt::format("{}: has no '{}'", what, key));
    return found;
  }

  std::string text(const Node& node, const std::string& path) {
    if (node.kind == Node::Kind::kScalar && !node.text.empty() &&
        node.text.size() <= kLongestName && printable(node.text) == node.text)
      return node.text;
    report(node.place, fmt::format("{}: {} is not a text of 1..{} characters", path, describe(node),
                                   kLongestName));
    return {};
  }

  /// A number of `scale` units, in whole units.
  uint64_t number(const Node& node, const std::string& path, double least, double most,
                  double scale) {
    double value = 0;
    const char* const end = node.text.data() + node.text.size();
    const auto parsed = std::from_chars(node.text.data(), end, value);
    const bool is_number =
        node.kind == Node::Kind::kScalar && parsed.ec == std::errc() && parsed.ptr == end;
    if (is_number && value >= least && value <= most)
      return static_cast<uint64_t>(std::llround(value * scale));
    report(node.place, fmt::format("{}: {} is not a number in {:.10g}..{:.10g}", path,
                                   describe(node), least, most));
    return 0;
  }

  uint32_t whole_number(const Node& node, const std::string& path, uint32_t least, uint32_t most) {
    uint32_t value = 0;
    const char* const end = node.text.data() + node.text.size();
    const auto parsed = std::from_chars(node.text.data(), end, value);
    if (node.kind == Node::Kind::kScalar && parsed.ec == std::errc() && parsed.ptr == end &&
        value >= least && value <= most)
      return value;
    report(node.place, fmt::format("{}: {} is not a whole number in {}..{}", path, describe(node),
                                   least, most));
    return least;
  }

  DimensionKind kind(const Node& node, const std::string& path, size_t count) {
    for (size_t i = 0; i < count; ++i)
      if (node.kind == Node::Kind::kScalar && node.text == kDimensionKindNames[i])
        return static_cast<DimensionKind>(i);
    report(node.place,
           fmt::format("{}: {} is unknown (known: {})", path, describe(node), kind_names(count)));
    return DimensionKind::kRing;
  }

  void read_dimension(const Node& node, size_t index) {
    Dimension dimension;
    const std::string what = fmt::format("dimensions[{}]", index);
    const size_t errors_before = errors_.size();
    if (!is_map(node, what,
                {"name", "kind", "size", "gbps", "step_latency_ns", "aggregation_gbps",
                 "point_to_point"}))
      return;
    const double least_gbps = static_cast<double>(kLeastBitsPerS) / kBitsPerGbit;
    const double most_gbps = static_cast<double>(kMostBitsPerS) / kBitsPerGbit;
    const double most_ns = static_cast<double>(kMostStepLatencyPs) / kPicosPerNano;
    if (const Node* own = need(node, what, "kind"))
      dimension.kind = kind(*own, what + ".kind", kDimensionKindNames.size());
    if (const Node* own = need(node, what, "size"))
      dimension.size =
          whole_number(*own, what + ".size", 2, static_cast<uint32_t>(kMostParticipants));
    if (const Node* own = need(node, what, "gbps"))
      dimension.bits_per_s = number(*own, what + ".gbps", least_gbps, most_gbps, kBitsPerGbit);
    if (const Node* own = need(node, what, "step_latency_ns"))
      dimension.step_latency_ps =
          static_cast<Picos>(number(*own, what + ".step_latency_ns", 0, most_ns, kPicosPerNano));
    if (const Node* own = find(node, "aggregation_gbps"))
      dimension.aggregation_bits_per_s =
          number(*own, what + ".aggregation_gbps", least_gbps, most_gbps, kBitsPerGbit);
    if (const Node* own = find(node, "point_to_point"))
      read_point_to_point(*own, what, dimension);
    else if (dimension.aggregates() && (dimension.size & (dimension.size - 1)) != 0)
      dimension.point_to_point = DimensionKind::kDirect;
    const Node* own_name = find(node, "name");
    dimension.name = own_name ? text(*own_name, what + ".name") : default_name(dimension);
    if (errors_.size() == errors_before)
      if (const std::string problem = problem_of(dimension); !problem.empty())
        report(node.place, fmt::format("{}: {}", what, problem));
    topology_.dimensions.push_back(std::move(dimension));
  }

  void read_point_to_point(const Node& node, const std::string& what, Dimension& dimension) {
    if (!dimension.aggregates())
      report(node.place,
             fmt::format("{}.point_to_point: only a dimension of kind ina has it", what));
    dimension.point_to_point = kind(node, what + ".point_to_point", 3);
  }

  static std::string default_name(const Dimension& dimension) {
    return fmt::format("{} {}", name(dimension.kind), dimension.size);
  }

  std::string file_name_;
  std::vector<yaml::Error> errors_;
  Topology topology_;
};

}  // namespace

tl::expected<Topology, std::vector<yaml::Error>> load_topology(std::string_view text,
                                                               std::string_view file_name) {
  yaml::Tree tree = yaml::parse(text, file_name);
  if (!tree.complete) return tl::unexpected(std::move(tree.errors));
  TopologyReader reader(file_name, std::move(tree.errors));
  reader.read(tree.root);
  return std::move(reader).result();
}

tl::expected<Topology, std::vector<yaml::Error>> load_topology_file(const std::string& path) {
  const auto text = yaml::read_file(path);
  if (!text) return tl::unexpected(text.error());
  return load_topology(*text, path);
}

}  // namespace ina::themis
