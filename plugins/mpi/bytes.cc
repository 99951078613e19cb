#include "plugins/mpi/bytes.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <numeric>
#include <utility>

#include "plugins/mpi/self.h"

namespace ina::mpi {

namespace {

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

  int pack(char* to, int bytes) const {
    int position = 0;
    return PMPI_Pack(place_, count_, type_, to, bytes, &position, self());
  }
  int unpack(const char* from, int bytes) const {
    int position = 0;
    return PMPI_Unpack(from, bytes, &position, place_, count_, type_, self());
  }

 private:
  char* place_;
  int count_;
  MPI_Datatype type_;
  bool made_ = false;
};

int pack(const char* from, MPI_Count count, const HeldType& type, char* to) {
  return in_portions(count, *type.bytes(), [&](auto before, int now, size_t at, int bytes) {
    return Packable(from + before * type.extent(), now, type.get()).pack(to + at, bytes);
  });
}

int unpack(const char* from, MPI_Count count, const HeldType& type, char* to) {
  return in_portions(count, *type.bytes(), [&](auto before, int now, size_t at, int bytes) {
    return Packable(to + before * type.extent(), now, type.get()).unpack(from + at, bytes);
  });
}

/// MPI_Type_size of something else than a datatype would call a handler. Open MPI has datatypes
/// that are not committed where it receives, and can tell no other address from a datatype's.
bool is_datatype(MPI_Datatype type) {
#if defined(OPEN_MPI)
  return type && type != MPI_DATATYPE_NULL;
#else
  return class_of_elements("", 1, type) == MPI_SUCCESS;
#endif
}

std::optional<size_t> element_bytes(MPI_Datatype type) {
  if (!is_datatype(type)) return std::nullopt;
  int size = 0;
  if (PMPI_Type_size(type, &size) != MPI_SUCCESS || size < 0) return std::nullopt;
  return static_cast<size_t>(size);
}

bool is_predefined(MPI_Datatype type) {
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  return combiner == MPI_COMBINER_NAMED;
}

char* writable(const void* buffer) {
  return static_cast<char*>(const_cast<void*>(buffer));
}

}  // namespace

std::optional<size_t> bytes_of(MPI_Count count, MPI_Datatype type) {
  if (count == 0) return 0;
  const auto element = count < 0 ? std::nullopt : element_bytes(type);
  if (!element || (*element != 0 && static_cast<size_t>(count) > INT_MAX / *element))
    return std::nullopt;
  return static_cast<size_t>(count) * *element;
}

// As numbers: pointers into different memory have no order.
bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return a_bytes != 0 && b_bytes != 0 && first < second + b_bytes && second < first + a_bytes;
}

HeldType::HeldType(MPI_Datatype type) : type_(type), bytes_(element_bytes(type)) {
  MPI_Aint begin = 0;
  PMPI_Type_get_extent(type, &begin, &extent_);
  if (is_predefined(type)) {
    plain_ = bytes_ && begin == 0 && extent_ == static_cast<MPI_Aint>(*bytes_);
    return;
  }
  // A duplicate would call the program's functions for attributes.
  made_ = PMPI_Type_contiguous(1, type, &type_) == MPI_SUCCESS;
  if (made_) PMPI_Type_commit(&type_);
}

HeldType::HeldType(HeldType&& other) noexcept
    : type_(other.type_),
      extent_(other.extent_),
      bytes_(other.bytes_),
      plain_(other.plain_),
      made_(std::exchange(other.made_, false)) {}

HeldType::~HeldType() {
  int over = 0;
  if (made_ && PMPI_Finalized(&over) == MPI_SUCCESS && !over) PMPI_Type_free(&type_);
}

Bytes::Bytes(const void* buffer, MPI_Count count, MPI_Datatype type, Use use, bool apart)
    : buffer_(writable(buffer)), count_(count), size_(*bytes_of(count, type)), data_(buffer_) {
  if (size_ == 0) return;
  HeldType held(type);
  if (held.plain() && !apart) return;
  type_.emplace(std::move(held));
  packed_.resize(size_);
  data_ = packed_.data();
  if (use != Use::kWrite) pack(buffer_, count, *type_, data_);
}

int Bytes::deliver() {
  return packed_.empty() ? MPI_SUCCESS : unpack(data_, count_, *type_, buffer_);
}

std::vector<MPI_Count> Numbers::first(int size) const {
  std::vector<MPI_Count> all(static_cast<size_t>(size));
  for (int at = 0; at < size; ++at) all[static_cast<size_t>(at)] = (*this)[at];
  return all;
}

Blocks::Blocks(const void* buffer, Layout layout, MPI_Datatype type, Use use, bool apart)
    : buffer_(writable(buffer)),
      layout_(std::move(layout)),
      bytes_(layout_.counts.size()),
      offsets_(layout_.counts.size()),
      data_(buffer_) {
  if (std::ranges::all_of(layout_.counts, [](MPI_Count count) { return count == 0; })) return;
  type_.emplace(type);
  too_large_ = !type_->bytes();
  if (too_large_) return;
  for (size_t rank = 0; rank < bytes_.size(); ++rank) {
    bytes_[rank] = static_cast<size_t>(layout_.counts[rank]) * *type_->bytes();
    total_ += bytes_[rank];
  }
  plain_ = !apart && type_->plain() && !(use != Use::kRead && overlap());
  lay_out(use);
}

void Blocks::lay_out(Use use) {
  if (!plain_) {
    lay_out_packed();
    if (use != Use::kWrite) pack_all();
    return;
  }
  // libina's displacements are not negative: they count from the first block.
  MPI_Count lowest = LLONG_MAX;
  for (size_t rank = 0; rank < bytes_.size(); ++rank)
    if (bytes_[rank] != 0) lowest = std::min(lowest, layout_.places[rank]);
  for (size_t rank = 0; rank < bytes_.size(); ++rank)
    if (bytes_[rank] != 0)
      offsets_[rank] = static_cast<size_t>((layout_.places[rank] - lowest) * type_->extent());
  data_ = buffer_ + lowest * type_->extent();
}

void Blocks::lay_out_packed() {
  std::exclusive_scan(bytes_.begin(), bytes_.end(), offsets_.begin(), size_t{0});
  packed_.resize(total_);
  data_ = packed_.data();
}

bool Blocks::overlap() const {
  std::vector<size_t> order(bytes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t rank) { return bytes_[rank] == 0; });
  std::ranges::sort(order, {}, [&](size_t rank) { return layout_.places[rank]; });
  return std::ranges::adjacent_find(order, [&](size_t a, size_t b) {
           return layout_.places[b] - layout_.places[a] < layout_.counts[a];
         }) != order.end();
}

size_t Blocks::span() const {
  size_t end = 0;
  for (size_t rank = 0; rank < bytes_.size(); ++rank)
    end = std::max(end, offsets_[rank] + bytes_[rank]);
  return end;
}

void Blocks::pack_all() {
  for (size_t rank = 0; rank < bytes_.size(); ++rank)
    pack(element(rank), layout_.counts[rank], *type_, data_ + offsets_[rank]);
}

char* Blocks::element(size_t rank) const {
  return buffer_ + layout_.places[rank] * type_->extent();
}

int Blocks::deliver() {
  if (packed_.empty()) return MPI_SUCCESS;
  for (size_t rank = 0; rank < bytes_.size(); ++rank) {
    if (bytes_[rank] == 0) continue;
    const int status = unpack(data_ + offsets_[rank], layout_.counts[rank], *type_, element(rank));
    if (status != MPI_SUCCESS) return status;
  }
  return MPI_SUCCESS;
}

}  // namespace ina::mpi
