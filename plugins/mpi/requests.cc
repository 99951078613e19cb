#include "plugins/mpi/requests.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "plugins/mpi/groups.h"
#include "plugins/mpi/world.h"

namespace ina::mpi {

namespace {

constexpr int kLooksBetweenYields = 16;

/// Lets others run, the switch among them, where there are fewer processors than processes.
void yield_sometimes() {
  thread_local int looks = 0;
  if (++looks % kLooksBetweenYields == 0) ::sched_yield();
}

std::shared_ptr<Request> shared(void* state) {
  return *static_cast<std::shared_ptr<Request>*>(state);
}

}  // namespace

#if defined(OPEN_MPI)

namespace {

/// A function of libopen-pal: MPI calls `look` whenever it sees to its messages. `look` returns how
/// much it has done. Null in a version that has the function no longer.
using Register = int (*)(int (*look)());
Register progress_register() {
  static const auto found =
      reinterpret_cast<Register>(::dlsym(RTLD_DEFAULT, "opal_progress_register"));
  return found;
}

/// Requests that MPI has not been told about.
class Watched {
 public:
  static Watched& of_process() {
    static auto* const watched = new Watched;
    return *watched;
  }
  void add(std::shared_ptr<Request> request) {
    const std::lock_guard lock(mutex_);
    new_.push_back(std::move(request));
    ++count_;
  }
  static int look() {
    Watched& watched = of_process();
    if (watched.count_.load(std::memory_order_relaxed) == 0) return 0;
    const int told = watched.look_at_all();
    if (told == 0) yield_sometimes();
    return told;
  }

 private:
  Watched() { progress_register()(&Watched::look); }
  /// Lets one thread at a time look, and none from within its own look.
  int look_at_all() {
    if (busy_.test_and_set(std::memory_order_acquire)) return 0;
    {
      const std::lock_guard lock(mutex_);
      std::ranges::move(new_, std::back_inserter(watched_));
      new_.clear();
    }
    const auto told = static_cast<int>(
        std::erase_if(watched_, [](const auto& request) { return request->look(); }));
    count_ -= told;
    busy_.clear(std::memory_order_release);
    return told;
  }

  std::atomic<int> count_ = 0;
  std::atomic_flag busy_;
  std::vector<std::shared_ptr<Request>> watched_;  ///< of the thread that has set busy_
  std::mutex mutex_;
  std::vector<std::shared_ptr<Request>> new_;
};

}  // namespace

bool Request::offered() {
  return progress_register() != nullptr;
}

int Request::announce(MPI_Request* request) {
  const int status = PMPI_Grequest_start(&Request::query, &Request::free, &Request::cancel,
                                         new std::shared_ptr(shared_from_this()), request);
  const std::lock_guard lock(mutex_);
  handle_ = *request;
  Watched::of_process().add(shared_from_this());
  return status;
}

void Request::forget() const {}

#else

namespace {

/// Requests that MPI has a handle of.
struct Announced {
  static Announced& of_process() {
    static auto* const announced = new Announced;
    return *announced;
  }
  std::mutex mutex;
  std::unordered_map<MPI_Request, std::shared_ptr<Request>> requests;
};

}  // namespace

bool Request::offered() {
  return true;
}

void Request::look_at(MPI_Request handle) {
  Announced& announced = Announced::of_process();
  std::shared_ptr<Request> found;
  {
    const std::lock_guard lock(announced.mutex);
    const auto at = announced.requests.find(handle);
    if (at != announced.requests.end()) found = at->second;
  }
  if (found) found->look();
}

void Request::forget() const {
  Announced& announced = Announced::of_process();
  const std::lock_guard lock(announced.mutex);
  announced.requests.erase(handle_);
}

int Request::announce(MPI_Request* request) {
  const auto poll = [](void* state, MPI_Status*) {
    if (!shared(state)->look()) yield_sometimes();
    return MPI_SUCCESS;
  };
  const auto wait = [](int count, void** states, double, MPI_Status*) {
    for (int at = 0; at < count; ++at) shared(states[at])->finish();
    return MPI_SUCCESS;
  };
  const int status = PMPIX_Grequest_start(&Request::query, &Request::free, &Request::cancel, poll,
                                          wait, new std::shared_ptr(shared_from_this()), request);
  const std::lock_guard lock(mutex_);
  handle_ = *request;
  Announced& announced = Announced::of_process();
  const std::lock_guard lock_all(announced.mutex);
  announced.requests.emplace(handle_, shared_from_this());
  return status;
}

#endif

Request::Request(std::unique_ptr<Collective> call, std::shared_ptr<Group> group,
                 ina_request* operation)
    : call_(std::move(call)), group_(std::move(group)), operation_(operation) {}

bool Request::ended() {
  if (!operation_) return true;
  const int status = ina_test(operation_);
  if (status == INA_IN_PROGRESS) return false;
  status_ = status == INA_OK ? call_->deliver() : group_->complain(status);
  operation_ = nullptr;
  group_->completed(this);
  return true;
}

bool Request::look() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !ended() || told_ || handle_ == MPI_REQUEST_NULL) return false;
  told_ = true;
  PMPI_Grequest_complete(handle_);
  return true;
}

void Request::finish() {
  settle();
  while (!told_) {
    if (!look()) ::sched_yield();  // another thread is at it
  }
}

/// Waits until the operation has ended.
void Request::settle() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (ended()) return;
    }
    World::of_process().progress();
    yield_sometimes();
  }
}

void Request::abandon() {
  const std::lock_guard lock(mutex_);
  operation_ = nullptr;
  status_ = MPI_ERR_OTHER;
}

int Request::query(void* state, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return shared(state)->status_;
}

int Request::free(void* state) {
  shared(state)->forget();
  delete static_cast<std::shared_ptr<Request>*>(state);
  return MPI_SUCCESS;
}

int Request::cancel(void*, int) {
  return MPI_SUCCESS;  // collective operations are not cancelled
}

}  // namespace ina::mpi
