// The counters of the table of MAC addresses.
#pragma once

#include <cstdint>

#include "wire/counter_field.h"

namespace ina::bridge {

struct MacTableCounters {
  uint64_t learned = 0;
  uint64_t moved = 0;
  uint64_t refused = 0;
  uint64_t expired = 0;
};

inline constexpr CounterField<MacTableCounters> kMacTableFields[] = {
    {&MacTableCounters::learned, {"learned", "addresses", "MAC addresses that became known."}},
    {&MacTableCounters::moved,
     {"moved", "addresses", "MAC addresses that appeared at another port than before."}},
    {&MacTableCounters::refused,
     {"refused", "addresses", "MAC addresses for which there was no room."}},
    {&MacTableCounters::expired,
     {"expired", "addresses", "MAC addresses not seen for the ageing time."}},
};
static_assert(sizeof(MacTableCounters) == bytes_of(kMacTableFields),
              "a counter needs a row in kMacTableFields");

/// What became known at one port.
struct PortAddresses {
  uint64_t learned = 0;
  uint64_t moved = 0;
};

inline constexpr CounterField<PortAddresses> kPortAddressFields[] = {
    {&PortAddresses::learned,
     {"learned",
      "addresses",
      "MAC addresses that became known at the port.",
      {"ina_port_learned_addresses_total"}}},
    {&PortAddresses::moved,
     {"moved",
      "addresses",
      "MAC addresses that appeared at the port, and were at another one before.",
      {"ina_port_moved_addresses_total"}}},
};
static_assert(sizeof(PortAddresses) == bytes_of(kPortAddressFields),
              "a counter needs a row in kPortAddressFields");

}  // namespace ina::bridge
