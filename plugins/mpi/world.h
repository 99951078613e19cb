// The processes of MPI_COMM_WORLD that have this library, their job of the switch, and MPI's
// progress while one of them waits for the switch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ina/ina.h>

#include "plugins/mpi/abi.h"
#include "plugins/mpi/launcher.h"

namespace ina::mpi {

/// A call of libina's that waits for others, on a thread of its own: the program's thread sees to
/// MPI meanwhile.
class Apart {
 public:
  /// `call` returns a status of libina's.
  explicit Apart(std::function<int()> call);
  /// Waits.
  ~Apart();
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

  bool ended() const { return result_->ended.load(std::memory_order_acquire); }
  int status() const { return result_->status; }
  /// libina's, of a call that failed.
  const std::string& text() const { return result_->text; }
  /// Nobody waits for it any more.
  void leave_alone() { thread_.detach(); }

 private:
  struct Result {
    std::atomic<bool> ended = false;
    int status = INA_OK;
    std::string text;
  };
  const std::shared_ptr<Result> result_ = std::make_shared<Result>();
  std::thread thread_;
};

class World {
 public:
  static World& of_process();

  /// After MPI's own start. `launcher`: null: it says nothing. All processes with the library join
  /// a job, or none does.
  void join(std::unique_ptr<Launcher> launcher);
  /// Before MPI's own end: nothing goes through the switch from now on. `jobs`: those of
  /// communicators, where there is no common one.
  void begin_leaving(std::vector<ina_context*> jobs);
  /// After it. Returns when the job has been left.
  void end_leaving();

  /// Empty: collective calls of these processes may go through the switch.
  const std::string& why_not() const { return why_not_; }
  /// Null where there are more processes than a job may have workers, or than the switch takes.
  ina_context* job() const { return job_; }
  /// Of a communicator that goes through the switch.
  int most_ranks() const { return most_ranks_; }
  /// The ranks in the job of a communicator's processes, in its order; none: some are not in it.
  /// All of them find the same.
  std::optional<std::vector<int>> ranks_of(MPI_Comm comm) const;
  int rank() const { return rank_; }
  /// For names and tags that no other job has.
  const std::string& name() const { return name_; }

  /// Has MPI look after its messages: another rank may need them before it comes to where this one
  /// waits.
  void progress() const;
  /// Runs a call of libina's apart, until it has ended. Sets `text` where it fails.
  int wait(std::function<int()> call, std::string& text) const;

  /// Tells the other ranks of a group, once, how many calls this one has made on it.
  void tell_calls(const std::vector<int>& ranks, uint64_t group, uint64_t calls);
  /// The greatest number that they have told. Waits for those that are late, as MPI would in a call
  /// that all make.
  uint64_t most_calls(const std::vector<int>& ranks, uint64_t group);

 private:
  void find_members(Launcher* launcher);
  void make_team();
  void join_job();
  bool others_have_failed() const;
  std::vector<int> tell_of_failure(bool failed) const;
  void pause() const;
  void hear_calls();
  std::optional<uint64_t> heard_calls(int rank, uint64_t group);

  std::vector<int> members_;          ///< ranks of MPI_COMM_WORLD, ascending
  std::vector<int> place_;            ///< by rank of MPI_COMM_WORLD: in members_; -1: not there
  MPI_Group group_ = MPI_GROUP_NULL;  ///< of MPI_COMM_WORLD
  MPI_Comm team_ = MPI_COMM_NULL;     ///< of members_, for this library alone
  int rank_ = 0;                      ///< in team_, and in the job
  std::string name_;
  ina_context* job_ = nullptr;
  int most_ranks_ = INA_MAX_WORLD_SIZE;
  std::string why_not_ = "MPI_Init has not been called";
  std::unique_ptr<Apart> leaving_;
  std::mutex calls_mutex_;
  std::list<std::array<uint64_t, 2>> sent_calls_;             ///< group and calls, for MPI to read
  std::map<std::pair<int, uint64_t>, uint64_t> heard_calls_;  ///< by rank and group
};

/// For calls without a limit of time, as MPI's have none: libina takes a year as none.
constexpr int64_t kNoLimitUs = int64_t{365} * 24 * 3600 * 1'000'000;

}  // namespace ina::mpi
