// All jobs and groups that a switch has, and how they are found.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "switchd/admin_answer.h"
#include "switchd/jobs/job.h"

namespace ina::switchd {

/// A name belongs to the user or tenant that gave it: others may have jobs of the same name. A job
/// stays at its address until remove(). While the table is walked through, jobs may be removed; one
/// that is added may be missed.
class JobTable {
 public:
  /// `places`: for all domains of jobs and groups together.
  explicit JobTable(size_t places) : places_(places), domains_(places) {}

  /// Places for so many domains. Error: a sentence.
  Result<std::vector<aggregator::JobIndex>> free_places(uint32_t domains) const;
  /// At the place of its index.
  Job& add(std::unique_ptr<Job> job);
  /// The job, which is here, has more domains than before.
  void note_domains(Job& job);
  void remove(const Job& job);

  /// The job that has this domain; nullptr: the place is free.
  Job* at(aggregator::JobIndex domain) const { return domains_[domain]; }
  Job* find(JobId id) const;
  /// No group.
  Job* find(const std::string& owner, const std::string& name) const;
  /// The time does not depend on what the tickets have in common with this one.
  Job* find_ticket(const std::string& ticket) const;
  /// The job or group that an administrator means: `owner` empty: the only one of that name. `name`
  /// may also be "OWNER/NAME".
  tl::expected<Job*, AdminError> meant(const std::string& name, const std::string& owner) const;

  /// The number of jobs and groups for which `matches` is true.
  uint32_t count(auto&& matches) const {
    uint32_t found = 0;
    for (const Job& job : *this) found += matches(job) ? 1 : 0;
    return found;
  }
  uint32_t jobs() const {
    return count([](const Job& job) { return !job.is_group(); });
  }
  uint32_t groups() const {
    return count([](const Job& job) { return job.is_group(); });
  }
  size_t places() const { return places_.size(); }

  class Iterator {
   public:
    Job& operator*() const { return **place_; }
    Iterator& operator++() {
      ++place_;
      return skip_free();
    }
    bool operator==(const Iterator& other) const { return place_ == other.place_; }

   private:
    friend class JobTable;
    using Place = std::vector<std::unique_ptr<Job>>::const_iterator;
    Iterator(Place place, Place end) : place_(place), end_(end) { skip_free(); }
    Iterator& skip_free() {
      while (place_ != end_ && !*place_) ++place_;
      return *this;
    }
    Place place_;
    Place end_;
  };
  Iterator begin() const { return {places_.begin(), used_end()}; }
  Iterator end() const { return {used_end(), used_end()}; }

 private:
  Iterator::Place used_end() const { return places_.begin() + static_cast<ptrdiff_t>(used_); }

  std::vector<std::unique_ptr<Job>> places_;  ///< by the index of its first domain
  std::vector<Job*> domains_;                 ///< by JobIndex
  size_t used_ = 0;  ///< all places from here on are free: nobody walks through a thousand of them
};

}  // namespace ina::switchd
