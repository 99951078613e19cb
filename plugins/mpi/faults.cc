#include "plugins/mpi/faults.h"

#include <algorithm>

#include "plugins/mpi/collectives.h"
#include "plugins/mpi/self.h"

namespace ina::mpi {

namespace {

/// Both MPIs can be told not to look at arguments.
bool mpi_looks() {
  static const bool looks = class_of_elements("", -1, MPI_BYTE) != MPI_SUCCESS;
  return looks;
}

/// MPICH can be told to take the same address twice.
bool mpi_refuses_aliases() {
  static const bool refuses = [] {
    int one = 1;
    return PMPI_Allreduce(&one, &one, 1, MPI_INT, MPI_SUM, self()) != MPI_SUCCESS;
  }();
  return refuses;
}

}  // namespace

void Faults::noticed(bool fault, int error) {
  if (!fault) return;
  if (mpi_looks())
    reported_by_mpi_ = true;
  else
    unnoticed(true, error);
}

void Faults::unnoticed(bool fault, int error) {
  if (fault && error_ == MPI_SUCCESS) error_ = error;
}

void Faults::elements(const void* buffer, MPI_Count count, MPI_Datatype type, Look look) {
  const char somewhere = 0;
  const int error = class_of_elements(&somewhere, count, type);
  if (error != MPI_SUCCESS) {
    const bool there = type != MPI_DATATYPE_NULL && type != MPI_Datatype{};
    const bool uncommitted = there && count >= 0;
    const bool taken = uncommitted && (look == Look::kPartial || look == Look::kType);
    const bool looks = look != Look::kNone && !(look == Look::kType && there);
    if (!taken) place(true, error, looks);
  } else if (!buffer && count > 0) {
    place(class_of_elements(nullptr, 1, type) != MPI_SUCCESS, MPI_ERR_BUFFER, !kOpenMpi);
  }
}

void Faults::blocks(const void* buffer, const Numbers& counts, const Numbers& places,
                    MPI_Datatype type, int size, Look look) {
  MPI_Count least = 0, at_buffer = 0;
  for (int rank = 0; rank < size; ++rank) {
    least = std::min(least, counts[rank]);
    if (places[rank] == 0) at_buffer = std::max(at_buffer, counts[rank]);
  }
  elements(buffer, least < 0 ? least : at_buffer, type, look);
}

void Faults::alias(const void* send, const void* recv) {
  if (!kOpenMpi && send == recv && mpi_looks() && mpi_refuses_aliases())
    noticed(true, MPI_ERR_BUFFER);
}

// ---- the calls, in the order of collectives.h

Faults Allreduce::faults() const {
  Faults faults;
  if (!reduction_) return faults;
  faults.noticed(recv_ == MPI_IN_PLACE && (kOpenMpi || count_ != 0), MPI_ERR_BUFFER);
  if (kOpenMpi)
    faults.noticed(send_ == recv_ && send_ && count_ > 1, MPI_ERR_BUFFER);
  else if (count_ != 0)
    faults.alias(send_, recv_);
  look_at_buffers(faults, count_, count_);
  return faults;
}

Faults Reduce::faults() const {
  Faults faults;
  if (!reduction_) return faults;
  faults.root(root_, size_);
  if (is(root_)) {
    faults.noticed(recv_ == MPI_IN_PLACE && (kOpenMpi || count_ != 0), MPI_ERR_BUFFER);
    if (kOpenMpi)
      faults.noticed(send_ == recv_ && count_ != 0, MPI_ERR_BUFFER);
    else if (count_ != 0)
      faults.alias(send_, recv_);
  } else {
    faults.place(in_place(), MPI_ERR_BUFFER, kOpenMpi);
  }
  look_at_buffers(faults, count_, is(root_) ? count_ : 0);
  return faults;
}

Faults Reduce_scatter_block::faults() const {
  Faults faults;
  if (!reduction_) return faults;
  faults.noticed(recv_ == MPI_IN_PLACE && (kOpenMpi || count_ != 0), MPI_ERR_BUFFER);
  if (count_ != 0) faults.alias(send_, recv_);
  look_at_buffers(faults, count_, count_);
  return faults;
}

Faults Reduce_scatter::faults() const {
  Faults faults;
  if (!reduction_) return faults;
  const auto own = static_cast<size_t>(counts_[rank_]);
  faults.noticed(recv_ == MPI_IN_PLACE && (kOpenMpi || own != 0), MPI_ERR_BUFFER);
  if (count_ != 0) faults.alias(send_, recv_);
  look_at_buffers(faults, count_, own);
  return faults;
}

void Reducing::look_at_buffers(Faults& faults, size_t sent, size_t received) const {
  const auto look = [&](const void* buffer, size_t count) {
    faults.place(!buffer && count != 0, MPI_ERR_BUFFER, !kOpenMpi);
  };
  look(send_, sent);
  look(recv_, received);
}

Faults Bcast::faults() const {
  Faults faults;
  faults.root(root_, size_);
  if (kOpenMpi || count_ != 0) faults.elements(buffer_, count_, type_, Look::kAll);
  faults.place(buffer_ == MPI_IN_PLACE && (kOpenMpi || count_ > 0), MPI_ERR_BUFFER, kOpenMpi);
  return faults;
}

namespace {

/// Where Open MPI looks at less.
constexpr Look kReceived = kOpenMpi ? Look::kPartial : Look::kAll;

/// MPICH's test for a share that lies where it is sent to.
void share_alias(Faults& faults, const Side& share, const Side& all, int rank) {
  if (share.type == all.type && share.count == all.count && share.count != 0)
    faults.alias(share.buffer,
                 static_cast<const char*>(all.buffer) +
                     static_cast<size_t>(rank) * bytes_of(all.count, all.type).value_or(0));
}

void block_alias(Faults& faults, const Side& share, const void* all, const Numbers& counts,
                 const Numbers& places, MPI_Datatype type, int rank) {
  if (share.type == type && share.count != 0 && counts[rank] != 0)
    faults.alias(share.buffer,
                 static_cast<const char*>(all) +
                     places[rank] * static_cast<MPI_Count>(bytes_of(1, type).value_or(0)));
}

void received_in_place(Faults& faults, const void* buffer, MPI_Count count) {
  faults.noticed(buffer == MPI_IN_PLACE && (kOpenMpi || count > 0), MPI_ERR_BUFFER);
}

MPI_Count most(const Numbers& counts, int size) {
  MPI_Count found = 0;
  for (int rank = 0; rank < size; ++rank) found = std::max(found, counts[rank]);
  return found;
}

}  // namespace

Faults Allgather::faults() const {
  Faults faults;
  if (!send_.in_place()) {
    faults.elements(send_.buffer, send_.count, send_.type, Look::kAll);
    share_alias(faults, send_, recv_, rank_);
  }
  received_in_place(faults, recv_.buffer, recv_.count);
  faults.elements(recv_.buffer, recv_.count, recv_.type, kReceived);
  return faults;
}

Faults Gather::faults() const {
  Faults faults;
  faults.root(root_, size_);
  if (!send_.in_place()) faults.elements(send_.buffer, send_.count, send_.type, Look::kAll);
  if (!is(root_)) {
    faults.place(send_.in_place(), MPI_ERR_BUFFER, kOpenMpi);
    return faults;
  }
  if (!send_.in_place()) share_alias(faults, send_, recv_, rank_);
  received_in_place(faults, recv_.buffer, recv_.count);
  faults.elements(recv_.buffer, recv_.count, recv_.type, kReceived);
  return faults;
}

Faults Scatter::faults() const {
  Faults faults;
  faults.root(root_, size_);
  if (!recv_.in_place()) faults.elements(recv_.buffer, recv_.count, recv_.type, kReceived);
  if (!is(root_)) {
    faults.place(recv_.in_place(), MPI_ERR_BUFFER, kOpenMpi);
    return faults;
  }
  if (!recv_.in_place()) share_alias(faults, recv_, send_, rank_);
  received_in_place(faults, send_.buffer, send_.count);
  // Open MPI looks at the root's only where there is nothing to look at for it as a receiver.
  faults.elements(send_.buffer, send_.count, send_.type,
                  kOpenMpi && !recv_.in_place() ? Look::kNone : Look::kAll);
  return faults;
}

Faults Alltoall::faults() const {
  Faults faults;
  if (!send_.in_place()) {
    faults.elements(send_.buffer, send_.count, send_.type, Look::kAll);
    if (send_.type == recv_.type && send_.count == recv_.count && send_.count != 0)
      faults.alias(send_.buffer, recv_.buffer);
    faults.noticed(
        kOpenMpi && bytes_of(send_.count, send_.type) != bytes_of(recv_.count, recv_.type),
        MPI_ERR_TRUNCATE);
  }
  received_in_place(faults, recv_.buffer, recv_.count);
  faults.elements(recv_.buffer, recv_.count, recv_.type, Look::kAll);
  return faults;
}

Faults Allgatherv::faults() const {
  Faults faults;
  if (!send_.in_place()) {
    faults.elements(send_.buffer, send_.count, send_.type, Look::kAll);
    block_alias(faults, send_, recv_, counts_, places_, type_, rank_);
  }
  received_in_place(faults, recv_, most(counts_, size_));
  faults.unnoticed(!counts_.address(), MPI_ERR_ARG);
  faults.place(!places_.address(), MPI_ERR_ARG, kOpenMpi);
  faults.blocks(recv_, counts_, places_, type_, size_, kOpenMpi ? Look::kType : Look::kAll);
  return faults;
}

Faults Gatherv::faults() const {
  Faults faults;
  faults.root(root_, size_);
  if (!send_.in_place()) faults.elements(send_.buffer, send_.count, send_.type, Look::kAll);
  if (!is(root_)) {
    faults.place(send_.in_place(), MPI_ERR_BUFFER, kOpenMpi);
    return faults;
  }
  faults.place(!counts_.address() || !places_.address(), MPI_ERR_ARG, kOpenMpi);
  if (!send_.in_place()) block_alias(faults, send_, recv_, counts_, places_, type_, rank_);
  received_in_place(faults, recv_, most(counts_, size_));
  faults.blocks(recv_, counts_, places_, type_, size_, kReceived);
  return faults;
}

Faults Scatterv::faults() const {
  Faults faults;
  faults.root(root_, size_);
  if (!recv_.in_place()) faults.elements(recv_.buffer, recv_.count, recv_.type, kReceived);
  if (!is(root_)) {
    faults.place(recv_.in_place(), MPI_ERR_BUFFER, kOpenMpi);
    return faults;
  }
  faults.place(!counts_.address() || !places_.address(), MPI_ERR_ARG, kOpenMpi);
  if (!recv_.in_place()) block_alias(faults, recv_, send_, counts_, places_, type_, rank_);
  received_in_place(faults, send_, most(counts_, size_));
  faults.blocks(send_, counts_, places_, type_, size_, Look::kAll);
  return faults;
}

Faults Alltoallv::faults() const {
  Faults faults;
  const bool in_place = send_ == MPI_IN_PLACE;
  faults.place(!recv_counts_.address() || !recv_places_.address(), MPI_ERR_ARG, kOpenMpi);
  if (!in_place) {
    faults.place(!send_counts_.address() || !send_places_.address(), MPI_ERR_ARG, kOpenMpi);
    faults.blocks(send_, send_counts_, send_places_, send_type_, size_, Look::kAll);
    if (send_type_ == recv_type_ && send_counts_.address() == recv_counts_.address())
      faults.alias(send_, recv_);
    faults.noticed(kOpenMpi && bytes_of(send_counts_[rank_], send_type_) !=
                                   bytes_of(recv_counts_[rank_], recv_type_),
                   MPI_ERR_TRUNCATE);
  }
  received_in_place(faults, recv_, most(recv_counts_, size_));
  faults.blocks(recv_, recv_counts_, recv_places_, recv_type_, size_, Look::kAll);
  return faults;
}

}  // namespace ina::mpi
