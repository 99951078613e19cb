// Partial sums that a worker keeps for the switch while a straggler is slow (SA-ATP,
// reconstructed). The switch parks a slot's sum here and sends later contributions after it. The
// worker that completes the sum gives the result out. This is pure memory: the engine has the rules
// for taking a sum and giving it away. docs/reliability.md, "Stragglers".
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "wire/message.h"

namespace ina::client {

class Parker {
 public:
  /// A fragment's partial sum, or, once it is complete, its result.
  struct Held {
    Seq seq;
    WorkerSet bits = {};
    wire::Signature signature;
    uint32_t epoch = 0;  ///< of the contributions
    uint16_t elements = 0;
    uint16_t flags = 0;  ///< of the result
    bool used = false;
    bool complete = false;
    bool queued = false;  ///< waits to be sent: a result if it is complete, else to the fallback
  };

  /// Room for `room` fragments; numbers within 2 `window` of each other are told apart.
  Parker(uint32_t workers, uint32_t window, uint32_t slot_bytes, uint32_t room);

  Held* find(Seq seq) {
    const uint32_t place = places_[seq.value % places_.size()];
    return place != 0 && held_[place - 1].seq == seq ? &held_[place - 1] : nullptr;
  }
  /// For a fragment that is not held; nullptr: no room. One that is 2W older goes for it.
  Held* hold(Seq seq, const wire::Message& first);
  /// Adds a PARK, or a PART that came later. False: its contributions are in the sum already, or it
  /// belongs to another operation. Completes the sum when nobody is missing.
  bool merge(Held& held, const wire::Message& message, const std::byte* payload);
  void release(Held& held);
  /// The fragment 2W below `seq` is of no use any more.
  void forget_before(Seq seq);

  std::byte* row(const Held& held) {
    return rows_.get() + static_cast<size_t>(&held - held_.data()) * slot_bytes_;
  }
  uint32_t used() const { return static_cast<uint32_t>(held_.size() - free_.size()); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  uint32_t workers_;
  uint32_t slot_bytes_;
  std::vector<uint32_t> places_;  ///< by seq mod 2W: 1 + index into held_; 0: none
  std::vector<Held> held_;
  std::vector<uint32_t> free_;
  std::unique_ptr<std::byte[], Free> rows_;  ///< pages come when fragments do
};

}  // namespace ina::client
