#include "fragments/operation_queue.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace ina::client {
namespace {

EngineConfig config() {
  EngineConfig config;
  config.window = 4;
  config.slot_bytes = 256;
  return config;
}

/// Writes down what it hears, and completes `next`, if any.
class Listener final : public OperationListener {
 public:
  explicit Listener(OperationQueue& queue) : queue_(queue) {}
  void received(Operation& operation) override { received_numbers.push_back(operation.number); }
  void completed(Operation& operation) override {
    EXPECT_FALSE(operation.done) << "set when the listener knows";
    completed_numbers.push_back(operation.number);
    if (next) queue_.note_complete(*std::exchange(next, nullptr));
  }

  std::vector<uint32_t> received_numbers;
  std::vector<uint32_t> completed_numbers;
  Operation* next = nullptr;

 private:
  OperationQueue& queue_;
};

class OperationQueueTest : public testing::Test {
 protected:
  Operation* submit() { return queue_.submit({.elements = 64, .listener = &listener_}, 0); }

  Flow flow_{config()};
  OperationQueue queue_{flow_};
  Listener listener_{queue_};
};

TEST_F(OperationQueueTest, EndsOperationsInTheOrderOfTheirCompletion) {
  Operation* const first = submit();
  Operation* const second = submit();
  EXPECT_EQ(queue_.submitted(), 2u);
  queue_.note_complete(*second);
  queue_.finish(1);
  EXPECT_EQ(queue_.running(), std::vector{first});
  EXPECT_TRUE(second->done);
  EXPECT_FALSE(first->done);
  queue_.note_complete(*first);
  queue_.finish(2);
  EXPECT_TRUE(queue_.running().empty());
  EXPECT_EQ(listener_.completed_numbers, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(flow_.counters.operations, 2u);
}

TEST_F(OperationQueueTest, AListenerMayCompleteFurtherOperations) {
  Operation* const first = submit();
  listener_.next = submit();
  queue_.note_received(*first);
  queue_.note_complete(*first);
  queue_.finish(1);
  EXPECT_EQ(listener_.received_numbers, (std::vector<uint32_t>{0}));
  EXPECT_EQ(listener_.completed_numbers, (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(queue_.running().empty());
}

TEST_F(OperationQueueTest, UsesTheMemoryOfReleasedOperationsAgain) {
  Operation* const first = submit();
  queue_.note_complete(*first);
  queue_.finish(1);
  queue_.release(first);
  Operation* const next = submit();
  EXPECT_EQ(next, first);
  EXPECT_EQ(next->number, 1u);
  EXPECT_FALSE(next->done);
}

}  // namespace
}  // namespace ina::client
