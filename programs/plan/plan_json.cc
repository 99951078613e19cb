#include "programs/plan/plan_json.h"

#include <fmt/format.h>

#include <algorithm>

namespace ina::cli {
namespace {

using nlohmann::json;
using themis::Picos;

double in_us(Picos ps) {
  return static_cast<double>(ps) * 1e-6;
}

json json_of_requests(const themis::Plan& plan, const themis::Timeline& timeline) {
  json list = json::array();
  for (size_t r = 0; r < plan.requests.size(); ++r)
    list.push_back({{"collective", themis::name(plan.requests[r].collective)},
                    {"bytes", plan.requests[r].bytes},
                    {"issue_us", in_us(plan.requests[r].issue_ps)},
                    {"end_us", in_us(timeline.request_end_ps[r])}});
  return list;
}

json json_of_chunks(const themis::Plan& plan) {
  json list = json::array();
  for (const themis::Chunk& chunk : plan.chunks) {
    json stages = json::array();
    for (const themis::Stage& stage : chunk.stages)
      stages.push_back({{"dimension", stage.dimension},
                        {"phase", themis::name(stage.phase)},
                        {"in_network", stage.in_network},
                        {"held_bytes", stage.held_bytes},
                        {"tx_bytes", stage.tx_bytes},
                        {"rx_bytes", stage.rx_bytes}});
    list.push_back({{"collective", chunk.request}, {"bytes", chunk.bytes}, {"stages", stages}});
  }
  return list;
}

json json_of_dimensions(const themis::Plan& plan, const themis::Timeline& timeline) {
  json list = json::array();
  const std::vector<themis::Load> loads = themis::loads_of(plan);
  const double end_us = in_us(timeline.end_ps);
  for (size_t d = 0; d < loads.size(); ++d) {
    const themis::Dimension& own = plan.topology.dimensions[d];
    json operations = json::array();
    for (const themis::Operation& o : timeline.dimensions[d])
      operations.push_back({{"chunk", o.id.chunk},
                            {"stage", o.id.stage},
                            {"start_us", in_us(std::min(o.tx_start_ps, o.rx_start_ps))},
                            {"end_us", in_us(o.end_ps)}});
    list.push_back({{"name", own.name},
                    {"kind", themis::name(own.kind)},
                    {"size", own.size},
                    {"gbps", static_cast<double>(own.bits_per_s) * 1e-9},
                    {"step_latency_ns", static_cast<double>(own.step_latency_ps) * 1e-3},
                    {"aggregation_gbps", static_cast<double>(own.aggregation_bits_per_s) * 1e-9},
                    {"point_to_point", themis::name(own.algorithm())},
                    {"tx_bytes", loads[d].tx_bytes},
                    {"rx_bytes", loads[d].rx_bytes},
                    {"tx_utilisation", end_us > 0 ? in_us(loads[d].tx_ps) / end_us : 0},
                    {"rx_utilisation", end_us > 0 ? in_us(loads[d].rx_ps) / end_us : 0},
                    {"operations", operations}});
  }
  return list;
}

}  // namespace

json json_of(const themis::Plan& plan, const themis::Timeline& timeline) {
  const double end_us = in_us(timeline.end_ps), ideal_us = in_us(themis::ideal_ps(plan));
  return {{"hash", fmt::format("{:016x}", themis::hash_of(plan))},
          {"topology", plan.topology.name},
          {"participants", plan.topology.participants()},
          {"predicted_us", end_us},
          {"ideal_us", ideal_us},
          {"utilisation", end_us > 0 ? ideal_us / end_us : 0},
          {"tx_bytes", themis::tx_bytes_of(plan)},
          {"collectives", json_of_requests(plan, timeline)},
          {"dimensions", json_of_dimensions(plan, timeline)},
          {"chunks", json_of_chunks(plan)}};
}

}  // namespace ina::cli
