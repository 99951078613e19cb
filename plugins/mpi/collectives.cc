#include "plugins/mpi/collectives.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>

namespace ina::mpi {

namespace {

constexpr const char* kNoReduction = "type and operation are not offered";
constexpr const char* kTooLarge = "more than 2 GiB";

/// -1 if one of them is negative, which MPI refuses.
MPI_Count sum(const Numbers& counts, int size) {
  MPI_Count all = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (counts[rank] < 0) return -1;
    all += counts[rank];
  }
  return all;
}

int rank_of(MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size;
}

}  // namespace

Collective::Collective(MPI_Comm comm) {
  PMPI_Comm_rank(comm, &rank_);
  PMPI_Comm_size(comm, &size_);
}

int Barrier::begin(ina_context* context, ina_request** request) {
  return ina_barrier_async(context, request);
}

// ---- reductions

Reducing::Reducing(const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm)
    : Collective(comm),
      send_(send),
      recv_(recv),
      count_(count < 0 ? 0 : static_cast<size_t>(count)),
      reduction_(count < 0 ? std::nullopt : reduction_of(type, op)) {}

const char* Reducing::why_not() const {
  return reduction_ ? nullptr : kNoReduction;
}

size_t Reducing::bytes() const {
  return count_ * reduction_->element_bytes;
}

const void* Reducing::input(size_t elements) {
  const auto* from = static_cast<const char*>(in_place() ? recv_ : send_);
  if (!converted()) return from;
  const size_t bytes = reduction_->element_bytes;
  truths_.resize(elements);
  for (size_t i = 0; i < elements; ++i)
    truths_[i] =
        std::any_of(from + i * bytes, from + (i + 1) * bytes, [](char c) { return c != 0; });
  return truths_.data();
}

void* Reducing::output(size_t elements, size_t read, InPlace in_place) {
  const size_t size = reduction_->element_bytes;
  const void* const from = this->in_place() ? recv_ : send_;
  const bool apart = (from != recv_ || in_place == InPlace::kNot) &&
                     overlap(from, read * size, recv_, elements * size);
  if (!apart && !converted()) return recv_;
  apart_.resize(elements * ina_dtype_size(reduction_->dtype));
  return apart_.data();
}

int Reducing::deliver() {
  if (apart_.empty()) return MPI_SUCCESS;
  if (!converted()) {
    std::memcpy(recv_, apart_.data(), apart_.size());
    return MPI_SUCCESS;
  }
  const size_t bytes = reduction_->element_bytes;
  std::memset(recv_, 0, apart_.size() * bytes);
  for (size_t i = 0; i < apart_.size(); ++i)
    static_cast<char*>(recv_)[i * bytes] = apart_[i];  // 1 in the lowest byte
  return MPI_SUCCESS;
}

int Allreduce::begin(ina_context* context, ina_request** request) {
  return ina_allreduce_async(context, input(count_), output(count_, count_, InPlace::kAllowed),
                             count_, reduction_->dtype, reduction_->op, request);
}

int Reduce::begin(ina_context* context, ina_request** request) {
  void* const to = is(root_) ? output(count_, count_, InPlace::kAllowed) : nullptr;
  return ina_reduce_async(context, input(count_), to, count_, reduction_->dtype, reduction_->op,
                          root_, request);
}

int Reduce_scatter_block::begin(ina_context* context, ina_request** request) {
  // MPI's place for the result in place is another rank's part.
  void* const to = output(count_, count_ * ranks(), InPlace::kNot);
  return ina_reduce_scatter_block_async(context, input(count_ * ranks()), to, count_,
                                        reduction_->dtype, reduction_->op, request);
}

Reduce_scatter::Reduce_scatter(const void* send, void* recv, Numbers counts, MPI_Datatype type,
                               MPI_Op op, MPI_Comm comm)
    : Reducing(send, recv, sum(counts, size_of(comm)), type, op, comm), counts_(counts) {}

int Reduce_scatter::begin(ina_context* context, ina_request** request) {
  const std::vector<MPI_Count> given = counts_.first(size_);
  const std::vector<size_t> counts(given.begin(), given.end());
  void* const to = output(counts[static_cast<size_t>(rank_)], count_, InPlace::kNot);
  return ina_reduce_scatter_async(context, input(count_), to, counts.data(), reduction_->dtype,
                                  reduction_->op, request);
}

// ---- what moves, in equal shares

Bcast::Bcast(void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm)
    : Collective(comm),
      buffer_(buffer),
      count_(count),
      type_(type),
      root_(root),
      bytes_(bytes_of(count, type)) {}

const char* Bcast::why_not() const {
  return bytes_ ? nullptr : kTooLarge;
}

int Bcast::begin(ina_context* context, ina_request** request) {
  data_.emplace(buffer_, count_, type_, is(root_) ? Use::kRead : Use::kWrite);
  return ina_broadcast_async(context, data_->data(), data_->data(), *bytes_, INA_UINT8, root_,
                             request);
}

int Bcast::deliver() {
  return is(root_) ? MPI_SUCCESS : data_->deliver();
}

Moving::Moving(Side send, Side recv, const Side& known, MPI_Comm comm)
    : Collective(comm), send_(send), recv_(recv), share_(bytes_of(known.count, known.type)) {}

const char* Moving::why_not() const {
  return share_ && *share_ * ranks() <= INT_MAX ? nullptr : kTooLarge;
}

char* Moving::own(char* all) const {
  return all ? all + static_cast<size_t>(rank_) * *share_ : nullptr;
}

char* Moving::received(int blocks, Use use) {
  apart_ = bytes_of(recv_.count, recv_.type) != share_;
  if (apart_) {
    receive_apart(blocks);
    return received_apart_.data();
  }
  to_.emplace(recv_.buffer, recv_.count * blocks, recv_.type, use);
  return to_->data();
}

/// A share fits into more room, as messages do.
void Moving::receive_apart(int blocks) {
  received_apart_.resize(*share_ * static_cast<size_t>(blocks));
  const auto element = bytes_of(1, recv_.type), room = bytes_of(recv_.count, recv_.type);
  if (element.value_or(0) == 0 || (room && *room < *share_)) return;
  Blocks::Layout layout;
  for (int block = 0; block < blocks; ++block) {
    layout.counts.push_back(static_cast<MPI_Count>(*share_ / *element));
    layout.places.push_back(block * recv_.count);
  }
  places_.emplace(recv_.buffer, std::move(layout), recv_.type, Use::kWrite, true);
}

char* Moving::sent(const Side& side, MPI_Count count) {
  from_.emplace(side.buffer, count, side.type, Use::kRead);
  if (to_ && overlap(from_->data(), from_->size(), to_->data(), to_->size()))
    from_.emplace(side.buffer, count, side.type, Use::kRead, true);
  return from_->data();
}

int Moving::deliver() {
  return apart_ ? deliver_apart() : to_ ? to_->deliver() : MPI_SUCCESS;
}

int Moving::deliver_apart() {
  if (*share_ == 0) return MPI_SUCCESS;
  if (!places_) return MPI_ERR_TRUNCATE;
  for (size_t block = 0; block < received_apart_.size() / *share_; ++block)
    std::memcpy(places_->data() + places_->places()[block],
                received_apart_.data() + block * *share_, places_->counts()[block]);
  return places_->deliver();
}

Allgather::Allgather(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                     MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm)
    : Moving({send, send_count, send_type}, {recv, recv_count, recv_type},
             send == MPI_IN_PLACE ? Side{recv, recv_count, recv_type}
                                  : Side{send, send_count, send_type},
             comm) {}

int Allgather::begin(ina_context* context, ina_request** request) {
  const bool in_place = send_.in_place();
  char* const to = received(size_, in_place ? Use::kBoth : Use::kWrite);
  return ina_all_gather_async(context, in_place ? own(to) : sent(send_, send_.count), to, *share_,
                              INA_UINT8, request);
}

// The arguments of one side are another's than the root's to give.
Gather::Gather(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
               MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
    : Moving({send, send_count, send_type}, {recv, recv_count, recv_type},
             send == MPI_IN_PLACE ? Side{recv, recv_count, recv_type}
                                  : Side{send, send_count, send_type},
             comm),
      root_(root) {}

int Gather::begin(ina_context* context, ina_request** request) {
  const bool in_place = send_.in_place();
  char* const to = is(root_) ? received(size_, in_place ? Use::kBoth : Use::kWrite) : nullptr;
  return ina_gather_async(context, in_place ? own(to) : sent(send_, send_.count), to, *share_,
                          INA_UINT8, root_, request);
}

Scatter::Scatter(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                 MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
    : Moving({send, send_count, send_type}, {recv, recv_count, recv_type},
             rank_of(comm) == root ? Side{send, send_count, send_type}
                                   : Side{recv, recv_count, recv_type},
             comm),
      root_(root) {}

int Scatter::begin(ina_context* context, ina_request** request) {
  const bool in_place = recv_.in_place();
  char* const to = in_place ? nullptr : received(1);
  char* const from = is(root_) ? sent(send_, send_.count * size_) : nullptr;
  return ina_scatter_async(context, from, in_place ? own(from) : to, *share_, INA_UINT8, root_,
                           request);
}

Alltoall::Alltoall(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                   MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm)
    : Moving({send, send_count, send_type}, {recv, recv_count, recv_type},
             send == MPI_IN_PLACE ? Side{recv, recv_count, recv_type}
                                  : Side{send, send_count, send_type},
             comm) {}

int Alltoall::begin(ina_context* context, ina_request** request) {
  const Side& side = send_.in_place() ? recv_ : send_;
  char* const to = received(size_);
  // libina exchanges nothing in place.
  return ina_all_to_all_async(context, sent(side, side.count * size_), to, *share_, INA_UINT8,
                              request);
}

// ---- what moves, in shares of any size

Allgatherv::Allgatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                       Numbers recv_counts, Numbers places, MPI_Datatype recv_type, MPI_Comm comm)
    : Collective(comm),
      send_{send, send_count, send_type},
      recv_(recv),
      counts_(recv_counts),
      places_(places),
      type_(recv_type),
      fits_(bytes_of(sum(recv_counts, size_), recv_type).has_value()),
      share_(bytes_of(recv_counts[rank_], recv_type).value_or(0)) {}

const char* Allgatherv::why_not() const {
  return fits_ ? nullptr : kTooLarge;
}

int Allgatherv::begin(ina_context* context, ina_request** request) {
  const bool in_place = send_.in_place();
  to_.emplace(recv_, Blocks::Layout{counts_.first(size_), places_.first(size_)}, type_,
              in_place ? Use::kBoth : Use::kWrite);
  if (to_->too_large() || (!in_place && !bytes_of(send_.count, send_.type)))
    return kElementTooLarge;
  return ina_all_gatherv_async(context, in_place ? own() : sent(), to_->data(), to_->counts(),
                               to_->places(), INA_UINT8, request);
}

const char* Allgatherv::own() {
  return to_->data() + to_->places()[static_cast<size_t>(rank_)];
}

/// libina reads as many bytes as there are to receive.
const char* Allgatherv::sent() {
  from_.emplace(send_.buffer, send_.count, send_.type, Use::kRead);
  if (overlap(from_->data(), from_->size(), to_->data(), to_->span()))
    from_.emplace(send_.buffer, send_.count, send_.type, Use::kRead, true);
  if (from_->size() >= share_) return from_->data();
  padded_.assign(from_->data(), from_->data() + from_->size());
  padded_.resize(share_);
  return padded_.data();
}

int Allgatherv::deliver() {
  const int status = to_->deliver();
  return from_ && from_->size() > share_ ? MPI_ERR_TRUNCATE : status;
}

Exchange::Layout Exchange::one(int rank, MPI_Count count) const {
  Layout layout{std::vector<MPI_Count>(ranks()), std::vector<MPI_Count>(ranks())};
  layout.counts[static_cast<size_t>(rank)] = count;
  return layout;
}

Exchange::Layout Exchange::all(const Numbers& counts, const Numbers& places) const {
  return {counts.first(size_), places.first(size_)};
}

int Exchange::begin(ina_context* context, ina_request** request) {
  lay_out(false);
  if (from_->too_large() || to_->too_large()) return kElementTooLarge;
  if (overlap(from_->data(), from_->span(), to_->data(), to_->span())) lay_out(true);
  bytes_ = from_->total();
  // libina would refuse the call, and the other ranks would wait for this one.
  const auto me = static_cast<size_t>(rank_);
  own_differ_ = from_->counts()[me] != to_->counts()[me];
  if (own_differ_) from_->leave_out(me), to_->leave_out(me);
  return ina_all_to_allv_async(context, from_->data(), to_->data(), from_->counts(),
                               from_->places(), to_->counts(), to_->places(), INA_UINT8, request);
}

int Exchange::deliver() {
  const int status = to_->deliver();
  return own_differ_ ? MPI_ERR_TRUNCATE : status;
}

Gatherv::Gatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                 Numbers recv_counts, Numbers places, MPI_Datatype recv_type, int root,
                 MPI_Comm comm)
    : Exchange(comm),
      send_{send, send_count, send_type},
      recv_(recv),
      counts_(recv_counts),
      places_(places),
      type_(recv_type),
      root_(root) {}

void Gatherv::lay_out(bool apart) {
  Layout received = is(root_) ? all(counts_, places_) : none();
  // Data in place is there already.
  if (send_.in_place()) received.counts[static_cast<size_t>(rank_)] = 0;
  from_.emplace(send_.buffer, send_.in_place() ? none() : one(root_, send_.count), send_.type,
                Use::kRead, apart);
  to_.emplace(recv_, std::move(received), type_, Use::kWrite);
}

Scatterv::Scatterv(const void* send, Numbers send_counts, Numbers places, MPI_Datatype send_type,
                   void* recv, MPI_Count recv_count, MPI_Datatype recv_type, int root,
                   MPI_Comm comm)
    : Exchange(comm),
      send_(send),
      counts_(send_counts),
      places_(places),
      type_(send_type),
      recv_{recv, recv_count, recv_type},
      root_(root) {}

void Scatterv::lay_out(bool apart) {
  Layout sent = is(root_) ? all(counts_, places_) : none();
  if (recv_.in_place()) sent.counts[static_cast<size_t>(rank_)] = 0;
  from_.emplace(send_, std::move(sent), type_, Use::kRead, apart);
  to_.emplace(recv_.buffer, recv_.in_place() ? none() : one(root_, recv_.count), recv_.type,
              Use::kWrite);
}

Alltoallv::Alltoallv(const void* send, Numbers send_counts, Numbers send_places,
                     MPI_Datatype send_type, void* recv, Numbers recv_counts, Numbers recv_places,
                     MPI_Datatype recv_type, MPI_Comm comm)
    : Exchange(comm),
      send_(send),
      send_counts_(send_counts),
      send_places_(send_places),
      send_type_(send_type),
      recv_(recv),
      recv_counts_(recv_counts),
      recv_places_(recv_places),
      recv_type_(recv_type) {}

void Alltoallv::lay_out(bool apart) {
  Layout received = all(recv_counts_, recv_places_);
  // libina exchanges nothing in place.
  if (send_ == MPI_IN_PLACE)
    from_.emplace(recv_, received, recv_type_, Use::kRead, true);
  else
    from_.emplace(send_, all(send_counts_, send_places_), send_type_, Use::kRead, apart);
  to_.emplace(recv_, std::move(received), recv_type_, Use::kWrite);
}

}  // namespace ina::mpi
