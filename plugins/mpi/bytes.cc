#include "plugins/mpi/bytes.h"

#include <algorithm>
#include <climits>

namespace ina::mpi {

namespace {

/// A predefined type without gaps. The elements of others may lie in another order than they are
/// sent in.
bool is_plain(MPI_Datatype type) {
  int integers = 0, addresses = 0, types = 0, combiner = 0, size = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner != MPI_COMBINER_NAMED) return false;
  MPI_Aint begin = 0, extent = 0;
  PMPI_Type_get_extent(type, &begin, &extent);
  PMPI_Type_size(type, &size);
  return begin == 0 && extent == size;
}

MPI_Aint extent_of(MPI_Datatype type) {
  MPI_Aint begin = 0, extent = 0;
  PMPI_Type_get_extent(type, &begin, &extent);
  return extent;
}

/// Of one element; none if they are more than MPI's functions for packing count.
std::optional<size_t> element_bytes(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return std::nullopt;
  int size = 0;
  if (PMPI_Type_size(type, &size) != MPI_SUCCESS || size < 0) return std::nullopt;
  return static_cast<size_t>(size);
}

/// step(elements before, elements, bytes before, bytes) for portions that MPI_Pack counts.
template <class Step>
int in_portions(MPI_Count count, size_t element, Step step) {
  if (element == 0) return MPI_SUCCESS;
  const MPI_Count most = std::max<MPI_Count>(1, INT_MAX / static_cast<MPI_Count>(element));
  for (MPI_Count before = 0; before < count; before += most) {
    const int now = static_cast<int>(std::min(most, count - before));
    const int status = step(before, now, static_cast<size_t>(before) * element,
                            static_cast<int>(static_cast<size_t>(now) * element));
    if (status != MPI_SUCCESS) return status;
  }
  return MPI_SUCCESS;
}

/// Elements as MPI_Pack takes them. MPICH's refuses MPI_BOTTOM, which is where the absolute
/// addresses of a datatype count from; so they count from another place.
class Packable {
 public:
  Packable(const char* place, int count, MPI_Datatype type)
      : place_(const_cast<char*>(place)), count_(count), type_(type) {
    if (place != MPI_BOTTOM) return;
    static char other;
    const MPI_Aint to_bottom = -reinterpret_cast<MPI_Aint>(&other);
    PMPI_Type_create_hindexed(1, &count, &to_bottom, type, &type_);
    PMPI_Type_commit(&type_);
    place_ = &other;
    count_ = 1;
    made_ = true;
  }
  ~Packable() {
    if (made_) PMPI_Type_free(&type_);
  }
  Packable(const Packable&) = delete;
  Packable& operator=(const Packable&) = delete;

  int pack(char* to, int bytes, MPI_Comm comm) const {
    int position = 0;
    return PMPI_Pack(place_, count_, type_, to, bytes, &position, comm);
  }
  int unpack(const char* from, int bytes, MPI_Comm comm) const {
    int position = 0;
    return PMPI_Unpack(from, bytes, &position, place_, count_, type_, comm);
  }

 private:
  char* place_;
  int count_;
  MPI_Datatype type_;
  bool made_ = false;
};

int pack(const char* from, MPI_Count count, MPI_Datatype type, char* to, MPI_Comm comm) {
  const MPI_Aint extent = extent_of(type);
  return in_portions(count, *element_bytes(type), [&](auto before, int now, size_t at, int bytes) {
    return Packable(from + before * extent, now, type).pack(to + at, bytes, comm);
  });
}

int unpack(const char* from, MPI_Count count, MPI_Datatype type, char* to, MPI_Comm comm) {
  const MPI_Aint extent = extent_of(type);
  return in_portions(count, *element_bytes(type), [&](auto before, int now, size_t at, int bytes) {
    return Packable(to + before * extent, now, type).unpack(from + at, bytes, comm);
  });
}

char* writable(const void* buffer) {
  return static_cast<char*>(const_cast<void*>(buffer));
}

}  // namespace

std::optional<size_t> bytes_of(MPI_Count count, MPI_Datatype type) {
  const auto element = count < 0 ? std::nullopt : element_bytes(type);
  if (!element || (*element != 0 && static_cast<size_t>(count) > INT_MAX / *element))
    return std::nullopt;
  return static_cast<size_t>(count) * *element;
}

Bytes::Bytes(const void* buffer, MPI_Count count, MPI_Datatype type, Use use, MPI_Comm comm)
    : buffer_(writable(buffer)), count_(count), type_(type), comm_(comm), data_(buffer_) {
  if (is_plain(type)) return;
  packed_.resize(*bytes_of(count, type));
  data_ = packed_.data();
  if (use == Use::kRead) pack(buffer_, count, type, data_, comm);
}

int Bytes::deliver() {
  return packed_.empty() ? MPI_SUCCESS : unpack(data_, count_, type_, buffer_, comm_);
}

std::vector<MPI_Count> Numbers::first(int size) const {
  std::vector<MPI_Count> all(static_cast<size_t>(size));
  for (int at = 0; at < size; ++at) all[static_cast<size_t>(at)] = (*this)[at];
  return all;
}

Blocks::Blocks(const void* buffer, Layout layout, MPI_Datatype type, Use use, MPI_Comm comm,
               bool apart)
    : buffer_(writable(buffer)),
      layout_(std::move(layout)),
      type_(type),
      comm_(comm),
      bytes_(layout_.counts.size()),
      offsets_(layout_.counts.size()),
      data_(buffer_) {
  if (std::ranges::all_of(layout_.counts, [](MPI_Count count) { return count == 0; })) return;
  const auto element = element_bytes(type);
  wrong_ = !element || std::ranges::any_of(layout_.counts, [](MPI_Count n) { return n < 0; });
  if (wrong_) return;
  extent_ = extent_of(type);
  for (size_t rank = 0; rank < bytes_.size(); ++rank) {
    bytes_[rank] = static_cast<size_t>(layout_.counts[rank]) * *element;
    total_ += bytes_[rank];
  }
  plain_ = !apart && is_plain(type);
  lay_out();
  if (!plain_ && use == Use::kRead) pack_all();
}

/// libina's displacements are not negative: they count from the first block.
void Blocks::lay_out() {
  MPI_Count lowest = LLONG_MAX;
  for (size_t rank = 0; rank < bytes_.size(); ++rank)
    if (bytes_[rank] != 0) lowest = std::min(lowest, layout_.places[rank]);
  size_t packed = 0;
  for (size_t rank = 0; rank < bytes_.size(); ++rank) {
    if (bytes_[rank] == 0) continue;
    offsets_[rank] =
        plain_ ? static_cast<size_t>((layout_.places[rank] - lowest) * extent_) : packed;
    packed += bytes_[rank];
  }
  if (plain_ && total_ != 0) data_ = buffer_ + lowest * extent_;
  if (plain_) return;
  packed_.resize(total_);
  data_ = packed_.data();
}

void Blocks::pack_all() {
  for (size_t rank = 0; rank < bytes_.size(); ++rank)
    pack(element(rank), layout_.counts[rank], type_, data_ + offsets_[rank], comm_);
}

char* Blocks::element(size_t rank) const {
  return buffer_ + layout_.places[rank] * extent_;
}

int Blocks::deliver() {
  if (plain_) return MPI_SUCCESS;
  for (size_t rank = 0; rank < bytes_.size(); ++rank) {
    if (bytes_[rank] == 0) continue;
    const int status =
        unpack(data_ + offsets_[rank], layout_.counts[rank], type_, element(rank), comm_);
    if (status != MPI_SUCCESS) return status;
  }
  return MPI_SUCCESS;
}

}  // namespace ina::mpi
