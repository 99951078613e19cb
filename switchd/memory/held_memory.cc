#include "switchd/memory/held_memory.h"

#include <algorithm>
#include <utility>

namespace ina::switchd {

void HeldMemory::add(const std::string& owner, uint64_t bytes, io::shm::Region region,
                     Handles::Share share) {
  mapper_.discard(owner, std::move(region.map));
  bytes_ += bytes;
  entries_.push_back({owner, bytes, std::move(region.fd), {}, std::move(share)});
}

bool HeldMemory::free_again(Entry& entry) {
  if (entry.file) {
    auto watch = io::shm::Watch::open(entry.file);
    if (!watch) return false;  // out of descriptors: the next time
    entry.watch = std::move(*watch);
    entry.file.reset();
  }
  return entry.watch.alone();
}

/// True: it is gone, and another entry may be in its place.
bool HeldMemory::look_at(size_t index, const Free& free) {
  Entry& entry = entries_[index];
  if (!free_again(entry)) return false;
  Entry gone = std::move(entry);
  if (index + 1 != entries_.size()) entry = std::move(entries_.back());
  entries_.pop_back();
  bytes_ -= gone.bytes;
  // Its pages go with the last descriptor.
  mapper_.discard(gone.owner, {}, gone.watch.take());
  free(gone.owner, gone.bytes);
  return true;
}

void HeldMemory::look(const Free& free, size_t most) {
  for (most = std::min(most, entries_.size()); most != 0 && !entries_.empty(); --most) {
    if (next_ >= entries_.size()) next_ = 0;
    if (!look_at(next_, free)) ++next_;
  }
}

void HeldMemory::look_at_last(const Free& free) {
  if (!entries_.empty()) look_at(entries_.size() - 1, free);
}

}  // namespace ina::switchd
