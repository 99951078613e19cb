// Budgets for mappings and descriptors, in total and for each owner. The kernel limits both for a
// process, and a switch that has run out of them can serve nobody.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "common/result.h"

namespace ina::switchd {

struct HandleCount {
  uint64_t mappings = 0;
  uint64_t descriptors = 0;
};

class Handles {
 public:
  /// The part that one user has; given back when destroyed, before the Handles are.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { swap(other); }
    Share& operator=(Share&& other) noexcept {
      Share gone(std::move(other));
      swap(gone);
      return *this;
    }
    ~Share() {
      if (handles_) handles_->give_back(owner_, count_);
    }
    explicit operator bool() const { return handles_ != nullptr; }

   private:
    friend class Handles;
    Share(Handles* handles, std::string owner, HandleCount count)
        : handles_(handles), owner_(std::move(owner)), count_(count) {}
    void swap(Share& other) noexcept {
      std::swap(handles_, other.handles_);
      std::swap(owner_, other.owner_);
      std::swap(count_, other.count_);
    }
    Handles* handles_ = nullptr;
    std::string owner_;
    HandleCount count_;
  };

  /// An owner may have `share_percent` of the total.
  Handles(HandleCount total, uint32_t share_percent)
      : total_(total), share_percent_(share_percent) {}
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  /// `leaving`: mappings that were given back and are not gone yet. Error: a sentence that names
  /// the scarce resource.
  Result<Share> take(const std::string& owner, HandleCount count, uint64_t leaving = 0);
  /// Takes what exists anyway.
  Share keep(const std::string& owner, HandleCount count);

  const HandleCount& total() const { return total_; }
  const HandleCount& used() const { return used_; }
  HandleCount used_by(const std::string& owner) const;

  /// The part of this process's limits (vm.max_map_count, RLIMIT_NOFILE) that is for workers:
  /// without a reserve for itself, and without descriptors for `connections`.
  static HandleCount of_this_process(uint64_t connections);
  /// The part for workers, of a process with such limits.
  static HandleCount of_limits(uint64_t max_map_count, uint64_t files, uint64_t connections);
  /// How many connections it may have of `wanted`: at most half of its descriptors are for them.
  static uint32_t connections_of_this_process(uint32_t wanted);
  static uint32_t connections_of(uint32_t wanted, uint64_t files);

 private:
  void give_back(const std::string& owner, HandleCount count);

  HandleCount total_;
  uint32_t share_percent_;
  HandleCount used_;
  std::map<std::string, HandleCount> by_owner_;
};

}  // namespace ina::switchd
