#include "programs/inactl/heat.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/text_table.h"
#include "programs/inactl/status_json.h"

namespace ina::cli {

namespace {

using Json = nlohmann::json;

// Jobs with characters of their own in the map.
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A wait that is longer than the one before; the longest is the most conspicuous.
struct Age {
  uint64_t below_us;
  const char* glyph;
  const char* name;
  int colour;  ///< of 256
};
constexpr Age kAges[] = {{1'000, "░", "waits below 1 ms", 33},
                         {10'000, "▒", "below 10 ms", 40},
                         {1'000'000, "▓", "below 1 s", 220},
                         {UINT64_MAX, "█", "longer", 196}};
/// Glyph of a slot that keeps a result for workers that lost it (policy static), for as long as no
/// other fragment wants it.
constexpr const char* kKept = "-";
constexpr int kKeptColour = 244;

bool waits(const Heat::Cell& cell) {
  return cell.state == "filling" || cell.state == "frozen";
}
const Age& age_of(uint64_t age_us) {
  return *std::ranges::find_if(kAges, [&](const Age& age) { return age_us < age.below_us; });
}

struct Look {
  std::string glyph;
  int colour = 0;
};

/// How cells are shown.
class Painter {
 public:
  Painter(const Heat& heat, HeatBy by, bool colour) : heat_(heat), by_(by), colour_(colour) {}

  std::string glyph(const Heat::Cell& cell) const { return paint(look(cell)); }
  /// Lines of at most `width` columns.
  std::string legend(size_t width) const {
    std::string out;
    size_t used = 0;
    for (const auto& [look, name] : entries()) {
      const std::string shown = shortened(name, std::max<size_t>(width, 4) - 2);
      const size_t more = 2 + columns_of(shown);
      const bool fits = used + 2 + more <= width;
      out += used == 0 ? "" : fits ? "  " : "\n";
      out += paint(look) + " " + shown;
      used = used != 0 && fits ? used + 2 + more : more;
    }
    return out;
  }

 private:
  std::string paint(const Look& look) const {
    return colour_ ? fmt::format("\x1b[38;5;{}m{}\x1b[0m", look.colour, look.glyph) : look.glyph;
  }
  std::vector<std::pair<Look, std::string>> entries() const {
    std::vector<std::pair<Look, std::string>> found = {{look({"empty", 0, 0}), "empty"}};
    if (by_ == HeatBy::kAge) {
      found.push_back({{kKept, kKeptColour}, "kept, nobody waits"});
      for (const Age& age : kAges) found.push_back({{age.glyph, age.colour}, age.name});
    } else if (by_ == HeatBy::kState) {
      for (const Heat::State& state : heat_.states)
        if (state.name != "empty") found.push_back({look({state.name, 0, 0}), state.name});
    } else {
      for (const Heat::Job& job : heat_.jobs)
        if (const Look look = look_of_job(job.id); look.glyph != "*")
          found.push_back({look, job.name});
      if (heat_.jobs.size() > kLetters.size()) found.push_back({{"*", 250}, "others"});
    }
    return found;
  }
  Look look(const Heat::Cell& cell) const {
    if (cell.state == "empty") return {".", 240};
    if (by_ == HeatBy::kJob) return look_of_job(cell.job);
    if (by_ == HeatBy::kAge && !waits(cell)) return {kKept, kKeptColour};
    if (by_ == HeatBy::kAge) return {age_of(cell.age_us).glyph, age_of(cell.age_us).colour};
    static const std::map<std::string, Look> kStates = {{"filling", {"f", 33}},
                                                        {"complete", {"c", 40}},
                                                        {"answered", {"a", 220}},
                                                        {"frozen", {"z", 51}}};
    const auto found = kStates.find(cell.state);
    return found == kStates.end() ? Look{"?", 250} : found->second;
  }
  Look look_of_job(uint64_t id) const {
    const auto at =
        static_cast<size_t>(std::ranges::find(heat_.jobs, id, &Heat::Job::id) - heat_.jobs.begin());
    if (at >= kLetters.size() || at >= heat_.jobs.size()) return {"*", 250};
    constexpr int kColours[] = {33, 40, 220, 196, 201, 51, 208};
    return {std::string(1, kLetters[at]), kColours[at % std::size(kColours)]};
  }

  const Heat& heat_;
  const HeatBy by_;
  const bool colour_;
};

std::string map_text(const Heat& heat, HeatBy by, size_t columns, bool colour, size_t width) {
  const Painter painter(heat, by, colour);
  const size_t in_lane = heat.lanes == 0 ? heat.cells.size() : heat.cells.size() / heat.lanes;
  std::string out;
  for (size_t at = 0; at < heat.cells.size(); ++at) {
    const size_t in = in_lane == 0 ? at : at % in_lane;
    if (in == 0 && heat.lanes > 1)
      out += fmt::format("{}lane {}:\n", at == 0 ? "" : "\n", at / in_lane);
    out += painter.glyph(heat.cells[at]);
    if ((in + 1) % columns == 0 && in + 1 != in_lane) out += "\n";
    if (in + 1 == in_lane) out += "\n";
  }
  return fmt::format("{}{}\n\n", out, painter.legend(width == 0 ? SIZE_MAX : width));
}

double share(uint64_t part, uint64_t all) {
  return all == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

std::string age_text(uint64_t age_us) {
  if (age_us < 1'000) return fmt::format("{} us", age_us);
  if (age_us < 1'000'000) return fmt::format("{:.1f} ms", static_cast<double>(age_us) * 1e-3);
  return fmt::format("{:.1f} s", static_cast<double>(age_us) * 1e-6);
}

}  // namespace

Heat heat(const Json& slots, const Json& status) {
  Heat found;
  const Json& aggregator = child(status, "aggregator");
  found.policy = text(aggregator, "policy");
  found.slots = number(slots, "slots");
  found.lanes = number(slots, "lanes");
  found.slots_per_cell = std::max<uint64_t>(1, number(slots, "slots_per_cell"));
  found.preemptions = number(aggregator, "preemptions");
  found.collisions = number(aggregator, "bypassed");
  found.cells.resize(std::min<uint64_t>(number(slots, "cells"), 1 << 20), {"empty", 0, 0});
  for (const Json& job : child(status, "jobs"))
    found.jobs.push_back({.id = number(job, "id"),
                          .name = job_label(job),
                          .preempted = number(job, "preempted"),
                          .collisions = number(job, "bypassed"),
                          .absorbed = number(job, "absorbed")});
  std::map<std::string, uint64_t> states;
  for (const Json& row : child(slots, "used")) {
    if (!row.is_array() || row.size() < 5 || !row[0].is_number_unsigned() || !row[1].is_string() ||
        !row[3].is_number_unsigned() || row[0].get<uint64_t>() >= found.cells.size())
      continue;
    const uint64_t id = row[2].is_number_unsigned() ? row[2].get<uint64_t>() : 0;
    const auto age_us = row[3].get<uint64_t>();
    Heat::Cell& cell = found.cells[row[0].get<size_t>()];
    cell = {printable(row[1].get<std::string>()), id, age_us};
    ++states[printable(row[1].get<std::string>())];
    ++found.used;
    auto job = std::ranges::find(found.jobs, id, &Heat::Job::id);
    if (job == found.jobs.end()) job = found.jobs.insert(job, {.id = id, .name = "?"});
    ++job->cells;
    if (waits(cell)) job->oldest_us = std::max(job->oldest_us, age_us);
  }
  std::ranges::stable_sort(found.jobs, std::greater<>(), &Heat::Job::cells);
  states["empty"] = found.cells.size() - found.used;
  for (const auto& [name, cells] : states) found.states.push_back({name, cells});
  std::ranges::stable_sort(found.states, std::greater<>(), &Heat::State::cells);
  return found;
}

std::string format_heat(const Heat& heat, bool map, HeatBy by, size_t columns, bool colour,
                        size_t width) {
  std::string out =
      fmt::format("{} slots in {} {}, policy {}: {:.1f} % hold something\n",
                  with_separators(heat.slots), heat.lanes, heat.lanes == 1 ? "lane" : "lanes",
                  heat.policy, share(heat.used, heat.cells.size()));
  if (heat.slots_per_cell > 1) out += fmt::format("looked at one of {}\n", heat.slots_per_cell);
  out += fmt::format("{} slots taken over, {} contributions found no slot\n\n",
                     with_separators(heat.preemptions), with_separators(heat.collisions));
  if (map) out += map_text(heat, by, std::max<size_t>(1, columns), colour, width);
  TextTable jobs({"JOB", "SLOTS", "SHARE", "WAITS", "PREEMPTED", "NO SLOT", "IN SLOTS"},
                 {true, false, false, false, false, false, false});
  jobs.set_expendable({2, 6});
  for (const Heat::Job& job : heat.jobs)
    jobs.add({job.name, with_separators(job.cells * heat.slots_per_cell),
              fmt::format("{:.1f} %", share(job.cells, heat.cells.size())),
              job.oldest_us == 0 ? "-" : age_text(job.oldest_us), with_separators(job.preempted),
              with_separators(job.collisions),
              job.absorbed + job.collisions == 0
                  ? "-"
                  : fmt::format("{:.1f} %", share(job.absorbed, job.absorbed + job.collisions))});
  out += jobs.empty() ? "no job: no worker has joined\n" : jobs.str(width);
  TextTable states({"STATE", "SLOTS", "SHARE"}, {true, false, false});
  for (const Heat::State& state : heat.states)
    states.add({state.name, with_separators(state.cells * heat.slots_per_cell),
                fmt::format("{:.1f} %", share(state.cells, heat.cells.size()))});
  return out + "\n" + states.str(width);
}

Json heat_json(const Heat& heat) {
  Json jobs = Json::array();
  for (const Heat::Job& job : heat.jobs)
    jobs.push_back({{"job", job.name},
                    {"id", job.id},
                    {"cells", job.cells},
                    {"oldest_us", job.oldest_us},
                    {"preempted", job.preempted},
                    {"collisions", job.collisions},
                    {"absorbed", job.absorbed}});
  Json states = Json::object();
  for (const Heat::State& state : heat.states) states[state.name] = state.cells;
  Json used = Json::array();
  for (size_t i = 0; i < heat.cells.size(); ++i)
    if (const Heat::Cell& cell = heat.cells[i]; cell.state != "empty")
      used.push_back(
          {{"cell", i}, {"state", cell.state}, {"id", cell.job}, {"age_us", cell.age_us}});
  return {{"policy", heat.policy},
          {"slots", heat.slots},
          {"lanes", heat.lanes},
          {"slots_per_cell", heat.slots_per_cell},
          {"cells", heat.cells.size()},
          {"cells_used", heat.used},
          {"preemptions", heat.preemptions},
          {"collisions", heat.collisions},
          {"states", std::move(states)},
          {"jobs", std::move(jobs)},
          {"used", std::move(used)}};
}

}  // namespace ina::cli
