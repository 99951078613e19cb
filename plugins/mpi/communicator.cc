#include "plugins/mpi/communicator.h"

#include <sched.h>

#include <mutex>
#include <utility>

#include "plugins/mpi/requests.h"
#include "plugins/mpi/world.h"

namespace ina::mpi {

namespace {

/// Looks at libina's operation between two looks at MPI's.
constexpr int kTestsBetweenProgress = 16;

struct Known {
  std::mutex mutex;
  int keyval = MPI_KEYVAL_INVALID;
};

Known& all() {
  static auto* const found = new Known;
  return *found;
}

/// A copy of a communicator is another one.
int copy_nothing(MPI_Comm, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

}  // namespace

Communicator* Communicator::attached(MPI_Comm comm) {
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

Communicator* Communicator::known(MPI_Comm comm) {
  if (Communicator* const found = attached(comm)) return found;
  if (!Freeing::is_freeing(comm)) return nullptr;
  static Communicator freed(MPI_COMM_NULL, "the communicator is freed just now");
  return &freed;
}

Communicator& Communicator::of(MPI_Comm comm) {
  if (Communicator* const found = known(comm)) return *found;
  auto* const made = new Communicator(comm);
  PMPI_Comm_set_attr(comm, all().keyval, made);
  return *made;
}

void Communicator::begin() {
  World& world = World::of_process();
  if (!world.why_not().empty() || !world.job()) return;
  const auto ranks = world.ranks_of(MPI_COMM_WORLD);
  if (!ranks) return;
  auto* const made = new Communicator(MPI_COMM_WORLD, "");
  made->group_ = Groups::of_process().whole(world.job(), *ranks);
  attached(MPI_COMM_WORLD);
  PMPI_Comm_set_attr(MPI_COMM_WORLD, all().keyval, made);
}

int Communicator::forget(MPI_Comm, int, void* found, void*) {
  delete static_cast<Communicator*>(found);
  return MPI_SUCCESS;
}

Communicator::Communicator(MPI_Comm comm) : comm_(comm) {
  int inter = 0, size = 0;
  PMPI_Comm_test_inter(comm, &inter);
  PMPI_Comm_size(comm, &size);
  if (inter)
    why_not_ = "intercommunicator";
  else if (const int most = World::of_process().most_ranks(); size > most)
    why_not_ = "more than " + std::to_string(most) + " ranks";
  else if (size == 1)
    why_not_ = "one rank";
  else if (World::of_process().why_not().empty())
    agree();
}

Communicator::Communicator(MPI_Comm comm, std::string why_not)
    : comm_(comm), why_not_(std::move(why_not)) {}

/// Operations that still run end as they would have.
Communicator::~Communicator() {
  if (group_) Groups::of_process().give_back(group_);
}

void Communicator::agree() {
  const auto ranks = World::of_process().ranks_of(comm_);
  if (ranks)
    group_ = Groups::of_process().take(comm_, *ranks, why_not_);
  else
    why_not_ = "a process without the library, or of another MPI_COMM_WORLD";
}

const std::string& Communicator::why_not() const {
  const std::string& of_all = World::of_process().why_not();
  return why_not_.empty() ? of_all : why_not_;
}

thread_local Communicator::Freeing* Communicator::Freeing::innermost = nullptr;

Communicator::Freeing::Freeing(MPI_Comm comm) : comm_(comm), outer_(innermost) {
  if (attached(comm)) PMPI_Comm_delete_attr(comm, all().keyval);
  innermost = this;
}

Communicator::Freeing::~Freeing() {
  innermost = outer_;
}

bool Communicator::Freeing::is_freeing(MPI_Comm comm) {
  for (const Freeing* freeing = innermost; freeing; freeing = freeing->outer_)
    if (freeing->comm_ == comm) return true;
  return false;
}

int Communicator::run(Collective& call) {
  ina_request* request = nullptr;
  int status = call.begin(group_->context(), &request);
  if (status != INA_OK) return fail(status);
  for (int tests = 1; (status = ina_test(request)) == INA_IN_PROGRESS; ++tests) {
    if (tests % kTestsBetweenProgress != 0) continue;
    // A message that another rank waits for before it comes here needs this one, too.
    World::of_process().progress();
    ::sched_yield();
  }
  if (status != INA_OK) return fail(status);
  // As in MPI's own calls: what others received before they came here leaves the attached buffer.
  World::of_process().progress();
  const int delivered = call.deliver();
  if (delivered != MPI_SUCCESS) PMPI_Comm_call_errhandler(comm_, delivered);
  return delivered;
}

int Communicator::start(std::unique_ptr<Collective> call, MPI_Request* request, size_t& bytes) {
  ina_request* operation = nullptr;
  const int status = call->begin(group_->context(), &operation);
  if (status != INA_OK) return fail(status);
  bytes = call->bytes();
  const auto started = std::make_shared<Request>(std::move(call), group_, operation);
  group_->started(started);
  return started->announce(request);
}

int Communicator::fail(int status) const {
  const int error = group_->complain(status);
  group_->tell();
  PMPI_Comm_call_errhandler(comm_, error);
  return error;
}

}  // namespace ina::mpi
