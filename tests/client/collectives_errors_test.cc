// Collectives that ranks call differently, or with wrong arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "ina/ina.hpp"
#include "tests/support/client_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::join;
using test::TestSwitch;
using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  int status = INA_OK;
  std::string text;
};

/// The outcomes of `call(context, rank)` at each of two ranks.
std::vector<Outcome> outcomes(const std::function<int(ina_context*, int)>& call, int world = 2) {
  TestSwitch sw;
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      try {
        Context context = join(sw, rank, world);
        outcome.status = call(context.get(), rank);
        if (outcome.status != INA_OK) outcome.text = ina_last_error(context.get());
      } catch (const Exception& e) {  // others may disagree before this one has come
        outcome = {e.status(), e.what()};
      }
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

TEST(CollectivesErrors, RanksThatDisagreeAllHearOfBothSides) {
  int32_t send[4000] = {}, recv[2][4000] = {};
  const size_t some[] = {3, 4, 5}, others[] = {4, 3, 5};
  const int around[] = {1, 2, 0}, back[] = {2, 0, 1};
  using Call = std::function<int(ina_context*, int)>;
  const auto at = [&](int rank) { return recv[rank == 1]; };
  const struct {
    const char* what;
    Call call;
    std::string one, other;
  } cases[] = {
      {"roots",
       [&](ina_context* c, int r) {
         return ina_broadcast(c, send, at(r), 1000, INA_INT32, r == 1, 0);
       },
       "broadcast of 1000 int32, root 0", "broadcast of 1000 int32, root 1"},
      {"roots of a sum",
       [&](ina_context* c, int r) {
         return ina_reduce(c, send, at(r), 1000, INA_INT32, INA_SUM, r == 1 ? 2 : 0, 0);
       },
       "reduce of 1000 int32 sum, root 0", "reduce of 1000 int32 sum, root 2"},
      {"collectives",
       [&](ina_context* c, int r) {
         return r == 1 ? ina_all_gather(c, send, recv[1], 20, INA_INT32, 0)
                       : ina_allreduce(c, send, recv[0], 60, INA_INT32, INA_SUM, 0);
       },
       "all-gather of 60 int32", "allreduce of 60 int32 sum"},
      {"data types",
       [&](ina_context* c, int r) {
         return ina_all_gather(c, send, at(r), 100, r == 1 ? INA_INT32 : INA_FLOAT32, 0);
       },
       "all-gather of 300 int32", "all-gather of 300 float32"},
      {"operations",
       [&](ina_context* c, int r) {
         return ina_reduce_scatter_block(c, send, at(r), 100, INA_INT32, r == 1 ? INA_MAX : INA_MIN,
                                         0);
       },
       "reduce-scatter of 300 int32 max", "reduce-scatter of 300 int32 min"},
      {"counts",
       [&](ina_context* c, int r) {
         return ina_all_gatherv(c, send, at(r), r == 1 ? some : others, nullptr, INA_INT32, 0);
       },
       "all-gather of 12 int32, counts ", "rank 1 started operation 0: all-gather of 12 int32"},
      {"shares",
       [&](ina_context* c, int r) {
         return ina_reduce_scatter(c, send, at(r), r == 1 ? some : others, INA_INT32, INA_SUM, 0);
       },
       "reduce-scatter of 12 int32 sum, counts ", "rank 1 started operation 0: reduce-scatter"},
      {"counts of a gather",
       [&](ina_context* c, int r) {
         return ina_gatherv(c, send, at(r), r == 1 ? some : others, nullptr, INA_INT32, 2, 0);
       },
       "gather of ", "rank 1 started operation 0: gather of "},
      {"roots of a gather",
       [&](ina_context* c, int r) {
         return ina_gather(c, send, at(r), 10, INA_INT32, r == 1 ? 2 : 0, 0);
       },
       "gather of 20 int32, root 0", "rank 1 started operation 0: gather of 20 int32, root 2"},
      {"counts of a scatter",
       [&](ina_context* c, int r) {
         return ina_scatterv(c, send, at(r), r == 1 ? some : others, nullptr, INA_INT32, 2, 0);
       },
       "scatter of ", "rank 1 started operation 0: scatter of "},
      {"roots of a scatter",
       [&](ina_context* c, int r) {
         return ina_scatter(c, send, at(r), 10, INA_INT32, r == 1 ? 2 : 0, 0);
       },
       "scatter of 20 int32, root 0", "rank 1 started operation 0: scatter of 20 int32, root 2"},
      {"a count alone",
       [&](ina_context* c, int r) {
         return ina_reduce(c, send, at(r), r == 1 ? 999 : 1000, INA_INT32, INA_SUM, 0, 0);
       },
       "reduce of 1000 int32 sum", "rank 1 started operation 0: reduce of 999 int32 sum"},
      {"the order of two operations",
       [&](ina_context* c, int r) {
         ina_request *first = nullptr, *second = nullptr;
         const auto gather = [&](ina_request** request) {
           return ina_all_gather_async(c, send, at(r), 20, INA_INT32, request);
         };
         const auto reduce = [&](ina_request** request) {
           return ina_reduce_async(c, send, at(r) + 100, 60, INA_INT32, INA_SUM, 0, request);
         };
         if (const int status = r == 1 ? reduce(&first) : gather(&first)) return status;
         if (const int status = r == 1 ? gather(&second) : reduce(&second)) return status;
         const int status = ina_wait(first, 0);
         return status == INA_OK ? ina_wait(second, 0) : status;
       },
       "all-gather of 60 int32", "rank 1 started operation 0: reduce of 60 int32 sum, root 0"},
      {"destinations",
       [&](ina_context* c, int r) {
         return ina_permute(c, send, at(r), 10, INA_INT32, r == 1 ? around : back, 0);
       },
       "permute of 30 int32, counts ", "rank 1 started operation 0: permute of 30"},
      {"an exchange and another operation",
       [&](ina_context* c, int r) {
         return r == 1
                    ? ina_all_to_allv(c, send, recv[1], some, nullptr, some, nullptr, INA_INT32, 0)
                    : ina_barrier(c, 0);
       },
       "all-to-all with counts by rank", "barrier"},
      {"counts of an all-to-all",
       [&](ina_context* c, int r) {
         // Rank r receives r + 3 of each, but rank 1 sends 9 to rank 2.
         const size_t received[3][3] = {{3, 3, 3}, {4, 4, 4}, {5, 5, 5}};
         const size_t wrong[] = {3, 4, 9};
         return ina_all_to_allv(c, send, at(r), r == 1 ? wrong : some, nullptr, received[r],
                                nullptr, INA_INT32, 0);
       },
       "rank 1 sends 9 elements to rank 2", "which receives 5 elements from it"},
      {"data types of an all-to-all",
       [&](ina_context* c, int r) {
         const size_t twos[] = {2, 2, 2};
         return ina_all_to_allv(c, send, at(r), twos, nullptr, twos, nullptr,
                                r == 1 ? INA_INT32 : INA_FLOAT32, 0);
       },
       "all-to-all of 12 int32", "all-to-all of 12 float32"},
      {"partners",
       [&](ina_context* c, int r) {
         return ina_send_receive(c, send, at(r), r == 0 ? 5 : 0, r == 0 ? 1 : INA_NOBODY, 5,
                                 r == 1 ? 2 : INA_NOBODY, INA_INT32, 0);
       },
       "rank 0 sends to rank 1", "which receives from rank 2"},
      {"a receiver alone",
       [&](ina_context* c, int r) {
         return ina_send_receive(c, send, at(r), 0, INA_NOBODY, 5, r == 1 ? 2 : INA_NOBODY,
                                 INA_INT32, 0);
       },
       "rank 1 receives from rank 2", "which sends to nobody"},
      {"sizes of a pair",
       [&](ina_context* c, int r) {
         return ina_send_receive(c, send, at(r), 5, r == 0 ? 1 : INA_NOBODY, 4,
                                 r == 1 ? 0 : INA_NOBODY, INA_INT32, 0);
       },
       "rank 0 sends 5 elements to rank 1", "which receives 4 elements from it"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    for (const Outcome& outcome : outcomes(c.call, 3)) {
      EXPECT_EQ(outcome.status, INA_ERR_MISMATCH) << outcome.text;
      EXPECT_THAT(outcome.text, AllOf(HasSubstr(c.one), HasSubstr(c.other)));
    }
  }
}

TEST(CollectivesErrors, WrongArgumentsAreNamedAndChangeNothing) {
  const auto texts = outcomes([](ina_context* c, int rank) {
    int32_t send[100] = {}, recv[100] = {};
    ina_request* request = nullptr;
    const auto expect = [&](int status, const std::string& text, int wanted = INA_ERR_INVALID) {
      EXPECT_EQ(status, wanted) << text;
      EXPECT_EQ(std::string(ina_last_error(c)).substr(0, text.size()), text);
    };
    const size_t two[] = {2, 2}, huge[] = {2, SIZE_MAX}, apart[] = {0, 10}, same[] = {4, 5};
    const int pair[] = {1, 0}, both[] = {1, 1}, wrong[] = {0, 7};
    expect(ina_reduce(c, send, recv, 9, INA_INT32, INA_SUM, 2, 0),
           "ina_reduce: root 2 is not a rank of this job of 2");
    expect(ina_reduce(c, send, recv, 9, INA_INT32, INA_AVG, 0, 0),
           "ina_reduce: avg of int32 is not defined");
    expect(ina_reduce(c, send, recv, 9, INA_INT32, static_cast<ina_op>(77), 0, 0),
           "ina_reduce: op 77 is no ina_op");
    expect(ina_broadcast(c, send, recv, 9, static_cast<ina_dtype>(88), 0, 0),
           "ina_broadcast: dtype 88 is no ina_dtype");
    expect(ina_broadcast(c, send, nullptr, 9, INA_INT32, 0, 0), "ina_broadcast: recv is NULL");
    expect(ina_broadcast(c, send, send + 1, 9, INA_INT32, rank, 0),
           "ina_broadcast: send and recv overlap without being the same buffer");
    expect(ina_broadcast_async(c, send, recv, 9, INA_INT32, 0, nullptr),
           "ina_broadcast_async: request is NULL");
    expect(ina_all_gatherv(c, send, recv, nullptr, nullptr, INA_INT32, 0),
           "ina_all_gatherv: counts is NULL");
    expect(ina_all_gatherv_async(c, send, recv, huge, nullptr, INA_INT32, &request),
           "ina_all_gatherv_async: count 18446744073709551615 of rank 1 is too large");
    expect(ina_all_gatherv(c, send, recv, two, huge, INA_INT32, 0),
           "ina_all_gatherv: displacement 18446744073709551615 of rank 1 exceeds");
    expect(ina_all_gatherv(c, send, recv, two, same, INA_INT32, 0),
           "ina_all_gatherv: the blocks of ranks 0 and 1 overlap in recv");
    expect(ina_all_gather(c, send + (rank == 0 ? 1 : 0), send, 9, INA_INT32, 0),
           "ina_all_gather: send overlaps with recv; in place");
    expect(ina_all_gather(c, nullptr, recv, 9, INA_INT32, 0), "ina_all_gather: send is NULL");
    // Where MPI would have it, which is another rank's block here.
    expect(ina_reduce_scatter_block(c, send, rank == 0 ? send + 9 : send, 9, INA_INT32, INA_SUM, 0),
           "ina_reduce_scatter_block: recv overlaps with send; in place");
    expect(ina_all_to_all(c, send, send, 9, INA_INT32, 0),
           "ina_all_to_all: send and recv overlap; ");
    const size_t three[] = {3, 3};
    expect(ina_all_to_allv(c, send, recv, two, nullptr, three, apart, INA_INT32, 0),
           "ina_all_to_allv: this rank sends itself send_counts[" + std::to_string(rank) +
               "] = 2 elements and receives recv_counts[" + std::to_string(rank) + "] = 3");
    expect(ina_permute(c, send, recv, 9, INA_INT32, nullptr, 0),
           "ina_permute: destinations is NULL");
    expect(ina_permute(c, send, recv, 9, INA_INT32, both, 0),
           "ina_permute: destinations[1] is 1, and so is destinations[0]");
    expect(ina_permute(c, send, recv, 9, INA_INT32, wrong, 0),
           "ina_permute: destinations[1] is 7, which is neither a rank of this job of 2 nor");
    expect(ina_permute(c, send, send, 9, INA_INT32, pair, 0),
           "ina_permute: send and recv overlap; ");
    expect(ina_send_receive(c, send, recv, 9, 5, 9, INA_NOBODY, INA_INT32, 0),
           "ina_send_receive: destination 5 is neither a rank of this job of 2 nor INA_NOBODY");
    expect(ina_send_receive(c, send, recv, 9, rank, 9, 1 - rank, INA_INT32, 0),
           "ina_send_receive: rank " + std::to_string(rank) + " is its own destination or source");
    EXPECT_EQ(ina_request_set_callback(
                  nullptr, [](void*, int) {}, nullptr),
              INA_ERR_INVALID);
    expect(ina_completion_fd(c, nullptr), "ina_completion_fd: fd is NULL");
    // The job goes on.
    return ina_all_gather(c, send, recv, 9, INA_INT32, 0);
  });
  for (const Outcome& outcome : texts) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

}  // namespace
}  // namespace ina
