// The contents of the rows of a job's result ring, so that the switch can give a lost result to its
// worker again.
#pragma once

#include "wire/message.h"
#include "wire/rules.h"

namespace ina::aggregator {

/// A result that was given out, as its message said it.
struct alignas(64) GivenResult {
  uint64_t mark = 0;  ///< 1 + the fragment's number; 0: none
  wire::Message message;
};
static_assert(sizeof(GivenResult) == 64);

/// One entry for each fragment that the replay window knows, found by ReplayWindow::index().
class GivenResults {
 public:
  GivenResults() = default;
  /// `entries`: JobSpec::seen_words() without marks; nullptr: nothing is remembered.
  explicit GivenResults(GivenResult* entries) : entries_(entries) {}

  bool remembers() const { return entries_ != nullptr; }
  /// The result is in its row of the ring from now on.
  void note(size_t entry, Seq seq, const wire::Message& message) {
    entries_[entry] = {seq.value + 1, message};
  }
  /// The result that was given out, if its row still holds it.
  const wire::Message* find(size_t entry, Seq seq) const {
    const GivenResult& given = entries_[entry];
    const bool here = rule(Rule::kGivenResult) ? given.mark == seq.value + 1 : given.mark != 0;
    return here ? &given.message : nullptr;
  }

 private:
  GivenResult* entries_ = nullptr;
};

}  // namespace ina::aggregator
