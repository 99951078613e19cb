// A context's memory on the direct path. See docs/protocol.md, "Registered memory and result
// buffers".
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/context.h"
#include "client/control_text.h"
#include "common/clock.h"
#include "common/sealed_memory.h"
#include "io/shm/layout.h"
#include "io/shm/region.h"

namespace ina::client {

namespace {

using control::Json;

constexpr size_t kHugePageBytes = 2 << 20;

tl::unexpected<Error> system_error(const std::string& what) {
  return fail(INA_ERR_NO_MEMORY, what + ": " + std::strerror(errno));
}

/// Ordinary zeroed memory.
Result<Mapping> map_private(size_t bytes) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return system_error("no memory for " + std::to_string(bytes) + " bytes");
  return Mapping(static_cast<std::byte*>(address), bytes);
}

bool contains(const std::byte* data, size_t bytes, const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(data);
  return at < bytes;
}

bool overlaps(const std::byte* data, size_t bytes, const std::byte* other, size_t other_bytes) {
  return other != nullptr && other_bytes != 0 &&
         (contains(data, bytes, other) || contains(other, other_bytes, data));
}

}  // namespace

/// Waits for what the background thread brings, at most the default time. `come` is called with
/// state_mutex_ held. False: it did not come.
template <class Come>
bool Context::await(Come come) {
  std::unique_lock state(state_mutex_);
  sleepers_.fetch_add(1);
  cv_.wait_for(state, std::chrono::nanoseconds(settings_.timeout_ns),
               [&] { return come() || failed_.load() != INA_OK; });
  sleepers_.fetch_sub(1);
  return come();
}

// ---- the worker's own memory

Result<void*> Context::allocate(size_t bytes) {
  if (bytes == 0) return fail(INA_ERR_INVALID, "bytes is 0");
  bytes = io::shm::round_up(bytes, bytes >= kHugePageBytes ? kHugePageBytes : io::shm::kPageBytes);
  RegisteredMemory memory;
  memory.bytes = bytes;
  memory.file = Fd(::memfd_create("ina-alloc", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.file) return system_error("cannot create shared memory");
  if (::ftruncate(memory.file.get(), static_cast<off_t>(bytes)) != 0)
    return system_error("cannot size shared memory to " + std::to_string(bytes) + " bytes");
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file.get(), 0);
  if (address == MAP_FAILED)
    return system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  memory.mapping = Mapping(static_cast<std::byte*>(address), bytes);
  // Where the system lets shared memory have huge pages, both sides save most of their TLB misses.
  ::madvise(address, bytes, MADV_HUGEPAGE);
  if (!populate(memory.mapping.data(), bytes, true))
    return system_error("no memory for " + std::to_string(bytes) + " bytes");
  if (::fcntl(memory.file.get(), F_ADD_SEALS, kRegionSeals) != 0)
    return system_error("cannot seal shared memory");
  memory.data = memory.mapping.data();
  return adopt(std::move(memory));
}

Result<void*> Context::register_memory(int memfd, void* data, size_t bytes) {
  RegisteredMemory memory;
  memory.data = static_cast<std::byte*>(data);
  memory.bytes = bytes;
  struct stat status {};
  if (::fstat(memfd, &status) != 0) return fail(INA_ERR_INVALID, "memfd is no open descriptor");
  if (bytes == 0 || static_cast<uint64_t>(status.st_size) != bytes)
    return fail(INA_ERR_INVALID, "bytes is " + std::to_string(bytes) + ", the memfd has " +
                                     std::to_string(status.st_size) +
                                     ": a file is registered as a whole");
  if (!data) return fail(INA_ERR_INVALID, "memory is NULL");
  memory.file = Fd(::fcntl(memfd, F_DUPFD_CLOEXEC, 0));
  if (!memory.file) return system_error("cannot duplicate the memfd");
  return adopt(std::move(memory));
}

/// Makes memory known to the switch, if it can read a worker's memory at all.
Result<void*> Context::adopt(RegisteredMemory memory) {
  if (frames_) {  // it will be copied into frames
    const auto lock = lock_engine();
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
    const auto lock = lock_engine();
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
    away = away_.load();
    const std::lock_guard state(state_mutex_);
    registering_ = number;
    registered_answer_.reset();
  }
  // Otherwise it is registered as soon as the switch is back.
  if (!away) send_control({{"type", "register"}, {"number", number}, {"bytes", bytes}}, {file});
  const bool answered = await([&] { return registered_answer_.has_value(); });
  const auto lock = lock_engine();
  std::optional<Error> answer;
  {
    const std::lock_guard state(state_mutex_);
    registering_.reset();
    if (answered) answer = std::move(registered_answer_);
  }
  const auto entry = std::ranges::find(registered_, number, &RegisteredMemory::number);
  if (answer && answer->status == INA_OK) {
    entry->known = true;
    transport_->set_registered(number, {data, bytes});
    return data;
  }
  registered_.erase(entry);
  if (answer) return tl::unexpected(*answer);
  if (const int status = failure(); status != INA_OK)
    return fail(static_cast<ina_status>(status), last_error());
  return fail(INA_ERR_TIMEOUT, "the switch did not answer within " + seconds(settings_.timeout_ns));
}

/// Background thread: the switch's answer to `register`.
void Context::on_registered(const Json& body) {
  const bool taken = body.value("status", 0) == INA_OK;
  bool awaited = false;
  {
    const std::lock_guard state(state_mutex_);
    awaited = registering_ == body.value("number", uint32_t{0});
    if (awaited) registered_answer_ = taken ? Error{INA_OK, ""} : error_of(body);
  }
  if (awaited) return cv_.notify_all();
  // It was taken once, so this is another switch.
  if (!taken)
    end(error_of(body).status,
        "the switch takes registered memory no more: " + error_of(body).text);
}

/// A switch that starts anew knows none of it: tells it before `attach`, so that the memory is
/// there before anything can be sent from it.
void Context::register_again(Transport& transport) {
  const auto lock = lock_engine();
  for (const RegisteredMemory& memory : registered_) {
    send_control({{"type", "register"}, {"number", memory.number}, {"bytes", memory.bytes}},
                 {memory.file.get()});
    if (memory.known) transport.set_registered(memory.number, {memory.data, memory.bytes});
  }
}

// ---- result buffers

Result<void*> Context::share_results(size_t bytes) {
  if (bytes == 0) return fail(INA_ERR_INVALID, "bytes is 0");
  const std::lock_guard one_at_a_time(sharing_mutex_);
  {
    const std::lock_guard state(state_mutex_);
    sharing_bytes_ = bytes;
    shared_answer_.reset();
  }
  if (!away_.load()) send_control({{"type", "share_results"}, {"bytes", bytes}});
  const bool answered = await([&] { return shared_answer_.has_value(); });
  std::optional<SharedAnswer> answer;
  {
    const std::lock_guard state(state_mutex_);
    if (answered) answer = std::move(shared_answer_);
    sharing_bytes_.reset();
    shared_answer_.reset();
  }
  if (!answered && failed_.load() == INA_OK) {
    const std::string text = "waited " + seconds(settings_.timeout_ns) +
                             " for all ranks to ask for a result buffer of " +
                             std::to_string(bytes) + " bytes";
    send_control({{"type", "abort"}, {"text", text}});
    end(INA_ERR_TIMEOUT, text);
  }
  if (!answered) {
    const auto status = static_cast<ina_status>(failure());
    return fail(status, last_error());
  }
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
  const auto lock = lock_engine();
  if (results.first_unit && answer->epoch != engine_->config().epoch) {
    // The switch was restarted since: nobody writes there any more.
    if (auto replaced = make_ordinary(results); !replaced) return tl::unexpected(replaced.error());
  }
  if (results.first_unit)
    transport_->set_result_buffer(*results.first_unit,
                                  {results.mapping.data(), results.mapping.size()});
  void* const data = results.mapping.data();
  shared_.push_back(std::move(results));
  return data;
}

/// Background thread: the switch's answer to `share_results`.
void Context::on_results(control::Received& received) {
  const Json& body = received.body;
  SharedAnswer answer;
  const auto status = static_cast<ina_status>(body.value("status", 0));
  if (status != INA_OK) answer.error = error_of(body);
  if (status == INA_OK && received.lost_descriptors)
    answer.error = {INA_ERR_NO_MEMORY,
                    "this process has no descriptor left for the result buffer: close some, or "
                    "raise its limit of open files (ulimit -n)"};
  if (status == INA_OK && received.fds.size() == 1) {
    answer.first_unit = body.at("first_unit").get<uint32_t>();
    answer.bytes = body.at("bytes").get<uint64_t>();
    answer.file = std::move(received.fds[0]);
  }
  {
    const auto lock = lock_engine();
    answer.epoch = engine_->config().epoch;
  }
  {
    const std::lock_guard state(state_mutex_);
    ++buffers_shared_;
    if (sharing_bytes_) shared_answer_.emplace(std::move(answer));
  }
  cv_.notify_all();
}

/// Background thread, under mutex_: the switch that wrote the result buffers has gone. What they
/// hold stays where it is, but in ordinary memory.
void Context::leave_result_buffers() {
  for (SharedResults& results : shared_) {
    if (!results.first_unit) continue;
    if (auto replaced = make_ordinary(results); !replaced)
      return end(replaced.error().status, replaced.error().text);
  }
}

/// Background thread: the job runs again. `furthest`: how many result buffers the worker had got
/// that was furthest. A request that is open is answered by ordinary memory if another worker's was
/// answered by the old switch, and made again if nobody's was.
void Context::share_again(uint64_t furthest) {
  std::optional<size_t> again;
  {
    const std::lock_guard state(state_mutex_);
    if (!sharing_bytes_ || shared_answer_) return;
    if (furthest > buffers_shared_) {
      ++buffers_shared_;
      shared_answer_.emplace();
    } else {
      again = sharing_bytes_;
    }
  }
  if (again) send_control({{"type", "share_results"}, {"bytes", *again}});
  cv_.notify_all();
}

Result<void> Context::make_ordinary(SharedResults& results) {
  const size_t bytes = results.mapping.size();
  auto copy = map_private(bytes);
  if (!copy) return tl::unexpected(copy.error());
  std::memcpy(copy->data(), results.mapping.data(), bytes);
  if (::mremap(copy->data(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, results.mapping.data()) ==
      MAP_FAILED)
    return system_error("cannot replace a result buffer");
  copy->release();
  results.first_unit.reset();
  return {};
}

/// Finds out whether an operation's results go straight to a result buffer.
Result<void> Context::aim(OperationSpec& spec) const {
  const size_t bytes = spec.elements * wire_bytes(spec.dtype);
  for (const SharedResults& results : shared_) {
    const Mapping& mapping = results.mapping;
    if (!overlaps(mapping.data(), mapping.size(), spec.recv, bytes) || !results.first_unit)
      continue;
    const auto at = static_cast<uint64_t>(spec.recv - mapping.data());
    if (!contains(mapping.data(), mapping.size(), spec.recv) || bytes > mapping.size() - at)
      return fail(INA_ERR_INVALID, "recv reaches beyond its result buffer of " +
                                       std::to_string(mapping.size()) + " bytes");
    if (at % wire::kTargetUnitBytes != 0)
      return fail(INA_ERR_INVALID, "recv lies at byte " + std::to_string(at) +
                                       " of a result buffer: it must be a multiple of " +
                                       std::to_string(wire::kTargetUnitBytes));
    if (settings_.reproducible && Reproducible::handles(spec))
      return fail(INA_ERR_UNSUPPORTED,
                  "a reproducible sum of floats is put together by its worker, which cannot write "
                  "to a result buffer: use other memory");
    spec.target = 1 + *results.first_unit + static_cast<uint32_t>(at / wire::kTargetUnitBytes);
    return {};
  }
  return {};
}

// ---- both

Result<void> Context::free_memory(void* data) {
  const auto lock = lock_engine();
  const auto busy = [&](const std::byte* memory, size_t bytes) -> std::string {
    const Operation* user = engine_->find_running([&](const OperationSpec& spec) {
      const size_t used = spec.elements * wire_bytes(spec.dtype);
      return overlaps(memory, bytes, spec.send, used) || overlaps(memory, bytes, spec.recv, used);
    });
    return user ? describe(*user) + " uses it" : "";
  };
  const auto own =
      std::ranges::find_if(registered_, [&](const auto& known) { return known.data == data; });
  if (own != registered_.end()) {
    if (const auto text = busy(own->data, own->bytes); !text.empty())
      return fail(INA_ERR_INVALID, text);
    transport_->set_registered(own->number, {});
    if (!frames_) send_control({{"type", "unregister"}, {"number", own->number}});
    registered_.erase(own);
    return {};
  }
  const auto shared = std::ranges::find_if(
      shared_, [&](const auto& known) { return known.mapping.data() == data; });
  if (shared == shared_.end())
    return fail(INA_ERR_INVALID,
                "memory is not the start of what ina_alloc, ina_alloc_result or ina_register "
                "gave or took");
  if (const auto text = busy(shared->mapping.data(), shared->mapping.size()); !text.empty())
    return fail(INA_ERR_INVALID, text);
  if (shared->first_unit) {
    transport_->set_result_buffer(*shared->first_unit, {});
    engine_->keep_results({shared->mapping.data(), shared->mapping.size()});
  }
  const auto first_unit = shared->first_unit;
  // Before the switch hears of it, which looks whether anybody still has the memory.
  shared_.erase(shared);
  if (first_unit) send_control({{"type", "free_results"}, {"first_unit", *first_unit}});
  return {};
}

}  // namespace ina::client
