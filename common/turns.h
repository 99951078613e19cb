// Turns of owners, so that none has to wait for all that another one has asked for.
#pragma once

#include <map>
#include <string>

namespace ina {

/// The owner whose turn it is, among those that wait, and then `last`; end(): nobody waits.
template <class T>
typename std::map<std::string, T>::iterator next_in_turn(std::map<std::string, T>& waiting,
                                                         std::string& last) {
  if (waiting.empty()) return waiting.end();
  auto next = waiting.upper_bound(last);
  if (next == waiting.end()) next = waiting.begin();
  last = next->first;
  return next;
}

}  // namespace ina
