// Bounded single-producer single-consumer ring of small values between two threads of one process.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

namespace ina {

template <class T>
class SpscRing {
 public:
  /// `capacity`: a power of two.
  explicit SpscRing(size_t capacity) : entries_(capacity), mask_(capacity - 1) {}

  /// Producer. False: full.
  bool push(const T& value) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) > mask_) return false;
    entries_[tail & mask_] = value;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  /// Consumer.
  std::optional<T> pop() {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return std::nullopt;
    std::optional<T> value(entries_[head & mask_]);
    head_.store(head + 1, std::memory_order_release);
    return value;
  }
  /// Either side; exact only for the consumer.
  bool empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire);
  }

 private:
  std::vector<T> entries_;
  const size_t mask_;
  alignas(64) std::atomic<size_t> tail_{0};  // written by the producer
  alignas(64) std::atomic<size_t> head_{0};  // written by the consumer
};

}  // namespace ina
