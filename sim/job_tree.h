// A job at the switches of a tree: who is a member where, and the memory that each switch has for
// it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/switch.h"

namespace ina::sim {

struct JobTreeSpec {
  JobId id{};  ///< and as many more as there are domains
  uint64_t key = 0;
  uint32_t ranks = 0;
  uint32_t window = 0;
  uint32_t slot_bytes = 0;
  Nanos rto_min_ns = 0;
  /// Straggler help.
  struct Help {
    uint32_t in_switch = 0;  ///< fragments of each member at once
    uint32_t slots = 0;      ///< of each switch
    Nanos patience_ns = 0;
    bool always = false;  ///< also where it does not pay
  };
  std::optional<Help> help;
};

class JobTree {
 public:
  static constexpr uint32_t kEpoch = 1;

  explicit JobTree(const JobTreeSpec& spec);
  ~JobTree();

  /// The job at a switch, or one of its domains there. `above`: the place of which this one is a
  /// member; the first place has none.
  uint32_t add_place(Switch& at, io::JobIndex index, std::optional<uint32_t> above = {});
  /// The number that the next member of a place will have there.
  Rank next_member(uint32_t place) const;
  void add_rank(uint32_t place, uint32_t rank, uint32_t host);

  /// By which the members of a place call the job.
  JobId id(uint32_t place = 0) const;
  uint64_t key() const { return spec_.key; }

  /// All members are known: the switches serve them from now on.
  void begin();
  void end();

 private:
  struct Place;

  void bind(const Place& place) const;
  void add_to_switch(Place& place) const;

  JobTreeSpec spec_;
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace ina::sim
