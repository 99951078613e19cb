// Numbers by rank: most jobs are small, and their calls must neither allocate nor touch memory of
// ranks that they do not have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace ina {

/// A vector whose elements lie within it up to kShort of them, and on the heap beyond. It grows
/// only. What throws std::bad_alloc says so.
template <class T, size_t kShort>
class ShortVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  /// An empty one. Its memory stays as it was: to clear it took longer than a short call.
  ShortVector() {}  // NOLINT(modernize-use-equals-default): members of a union have no initialiser
  /// Of `size` elements, all zero. Throws.
  explicit ShortVector(size_t size) { resize(size); }
  ShortVector(const ShortVector& other) { append(other); }
  ShortVector& operator=(const ShortVector&) = delete;

  /// New elements are zero. Not less than size(). Throws.
  void resize(size_t size) {
    const size_t count = size - size_;
    std::uninitialized_value_construct_n(grow(count), count);
  }
  /// The first of `count` new elements, which the caller must write. Throws.
  T* grow(size_t count) {
    reserve(size_ + count);
    T* const first = data_ + size_;
    size_ += count;
    return first;
  }
  /// Throws, unless reserve() has made room.
  void push_back(const T& element) {
    const T copy = element;  // which may be one of its own
    if (size_ == room_) reserve(2 * room_);
    std::construct_at(data_ + size_++, copy);
  }
  /// Throws.
  void append(std::span<const T> elements) {
    std::uninitialized_copy(elements.begin(), elements.end(), grow(elements.size()));
  }
  /// Throws.
  void reserve(size_t room) {
    if (room <= room_) return;
    auto larger = std::make_unique_for_overwrite<T[]>(room);
    std::copy_n(data_, size_, larger.get());
    heap_ = std::move(larger);
    data_ = heap_.get();
    room_ = room;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  const T* begin() const { return data_; }
  T* end() { return data_ + size_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t at) { return data_[at]; }
  const T& operator[](size_t at) const { return data_[at]; }

 private:
  union {
    T short_[kShort];
  };
  std::unique_ptr<T[]> heap_;
  T* data_ = short_;
  size_t size_ = 0;
  size_t room_ = kShort;
};

}  // namespace ina
