// Sending of new fragments: in the order of operations, as the windows allow, each at its time.
// Closing fragments may be overtaken by later operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fragments/deadlines.h"
#include "fragments/flow.h"
#include "fragments/operation.h"

namespace ina::client {

class Sending {
 public:
  /// `burst`: packets that prepare_new() is given.
  Sending(Flow& flow, Deadlines& deadlines, size_t burst);

  /// The operation is the next one.
  void add(Operation& operation) { to_send_.push_back(&operation); }
  /// Nothing of it is to be sent.
  void drop(const Operation& operation) { std::erase(to_send_, &operation); }

  /// Closing fragments that later operations have overtaken.
  size_t prepare_closings(std::span<TxPacket> packets);
  void closings_sent(size_t count, Nanos now);
  /// New fragments. `closings`: prepared before them.
  size_t prepare_new(std::span<TxPacket> packets, size_t closings, Nanos now);
  /// So many packets of the last prepare_new() were sent.
  void new_sent(size_t count, Nanos now);

  /// New fragments wait for their time, and for nothing else.
  bool paced() const { return paced_; }
  /// More is to be sent, and nothing but the windows is in its way.
  bool held_up_by_window() const;

 private:
  /// Messages of new fragments, in the order of prepare_new(), from the first one on.
  struct New {
    enum class Kind : uint8_t { kContribution, kMarks, kClosingLater };
    Kind kind{};
    uint32_t packets = 0;
    uint64_t fragments = 0;
  };
  /// The packets that prepare_new() fills, and how far it has come.
  struct Batch {
    std::span<TxPacket> packets;
    Seq seq;             ///< next fragment
    Seq end;             ///< of the window
    uint32_t in_flight;  ///< fragments before `seq`
    size_t count = 0;

    bool takes(uint32_t limit) const {
      return count < packets.size() && seq < end && in_flight < limit;
    }
  };
  enum class Next : uint8_t { kContribution, kAdded, kMustWait };
  void add_operation(size_t index, uint32_t limit, Batch& batch);
  Next add_rest(const Operation& operation, bool is_followed, Batch& batch);
  bool add_marks(const Operation& operation, uint64_t marks, Batch& batch);
  bool may_close(const Operation& operation) const;
  uint64_t marks_from(const Operation& operation, Seq seq, Seq end) const;
  uint32_t window_for(const Operation& operation) const;
  void start(const New& sent, Nanos now);

  Flow& flow_;
  Deadlines& deadlines_;
  // Not deques, which allocate as they move on.
  std::vector<Operation*> to_send_;   ///< those with fragments not sent yet
  std::vector<Operation*> to_close_;  ///< sent but for their closing fragments
  std::vector<New> prepared_;
  bool paced_ = false;    ///< a new fragment waits for its time
  bool full_ = false;     ///< a new fragment waits for a result
  bool clocked_ = false;  ///< a new fragment waited for a result before the last prepare_new()
};

}  // namespace ina::client
