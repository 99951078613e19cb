#include "client/direct_memory.h"

#include <algorithm>
#include <utility>

#include "io/shm/layout.h"
#include "io/shm/region.h"
#include "membership/control_text.h"

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

/// Maps the buffer that the switch has made for a request for `bytes`.
Result<SharedResults> map_results(const SharedAnswer& answer, size_t bytes) {
  auto mapped = answer.first_unit
                    ? io::shm::map_peer_region(answer.file, answer.bytes, "result buffer")
                    : map_private(io::shm::round_up(bytes, io::shm::kPageBytes));
  if (!mapped) return tl::unexpected(mapped.error());
  return SharedResults{.mapping = std::move(*mapped), .first_unit = answer.first_unit};
}

}  // namespace

DirectMemory::DirectMemory(const Settings& settings, membership::SwitchConnection& connection,
                           uint32_t channel, const membership::Attachment& attachment, Link& link,
                           Progress& progress, membership::Callers& callers, Explain explain)
    : settings_(settings),
      connection_(connection),
      channel_(channel),
      attachment_(attachment),
      link_(link),
      progress_(progress),
      callers_(callers),
      explain_(std::move(explain)),
      result_buffers_(settings.world_size, settings.rank, settings.reproducible) {}

bool DirectMemory::send(const request::Message& message, const std::vector<int>& descriptors) {
  return connection_.send(channel_, message, descriptors);
}

// ---- the worker's own memory

Result<void*> DirectMemory::allocate(size_t bytes) {
  auto memory = make_memory(bytes);
  if (!memory) return tl::unexpected(memory.error());
  return adopt(std::move(*memory));
}

Result<void*> DirectMemory::register_memory(int memfd, void* data, size_t bytes) {
  auto memory = take_memory(memfd, data, bytes);
  if (!memory) return tl::unexpected(memory.error());
  return adopt(std::move(*memory));
}

/// Makes memory known to the switch, if it can read a worker's memory at all.
Result<void*> DirectMemory::adopt(RegisteredMemory memory) {
  if (attachment_.frames()) {  // it will be copied into frames
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
  bool away = false;
  const auto number = add_registered(std::move(memory), away);
  if (!number) return tl::unexpected(number.error());
  // Otherwise it is registered as soon as the switch is back.
  if (!away) send(request::Register{*number, bytes}, {file});
  const bool answered =
      callers_.await(settings_.timeout_ns, [&] { return registered_answer_.has_value(); });
  const std::string why = answered || callers_.failed() != INA_OK ? "" : explain_();
  const auto lock = progress_.lock();
  std::optional<Error> answer;
  {
    const auto state = callers_.lock();
    registering_.reset();
    if (answered) answer = std::move(registered_answer_);
  }
  const auto entry = std::ranges::find(registered_, *number, &RegisteredMemory::number);
  if (answer && answer->status == INA_OK) {
    entry->known = true;
    link_.transport().set_registered(*number, {data, bytes});
    return data;
  }
  registered_.erase(entry);
  if (answer) return tl::unexpected(*answer);
  if (callers_.failed() != INA_OK) return callers_.failure();
  return fail(INA_ERR_TIMEOUT, "the switch did not answer within " +
                                   membership::seconds(settings_.timeout_ns) + "; " + why);
}

/// Gives it a number, by which an answer is awaited. `away`: whether the switch is.
Result<uint32_t> DirectMemory::add_registered(RegisteredMemory memory, bool& away) {
  const auto lock = progress_.lock();
  for (const RegisteredMemory& known : registered_)
    if (overlaps(known.data, known.bytes, memory.data, memory.bytes))
      return fail(INA_ERR_INVALID, "memory overlaps with what is registered already");
  uint32_t number = 1;
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
  return number;
}

void DirectMemory::on_registered(const answer::Registered& registered) {
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

void DirectMemory::register_again(Transport& transport) {
  const auto lock = progress_.lock();
  for (const RegisteredMemory& memory : registered_) {
    send(request::Register{memory.number, memory.bytes}, {memory.file.get()});
    if (memory.known) transport.set_registered(memory.number, {memory.data, memory.bytes});
  }
}

// ---- result buffers

Result<void*> DirectMemory::share_results(size_t bytes) {
  if (auto fine = check_size(bytes); !fine) return tl::unexpected(fine.error());
  const std::lock_guard one_at_a_time(sharing_mutex_);
  const auto answer = ask_for_results(bytes);
  if (!answer) return tl::unexpected(answer.error());
  auto results = map_results(*answer, bytes);
  if (!results) return tl::unexpected(results.error());
  const auto lock = progress_.lock();
  if (results->first_unit && answer->epoch != link_.engine().config().epoch) {
    // The switch was restarted since: nobody writes there any more.
    if (auto replaced = results->make_ordinary(); !replaced)
      return tl::unexpected(replaced.error());
  }
  const std::span memory(results->mapping.data(), results->mapping.size());
  if (results->first_unit) link_.transport().set_result_buffer(*results->first_unit, memory);
  result_buffers_.add(std::move(*results));
  return memory.data();
}

/// A request that times out ends the job: a buffer that only some workers have got would break the
/// job.
Result<SharedAnswer> DirectMemory::ask_for_results(size_t bytes) {
  {
    const auto state = callers_.lock();
    sharing_bytes_ = bytes;
    shared_answer_.reset();
  }
  if (!progress_.is_away()) send(request::ShareResults{bytes});
  std::optional<SharedAnswer> answer;
  {
    auto state = callers_.lock();
    callers_.await(state, settings_.timeout_ns, [&] { return shared_answer_.has_value(); });
    answer = std::move(shared_answer_);
    sharing_bytes_.reset();
    shared_answer_.reset();
  }
  if (!answer && callers_.failed() == INA_OK) {
    const std::string text = "waited " + membership::seconds(settings_.timeout_ns) +
                             " for all ranks to ask for a result buffer of " +
                             std::to_string(bytes) + " bytes; " + explain_();
    send(request::Abort{text});
    progress_.end(INA_ERR_TIMEOUT, text);
  }
  if (!answer) return callers_.failure();
  if (answer->error.status != INA_OK) return tl::unexpected(answer->error);
  return std::move(*answer);
}

void DirectMemory::on_results(const answer::Results& results, control::Heard& heard) {
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

/// A request that is open is answered by ordinary memory if another worker's was answered by the
/// old switch, and made again if nobody's was.
void DirectMemory::share_again(uint64_t furthest) {
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
  if (again) send(request::ShareResults{*again});
  callers_.wake();
}

Result<void> DirectMemory::refuse_result_buffers(const void* memory, uint64_t bytes,
                                                 std::string_view what) {
  const auto lock = progress_.lock();
  return result_buffers_.refuse(memory, bytes, what);
}

Result<void> DirectMemory::aim(OperationSpec& spec, const OperationSource& source) const {
  if (result_buffers_.empty()) return {};
  if (source.plan)
    return result_buffers_.refuse(spec.recv, (*source.plan)->peak_bytes(),
                                  "ina_redistribute: buffer");
  return source.call ? result_buffers_.aim(spec, *source.call) : result_buffers_.aim(spec);
}

// ---- both

Result<void> DirectMemory::free_memory(void* data) {
  const auto lock = progress_.lock();
  const auto own =
      std::ranges::find_if(registered_, [&](const auto& known) { return known.data == data; });
  if (own != registered_.end()) return free_registered(own);
  if (SharedResults* const shared = result_buffers_.find(data)) return free_results(*shared);
  return fail(INA_ERR_INVALID,
              "memory is not the start of what ina_alloc, ina_alloc_result or ina_register "
              "gave or took");
}

/// Under the lock of Progress.
Result<void> DirectMemory::free_registered(std::vector<RegisteredMemory>::iterator own) {
  if (auto unused = check_unused(own->data, own->bytes); !unused) return unused;
  link_.transport().set_registered(own->number, {});
  if (!attachment_.frames()) send(request::Unregister{own->number});
  registered_.erase(own);
  return {};
}

/// Under the lock of Progress.
Result<void> DirectMemory::free_results(SharedResults& shared) {
  if (auto unused = check_unused(shared.mapping.data(), shared.mapping.size()); !unused)
    return unused;
  const auto first_unit = shared.first_unit;
  if (first_unit) {
    link_.transport().set_result_buffer(*first_unit, {});
    link_.engine().keep_results({shared.mapping.data(), shared.mapping.size()});
  }
  // Before the switch hears of it, which looks whether anybody still has the memory.
  result_buffers_.remove(shared);
  if (first_unit) send(request::FreeResults{*first_unit});
  return {};
}

/// Under the lock of Progress. INA_ERR_INVALID if an operation uses the memory.
Result<void> DirectMemory::check_unused(const std::byte* memory, size_t bytes) const {
  const Engine& engine = link_.engine();
  const Operation* const user = engine.find_running([&](const Operation& operation) {
    const OperationSpec& spec = operation.spec;
    const auto [sent, received] = extents_of(spec, engine.config().rank);
    return overlaps(memory, bytes, spec.send, sent) || overlaps(memory, bytes, spec.recv, received);
  });
  if (!user) return {};
  return fail(INA_ERR_INVALID, describe(*user) + " uses it");
}

}  // namespace ina::client
