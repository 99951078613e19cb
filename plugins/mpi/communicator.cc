#include "plugins/mpi/communicator.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <vector>

#include "plugins/mpi/requests.h"

namespace ina::mpi {

namespace {

constexpr int kMostRanks = 64;
constexpr int64_t kLeaveTimeoutUs = 5'000'000;
/// Looks at libina's operation between two looks at MPI's.
constexpr int kTestsBetweenProgress = 16;

/// The communicators of this process, in the order in which they were made.
struct All {
  std::mutex mutex;
  std::vector<Communicator*> made;
  int keyval = MPI_KEYVAL_INVALID;
};

All& all() {
  static auto* const found = new All;
  return *found;
}

/// A copy of a communicator is another one.
int copy_nothing(MPI_Comm, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

}  // namespace

Communicator* Communicator::known(MPI_Comm comm) {
  {
    const std::lock_guard lock(all().mutex);
    if (all().keyval == MPI_KEYVAL_INVALID)
      PMPI_Comm_create_keyval(&copy_nothing, &Communicator::forget, &all().keyval, nullptr);
  }
  Communicator* found = nullptr;
  int there = 0;
  PMPI_Comm_get_attr(comm, all().keyval, static_cast<void*>(&found), &there);
  return there ? found : nullptr;
}

Communicator& Communicator::of(MPI_Comm comm) {
  Communicator* found = known(comm);
  if (found) return *found;
  found = new Communicator(comm);
  PMPI_Comm_set_attr(comm, all().keyval, found);
  const std::lock_guard lock(all().mutex);
  all().made.push_back(found);
  return *found;
}

int Communicator::forget(MPI_Comm comm, int, void* found, void*) {
  auto* communicator = static_cast<Communicator*>(found);
  // All ranks have started what this one has.
  for (const auto& request : communicator->running()) request->settle(comm);
  {
    const std::lock_guard lock(all().mutex);
    std::erase(all().made, communicator);
  }
  delete communicator;
  return MPI_SUCCESS;
}

void Communicator::leave_all() {
  const std::lock_guard lock(all().mutex);
  for (Communicator* communicator : all().made) communicator->leave();
}

void Communicator::leave() {
  if (!context_) return;
  for (const auto& request : running()) request->abandon();
  ina_finalize(context_, kLeaveTimeoutUs);
  context_ = nullptr;
  why_not_ = "MPI_Finalize";
}

Communicator::Communicator(MPI_Comm comm) : comm_(comm) {
  int inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  PMPI_Comm_rank(comm, &rank_);
  PMPI_Comm_size(comm, &size_);
  if (inter)
    why_not_ = "intercommunicator";
  else if (size_ > kMostRanks)
    why_not_ = "more than 64 ranks";
  else if (size_ == 1)
    why_not_ = "one rank";
  else
    agree();
}

Communicator::~Communicator() {
  leave();
}

/// The same on all ranks; no other communicator has it.
std::string Communicator::share_name() const {
  std::array<char, 40> name{};
  if (rank_ == 0) {
    std::random_device random;
    std::snprintf(name.data(), name.size(), "mpi-%08x%08x%08x", random(), random(), random());
  }
  PMPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_BYTE, 0, comm_);
  return name.data();
}

/// Joins a job of these ranks; if one of them cannot, none does.
void Communicator::agree() {
  const std::string name = share_name();
  ina_config config;
  ina_config_init(&config);
  config.job = name.c_str();
  config.rank = rank_;
  config.world_size = size_;
  const int status = ina_init(&config, &context_);
  if (status != INA_OK && rank_ == 0)
    std::fprintf(stderr, "ina: MPI goes on without the switch: %s: %s\n", ina_status_name(status),
                 ina_last_error(nullptr));
  int joined = status == INA_OK;
  int all_joined = 0;
  PMPI_Allreduce(&joined, &all_joined, 1, MPI_INT, MPI_MIN, comm_);
  if (all_joined) return;
  if (context_) ina_finalize(context_, 1);
  context_ = nullptr;
  why_not_ = joined ? "another rank has no switch" : "no switch";
}

int Communicator::run(Collective& call) {
  ina_request* request = nullptr;
  int status = call.begin(context_, &request);
  if (status != INA_OK) return fail(status);
  for (int tests = 1; (status = ina_test(request)) == INA_IN_PROGRESS; ++tests) {
    if (tests % kTestsBetweenProgress != 0) continue;
    // A message that another rank waits for before it comes here needs this one, too.
    int ignored = 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &ignored, MPI_STATUS_IGNORE);
    ::sched_yield();
  }
  if (status != INA_OK) return fail(status);
  const int delivered = call.deliver();
  if (delivered != MPI_SUCCESS) PMPI_Comm_call_errhandler(comm_, delivered);
  return delivered;
}

int Communicator::start(std::unique_ptr<Collective> call, MPI_Request* request, size_t& bytes) {
  ina_request* operation = nullptr;
  const int status = call->begin(context_, &operation);
  if (status != INA_OK) return fail(status);
  bytes = call->bytes();
  const auto started = std::make_shared<Request>(std::move(call), *this, operation);
  {
    const std::lock_guard lock(mutex_);
    running_.push_back(started);
  }
  return started->announce(request);
}

void Communicator::completed(const Request* request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [&](const auto& one) { return one.get() == request; });
}

std::vector<std::shared_ptr<Request>> Communicator::running() {
  const std::lock_guard lock(mutex_);
  return running_;
}

int Communicator::complain(int status) const {
  const bool ours = status == kElementTooLarge;
  std::fprintf(stderr, "ina: rank %d: %s: %s\n", rank_,
               ours ? "wrong arguments" : ina_status_name(status),
               ours ? "an element has more than 2 GiB" : ina_last_error(context_));
  // Messages that differ in length are the most frequent reason for a mismatch.
  return ours ? MPI_ERR_COUNT : status == INA_ERR_MISMATCH ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
}

int Communicator::fail(int status) const {
  const int error = complain(status);
  PMPI_Comm_call_errhandler(comm_, error);
  return error;
}

}  // namespace ina::mpi
