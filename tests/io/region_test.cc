// The memory of a peer that the switch maps, and how it learns that nobody maps its own any more.
#include "io/shm/region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "common/sealed_memory.h"

namespace ina {
namespace {

using io::shm::make_region;
using io::shm::map_peer_region;
using io::shm::Region;
using io::shm::Watch;
using testing::HasSubstr;

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 16 * kPage;

/// A worker's memory file as far as it goes: not sealed, and without pages if `full` is not set.
Fd memory_file(bool full, unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING) {
  Fd file(::memfd_create("peer", flags));
  EXPECT_TRUE(file);
  if (full) {
    const std::string bytes(kBytes, 'x');
    EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(kBytes));
  } else {
    EXPECT_EQ(::ftruncate(file.get(), kBytes), 0);
  }
  return file;
}

void seal(const Fd& file, int seals = kRegionSeals) {
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0) << std::strerror(errno);
}

std::string refusal(const Fd& file, size_t bytes = kBytes) {
  const auto mapped = map_peer_region(file, bytes, "region");
  EXPECT_FALSE(mapped);
  return mapped ? "" : mapped.error().text;
}

TEST(PeerRegion, IsMappedIfItIsSealedAndFull) {
  const Fd file = memory_file(true);
  seal(file);
  const auto mapped = map_peer_region(file, kBytes, "region");
  ASSERT_TRUE(mapped) << mapped.error().text;
  EXPECT_EQ(std::to_integer<char>(mapped->data()[kBytes - 1]), 'x');
  EXPECT_THAT(refusal(file, kBytes - 1), HasSubstr("has 65536 bytes, agreed were 65535"));
}

TEST(PeerRegion, MustHaveAllSeals) {
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE}) {
    const Fd file = memory_file(true);
    seal(file, kRegionSeals & ~missing);
    EXPECT_THAT(refusal(file), HasSubstr("is not sealed with F_SEAL_SHRINK")) << missing;
  }
}

TEST(PeerRegion, MustHaveNoHoles) {
  {
    const Fd sparse = memory_file(false);
    seal(sparse);
    EXPECT_THAT(refusal(sparse), HasSubstr("has holes"));
  }
  {
    // As many blocks as a full one has, but behind the end.
    const Fd padded = memory_file(false);
    ASSERT_EQ(::fallocate(padded.get(), FALLOC_FL_KEEP_SIZE, kBytes, kBytes), 0);
    struct stat status {};
    ASSERT_EQ(::fstat(padded.get(), &status), 0);
    EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, kBytes);
    seal(padded);
    EXPECT_THAT(refusal(padded), HasSubstr("has holes"));
  }
  for (const off_t at : {off_t{0}, static_cast<off_t>(kBytes - kPage)}) {
    const Fd punched = memory_file(true);
    ASSERT_EQ(::fallocate(punched.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, kPage), 0);
    seal(punched);
    EXPECT_THAT(refusal(punched), HasSubstr("has holes")) << at;
  }
}

// Blocks behind the end hide the holes from everything but the reader's own faults.
TEST(PeerRegion, MakesAtMostOnePieceOfPagesWhereHolesAreHidden) {
  constexpr size_t kPiece = size_t{512} << 10;  // sealed_memory.h
  constexpr size_t kHuge = size_t{2} << 20;     // a hole may get a huge page
  constexpr size_t kLarge = size_t{64} << 20;
  const Fd file(::memfd_create("hidden", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), kLarge), 0);
  const std::string full(3 * kPiece, 'x');
  ASSERT_EQ(::pwrite(file.get(), full.data(), full.size(), 0), static_cast<ssize_t>(full.size()));
  ASSERT_EQ(::fallocate(file.get(), FALLOC_FL_KEEP_SIZE, kLarge, kLarge), 0);
  seal(file);
  const uint64_t before = occupied_bytes(file.get());
  int pieces = 0;
  const auto mapped = map_peer_region(file, kLarge, "region", [&] { ++pieces; });
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().status, INA_ERR_REFUSED);
  EXPECT_THAT(mapped.error().text, HasSubstr("the region has holes"));
  EXPECT_GE(pieces, 3);
  EXPECT_LE(occupied_bytes(file.get()) - before, kHuge);
}

TEST(PeerRegion, CannotBePunchedOnceItIsMapped) {
  const Fd file = memory_file(true);
  void* own = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(own, MAP_FAILED);
  seal(file);
  const auto mapped = map_peer_region(file, kBytes, "region");
  ASSERT_TRUE(mapped) << mapped.error().text;
  EXPECT_NE(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  EXPECT_NE(::madvise(own, kPage, MADV_REMOVE), 0);
  EXPECT_NE(::ftruncate(file.get(), 0), 0);
  // Existing mappings stay writable.
  std::memset(own, 'y', kBytes);
  EXPECT_EQ(std::to_integer<char>(mapped->data()[0]), 'y');
  ::munmap(own, kBytes);
}

TEST(PeerRegion, MustBeAnOrdinaryMemoryFile) {
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(null), HasSubstr("is no memory file"));
  const Fd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge) return;  // a kernel without them has nothing to refuse
  seal(huge, F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_THAT(refusal(huge, 2 << 20), HasSubstr("is a hugetlb file"));
}

TEST(OwnRegion, IsWhatPeersMap) {
  auto region = make_region("test", kBytes);
  ASSERT_TRUE(region) << region.error().text;
  const auto mapped = map_peer_region(region->fd, kBytes, "region");
  ASSERT_TRUE(mapped) << mapped.error().text;
  region->map.data()[5] = std::byte{7};
  EXPECT_EQ(mapped->data()[5], std::byte{7});
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd.get(), 0),
            MAP_FAILED);
}

TEST(CallersMemory, IsFilledAndSealed) {
  const Fd file = memory_file(false);
  ASSERT_TRUE(io::shm::populate_and_seal(file.get(), kBytes));
  EXPECT_TRUE(map_peer_region(file, kBytes, "region"));
  EXPECT_TRUE(io::shm::populate_and_seal(file.get(), kBytes)) << "again";
  const Fd early = memory_file(false);
  seal(early);
  const auto refused = io::shm::populate_and_seal(early.get(), kBytes);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("has holes"));
}

// ---- who still has it

class WatchTest : public testing::Test {
 protected:
  void SetUp() override {
    auto region = make_region("test", kBytes);
    ASSERT_TRUE(region) << region.error().text;
    region_ = std::move(*region);
    auto watch = Watch::open(region_.fd);
    ASSERT_TRUE(watch) << watch.error().text;
    watch_ = std::move(*watch);
  }
  Region region_;
  Watch watch_;
};

TEST_F(WatchTest, AloneWhenTheHandedOutDescriptorsAreClosed) {
  EXPECT_FALSE(watch_.alone()) << "its own descriptor";
  Fd peer(::dup(region_.fd.get()));
  region_.fd.reset();
  EXPECT_FALSE(watch_.alone());
  Fd reopened(::open(("/proc/self/fd/" + std::to_string(peer.get())).c_str(), O_RDONLY));
  peer.reset();
  EXPECT_FALSE(watch_.alone()) << "one that the peer has opened anew";
  reopened.reset();
  EXPECT_TRUE(watch_.alone());
  EXPECT_TRUE(watch_.alone()) << "looking changes nothing";
}

TEST_F(WatchTest, AMappingCounts) {
  Fd peer(::dup(region_.fd.get()));
  region_ = {};
  auto mapped = map_peer_region(peer, kBytes, "region");
  ASSERT_TRUE(mapped);
  peer.reset();
  EXPECT_FALSE(watch_.alone());
  mapped->reset();
  EXPECT_TRUE(watch_.alone());
}

TEST_F(WatchTest, ADescriptorInAMessageThatNobodyReadsCounts) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  Fd from(ends[0]);
  Fd to(ends[1]);
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof(space);
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = region_.fd.get();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  ASSERT_EQ(::sendmsg(from.get(), &header, 0), 1);
  region_ = {};
  EXPECT_FALSE(watch_.alone());
  to.reset();
  EXPECT_TRUE(watch_.alone());
}

}  // namespace
}  // namespace ina
