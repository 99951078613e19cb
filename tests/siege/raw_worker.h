// A worker that keeps no rules: the only worker of its job, with direct access to its rings.
#pragma once

#include <string>
#include <vector>

#include "control/client.h"
#include "io/shm/layout.h"
#include "io/shm/region.h"

namespace ina::siege {

/// A descriptor without its turn, so that it can be made anywhere and spoilt.
struct Entry {
  wire::Message message;
  uint64_t payload_offset = 0;
  uint32_t payload_bytes = 0;
};

class RawWorker {
 public:
  /// Joins job `name` and attaches. `sealed` false: with memory in which holes can be punched, or,
  /// if the switch refuses that, with sealed memory; unsealed_taken() returns which. Throws
  /// std::exception.
  RawWorker(const std::string& socket, const std::string& name, bool sealed = true);

  bool unsealed_taken() const { return unsealed_taken_; }
  uint32_t lanes() const { return geometry_.lanes; }
  uint32_t tx_depth() const { return geometry_.tx_depth; }
  const io::shm::Region& region() const { return own_; }
  const std::atomic<uint32_t>& doorbell() const { return doorbell_->value; }
  std::atomic<uint32_t>& sleep_flag() { return sleeping_->value; }
  std::atomic<uint64_t>& rx_read(uint32_t lane);

  /// Entries of the send ring that the switch has not taken yet.
  uint64_t waiting(uint32_t lane) const;
  /// A right contribution to the job's next fragment.
  Entry next_contribution();
  /// Writes an entry where the switch will look next.
  void put(uint32_t lane, const Entry& entry);
  /// Wakes the lanes that sleep, or all.
  void ring(bool all = false);
  /// Takes what the switch has put into the receive rings; how much it was.
  uint64_t take_results();
  /// Reads what the switch says on the control connection. False: it is closed, or the job is over.
  bool hear();
  void say(const control::Json& message) { (void)control_.send(message); }

 private:
  void join(const std::string& name);
  bool attach(bool sealed);

  control::Connection control_;
  uint32_t epoch_ = 0;
  io::shm::Geometry geometry_;
  io::shm::Region own_;
  Mapping switch_region_;
  std::vector<Fd> wake_events_;
  io::shm::SleepFlag* sleeping_ = nullptr;
  const io::shm::SleepFlag* doorbell_ = nullptr;
  std::vector<uint64_t> tx_index_;
  std::vector<uint64_t> rx_index_;
  uint32_t next_ = 0;
  bool unsealed_taken_ = false;
};

}  // namespace ina::siege
