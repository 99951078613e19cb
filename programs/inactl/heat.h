// `inactl aggregator`: the holders of the array's slots, and a map of the array for a terminal.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ina::cli {

/// The property of a slot that the characters of the map show.
enum class HeatBy : uint8_t { kAge, kJob, kState };

struct Heat {
  struct Job {
    uint64_t id = 0;
    std::string name;         ///< as inactl takes it
    uint64_t cells = 0;       ///< of those that were looked at
    uint64_t oldest_us = 0;   ///< how long the oldest has waited for contributions; 0: none waits
    uint64_t preempted = 0;   ///< slots that were taken from it, since it began
    uint64_t collisions = 0;  ///< its contributions that found no slot, since it began
    uint64_t absorbed = 0;    ///< and those that did
  };
  struct State {
    std::string name;
    uint64_t cells = 0;
  };
  /// A slot that was looked at; an empty one has the state "empty".
  struct Cell {
    std::string state;
    uint64_t job = 0;
    uint64_t age_us = 0;  ///< since the fragment's first contribution
  };
  std::string policy;
  uint64_t slots = 0;
  uint64_t lanes = 0;
  uint64_t slots_per_cell = 1;
  std::vector<Cell> cells;
  uint64_t used = 0;      ///< of the cells
  std::vector<Job> jobs;  ///< those with most cells first
  std::vector<State> states;
  uint64_t preemptions = 0;  ///< of all jobs, since the switch started
  uint64_t collisions = 0;   ///< of all jobs, since the switch started
};

/// `slots`: the switch's answer to Slots; `status`: of the same switch.
Heat heat(const nlohmann::json& slots, const nlohmann::json& status);

/// Tables by job and by state; before them, with `map`, a character for each cell, at most
/// `columns` in a line. `colour`: with a terminal's colours. `width`: of the tables.
std::string format_heat(const Heat& heat, bool map, HeatBy by, size_t columns, bool colour,
                        size_t width = 0);

nlohmann::json heat_json(const Heat& heat);

}  // namespace ina::cli
