// Collectives under way while the caller goes on, and completion that nobody waits for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>

#include "ina/ina.hpp"
#include "tests/client/collective_values.h"
#include "tests/support/client_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using namespace std::chrono_literals;
using test::on_joined_ranks;
using test::on_ranks;
using test::TestSwitch;
using test::value_of;
using test::values;
using testing::HasSubstr;

using Counts = std::vector<size_t>;

TEST(CollectivesAsync, AllKindsInFlightCompleteInAnyOrderOfWaiting) {
  constexpr int kWorld = 3;
  constexpr size_t kCount = 5000;
  TestSwitch sw;
  on_ranks(sw, kWorld, [&](Context& context, int rank) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto send = values<int32_t>(rank, 0, kCount * kWorld);
      const auto block = values<int32_t>(rank, 0, kCount);
      const std::span<const int32_t> all(send), one(block);
      std::vector<std::vector<int32_t>> recv(9, std::vector<int32_t>(kCount * kWorld));
      const Counts counts(kWorld, kCount);
      const std::vector<int> around = {1, 2, 0};
      std::vector<int32_t> data = rank == 1 ? block : std::vector<int32_t>(kCount);
      const auto part = [&](size_t n) { return std::span(recv[n]).first(block.size()); };
      std::vector<Request> requests;
      requests.push_back(context.all_to_all_async<int32_t>(all, counts, recv[0], counts));
      requests.push_back(context.reduce_async<int32_t>(one, part(1), 2));
      requests.push_back(context.all_gather_async<int32_t>(one, recv[2]));
      requests.push_back(context.allreduce_async<int32_t>(one, part(3)));
      requests.push_back(context.reduce_scatter_async<int32_t>(all, part(4)));
      requests.push_back(
          context.send_receive_async<int32_t>(one, (rank + 1) % 3, part(5), (rank + 2) % 3));
      requests.push_back(context.gather_async<int32_t>(one, recv[6], 0));
      requests.push_back(context.broadcast_async<int32_t>(data, 1));
      requests.push_back(context.permute_async<int32_t>(one, part(7), around));
      requests.push_back(context.scatter_async<int32_t>(all, part(8), 2));
      while (!requests.empty()) {
        requests.back().wait();
        requests.pop_back();
      }
      for (size_t i = 0; i < kCount; ++i) {
        int32_t sum = 0;
        for (int r = 0; r < kWorld; ++r) {
          const auto at = static_cast<size_t>(r) * kCount + i;
          const auto mine = static_cast<size_t>(rank) * kCount + i;
          ASSERT_EQ(recv[0][at], value_of<int32_t>(r, 0, mine));
          ASSERT_EQ(recv[2][at], value_of<int32_t>(r, 0, i));
          if (rank == 0) {
            ASSERT_EQ(recv[6][at], value_of<int32_t>(r, 0, i));
          }
          sum += value_of<int32_t>(r, 0, i);
        }
        if (rank == 2) {
          ASSERT_EQ(recv[1][i], sum);
        }
        ASSERT_EQ(recv[3][i], sum);
        ASSERT_EQ(recv[5][i], value_of<int32_t>((rank + 2) % 3, 0, i));
        ASSERT_EQ(data[i], value_of<int32_t>(1, 0, i));
        ASSERT_EQ(recv[7][i], recv[5][i]);
        ASSERT_EQ(recv[8][i], value_of<int32_t>(2, 0, static_cast<size_t>(rank) * kCount + i));
      }
    }
    EXPECT_EQ(context.stats().operations, 50u) << "the exchange of counts is no operation";
  });
}

TEST(CollectivesAsync, ABarrierCompletesWhenTheLastRankHasCalled) {
  constexpr int kWorld = 3;
  TestSwitch sw;
  std::latch tested(kWorld - 1);
  on_ranks(sw, kWorld, [&](Context& context, int rank) {
    Request barrier(nullptr, context.get());
    if (rank == kWorld - 1) {
      tested.wait();
      barrier = context.barrier_async();
    } else {
      barrier = context.barrier_async();
      EXPECT_FALSE(barrier.test());
      tested.count_down();
    }
    barrier.wait();
    // Among others, and waited for in another order.
    std::vector<int32_t> data(1000, rank);
    Request before = context.allreduce_async<int32_t>(std::span(data));
    barrier = context.barrier_async();
    Request after = context.barrier_async();
    after.wait();
    barrier.wait();
    before.wait();
    EXPECT_EQ(data.back(), 3);
    EXPECT_EQ(ina_barrier_async(context.get(), nullptr), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("ina_barrier_async: request is NULL"));
  });
}

TEST(CollectivesAsync, GroupsAndCoalescingGoOn) {
  TestSwitch sw;
  on_ranks(
      sw, 2,
      [](Context& context, int rank) {
        std::vector<int32_t> small(10, rank + 1), gathered(20);
        Request first = context.allreduce_async<int32_t>(std::span(small));
        // Collected operations go first.
        context.all_gather<int32_t>(std::vector<int32_t>(10, rank), gathered);
        first.wait();
        EXPECT_EQ(small[9], 3);
        EXPECT_EQ(gathered[10], 1);
        Group group(context);
        Request sum = context.allreduce_async<int32_t>(std::span(small));
        Request all = context.all_gather_async<int32_t>(std::span<const int32_t>(small).first(5),
                                                        std::span(gathered).first(10));
        EXPECT_EQ(ina_all_gather(context.get(), small.data(), gathered.data(), 1, INA_INT32, 0),
                  INA_ERR_INVALID);
        EXPECT_THAT(ina_last_error(context.get()), HasSubstr("ina_all_gather: a group is open"));
        group.end();
        sum.wait();
        all.wait();
        EXPECT_EQ(small[0], 6);
        EXPECT_EQ(gathered[9], 3);
      },
      [](ina_config& config) { config.coalesce_bytes = 4096; });
}

// ---- completion that nobody waits for

/// Callbacks that have come.
class Heard {
 public:
  static void callback(void* user, int status) {
    auto& heard = *static_cast<Heard*>(user);
    const std::lock_guard lock(heard.mutex_);
    heard.statuses_.push_back(status);
    heard.thread_ = std::this_thread::get_id();
    heard.more_.notify_all();
  }
  std::vector<int> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    more_.wait_for(lock, 20s, [&] { return statuses_.size() >= count; });
    return statuses_;
  }
  std::thread::id thread() const { return thread_; }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<int> statuses_;
  std::thread::id thread_;
};

TEST(CollectivesCompletion, CallbacksComeOnTheLibrarysThread) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Context& context, int rank) {
    Heard heard;
    std::vector<std::vector<int32_t>> data(20, std::vector<int32_t>(30'000, rank + 1));
    std::vector<std::vector<int32_t>> all(20, std::vector<int32_t>(60'000));
    for (size_t n = 0; n < data.size(); ++n) {
      context.allreduce_async<int32_t>(std::span(data[n])).set_callback(Heard::callback, &heard);
      context.all_gather_async<int32_t>(data[n], all[n]).set_callback(Heard::callback, &heard);
    }
    EXPECT_EQ(heard.wait_for(40), std::vector<int>(40, INA_OK));
    EXPECT_NE(heard.thread(), std::this_thread::get_id());
    for (const auto& sum : data) EXPECT_EQ(sum.back(), 3);
    // One that is complete already.
    Request done = context.allreduce_async<int32_t>(std::span(data[0]));
    for (int i = 0; i < 20'000 && context.stats().operations < 41; ++i) ::usleep(1000);
    done.set_callback(Heard::callback, &heard);
    EXPECT_EQ(heard.wait_for(41).size(), 41u);
  });
}

TEST(CollectivesCompletion, ACallbackStartsTheNextOperation) {
  TestSwitch sw;
  struct Chain {
    Context* context;
    std::vector<int32_t> data;
    int left;
    Heard heard;
    static void next(void* user, int status) {
      auto& chain = *static_cast<Chain*>(user);
      if (status != INA_OK || chain.left-- == 0) return Heard::callback(&chain.heard, status);
      try {
        chain.context->broadcast_async<int32_t>(chain.data, 0).set_callback(next, user);
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
    }
  };
  on_ranks(sw, 2, [](Context& context, int rank) {
    Chain chain{&context, std::vector<int32_t>(1000, rank), 50, {}};
    Chain::next(&chain, INA_OK);
    EXPECT_EQ(chain.heard.wait_for(1), std::vector<int>{INA_OK});
    EXPECT_EQ(context.stats().operations, 50u);
    EXPECT_EQ(chain.data[999], 0);
  });
}

TEST(CollectivesCompletion, EachCallbackComesOnceWhenTheJobEnds) {
  TestSwitch sw;
  Heard heard[2];
  on_joined_ranks(sw, 2, [&](Context& context, int rank) {
    std::vector<int32_t> own(2000);
    if (rank == 0)
      context.allreduce_async<int32_t>(own).set_callback(Heard::callback, &heard[0]);
    else
      context.broadcast_async<int32_t>(own, 0).set_callback(Heard::callback, &heard[1]);
    EXPECT_EQ(heard[rank].wait_for(1), std::vector<int>{INA_ERR_MISMATCH});
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("broadcast of 2000 int32, root 0"));
  });
}

TEST(CollectivesCompletion, ACallbackComesWhenFinalizeGivesUp) {
  TestSwitch sw;
  Heard given_up;
  std::latch gave_up(1);
  on_joined_ranks(sw, 2, [&](Context& context, int rank) {
    if (rank == 1) return gave_up.wait();  // it never calls
    std::vector<int32_t> data(2000);
    context.allreduce_async<int32_t>(std::span(data)).set_callback(Heard::callback, &given_up);
    EXPECT_THROW(context.finalize(1s), Exception);
    gave_up.count_down();
    const auto statuses = given_up.wait_for(1);
    ASSERT_EQ(statuses.size(), 1u);
    EXPECT_NE(statuses[0], INA_OK);
  });
}

TEST(CollectivesCompletion, ADescriptorTellsEventLoops) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Context& context, int rank) {
    const int fd = context.completion_fd();
    EXPECT_EQ(context.completion_fd(), fd);
    std::vector<int32_t> data(100'000, rank + 1);
    for (int n = 0; n < 20; ++n) {
      Request request = context.reduce_async<int32_t>(data, data, 1);
      while (!request.test()) {
        pollfd wait{fd, POLLIN, 0};
        ASSERT_EQ(::poll(&wait, 1, 20'000), 1) << "nobody was told";
        uint64_t count;
        ASSERT_EQ(::read(fd, &count, sizeof(count)), ssize_t{sizeof(count)});
      }
    }
  });
}

}  // namespace
}  // namespace ina
