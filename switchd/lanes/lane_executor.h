// Carries out the conductor's commands on a lane, on the lane's own thread: a function for each
// command.
#pragma once

#include <functional>
#include <new>
#include <optional>
#include <variant>
#include <vector>

#include "aggregator/aggregator.h"
#include "aggregator/domains.h"
#include "common/clock.h"
#include "io/shm/shm_port.h"
#include "switchd/lanes/forwarding.h"
#include "switchd/lanes/lane_commands.h"
#include "switchd/lanes/lane_members.h"
#include "switchd/lanes/lane_snapshot.h"

namespace ina::switchd {

template <class FramePort>
class LaneExecutor {
 public:
  /// The parts of the lane that commands read and change. All of them must outlive the executor.
  struct Parts {
    const uint32_t number;
    const LaneCounters& counters;
    aggregator::Aggregator& aggregator;
    io::shm::ShmPort& shm;
    const std::vector<FramePort*>& frame_ports;
    LaneMembers<FramePort>& members;
    aggregator::Domains& domains;
    std::optional<Forwarding<FramePort>>& forwarding;
    PacketTrace*& trace;
    /// Sends the switch above what waits for it.
    std::function<void(aggregator::JobIndex)> ascend;
  };

  explicit LaneExecutor(const Parts& lane) : lane_(lane) {}

  void execute(const LaneCommand& command) {
    std::visit([this](auto* posted) { this->finish(*posted); }, command);
  }
  /// There was a command to stop.
  bool is_stopped() const { return stopped_; }

 private:
  /// Commands bring the memory that they need; should one find none after all, it alone fails.
  template <class Command>
  void finish(Posted<Command>& posted) {
    try {
      carry_out(posted);
    } catch (const std::bad_alloc&) {
      posted.error.assign("no memory");  // short enough to need none
    }
    posted.done.store(true, std::memory_order_release);
  }

  // ---- jobs and their workers

  void carry_out(const command::AddJob& command) {
    lane_.aggregator.add_job(command.job, command.spec);
    lane_.members.add(command.job, command.id);
    if (command.above) lane_.domains.link(command.job, command.above->job, command.above->member);
  }
  void carry_out(const command::RemoveJob& command) {
    lane_.members.remove(command.job);
    lane_.domains.unlink(command.job);
    if (lane_.trace && lane_.trace->has(command.job)) lane_.trace = nullptr;
    lane_.aggregator.remove_job(command.job);
  }
  void carry_out(Posted<command::AttachShm>& command) { attach(command); }
  void carry_out(Posted<command::AttachFrame>& command) {
    attach(command);
    lane_.aggregator.set_links_lose(command.job);
  }
  template <class Attach>
  void attach(Posted<Attach>& worker) {
    if (auto attached = lane_.members.attach(worker); !attached)
      worker.error = std::move(attached.error().text);
    else if (worker.rank != kFallbackRank)
      lane_.aggregator.set_parker(worker.job, worker.rank, worker.parks);
  }
  void carry_out(const command::Detach& command) {
    lane_.members.detach(command.job, command.rank);
  }
  void carry_out(const command::SetRegistered& command) { lane_.members.set_registered(command); }
  void carry_out(const command::AddResultBuffer& command) {
    lane_.aggregator.add_result_buffer(command.job, command.buffer);
  }
  void carry_out(const command::RemoveResultBuffer& command) {
    lane_.aggregator.remove_result_buffer(command.job, command.first_unit);
  }
  void carry_out(const command::SetHeld& command) {
    lane_.aggregator.set_held(command.job, command.member, command.held);
  }
  void carry_out(const command::SetParentEpoch& command) {
    lane_.aggregator.set_parent_epoch(command.job, command.epoch);
    if (command.epoch != 0) lane_.ascend(command.job);
  }
  void carry_out(command::FindHeld& command) {
    lane_.aggregator.for_each_held(command.job, [&](Seq seq) { command.held.push_back(seq); });
  }
  void carry_out(const command::NewEpoch& command) {
    lane_.aggregator.new_epoch(command.job, command.epoch, command.instance, nullptr);
  }

  // ---- ports

  void carry_out(const command::DetachPort& command) {
    // What other ports have yet to send may lie in its buffers.
    for (FramePort* port : lane_.frame_ports) port->tx_flush();
    lane_.frame_ports[command.frame_port]->detach();
  }
  void carry_out(const command::AttachPort& command) {
    lane_.frame_ports[command.frame_port]->attach();
    if (lane_.forwarding)
      lane_.forwarding->renew(static_cast<bridge::PortIndex>(command.frame_port));
  }

  // ---- questions

  void carry_out(command::FindProgress& command) {
    command.results_end = lane_.aggregator.results_end(command.job);
  }
  void carry_out(command::FindOldestWaiting& command) {
    command.waiting = lane_.aggregator.oldest_waiting(command.job);
  }
  void carry_out(command::FindStation& command) {
    if (!lane_.forwarding) return;
    command.port = lane_.forwarding->bridge().table().find(command.mac, command.vlan, now_ns());
  }
  void carry_out(command::FindArrivals& command) { lane_.members.find(command); }
  void carry_out(command::TakeSnapshot& command) {
    LaneSnapshot& snapshot = command.snapshot;
    snapshot.lane = lane_.counters;
    snapshot.aggregator = lane_.aggregator.counters();
    for (JobSnapshot& job : snapshot.jobs) {
      job.counters = lane_.aggregator.job_counters(job.job);
      if (command.find_waiting && job.counters.slots_held != 0)
        job.waiting = lane_.aggregator.oldest_waiting(job.job);
    }
    snapshot.ports.assign(1, lane_.shm.counters());
    for (FramePort* port : lane_.frame_ports) {
      snapshot.ports.push_back(port->counters());
      // Lane 0 looks after the links.
      const bool up = lane_.number == 0 && port->link_up();
      snapshot.frame_ports.push_back({port->ethdev_counters(), up});
    }
    if (lane_.forwarding)
      for (size_t i = 0; i < snapshot.frame_ports.size(); ++i) {
        const bridge::Bridge& bridge = lane_.forwarding->bridge();
        const auto port = static_cast<bridge::PortIndex>(i);
        snapshot.frame_ports[i].addresses = bridge.table().at(port);
        snapshot.frame_ports[i].block = bridge.loops().block_of(port);
      }
    if (lane_.forwarding) {
      const bridge::MacTable& table = lane_.forwarding->bridge().table();
      snapshot.bridge = {table.counters(), table.size(), table.capacity()};
    }
  }
  void carry_out(command::LookAtSlots& command) {
    const std::span<const aggregator::Slot> slots = lane_.aggregator.slots();
    size_t next = command.first;
    for (SlotView& view : command.slots) {
      if (next >= slots.size()) break;
      view = SlotView::of(slots[next]);
      next += command.step;
    }
  }
  void carry_out(const command::SetTrace& command) { lane_.trace = command.trace; }

  // ---- the lane's thread

  void carry_out(const command::Answer&) {}
  void carry_out(const command::Stop&) { stopped_ = true; }

  const Parts lane_;
  bool stopped_ = false;
};

}  // namespace ina::switchd
