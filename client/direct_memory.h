// A channel's memory on the direct path: the worker's own, which the switch reads where it lies,
// and result buffers, which the switch writes. Over frames both are ordinary memory. See
// docs/protocol.md, "Registered memory and result buffers".
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/link.h"
#include "client/memory.h"
#include "client/operations.h"
#include "client/progress.h"
#include "client/result_buffers.h"
#include "client/settings.h"
#include "control/client.h"
#include "membership/attachment.h"
#include "membership/callers.h"
#include "membership/switch_connection.h"

namespace ina::client {

namespace request = control::request;
namespace answer = control::answer;

class DirectMemory {
 public:
  /// Asks the switch why the job waits. Under no lock.
  using Explain = std::function<std::string()>;

  /// `channel`: of the connection. All must outlive it.
  DirectMemory(const Settings& settings, membership::SwitchConnection& connection, uint32_t channel,
               const membership::Attachment& attachment, Link& link, Progress& progress,
               membership::Callers& callers, Explain explain);

  // From any thread.
  Result<void*> allocate(size_t bytes);
  Result<void*> register_memory(int memfd, void* data, size_t bytes);
  /// Collective: memory that the switch writes for all workers of the job.
  Result<void*> share_results(size_t bytes);
  /// INA_ERR_INVALID if an operation uses it.
  Result<void> free_memory(void* data);
  /// INA_ERR_UNSUPPORTED if a result buffer lies there.
  Result<void> refuse_result_buffers(const void* memory, uint64_t bytes, std::string_view what);

  // Under the lock of Progress.
  /// Has the results of an operation go straight to a result buffer if that is where its caller
  /// wants them, and refuses it if they cannot.
  Result<void> aim(OperationSpec& spec, const OperationSource& source) const;
  /// The switch that wrote result buffers has gone.
  Result<void> make_ordinary() { return result_buffers_.make_ordinary(); }

  // On the background thread.
  /// The switch's answers to `register` and `share_results`.
  void on_registered(const answer::Registered& registered);
  void on_results(const answer::Results& results, control::Heard& heard);
  /// A switch that starts anew knows no memory: tells it before `attach`, so that the memory is
  /// there before anything can be sent from it.
  void register_again(Transport& transport);
  /// The job runs again. `furthest`: how many result buffers the worker had got that was furthest.
  void share_again(uint64_t furthest);
  /// Requests for result buffers that were answered. Under the lock of Callers.
  uint64_t buffers_shared() const { return buffers_shared_; }

 private:
  bool send(const request::Message& message, const std::vector<int>& descriptors = {});
  Result<void*> adopt(RegisteredMemory memory);
  Result<uint32_t> add_registered(RegisteredMemory memory, bool& away);
  Result<SharedAnswer> ask_for_results(size_t bytes);
  Result<void> free_registered(std::vector<RegisteredMemory>::iterator own);
  Result<void> free_results(SharedResults& shared);
  Result<void> check_unused(const std::byte* memory, size_t bytes) const;

  const Settings& settings_;
  membership::SwitchConnection& connection_;
  const uint32_t channel_;
  const membership::Attachment& attachment_;
  Link& link_;
  Progress& progress_;
  membership::Callers& callers_;
  const Explain explain_;

  std::mutex sharing_mutex_;                  ///< taken first: one request to the switch at a time
  std::vector<RegisteredMemory> registered_;  ///< under the lock of Progress
  ResultBuffers result_buffers_;              ///< under the lock of Progress

  // Under the lock of Callers.
  std::optional<uint32_t> registering_;  ///< number of the memory that waits for an answer
  std::optional<Error> registered_answer_;
  std::optional<size_t> sharing_bytes_;  ///< of the result buffer that waits for an answer
  std::optional<SharedAnswer> shared_answer_;
  uint64_t buffers_shared_ = 0;
};

}  // namespace ina::client
