#include "sim/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "common/yaml/tree.h"

namespace ina::sim {

namespace {

using yaml::Node;

constexpr double kNsPerMs = 1e6;
constexpr double kNsPerUs = 1e3;
// The upper bound of a count or a time keeps products of them within 64 bits.
constexpr double kMost = 1e12;

[[noreturn]] void complain(const std::string& file, const Node& at, const std::string& text) {
  throw std::invalid_argument(
      fmt::format("{}:{}:{}: {}", file, at.place.line, at.place.column, text));
}

Node read_file(const std::string& path) {
  const auto text = yaml::read_file(path);
  if (!text) throw std::invalid_argument(fmt::format("cannot read {}", path));
  yaml::Tree tree = yaml::parse(*text, path);
  if (!tree.errors.empty()) throw std::invalid_argument(tree.errors.front().to_string());
  return std::move(tree.root);
}

const std::vector<Node>& list_of(const std::string& file, const Node& node,
                                 const std::string& what) {
  if (node.kind != Node::Kind::kList || node.items.empty())
    complain(file, node, fmt::format("there must be a list of {}", what));
  return node.items;
}

/// The keys of one map; those that nobody asked for are errors, and so is a key that comes twice.
class Fields {
 public:
  Fields(const std::string& file, const Node& map, const std::string& what)
      : file_(file), map_(map), what_(what) {
    if (map.kind != Node::Kind::kMap)
      complain(file, map, fmt::format("{} must be a map of keys and values", what));
    for (size_t i = 0; i < map.keys.size(); ++i)
      for (size_t before = 0; before < i; ++before)
        if (map.keys[before].text == map.keys[i].text)
          complain(file, map.keys[i], fmt::format("{} comes twice", map.keys[i].text));
  }

  const Node* find(const std::string& key) {
    known_.push_back(key);
    const auto found = std::ranges::find(map_.keys, key, &Node::text);
    return found == map_.keys.end() ? nullptr : &map_.items[found - map_.keys.begin()];
  }
  const Node& need(const std::string& key) {
    const Node* const node = find(key);
    if (!node) complain(file_, map_, fmt::format("{} has no '{}'", what_, key));
    return *node;
  }
  std::string text(const std::string& key, std::optional<std::string> otherwise = {}) {
    const Node* const node = otherwise ? find(key) : &need(key);
    if (!node) return *otherwise;
    if (node->kind != Node::Kind::kScalar || node->text.empty())
      complain(file_, *node, fmt::format("{} must be a text", key));
    return node->text;
  }
  double number(const std::string& key, double least, std::optional<double> otherwise = {},
                double most = kMost) {
    const Node* const node = otherwise ? find(key) : &need(key);
    if (!node) return *otherwise;
    double value = 0;
    const char* const end = node->text.data() + node->text.size();
    const auto parsed = std::from_chars(node->text.data(), end, value);
    if (node->kind != Node::Kind::kScalar || parsed.ec != std::errc() || parsed.ptr != end ||
        !(value >= least && value <= most))
      complain(file_, *node, fmt::format("{} must be a number from {} to {}", key, least, most));
    return value;
  }
  uint32_t count(const std::string& key, uint32_t least, std::optional<uint32_t> otherwise = {}) {
    const double value = number(
        key, least, otherwise ? std::optional<double>(*otherwise) : std::optional<double>(), 1e9);
    if (value != std::floor(value))
      complain(file_, *find(key), fmt::format("{} must be a whole number", key));
    return static_cast<uint32_t>(value);
  }
  /// After all keys have been asked for.
  void finish() const {
    for (const Node& key : map_.keys)
      if (std::ranges::find(known_, key.text) == known_.end())
        complain(file_, key, fmt::format("{} has no key '{}'", what_, key.text));
  }

 private:
  const std::string& file_;
  const Node& map_;
  std::string what_;
  std::vector<std::string> known_;
};

struct TableRow {
  Layer layer;
  double flops = 0;
  uint32_t repeat = 1;
};

/// Times are given layer by layer, or follow from the share that a layer has of all
/// multiplications.
TableRow read_layer(const std::string& file, const Node& node, bool by_flops, double scale) {
  Fields fields(file, node, "a layer");
  TableRow row;
  row.layer.name = fields.text("name");
  const double parameters = fields.number("parameters", 0);
  row.layer.parameter_bytes =
      std::max<uint64_t>(4, 4 * static_cast<uint64_t>(std::llround(parameters / scale)));
  row.repeat = fields.count("repeat", 1, 1);
  if (by_flops) {
    row.flops = fields.number("flops", 0);
  } else {
    row.layer.forward_ns = std::llround(fields.number("forward_ms", 0) * kNsPerMs / scale);
    row.layer.backward_ns = std::llround(fields.number("backward_ms", 0) * kNsPerMs / scale);
  }
  fields.finish();
  return row;
}

Model read_model(const std::string& path, double scale) {
  const Node root = read_file(path);
  Fields fields(path, root, "a model");
  Model model;
  model.name = fields.text("name");
  model.samples = fields.count("samples", 1, 1);
  model.source = fields.text("source", path);
  const Node* const given = fields.find("iteration_ms");
  const double iteration_ns = given ? fields.number("iteration_ms", 0) * kNsPerMs / scale : 0.0;
  std::vector<TableRow> rows;
  double flops = 0;
  for (const Node& node : list_of(path, fields.need("layers"), "layers")) {
    rows.push_back(read_layer(path, node, given != nullptr, scale));
    flops += rows.back().flops * rows.back().repeat;
  }
  if (given && flops == 0 && iteration_ns > 0)
    complain(path, *given, "no layer has any flops over which iteration_ms could be shared out");
  fields.finish();
  for (TableRow& row : rows) {
    if (given) {
      // Backwards there are twice as many operations: for the inputs, and for the weights.
      const double share = flops == 0 ? 0 : iteration_ns * row.flops / flops;
      row.layer.forward_ns = std::llround(share / 3);
      row.layer.backward_ns = std::llround(share * 2 / 3);
    }
    for (uint32_t i = 1; i <= row.repeat; ++i) {
      model.layers.push_back(row.layer);
      if (row.repeat > 1) model.layers.back().name += std::to_string(i);
    }
  }
  return model;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

JobPlan read_job(const std::string& file, const Node& node, double scale) {
  Fields fields(file, node, "a job");
  JobPlan job;
  const Node& model = fields.need("model");
  try {
    job.model = model_of(fields.text("model"), scale, folder_of(file));
  } catch (const std::invalid_argument& error) {
    complain(file, model, error.what());
  }
  job.workers = fields.count("workers", 1, 8);
  job.iterations = fields.count("iterations", 1, 1);
  job.arrival = std::llround(fields.number("arrival_ms", 0, 0.0) * kNsPerMs / scale);
  if (fields.find("rack")) job.rack = fields.count("rack", 0);
  fields.finish();
  return job;
}

ns3net::LinkSpec read_link(Fields& fields, const std::string& prefix,
                           const ns3net::LinkSpec& otherwise) {
  ns3net::LinkSpec link = otherwise;
  const auto rate_gbps = static_cast<double>(link.rate_bps) * 1e-9;
  link.rate_bps = static_cast<uint64_t>(
      fields.number(prefix.empty() ? "rate_gbps" : prefix + "gbps", 1e-6, rate_gbps, 1e6) * 1e9);
  const double delay_us = static_cast<double>(link.delay_ns) / kNsPerUs;
  link.delay_ns = std::llround(fields.number(prefix + "delay_us", 0, delay_us, 1e9) * kNsPerUs);
  link.queue_bytes = static_cast<uint64_t>(
      fields.number(prefix + "queue_bytes", 1, static_cast<double>(link.queue_bytes)));
  link.ecn_bytes = static_cast<uint64_t>(
      fields.number(prefix + "ecn_bytes", 0, static_cast<double>(link.ecn_bytes)));
  link.loss = fields.number(prefix + "loss", 0, link.loss, 0.99);
  return link;
}

}  // namespace

bool is_model_file(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml");
}

Model model_of(const std::string& name_or_path, double scale, const std::string& folder) {
  if (!is_model_file(name_or_path)) return make_model(name_or_path, scale);
  return read_model(name_or_path.starts_with('/') ? name_or_path : folder + name_or_path, scale);
}

std::vector<JobPlan> read_trace(const std::string& path, double scale) {
  const Node root = read_file(path);
  std::vector<JobPlan> jobs;
  for (const Node& node : list_of(path, root, "jobs")) jobs.push_back(read_job(path, node, scale));
  return jobs;
}

std::vector<RackSpec> read_topology(const std::string& path, const RackSpec& otherwise) {
  const Node root = read_file(path);
  Fields fields(path, root, "a topology");
  std::vector<RackSpec> racks;
  for (const Node& node : list_of(path, fields.need("racks"), "racks")) {
    Fields rack(path, node, "a rack");
    RackSpec spec = otherwise;
    spec.link = read_link(rack, "", otherwise.link);
    spec.share = rack.count("share", 0, otherwise.share);
    // The first one is at the switch.
    if (!racks.empty()) spec.uplink = read_link(rack, "uplink_", otherwise.uplink);
    rack.finish();
    racks.push_back(spec);
  }
  fields.finish();
  return racks;
}

}  // namespace ina::sim
