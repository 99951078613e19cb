// The places that workers have in groups, on the connections over which they joined their jobs.
#pragma once

#include <set>

#include "switchd/connections.h"

namespace ina::switchd {

class GroupPlaces {
 public:
  /// `connections` must outlive it.
  explicit GroupPlaces(const Connections& connections) : connections_(connections) {}

  /// A place for a worker that joins a group, or comes back to it. It is removed if it gets none.
  Client& make(Client& line, uint32_t channel);
  /// A client has left its job. If that was a group, its place is removed.
  void on_left(const Client& client);
  /// At the end of a turn of the thread, so that handlers may keep references.
  void remove_left();

 private:
  const Connections& connections_;
  std::set<int> left_;  ///< connections with places that are, or may be, in no group
};

}  // namespace ina::switchd
