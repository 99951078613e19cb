// Groups of the job's ranks, through which calls go. Those of communicators that were freed serve
// later ones of the same ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ina/ina.h>

#include "plugins/mpi/abi.h"

namespace ina::mpi {

class Request;

/// Who does a call: MPI after one that the ranks have disagreed about, and nobody if that was found
/// so late that other ranks have made this call in the switch.
enum class Way { kSwitch, kMpi, kNobody };

/// Outlives the communicator: operations may end after it.
class Group {
 public:
  /// `tag`: its number, the same on all its ranks. `rank`: for texts.
  Group(ina_context* context, std::vector<int> ranks, uint64_t tag, int rank)
      : context_(context), ranks_(std::move(ranks)), tag_(tag), rank_(rank) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  ina_context* context() const { return context_; }
  const std::vector<int>& ranks() const { return ranks_; }
  uint64_t tag() const { return tag_; }

  /// Says on stderr what has become of an operation. MPI's status.
  int complain(int status);
  /// An operation has failed, and so will all later ones.
  bool failed() const { return failed_; }
  /// The way of the next call, which all ranks make. They tell each other once how many they have
  /// made when they have disagreed: MPI does those that none has made.
  Way next();
  /// Tells the others, if the ranks have disagreed.
  void tell();
  void started(std::shared_ptr<Request> request);
  /// Forgets the request of an operation that has ended.
  void completed(const Request* request);
  /// MPI ends: operations under way are given up.
  void abandon();

 private:
  ina_context* const context_;
  const std::vector<int> ranks_;
  const uint64_t tag_;
  const int rank_;
  std::atomic<bool> failed_ = false, disagreed_ = false;
  uint64_t calls_ = 0;  ///< of the thread that makes one
  bool told_ = false;
  std::optional<uint64_t> mpis_;  ///< the first call that MPI does
  std::mutex mutex_;
  std::vector<std::shared_ptr<Request>> running_;
};

class Groups {
 public:
  static Groups& of_process();

  /// A group for a communicator of these ranks of the job, which all call it in a collective call
  /// of theirs: MPI waits for those that are late. Null: none, on all of them, and `why_not` is
  /// set.
  std::shared_ptr<Group> take(MPI_Comm comm, const std::vector<int>& ranks, std::string& why_not);
  /// Its communicator was freed. All ranks have started what this one has.
  void give_back(const std::shared_ptr<Group>& group);
  /// The job itself as a group, for a communicator of all its ranks.
  std::shared_ptr<Group> whole(ina_context* job, const std::vector<int>& ranks);
  /// MPI ends: operations under way are given up. The contexts, in an order that is the same on all
  /// ranks.
  std::vector<ina_context*> abandon();

 private:
  using Free = std::vector<std::shared_ptr<Group>>;
  Free reserve(const std::vector<int>& ranks, size_t most);
  Free reserve(const std::vector<int>& ranks, const uint64_t* tags, size_t count);
  std::shared_ptr<Group> make(MPI_Comm comm, const std::vector<int>& ranks, uint64_t tag,
                              std::string& why_not);
  static int create(const std::vector<int>& ranks, uint64_t tag, ina_context** made,
                    std::string& text);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Group>> all_;
  std::map<std::vector<int>, Free> free_;  ///< by ranks, the oldest first
  uint64_t made_ = 0;                      ///< tags that this process has given
  std::atomic<bool> can_make_ = true;
  bool said_ = false;  ///< why there is none
};

}  // namespace ina::mpi
