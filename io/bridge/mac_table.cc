#include "io/bridge/mac_table.h"

#include <algorithm>
#include <bit>

#include "io/bridge/mix.h"

namespace ina::bridge {

MacTable::MacTable(uint32_t entries, Nanos ageing_ns, uint64_t seed)
    : entries_(std::bit_ceil(std::max<size_t>(entries, kWays))),
      ageing_ns_(ageing_ns),
      seed_(seed) {}

uint64_t MacTable::station_of(const wire::MacAddress& mac, VlanId vlan) {
  return uint64_t{vlan} << 48 | to_number(mac);
}

/// Index of the set's first entry.
size_t MacTable::set_of(uint64_t station) const {
  // Every bit of the seed reaches every set.
  return (mix(station ^ seed_) & (entries_.size() / kWays - 1)) * kWays;
}

std::optional<PortIndex> MacTable::learn(const wire::MacAddress& mac, VlanId vlan, PortIndex port,
                                         Nanos now) {
  if (is_group(mac) || to_number(mac) == 0 || port >= kMaxPorts) return std::nullopt;
  const uint64_t station = station_of(mac, vlan);
  Entry* const set = &entries_[set_of(station)];
  Entry* place = nullptr;
  for (Entry* entry = set; entry != set + kWays; ++entry) {
    if (entry->station == station) {
      entry->seen = static_cast<uint64_t>(now);
      if (entry->port == port) return std::nullopt;
      const auto from = static_cast<PortIndex>(entry->port);
      --at_port_[from];
      ++at_port_[port];
      entry->port = port;
      ++counters_.moved;
      ++at_[port].moved;
      return from;
    }
    if (place == nullptr && (entry->station == 0 || expired(*entry, now))) place = entry;
  }
  if (place != nullptr && place->station != 0) {
    ++counters_.expired;
    remove(*place);
  }
  // A table this small is a test's; half of it would be no table.
  const size_t most = entries_.size() <= kWays ? entries_.size() : entries_.size() / 2;
  if (place == nullptr || at_port_[port] >= most) {
    ++counters_.refused;
    return std::nullopt;
  }
  place->station = station;
  place->port = port;
  place->seen = static_cast<uint64_t>(now);
  ++at_port_[port];
  ++size_;
  ++counters_.learned;
  ++at_[port].learned;
  return std::nullopt;
}

std::optional<PortIndex> MacTable::find(const wire::MacAddress& mac, VlanId vlan, Nanos now) const {
  const auto sighting = last_sighting(mac, vlan, now);
  return sighting ? std::optional(sighting->port) : std::nullopt;
}

std::optional<Sighting> MacTable::last_sighting(const wire::MacAddress& mac, VlanId vlan,
                                                Nanos now) const {
  if (to_number(mac) == 0) return std::nullopt;
  const uint64_t station = station_of(mac, vlan);
  const Entry* const set = &entries_[set_of(station)];
  for (const Entry* entry = set; entry != set + kWays; ++entry)
    if (entry->station == station)
      return expired(*entry, now) ? std::nullopt
                                  : std::optional(Sighting{static_cast<PortIndex>(entry->port),
                                                           static_cast<Nanos>(entry->seen)});
  return std::nullopt;
}

void MacTable::forget(PortIndex port) {
  for (Entry& entry : entries_)
    if (entry.station != 0 && entry.port == port) remove(entry);
}

void MacTable::forget_all() {
  for (Entry& entry : entries_)
    if (entry.station != 0) remove(entry);
}

void MacTable::sweep(Nanos now) {
  const size_t end = std::min(swept_ + kSweepEntries, entries_.size());
  for (; swept_ < end; ++swept_) {
    Entry& entry = entries_[swept_];
    if (entry.station == 0 || !expired(entry, now)) continue;
    ++counters_.expired;
    remove(entry);
  }
  if (swept_ == entries_.size()) swept_ = 0;
}

void MacTable::remove(Entry& entry) {
  --at_port_[entry.port];
  --size_;
  entry = Entry{};
}

}  // namespace ina::bridge
