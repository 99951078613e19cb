// A queue whose memory is there from the beginning.
#pragma once

#include <cstddef>
#include <vector>

namespace ina::aggregator {

template <class T>
class FixedQueue {
 public:
  FixedQueue() = default;
  explicit FixedQueue(size_t capacity) : ring_(capacity) {}

  size_t size() const { return size_; }
  bool full() const { return size_ == ring_.size(); }
  /// Counted from the front; `index` < size().
  const T& operator[](size_t index) const { return ring_[(front_ + index) % ring_.size()]; }
  /// The queue must not be full.
  void push(const T& value) {
    ring_[(front_ + size_) % ring_.size()] = value;
    ++size_;
  }
  /// At most size() of them.
  void pop(size_t count = 1) {
    if (count == 0) return;
    front_ = (front_ + count) % ring_.size();
    size_ -= count;
  }

 private:
  std::vector<T> ring_;
  size_t front_ = 0;
  size_t size_ = 0;
};

}  // namespace ina::aggregator
