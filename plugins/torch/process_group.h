// PyTorch's process group over libina.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/torch/buffers.h"
#include "plugins/torch/continuations.h"
#include "plugins/torch/group_base.h"
#include "plugins/torch/in_use.h"
#include "plugins/torch/job.h"
#include "plugins/torch/pairs.h"
#include "plugins/torch/work.h"

namespace ina::plugin {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

/// All collectives on dense tensors on the CPU. Each is one operation of libina. The rules are
/// those of PyTorch: all ranks make the same calls in the same order. Calls throw for arguments
/// that are wrong; the Work reports later errors.
class ProcessGroupIna : public GroupBase {
 public:
  /// `job`: of the collectives. `options`: its URL, a name that no other group has, and the group's
  /// ranks. `timeout`: of operations. `check`: see Operation::wait.
  ProcessGroupIna(std::shared_ptr<Job> job, JobOptions options,
                  c10::intrusive_ptr<c10d::Store> store, milliseconds timeout, void (*check)());
  ~ProcessGroupIna() override;

  const std::string getBackendName() const override { return "ina"; }
  /// Sets the timeout of operations that start afterwards and have none of their own.
  void setTimeout(milliseconds timeout) override { timeout_ = timeout; }
  /// Waits for the operations that run, each with its own timeout. `check`: see Operation::wait.
  void drain(void (*check)());
  /// Waits for the operations that run, and leaves the group's jobs. The destructor does it, unless
  /// Python ends. Then no threads, connections or references to the store of the group are left.
  void shutdown() override;
  /// Leaves them at once; operations that still run end with an error on all ranks.
  void abort() override { leave(milliseconds(0)); }
  // PyTorch's checks (TORCH_DISTRIBUTED_DEBUG=DETAIL) compare the ranks' numbers of collectives.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_; }
  void begin_together() override;
  WorkPtr end_together() override;
  /// Joins the job now rather than before the first operation. Throws ina::Exception.
  void join() { job_->join(); }
  const std::shared_ptr<Job>& job() const { return job_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  /// All-reduces one tensor into another one, which may lie in a result buffer.
  WorkPtr allreduce_into(const at::Tensor& from, const at::Tensor& to,
                         const c10d::AllreduceOptions& options);
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return allreduce(tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int rank, int tag) override;
  WorkPtr recv(Tensors& tensors, int rank, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  /// A worker that has ended may still have to help others to their results; they are not far
  /// behind.
  static constexpr milliseconds kLeaveTimeout{5000};

  /// The properties that a Work shows, and the input of its operation.
  struct Call {
    c10d::OpType type;
    const char* name;   ///< as the Python function
    const char* title;  ///< for the profiler
    Tensors inputs;
    TensorLists outputs;
    Tensors held;
    std::vector<std::function<void()>> deliveries;
    milliseconds timeout;
    Uses uses{};
  };
  using Begin = std::function<int(ina_context*, ina_request**)>;
  /// To be called before anything is read: throws if what the call writes cannot be written, and
  /// waits for operations that still use the memory. Of the Call.
  Uses prepare(const char* function, Tensors reads, Tensors writes);
  WorkPtr launch(Call call, const Begin& begin);
  /// The job of the operations that this thread starts (Continuations), and their continuations.
  struct Level {
    std::shared_ptr<Job> job;
    std::shared_ptr<Continuations> continuations;
  };
  Level level_of_thread();
  Level make_level(size_t depth, const std::shared_ptr<Job>& above);
  std::vector<Level> levels();
  /// Counts an operation that was started to those between begin_together() and end_together().
  void count(const c10::intrusive_ptr<WorkIna>& work);
  WorkPtr make_one(c10d::OpType type, const char* name, const std::vector<WorkPtr>& works,
                   milliseconds timeout);
  void leave(milliseconds timeout);

  WorkPtr receive(Tensors& tensors, int from, int tag);
  std::shared_ptr<Operation> make_operation(const char* name, Tensors held,
                                            std::function<void()> deliver, const char* advice = "");

  size_t size() const { return static_cast<size_t>(getSize()); }
  bool is_root(int64_t rank) const { return rank == getRank(); }
  WorkPtr sum_up_sparse(const at::Tensor& tensor, Tensors& tensors,
                        const c10d::AllreduceOptions& options);
  at::Tensor gather_number(const char* function, int64_t number, milliseconds timeout);
  WorkPtr sum_up(Call call, at::Tensor flat, const c10d::ReduceOp& op);
  WorkPtr scatter_sums(Call call, const Blocks& from, const at::Tensor& to,
                       const c10d::ReduceOp& op);
  WorkPtr exchange(Call call, const Blocks& to, const Blocks& from, ina_dtype dtype);

  Staging staging_;
  InUse in_use_;
  const std::shared_ptr<Job> job_;
  std::mutex levels_mutex_;
  std::vector<Level> levels_;  ///< by depth; the first one has job_
  std::mutex making_mutex_;    ///< taken first, by a thread that makes a level
  const std::shared_ptr<Pairs> pairs_;
  std::mutex store_mutex_;
  c10::intrusive_ptr<c10d::Store> store_;  ///< under store_mutex_, until the group leaves
  std::atomic<bool> left_ = false;
  std::atomic<milliseconds> timeout_;
  void (*const check_)();
  uint64_t monitored_barriers_ = 0;
  std::atomic<uint64_t> collectives_ = 0;
  std::mutex together_mutex_;
  std::optional<std::vector<WorkPtr>> together_;  ///< under together_mutex_
};

}  // namespace ina::plugin
