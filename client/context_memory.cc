// A context's memory on the direct path. See docs/protocol.md, "Registered memory and result
// buffers".
#include <algorithm>

#include "client/context.h"
#include "client/control_text.h"
#include "io/shm/layout.h"
#include "io/shm/region.h"

namespace ina::client {

namespace {

/// How many bytes from `send` and from `recv` on an operation of `rank` uses.
std::pair<size_t, size_t> extents_of(const OperationSpec& spec, Rank rank) {
  const size_t width = wire_bytes(spec.dtype);
  if (!spec.blocks) return {spec.elements * width, spec.elements * width};
  uint64_t sent = 0, received = 0;
  for (const scheduler::Block& block : spec.blocks->blocks()) {
    if (has_role(block.source, rank)) sent = std::max(sent, block.send_offset + block.elements);
    if (has_role(block.receiver, rank))
      received = std::max(received, block.receive_offset + block.elements);
  }
  return {sent * width, received * width};
}

}  // namespace

// ---- the worker's own memory

Result<void*> Context::allocate(size_t bytes) {
  auto memory = make_memory(bytes);
  if (!memory) return tl::unexpected(memory.error());
  return adopt(std::move(*memory));
}

Result<void*> Context::register_memory(int memfd, void* data, size_t bytes) {
  auto memory = take_memory(memfd, data, bytes);
  if (!memory) return tl::unexpected(memory.error());
  return adopt(std::move(*memory));
}

/// Makes memory known to the switch, if it can read a worker's memory at all.
Result<void*> Context::adopt(RegisteredMemory memory) {
  if (link_.frames()) {  // it will be copied into frames
    const auto lock = progress_.lock();
    registered_.push_back(std::move(memory));
    return registered_.back().data;
  }
  if (auto sealed = io::shm::populate_and_seal(memory.file.get(), memory.bytes); !sealed)
    return tl::unexpected(sealed.error());
  const std::lock_guard one_at_a_time(sharing_mutex_);
  std::byte* const data = memory.data;
  const int file = memory.file.get();
  const size_t bytes = memory.bytes;
  uint32_t number = 1;
  bool away = false;
  {
    const auto lock = progress_.lock();
    for (const RegisteredMemory& known : registered_)
      if (overlaps(known.data, known.bytes, memory.data, bytes))
        return fail(INA_ERR_INVALID, "memory overlaps with what is registered already");
    const auto taken = [&](const RegisteredMemory& known) { return known.number == number; };
    while (std::ranges::any_of(registered_, taken)) ++number;
    if (number == io::shm::kMaxRegions)
      return fail(INA_ERR_NO_MEMORY, std::to_string(number - 1) +
                                         " memories are registered, more are not possible: "
                                         "ina_free some, or take parts of larger ones");
    memory.number = number;
    registered_.push_back(std::move(memory));
    away = progress_.is_away();
    const auto state = callers_.lock();
    registering_ = number;
    registered_answer_.reset();
  }
  // Otherwise it is registered as soon as the switch is back.
  if (!away) send_control(request::Register{number, bytes}, {file});
  const bool answered = await([&] { return registered_answer_.has_value(); });
  const auto lock = progress_.lock();
  std::optional<Error> answer;
  {
    const auto state = callers_.lock();
    registering_.reset();
    if (answered) answer = std::move(registered_answer_);
  }
  const auto entry = std::ranges::find(registered_, number, &RegisteredMemory::number);
  if (answer && answer->status == INA_OK) {
    entry->known = true;
    link_.transport().set_registered(number, {data, bytes});
    return data;
  }
  registered_.erase(entry);
  if (answer) return tl::unexpected(*answer);
  if (callers_.failed() != INA_OK) return callers_.failure();
  return fail(INA_ERR_TIMEOUT, "the switch did not answer within " + seconds(settings_.timeout_ns));
}

/// Background thread: the switch's answer to `register`.
void Context::on_registered(const answer::Registered& registered) {
  const bool taken = registered.status == INA_OK;
  bool awaited = false;
  {
    const auto state = callers_.lock();
    awaited = registering_ == registered.number;
    if (awaited) registered_answer_ = Error{registered.status, registered.text};
  }
  if (awaited) return callers_.wake();
  // It was taken once, so this is another switch.
  if (!taken)
    progress_.end(registered.status,
                  "the switch takes registered memory no more: " + registered.text);
}

/// A switch that starts anew knows none of it: tells it before `attach`, so that the memory is
/// there before anything can be sent from it.
void Context::register_again(Transport& transport) {
  const auto lock = progress_.lock();
  for (const RegisteredMemory& memory : registered_) {
    send_control(request::Register{memory.number, memory.bytes}, {memory.file.get()});
    if (memory.known) transport.set_registered(memory.number, {memory.data, memory.bytes});
  }
}

// ---- result buffers

Result<void*> Context::share_results(size_t bytes) {
  if (bytes == 0) return fail(INA_ERR_INVALID, "bytes is 0");
  const std::lock_guard one_at_a_time(sharing_mutex_);
  {
    const auto state = callers_.lock();
    sharing_bytes_ = bytes;
    shared_answer_.reset();
  }
  if (!progress_.is_away()) send_control(request::ShareResults{bytes});
  const bool answered = await([&] { return shared_answer_.has_value(); });
  std::optional<SharedAnswer> answer;
  {
    const auto state = callers_.lock();
    if (answered) answer = std::move(shared_answer_);
    sharing_bytes_.reset();
    shared_answer_.reset();
  }
  if (!answered && callers_.failed() == INA_OK) {
    const std::string text = "waited " + seconds(settings_.timeout_ns) +
                             " for all ranks to ask for a result buffer of " +
                             std::to_string(bytes) + " bytes";
    send_control(request::Abort{text});
    progress_.end(INA_ERR_TIMEOUT, text);
  }
  if (!answered) return callers_.failure();
  if (answer->error.status != INA_OK) return tl::unexpected(answer->error);
  SharedResults results;
  if (answer->first_unit) {
    auto mapped = io::shm::map_peer_region(answer->file, answer->bytes, "result buffer");
    if (!mapped) return tl::unexpected(mapped.error());
    results.mapping = std::move(*mapped);
    results.first_unit = answer->first_unit;
  } else {
    auto mapped = map_private(io::shm::round_up(bytes, io::shm::kPageBytes));
    if (!mapped) return tl::unexpected(mapped.error());
    results.mapping = std::move(*mapped);
  }
  const auto lock = progress_.lock();
  if (results.first_unit && answer->epoch != link_.engine().config().epoch) {
    // The switch was restarted since: nobody writes there any more.
    if (auto replaced = results.make_ordinary(); !replaced) return tl::unexpected(replaced.error());
  }
  if (results.first_unit)
    link_.transport().set_result_buffer(*results.first_unit,
                                        {results.mapping.data(), results.mapping.size()});
  void* const data = results.mapping.data();
  result_buffers_.add(std::move(results));
  return data;
}

/// Background thread: the switch's answer to `share_results`.
void Context::on_results(const answer::Results& results, control::Heard& heard) {
  SharedAnswer answer;
  answer.error = {results.status, results.text};
  if (results.status == INA_OK && heard.lost_descriptors)
    answer.error = {INA_ERR_NO_MEMORY,
                    "this process has no descriptor left for the result buffer: close some, or "
                    "raise its limit of open files (ulimit -n)"};
  if (results.status == INA_OK && results.first_unit && heard.fds.size() == 1) {
    answer.first_unit = *results.first_unit;
    answer.bytes = results.bytes;
    answer.file = std::move(heard.fds[0]);
  }
  {
    const auto lock = progress_.lock();
    answer.epoch = link_.engine().config().epoch;
  }
  callers_.tell([&] {
    ++buffers_shared_;
    if (sharing_bytes_) shared_answer_.emplace(std::move(answer));
  });
}

/// Background thread: the job runs again. `furthest`: how many result buffers the worker had got
/// that was furthest. A request that is open is answered by ordinary memory if another worker's was
/// answered by the old switch, and made again if nobody's was.
void Context::share_again(uint64_t furthest) {
  std::optional<size_t> again;
  {
    const auto state = callers_.lock();
    if (!sharing_bytes_ || shared_answer_) return;
    if (furthest > buffers_shared_) {
      ++buffers_shared_;
      shared_answer_.emplace();
    } else {
      again = sharing_bytes_;
    }
  }
  if (again) send_control(request::ShareResults{*again});
  callers_.wake();
}

Result<void> Context::refuse_result_buffers(const void* memory, uint64_t bytes,
                                            std::string_view what) {
  const auto lock = progress_.lock();
  return result_buffers_.refuse(memory, bytes, what);
}

// ---- both

Result<void> Context::free_memory(void* data) {
  const auto lock = progress_.lock();
  const auto busy = [&](const std::byte* memory, size_t bytes) -> std::string {
    const Operation* user = link_.engine().find_running([&](const Operation& operation) {
      const OperationSpec& spec = operation.spec;
      const auto [sent, received] = extents_of(spec, Rank{static_cast<uint8_t>(settings_.rank)});
      return overlaps(memory, bytes, spec.send, sent) ||
             overlaps(memory, bytes, spec.recv, received);
    });
    return user ? describe(*user) + " uses it" : "";
  };
  const auto own =
      std::ranges::find_if(registered_, [&](const auto& known) { return known.data == data; });
  if (own != registered_.end()) {
    if (const auto text = busy(own->data, own->bytes); !text.empty())
      return fail(INA_ERR_INVALID, text);
    link_.transport().set_registered(own->number, {});
    if (!link_.frames()) send_control(request::Unregister{own->number});
    registered_.erase(own);
    return {};
  }
  SharedResults* const shared = result_buffers_.find(data);
  if (!shared)
    return fail(INA_ERR_INVALID,
                "memory is not the start of what ina_alloc, ina_alloc_result or ina_register "
                "gave or took");
  if (const auto text = busy(shared->mapping.data(), shared->mapping.size()); !text.empty())
    return fail(INA_ERR_INVALID, text);
  if (shared->first_unit) {
    link_.transport().set_result_buffer(*shared->first_unit, {});
    link_.engine().keep_results({shared->mapping.data(), shared->mapping.size()});
  }
  const auto first_unit = shared->first_unit;
  // Before the switch hears of it, which looks whether anybody still has the memory.
  result_buffers_.remove(*shared);
  if (first_unit) send_control(request::FreeResults{*first_unit});
  return {};
}

}  // namespace ina::client
