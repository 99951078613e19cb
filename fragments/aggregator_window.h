// The window for aggregators (A2TP, EuroSys'23): contributions that find no slot in the switch meet
// elsewhere, and reduce it. At most one reduction per window, as for congestion. Pure.
#pragma once

#include <cstdint>

#include "fragments/round_trip.h"
#include "fragments/window_config.h"
#include "wire/types.h"

namespace ina::client {

class AggregatorWindow {
 public:
  explicit AggregatorWindow(const WindowConfig& config);

  uint64_t value() const { return window_; }
  /// True if a fragment was split within the last window.
  bool is_contended() const { return contended_; }
  /// True if a fragment was split within a few windows before this one.
  bool split_lately(Seq seq) const { return seq < splits_end_; }

  /// Says if the link has lost something lately. Before split() and whole().
  void losing(bool is) { losing_ = is; }
  /// Contributions to a fragment met outside the array, or in it.
  void split(Seq seq, Seq next, uint32_t in_flight, const RoundTrip& rtt);
  /// So many fragments are in the switch, this one among them. Once a fragment was split, the
  /// window grows only if it is used. An unfilled window does not show whether there were slots for
  /// it (compare RFC 7661 on congestion), until workers are not in step and all of it is sent.
  /// `rtt`: with this result.
  void whole(Seq seq, uint32_t in_flight, const RoundTrip& rtt);

 private:
  /// Parts of split fragments wait in no queue: a smaller window would bring results later, and
  /// nothing else.
  bool only_distance(const RoundTrip& rtt) const { return distances_ && rtt.at_distance(); }
  void grow(uint32_t in_flight, const RoundTrip& rtt);

  uint64_t most_;
  uint64_t ahead_;  ///< WindowConfig, or all
  uint64_t least_;
  uint64_t window_;
  bool only_if_used_;  ///< the window grows
  bool distances_;
  bool losing_ = false;     ///< the link, of late
  bool was_split_ = false;  ///< ever
  bool contended_ = false;
  Seq recovery_end_;  ///< fragments below it say nothing of the present window
  Seq splits_end_;    ///< until then, fragments are said to be split now and then
};

}  // namespace ina::client
