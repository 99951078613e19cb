// The commands and questions of the conductor to a lane: a struct for each command, which has its
// inputs and, after `out`, its outputs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "aggregator/aggregator.h"
#include "io/bridge/bridge.h"
#include "io/ethdev/drop_witness.h"
#include "io/shm/shm_port.h"
#include "switchd/lanes/lane_place.h"
#include "switchd/lanes/lane_snapshot.h"
#include "switchd/lanes/packet_trace.h"
#include "wire/frame.h"

namespace ina::switchd {

/// Frames of a job that an Ethernet port dropped.
struct PortDrops {
  uint32_t port = 0;  ///< in config order
  io::DroppedFrames frames;
};

namespace command {

// ---- jobs and their workers

struct AddJob {
  aggregator::JobIndex job = 0;
  JobId id{};  ///< in frames
  aggregator::JobSpec spec = {};
  std::optional<LanePlace> above = std::nullopt;  ///< it is a domain of a job of this lane
};

/// A member that has come back has the results of these fragments, and of no others.
struct SetHeld {
  aggregator::JobIndex job = 0;
  Rank member = {};
  std::span<const Seq> held = {};  ///< stays until the command is done
};

/// With all its workers, and the trace that is made of it.
struct RemoveJob {
  aggregator::JobIndex job = 0;
};

/// A worker, or the fallback server, on the shm port.
struct AttachShm {
  aggregator::JobIndex job = 0;
  Rank rank = {};
  io::shm::WorkerSession* session = nullptr;  ///< stays until it is detached
  bool parks = false;                         ///< keeps parked sums
};

/// A worker, or the fallback server, at an Ethernet port.
struct AttachFrame {
  aggregator::JobIndex job = 0;
  Rank rank = {};
  uint32_t frame_port = 0;  ///< in config order
  wire::Address address = {};
  JobId job_id = {};
  uint64_t job_key = 0;
  JobId root = {};  ///< of a group; otherwise 0
  std::optional<wire::TagKeys> tag_keys = std::nullopt;
  bool multicast = false;  ///< results come to its group
  bool parks = false;      ///< keeps parked sums
};

struct Detach {
  aggregator::JobIndex job = 0;
  Rank rank = {};
};

/// Memory from which a worker on the shm port may send.
struct SetRegistered {
  aggregator::JobIndex job = 0;
  Rank rank = {};
  uint32_t number = 0;
  std::span<const std::byte> memory = {};  ///< empty: it may no more
};

struct AddResultBuffer {
  aggregator::JobIndex job = 0;
  aggregator::ResultBuffer buffer = {};
};

struct RemoveResultBuffer {
  aggregator::JobIndex job = 0;
  uint32_t first_unit = 0;
};

/// From now on the lane takes results of the switch above that are of this epoch, and sends it
/// again what waits for it. 0: it takes none, and sends nothing.
struct SetParentEpoch {
  aggregator::JobIndex job = 0;
  uint32_t epoch = 0;
};

struct NewEpoch {
  aggregator::JobIndex job = 0;
  uint32_t epoch = 0;
  uint32_t instance = 0;  ///< of the fallback
};

// ---- ports

/// The lane uses nothing of the device of an Ethernet port any more.
struct DetachPort {
  uint32_t frame_port = 0;  ///< in config order
};

/// The device is open again.
struct AttachPort {
  uint32_t frame_port = 0;
};

// ---- questions

/// How far a job has come.
struct FindProgress {
  aggregator::JobIndex job = 0;
  // out
  Seq results_end = {};  ///< the lane has seen no result from here on
};

/// The fragments whose results the lane has, or its members have.
struct FindHeld {
  aggregator::JobIndex job = 0;
  // out
  std::vector<Seq> held = {};
};

/// For whom a job waits.
struct FindOldestWaiting {
  aggregator::JobIndex job = 0;
  // out
  std::optional<aggregator::OldestWaiting> waiting = std::nullopt;
};

/// At which port the bridge has seen a station. A lane without bridge does not know.
struct FindStation {
  wire::MacAddress mac = {};
  bridge::VlanId vlan = 0;
  // out
  std::optional<bridge::PortIndex> port = std::nullopt;
};

/// Which frames of a job came in by Ethernet ports and which did not, for those who miss them.
struct FindArrivals {
  aggregator::JobIndex job = 0;
  // out
  WorkerSet heard = {};  ///< ranks of whom a frame came in
  std::vector<PortDrops> dropped = {};
};

struct TakeSnapshot {
  /// Also the oldest fragments that wait, of jobs that hold slots in the lane.
  bool find_waiting = false;
  // `snapshot.jobs` names the jobs that there are: a lane has places for many more, and each is a
  // cache miss.
  // out
  LaneSnapshot snapshot = {};  ///< its other lists where the conductor made room for them
};

/// Every `step`-th slot from `first` on.
struct LookAtSlots {
  uint32_t first = 0;
  uint32_t step = 1;
  // out
  std::vector<SlotView> slots = {};  ///< as many as the conductor made room for
};

/// The trace that packets are written to from now on.
struct SetTrace {
  PacketTrace* trace = nullptr;  ///< nullptr: none
};

// ---- the lane's thread

/// Says that the lane lives.
struct Answer {};

struct Stop {};

}  // namespace command

/// A command on its way. The thread that posts it keeps it until it is done; until then the lane
/// owns it.
template <class Command>
struct Posted : Command {
  Posted() = default;
  explicit Posted(Command command) : Command(std::move(command)) {}

  std::string error;  ///< why it was not carried out; empty: it was
  std::atomic<bool> done{false};
};

template <class... Commands>
using PostedOneOf = std::variant<Posted<Commands>*...>;

/// The content of a lane's ring.
using LaneCommand =
    PostedOneOf<command::AddJob, command::RemoveJob, command::AttachShm, command::AttachFrame,
                command::Detach, command::SetRegistered, command::AddResultBuffer,
                command::RemoveResultBuffer, command::NewEpoch, command::SetHeld,
                command::SetParentEpoch, command::FindHeld, command::DetachPort,
                command::AttachPort, command::FindProgress, command::FindOldestWaiting,
                command::FindStation, command::FindArrivals, command::TakeSnapshot,
                command::LookAtSlots, command::SetTrace, command::Answer, command::Stop>;

}  // namespace ina::switchd
