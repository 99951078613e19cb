// In which order the shm port serves the workers of its jobs: those of a job meet at the same
// fragment, nobody waits for long, and nothing gets lost.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "io/shm/shm_port.h"
#include "transport/shm_transport.h"

namespace ina {
namespace {

using io::shm::Geometry;
using io::shm::ShmPort;
using io::shm::WorkerSession;

constexpr uint32_t kDepth = 64;
constexpr uint32_t kBurst = 32;

/// Workers of several jobs at one lane.
class ShmBursts : public testing::Test {
 protected:
  struct Worker {
    io::shm::Region results;
    std::unique_ptr<WorkerSession> session;
    std::unique_ptr<client::ShmTransport> transport;
    io::EndpointIndex endpoint = 0;
  };
  struct Taken {
    io::JobIndex job;
    uint32_t rank;
    uint32_t seq;
    friend auto operator<=>(const Taken&, const Taken&) = default;
  };

  void add_worker(io::JobIndex job, uint32_t rank) {
    Worker& worker = workers_[{job, rank}];
    auto results = io::shm::make_region("test-results", io::shm::result_region_bytes(geometry_));
    ASSERT_TRUE(results) << results.error().text;
    worker.results = std::move(*results);
    auto session = WorkerSession::create(geometry_, worker.results.map.data());
    ASSERT_TRUE(session) << session.error().text;
    worker.session = std::move(*session);
    std::vector<Fd> events;
    for (const Fd& event : worker.session->wake_events) events.push_back(duplicate(event.get()));
    auto transport = client::ShmTransport::create(geometry_, worker.session->switch_region.fd,
                                                  worker.results.fd, std::move(events), copier_);
    ASSERT_TRUE(transport) << transport.error().text;
    worker.transport = std::move(*transport);
    auto mapped = io::shm::map_peer_region(duplicate(worker.transport->region_fd()),
                                           io::shm::WorkerLayout(geometry_).bytes, "worker region");
    ASSERT_TRUE(mapped) << mapped.error().text;
    worker.session->worker_region = std::move(*mapped);
    const auto endpoint = port_.attach(*worker.session, job, Rank{static_cast<uint8_t>(rank)});
    ASSERT_TRUE(endpoint) << endpoint.error().text;
    worker.endpoint = *endpoint;
  }
  static Fd duplicate(int fd) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

  /// Contributions of one element to the fragments [from, from + count).
  void post(io::JobIndex job, uint32_t rank, uint32_t from, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) ASSERT_TRUE(post_one(job, rank, from + i));
  }
  bool post_one(io::JobIndex job, uint32_t rank, uint32_t seq,
                wire::Type type = wire::Type::kGrad) {
    static constexpr std::byte kPayload[4] = {};
    client::TxPacket packet;
    packet.message.type = type;
    packet.message.seq = seq;
    if (type == wire::Type::kGrad) {
      packet.message.dtype = DType::kInt32;
      packet.message.op = Op::kSum;
      packet.message.collective = Collective::kAllReduce;
      packet.message.elements = 1;
      packet.message.operation_elements = 1;
      packet.payload = kPayload;
      packet.payload_bytes = sizeof(kPayload);
    }
    return workers_[{job, rank}].transport->tx_burst({&packet, 1}) == 1;
  }
  std::vector<Taken> take(size_t most = kBurst) {
    std::vector<io::RxPacket> packets(most);
    packets.resize(port_.rx_burst(packets));
    port_.rx_release();
    std::vector<Taken> taken;
    for (const io::RxPacket& packet : packets)
      taken.push_back({packet.job, value(packet.rank), packet.message.seq});
    return taken;
  }
  static size_t count_of(const std::vector<Taken>& taken, io::JobIndex job, uint32_t rank) {
    return static_cast<size_t>(std::ranges::count_if(
        taken, [&](const Taken& one) { return one.job == job && one.rank == rank; }));
  }

  const Geometry geometry_{1, kDepth, 64, 64, 4, 8};
  client::BulkCopier copier_{1, 1};
  std::map<std::pair<io::JobIndex, uint32_t>, Worker> workers_;
  ShmPort port_{0, 32};
};

TEST_F(ShmBursts, AWorkerThatIsAheadWaitsForTheOthersOfItsJob) {
  for (const uint32_t first : {0u, UINT32_MAX - 20}) {
    SCOPED_TRACE(first);
    const auto job = static_cast<io::JobIndex>(first == 0 ? 0 : 1);
    for (uint32_t rank = 0; rank < 4; ++rank) add_worker(job, rank);
    // Ranks 0 and 1 come first, when the switch has nothing else to do.
    for (uint32_t rank = 0; rank < 2; ++rank) post(job, rank, first, 20);
    while (!take().empty()) {
    }
    for (uint32_t rank = 0; rank < 2; ++rank) post(job, rank, first + 20, 40);
    for (uint32_t rank = 2; rank < 4; ++rank) post(job, rank, first, 60);
    size_t together = 0;
    for (std::vector<Taken> taken = take(); !taken.empty(); taken = take()) {
      std::map<uint32_t, uint32_t> contributions;
      for (const Taken& one : taken) ++contributions[one.seq - first];
      for (const auto& [seq, count] : contributions) together += seq >= 20 && count == 4;
    }
    EXPECT_GE(together, 36u) << "of 40 fragments";
  }
}

TEST_F(ShmBursts, NobodyIsPassedOverForLong) {
  for (uint32_t rank = 0; rank < 2; ++rank) add_worker(0, rank);
  post(0, 0, 100, 1);
  // Rank 1 says the same again and again, and never comes as far.
  size_t turns = 0;
  for (bool served = false; !served; ++turns) {
    ASSERT_LT(turns, 20u);
    while (post_one(0, 1, 7)) {
    }
    served = count_of(take(), 0, 0) != 0;
  }
}

TEST_F(ShmBursts, QuestionsOfSomeDoNotHoldUpTheOthers) {
  constexpr uint32_t kWorkers = 8;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) add_worker(0, rank);
  post(0, kWorkers - 1, 100, 1);
  bool served = false;
  for (int turn = 0; turn < 8 && !served; ++turn) {
    for (uint32_t rank = 0; rank + 1 < kWorkers; ++rank)
      while (post_one(0, rank, 7, wire::Type::kQuery)) {
      }
    served = count_of(take(4), 0, kWorkers - 1) != 0;
  }
  EXPECT_TRUE(served);
}

TEST_F(ShmBursts, AJobOfWhichSomebodyIsMissingComesAfterTheOthers) {
  for (io::JobIndex job = 0; job < 3; ++job)
    for (uint32_t rank = 0; rank < 2; ++rank) add_worker(job, rank);
  post(1, 0, 0, 1);
  uint32_t next = 0;
  const auto take_beside_others = [&] {
    for (const io::JobIndex job : {0, 2})
      for (uint32_t rank = 0; rank < 2; ++rank) post(job, rank, next, 4);
    next += 4;
    const std::vector<Taken> taken = take(8);
    EXPECT_EQ(taken.size(), 8u);
    return count_of(taken, 1, 0) != 0;
  };
  size_t turns = 1;
  while (!take_beside_others()) ASSERT_LT(++turns, 8u);
  EXPECT_GT(turns, 2u) << "others had something to do all the time";
  while (!take().empty()) {
  }
  // When there is nothing else, there is nothing to wait for.
  post(1, 0, 1, 1);
  EXPECT_EQ(count_of(take(), 1, 0), 1u);
  // An absent worker that has been here before is not missing.
  post(1, 1, 0, 3);
  while (!take().empty()) {
  }
  post(1, 0, 2, 1);
  EXPECT_TRUE(take_beside_others());
}

TEST_F(ShmBursts, AllThatIsSentComesOnceAndInOrder) {
  std::mt19937 random(1);
  const uint32_t workers_of[] = {1, 2, 8};
  for (io::JobIndex job = 0; job < 3; ++job)
    for (uint32_t rank = 0; rank < workers_of[job]; ++rank) add_worker(job, rank);
  std::map<std::pair<io::JobIndex, uint32_t>, std::vector<uint32_t>> sent, came;
  const auto take_some = [&](size_t most) {
    const std::vector<Taken> taken = take(most);
    for (const Taken& one : taken) came[{one.job, one.rank}].push_back(one.seq);
    return !taken.empty();
  };
  for (int turn = 0; turn < 5'000; ++turn) {
    for (const auto& [who, worker] : workers_) {
      if (random() % 3 != 0) continue;
      std::vector<uint32_t>& own = sent[who];
      for (uint32_t count = random() % 12; count != 0; --count) {
        const auto newest = static_cast<uint32_t>(own.size());
        const uint32_t seq = random() % 10 == 0 ? newest - random() % 50 : newest;
        const auto type = random() % 10 == 0 ? wire::Type::kQuery : wire::Type::kGrad;
        if (post_one(who.first, who.second, seq, type)) own.push_back(seq);
      }
    }
    take_some(1 + random() % kBurst);
  }
  while (take_some(kBurst)) {
  }
  EXPECT_EQ(came, sent);
}

}  // namespace
}  // namespace ina
