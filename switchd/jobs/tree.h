// A job that is spread over switches: the switches below this one that have some of its workers,
// and the one above (docs/protocol.md, "Trees").
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/messages.h"
#include "switchd/lanes/lane_place.h"
#include "switchd/uplink/uplink.h"
#include "wire/frame.h"
#include "wire/rank_set.h"

namespace ina::switchd {

/// Where a lane of a switch at `address` sends and receives.
inline wire::Address address_of_lane(wire::Address address, uint32_t lane) {
  address.udp_port = static_cast<uint16_t>(address.udp_port + lane);
  return address;
}

/// Runs of ranks, as in messages: pairs of the first one and the one behind the last.
std::vector<uint32_t> runs_of(const RankSet& ranks);
/// Error: these are none of ranks below `workers`.
Result<RankSet> ranks_of_runs(const std::vector<uint32_t>& runs, uint32_t workers);

/// The job's session with the switch above.
struct Above {
  enum class State {
    kJoining,  ///< has asked for a place, or has one and waits for others
    kRunning,  ///< contributions go up
    kAway,     ///< the connection is gone, and the place is asked for again
  };
  explicit Above(std::shared_ptr<Uplink> to, std::optional<uint32_t> over = std::nullopt)
      : line(std::move(to)), channel(over) {}

  void say(control::request::Message message) const {
    if (line) line->say(std::move(message), channel);
  }

  std::shared_ptr<Uplink> line;     ///< a group has that of its job
  std::optional<uint32_t> channel;  ///< of a group: its id there
  State state = State::kJoining;
  control::answer::Joined joined;    ///< its last answer; no job id: none yet
  control::answer::Waiting waiting;  ///< for whom it waits, as it said last
  RankSet told;                      ///< the ranks of which it knows
  std::string why_away = "no answer yet";
  std::optional<control::request::Message> again;  ///< asks for the place, while it is not running
  Nanos deadline = 0;                              ///< of asking
  bool has_left = false;                           ///< it was told that all workers here have left
};

}  // namespace ina::switchd
