// The switch's memory across restarts: how often it has started, and the running jobs. One JSON
// file, replaced as a whole and synced to disk on every change. The file changes when a job starts
// or ends, and never on the packet path. Beside it stays its predecessor (PATH.spare), whose room
// the next change takes.
//
// Epochs. A job's epoch is boot counter << 12 | number within the boot, and never goes back. The
// boot counter is on disk before any port opens, and so is each epoch before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace ina::switchd {

/// A running job as the file holds it, with all that is needed to let its workers in again. Or a
/// job that an administrator made, whose workers have not come yet.
struct SavedJob {
  std::string name;
  uint32_t id = 0;
  uint64_t key = 0;
  uint32_t uid = 0;
  uint32_t workers = 0;
  uint32_t epoch = 0;  ///< the last one given out
  // The grant. A switch with other lanes or slots cannot go on with the job.
  uint32_t lanes = 0;
  uint32_t slot_bytes = 0;
  uint32_t window = 0;
  uint32_t first_slot = 0;
  uint32_t slots_per_lane = 0;
  std::string tenant = {};  ///< of a job made over TCP: whose it is, instead of `uid`
  // With shared slots. Ceiling 0: the file is of a switch that did not know these yet.
  uint32_t floor_per_lane = 0;
  uint32_t ceiling_per_lane = 0;
  uint8_t priority_max = 255;
  uint32_t in_switch = 0;      ///< straggler help: fragments of a worker in the switch; 0: none
  uint32_t park_room = 0;      ///< and that it keeps
  std::string ticket = {};     ///< of a job that an administrator made
  int64_t reserved_until = 0;  ///< seconds since 1970 (UTC); 0: the job has begun
  // A group's: the job that its workers joined, and their ranks in it. A job has 0 and no ranks.
  uint32_t root = 0;
  std::vector<uint32_t> root_ranks = {};
  /// Where its workers were told the fallback is; empty: a switch that did not write it down yet.
  std::string home = {};
  /// Its workers may be at several switches.
  bool spread = false;
  /// Of a spread job that has begun: the members of this switch, by number: the worker's rank, or
  /// runs of those at a switch below.
  struct Member {
    uint32_t number = 0;
    std::vector<uint32_t> ranks;
    uint64_t key = 0;  ///< of a switch below; 0: a worker
    bool operator==(const Member&) const = default;
  };
  std::vector<Member> tree_members = {};
  // The place at the switch above; 0: there is none.
  uint32_t above_id = 0;
  uint64_t above_key = 0;
  bool operator==(const SavedJob&) const = default;
};

class StateFile {
 public:
  static constexpr int kEpochNumberBits = 12;
  static constexpr uint32_t kMaxBoots = (uint32_t{1} << (32 - kEpochNumberBits)) - 1;

  /// Reads the file, or makes it; counts this start; returns when that is on disk. The file is
  /// locked, so that no other switch uses it, until the object or the process ends. Errors name the
  /// file and say what to do.
  static Result<StateFile> open(const std::string& path);
  /// Checks that open() would succeed, without making the file or counting a start.
  static Result<void> check(const std::string& path);

  uint32_t boots() const { return boots_; }
  /// Jobs that run, or ran when the last process ended.
  const std::vector<SavedJob>& jobs() const { return jobs_; }
  /// An id that no job of the table has. It is remembered with the next change of the table.
  uint32_t new_job_id();
  /// The epoch that follows `last` (0: none yet). Give it out only when it is in the table or its
  /// job has not started.
  Result<uint32_t> epoch_after(uint32_t last) const;

  /// Adds the job or replaces the one of its id. On failure the change holds until the process
  /// ends, and the next change tries to write it too.
  Result<void> put(const SavedJob& job);
  Result<void> erase(uint32_t id);
  /// All jobs at once; likewise. The file is left as it is where all that is new are epochs that
  /// the next start would find out by itself.
  Result<void> replace(std::vector<SavedJob> jobs);

 private:
  StateFile(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  Result<void> read();
  Result<void> write();

  std::string path_;
  Fd lock_;  ///< the file itself; replaced with it
  uint32_t boots_ = 0;
  uint32_t next_job_id_ = 1;
  std::vector<SavedJob> jobs_;
};

}  // namespace ina::switchd
