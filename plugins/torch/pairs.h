// Messages from one rank of a process group to another.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "plugins/torch/job.h"
#include "plugins/torch/operation.h"

namespace ina::plugin {

/// A message to be sent, or the place of one to be received. `flat`: contiguous.
struct Message {
  int64_t tag = 0;
  at::Tensor flat;
  std::shared_ptr<Operation> operation;  ///< is started or ended once
};

constexpr int kAnySource = -1;
/// Why a send did not end in time.
constexpr const char* kSendAdvice =
    ", and the other rank has not received the message (of ranks that send to each other before "
    "they receive, one must use isend)";

/// A receive that waits for its message.
struct Receive {
  Message message;
  int from = kAnySource;
  std::shared_ptr<std::atomic<int>> source;  ///< gets the rank that has sent it
  bool takes(int rank) const { return from == kAnySource || from == rank; }
};

/// Point-to-point messages of a group. Every operation of libina is one of all ranks of a job; so
/// each direction between two ranks is a job of those two, which the first message there opens. Its
/// operations are a permutation of two numbers, tag and bytes, and one of the message itself, and
/// so on. The receiver posts the first of them while it waits for a message, and the second when a
/// receive takes it. Messages of the same tag come in the order of sends, and receives in the order
/// of posts. A message whose tag no receive waits for, while a receive waits for another one behind
/// it, is kept in memory of its own.
///
/// Each rank of a direction announces itself in the store, and opens the job when the other one has
/// done so: until then it can give up. So a rank that receives from any rank knows its senders,
/// too.
class Pairs : public std::enable_shared_from_this<Pairs> {
 public:
  /// `group`: of which they are two ranks; its name begins those of the jobs.
  Pairs(JobOptions group, c10::intrusive_ptr<c10d::Store> store);

  void send(int to, Message message);
  void receive(Receive receive);

  /// Ends one that waits for its other rank with a time-out. False if it has been started, or has
  /// ended.
  bool abandon(const Operation* operation);

  /// Waits for the sends that nobody has received, at most `limit`. `check`: see Operation::wait.
  void drain(milliseconds limit, void (*check)());
  /// Leaves all jobs, at most `timeout` after the call, and ends what still waits. Has no threads
  /// and no reference to the store then.
  void leave(milliseconds timeout);

 private:
  enum class State { kClosed, kOpening, kOpen, kLost };
  using Header = std::array<int64_t, 2>;  ///< tag, bytes

  /// A job in which rank 0 sends to rank 1.
  struct Direction {
    State state = State::kClosed;
    std::shared_ptr<Job> job;
    std::exception_ptr error;  ///< of a lost one
  };
  struct Outbound : Direction {
    std::deque<Message> queue;  ///< until it is open
  };
  struct Stored {
    int64_t tag;
    at::Tensor bytes;
  };
  struct Inbound : Direction {
    bool busy = false;              ///< listens, or fills `stored`
    std::optional<Header> arrived;  ///< its message is still to be received
    std::deque<Stored> stored;
  };

  std::string name_of(int from, int to) const;
  std::string key_of(const char* who, int from, int to) const;
  std::shared_ptr<Job> make_job(int from, int to) const;
  void open(int from, int to);
  void run_thread(std::function<void(c10d::Store&)> task);
  bool meet(c10d::Store& store, int from, int to);
  bool awaited(int from, int to);
  void opened(int from, int to, std::exception_ptr error);
  void start_send(Outbound& to, const Message& message);

  // All of these with the mutex.
  void progress(int from);
  void deliver_stored(int from);
  bool accept(int from);
  void store_message(int from);
  void keep(int from, int64_t tag, const at::Tensor& bytes);
  void listen(int from);
  bool wanted(int from) const;
  void lose(int from, const std::exception_ptr& error);
  std::exception_ptr error_of(int from, int status) const;
  void look_for_senders();

  static std::exception_ptr wrong_size(int from, size_t wanted_bytes, size_t found_bytes);
  void poll_senders(c10d::Store& store);

  const JobOptions group_;

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;  ///< until the end
  size_t threads_ = 0;
  std::condition_variable thread_ended_;
  std::vector<std::weak_ptr<Operation>> sends_;  ///< and some that have ended
  size_t prune_at_ = 64;
  std::vector<Outbound> outbound_;
  std::vector<Inbound> inbound_;
  std::list<Receive> receives_;
  bool polling_ = false;
  bool left_ = false;
};

}  // namespace ina::plugin
