// Where a lane finds the workers of its jobs, at two Ethernet ports.
#include "switchd/lanes/lane_members.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "io/shm/region.h"
#include "switchd/lanes/no_frame_port.h"

namespace ina::switchd {
namespace {

/// Binds workers at endpoints 10, 11, ...
struct BindingPort : NoFramePort {
  Result<io::EndpointIndex> bind(const wire::Address&, JobId, uint64_t, io::JobIndex, Rank,
                                 const std::optional<wire::TagKeys>&, JobId) {
    if (is_full) return fail(INA_ERR_REFUSED, "the port is full");
    const auto endpoint = static_cast<io::EndpointIndex>(10 + bound.size());
    bound.insert(endpoint);
    return endpoint;
  }
  void unbind(io::EndpointIndex endpoint) { bound.erase(endpoint); }
  void expect(JobId job, uint64_t) { expected.insert(job); }
  void forget(JobId job) { expected.erase(job); }

  bool is_full = false;
  std::set<io::EndpointIndex> bound;
  std::set<JobId> expected;
};

class LaneMembersTest : public testing::Test {
 protected:
  static constexpr JobId kJob{1};

  LaneMembersTest() {
    members_.add(0, kJob);
    members_.add(1, JobId{2});
  }
  Result<void> attach(uint8_t rank, uint32_t port, bool multicast = true) {
    return members_.attach(command::AttachFrame{
        .rank = Rank{rank}, .frame_port = port, .job_id = kJob, .multicast = multicast});
  }
  bool is_covered(uint8_t rank) const { return members_.at(0, Rank{rank}).covered; }

  std::vector<std::unique_ptr<io::shm::WorkerSession>> sessions_;
  io::shm::ShmPort shm_{0, 16};
  BindingPort first_, second_;
  std::vector<BindingPort*> ports_{&first_, &second_};
  LaneMembers<BindingPort> members_{shm_, ports_, 2};
};

TEST_F(LaneMembersTest, AWorkerIsAtItsPortUntilItIsDetached) {
  ASSERT_TRUE(attach(3, 1));
  EXPECT_TRUE(members_.at(0, Rank{3}).bound);
  EXPECT_EQ(members_.at(0, Rank{3}).port, &second_);
  EXPECT_EQ(members_.at(0, Rank{3}).endpoint, 10);
  EXPECT_FALSE(members_.at(0, Rank{2}).bound);
  EXPECT_FALSE(members_.at(1, Rank{3}).bound) << "of another job";
  members_.detach(0, Rank{3});
  EXPECT_FALSE(members_.at(0, Rank{3}).bound);
  EXPECT_TRUE(second_.bound.empty());
}

TEST_F(LaneMembersTest, AWorkerThatThePortRefusesIsNowhere) {
  first_.is_full = true;
  const auto attached = attach(0, 0);
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().text, "the port is full");
  EXPECT_FALSE(members_.at(0, Rank{0}).bound);
  EXPECT_FALSE(members_.at(0, Rank{0}).multicast);
}

TEST_F(LaneMembersTest, OneWorkerAtEachPortIsSentWhatIsForTheGroup) {
  ASSERT_TRUE(attach(0, 0, false));
  ASSERT_TRUE(attach(1, 0));
  ASSERT_TRUE(attach(2, 0));
  ASSERT_TRUE(attach(3, 1));
  EXPECT_FALSE(is_covered(0)) << "it has no group";
  EXPECT_FALSE(is_covered(1));
  EXPECT_TRUE(is_covered(2));
  EXPECT_FALSE(is_covered(3));
  members_.detach(0, Rank{1});
  EXPECT_FALSE(is_covered(2)) << "nobody is before it any more";
}

TEST_F(LaneMembersTest, ThoseAtTheShmPortAreListedByRank) {
  const auto attach_shm = [&](uint8_t rank) {
    const io::shm::Geometry geometry{1, 8, 8, 256, 4, 8};
    sessions_.push_back(*io::shm::WorkerSession::create(geometry, nullptr));
    auto region = io::shm::make_region("worker", io::shm::WorkerLayout(geometry).bytes);
    ASSERT_TRUE(region) << region.error().text;
    sessions_.back()->worker_region = std::move(region->map);
    ASSERT_TRUE(members_.attach(
        command::AttachShm{.job = 0, .rank = Rank{rank}, .session = sessions_.back().get()}));
  };
  const auto listed = [&] {
    const auto all = members_.of(0).at_shm();
    return std::vector(all.begin(), all.end());
  };
  for (const uint8_t rank : std::initializer_list<uint8_t>{2, 0, value(kFallbackRank)})
    attach_shm(rank);
  ASSERT_TRUE(attach(1, 0));
  const auto first = members_.at(0, Rank{0}).endpoint;
  const auto last = members_.at(0, Rank{2}).endpoint;
  EXPECT_EQ(listed(), (std::vector{first, last}));
  EXPECT_TRUE(members_.of(1).at_shm().empty());
  members_.detach(0, Rank{0});
  EXPECT_EQ(listed(), std::vector{last});
  members_.remove(0);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LaneMembersTest, AJobLeavesAllPorts) {
  ASSERT_TRUE(attach(0, 0));
  EXPECT_EQ(first_.expected, std::set{kJob});
  EXPECT_EQ(second_.expected, std::set{kJob}) << "its frames may come in there";
  ASSERT_TRUE(attach(value(kFallbackRank), 1));
  members_.of(0).reported = true;
  members_.remove(0);
  EXPECT_TRUE(first_.bound.empty());
  EXPECT_TRUE(second_.bound.empty());
  EXPECT_TRUE(first_.expected.empty());
  EXPECT_TRUE(second_.expected.empty());
  EXPECT_FALSE(members_.of(0).reported) << "of the next job at its place";
  EXPECT_EQ(members_.of(1).id, JobId{2});
}

}  // namespace
}  // namespace ina::switchd
