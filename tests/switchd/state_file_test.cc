// The state file: its content, and its errors.
#include "switchd/jobs/state_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "common/fd.h"
#include "tests/support/temp_dir.h"

namespace ina::switchd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SavedJob sample(uint32_t id, const std::string& name = "train") {
  return {name, id, 0xfedcba9876543210, 1000, 64, 4097, 2, 1024, 32, 5, 32};
}

class StateFileTest : public testing::Test {
 protected:
  std::string path() const { return dir_ / "state"; }
  std::string read() const {
    std::stringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  std::string error(const std::string& at) const {
    const auto file = StateFile::open(at);
    return file ? "no error" : file.error().text;
  }
  test::TempDir dir_;
};

TEST_F(StateFileTest, RemembersJobsIdsAndStarts) {
  uint32_t last_id = 0;
  {
    auto file = StateFile::open(path());
    ASSERT_TRUE(file) << file.error().text;
    EXPECT_EQ(file->boots(), 1u);
    EXPECT_TRUE(file->jobs().empty());
    for (int i = 0; i < 3; ++i) last_id = file->new_job_id();
    ASSERT_TRUE(file->put(sample(1, "gone")));
    ASSERT_TRUE(file->put(sample(2)));
    SavedJob changed = sample(2);
    changed.epoch = 5000;
    ASSERT_TRUE(file->put(changed));
    ASSERT_TRUE(file->put(sample(3, "other \"job\" \xc3\xa4")));
    ASSERT_TRUE(file->erase(1));
    ASSERT_TRUE(file->erase(77));
  }
  auto file = StateFile::open(path());
  ASSERT_TRUE(file) << file.error().text;
  EXPECT_EQ(file->boots(), 2u);
  SavedJob changed = sample(2);
  changed.epoch = 5000;
  EXPECT_THAT(file->jobs(), ElementsAre(changed, sample(3, "other \"job\" \xc3\xa4")));
  EXPECT_EQ(file->new_job_id(), last_id + 1) << "an id is not given out twice";
}

TEST_F(StateFileTest, RemembersTheSwitchesOfASpreadJob) {
  SavedJob job = sample(1);
  job.spread = true;
  job.tree_members = {{0, {5, 6}, 0}, {1, {0, 2, 10, 64}, 77}};
  job.above_id = 9;
  job.above_key = 10;
  ASSERT_TRUE(StateFile::open(path())->put(job));
  EXPECT_THAT(StateFile::open(path())->jobs(), ElementsAre(job));
  const auto wrong = [&](auto&& change) {
    SavedJob changed = job;
    change(changed);
    ASSERT_TRUE(StateFile::open(path())->put(changed));
    EXPECT_THAT(error(path()), HasSubstr("which workers are at which switch"));
    std::filesystem::remove(path());
  };
  wrong([](SavedJob& other) { other.tree_members[1].number = 2; });
  wrong([](SavedJob& other) { other.tree_members[1].ranks = {0, 6}; });
  wrong([](SavedJob& other) { other.tree_members[1].ranks = {60, 65}; });
  wrong([](SavedJob& other) { other.tree_members[0].ranks = {5, 7}; });
  wrong([](SavedJob& other) { other.above_id = 0; });
}

TEST_F(StateFileTest, RemembersWhoseAJobIsAndOlderFilesHaveUsersOnly) {
  SavedJob job = sample(1);
  job.tenant = "vision";
  ASSERT_TRUE(StateFile::open(path())->put(job));
  EXPECT_THAT(StateFile::open(path())->jobs(), ElementsAre(job));
  std::string text = read();
  const std::string field = "\"tenant\": \"vision\",";
  ASSERT_NE(text.find(field), std::string::npos);
  write(text.replace(text.find(field), field.size(), ""));
  const auto older = StateFile::open(path());
  ASSERT_TRUE(older) << older.error().text;
  EXPECT_THAT(older->jobs(), ElementsAre(sample(1)));
}

TEST_F(StateFileTest, EachStartIsOnDiskAtOnce) {
  for (uint32_t boot = 1; boot <= 3; ++boot) {
    const auto file = StateFile::open(path());
    ASSERT_TRUE(file);
    EXPECT_EQ(file->boots(), boot);
    EXPECT_THAT(read(), HasSubstr("\"boots\": " + std::to_string(boot)));
  }
}

TEST_F(StateFileTest, OnlyTheOwnerMayReadIt) {
  auto file = StateFile::open(path());
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->put(sample(1)));
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u) << "it holds the jobs' keys";
}

/// The first epochs of a start are known from its number: none is given out twice.
TEST_F(StateFileTest, FirstEpochsOfAStartNeedNotBeWritten) {
  SavedJob job = sample(1);
  job.epoch = 0;
  std::set<uint32_t> given;
  for (int start = 0; start < 5; ++start) {
    auto file = StateFile::open(path());
    ASSERT_TRUE(file);
    if (start == 0) {
      ASSERT_TRUE(file->put(job));
    }
    job = file->jobs().front();
    job.epoch = *file->epoch_after(job.epoch);
    EXPECT_TRUE(given.insert(job.epoch).second) << start;
    const std::string before = read();
    ASSERT_TRUE(file->replace({job}));
    EXPECT_EQ(read(), before);
    EXPECT_THAT(file->jobs(), ElementsAre(job));
    if (start % 2 == 0) continue;
    ++job.epoch;  // of another fallback server, for example
    EXPECT_TRUE(given.insert(job.epoch).second);
    ASSERT_TRUE(file->replace({job}));
    EXPECT_NE(read(), before);
  }
}

TEST_F(StateFileTest, EpochsNeverGoBack) {
  uint32_t last = 0;
  for (uint32_t boot = 1; boot <= 2; ++boot) {
    auto file = StateFile::open(path());
    ASSERT_TRUE(file);
    for (const SavedJob& job : file->jobs()) EXPECT_EQ(job.epoch, last);
    EXPECT_EQ(*file->epoch_after(0), boot << StateFile::kEpochNumberBits);
    // More epochs in one boot than the number has room for.
    for (uint32_t i = 0; i < 5000; ++i) {
      const auto next = file->epoch_after(last);
      ASSERT_TRUE(next);
      ASSERT_GT(*next, last);
      last = *next;
    }
    SavedJob job = sample(1);
    job.epoch = last;
    ASSERT_TRUE(file->put(job));
  }
  const auto file = StateFile::open(path());
  ASSERT_TRUE(file);
  EXPECT_GT(*file->epoch_after(last), last);
  EXPECT_FALSE(file->epoch_after(UINT32_MAX));
}

TEST_F(StateFileTest, UsedUpBootCounterStartsAgainWithoutJobs) {
  ASSERT_TRUE(StateFile::open(path())->put(sample(1)));
  std::string text = read();
  const std::string before = "\"boots\": 1,";
  text.replace(text.find(before), before.size(),
               "\"boots\": " + std::to_string(StateFile::kMaxBoots) + ",");
  write(text);
  auto file = StateFile::open(path());
  ASSERT_TRUE(file) << file.error().text;
  EXPECT_EQ(file->boots(), 1u);
  EXPECT_TRUE(file->jobs().empty());
  EXPECT_GT(file->new_job_id(), 0u);
}

TEST_F(StateFileTest, DamagedFileIsRefusedAndLeftAlone) {
  ASSERT_TRUE(StateFile::open(path())->put(sample(1)));
  const std::string good = read();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2),
        with("\"format\": 1", "\"format\": 2"), with("\"boots\": 1", "\"boots\": -1"),
        with("\"workers\": 64", "\"workers\": 4097"), with("\"id\": 1", "\"id\": 4294967296"),
        with("\"key\": ", "\"kez\": "), with("\"train\"", "17"),
        with("\"tenant\": \"\"", "\"tenant\": 3"),
        with("\"tenant\": \"\"", "\"tenant\": \"" + std::string(32, 't') + '"'),
        with("\"jobs\": [", "\"jobs\": 3, \"x\": [")}) {
    write(bad);
    const std::string said = error(path());
    EXPECT_THAT(said, HasSubstr("state file " + path() + " is damaged")) << bad;
    EXPECT_THAT(said, HasSubstr("remove it to start without them"));
    EXPECT_EQ(read(), bad) << "evidence must not be overwritten";
  }
}

TEST_F(StateFileTest, FolderThatIsMissingOrCannotBeWrittenIsNamed) {
  const std::string missing = dir_ / "no/such/state";
  EXPECT_THAT(error(missing), HasSubstr(missing));
  EXPECT_THAT(error(missing), HasSubstr("create its folder first"));
  EXPECT_THAT(error(dir_ / ""), HasSubstr("control.state"));
  EXPECT_THAT(error("/proc/state"), HasSubstr("cannot open the state file /proc/state"));
  // Root may write anywhere, so a folder in the way of the temporary file stands for a full disk.
  ASSERT_TRUE(StateFile::open(path()));
  std::filesystem::create_directories(path() + ".new/x");
  EXPECT_THAT(error(path()), HasSubstr("cannot write the state file " + path()));
}

TEST_F(StateFileTest, FileOfAnotherUserIsNotBelieved) {
  ASSERT_TRUE(StateFile::open(path()));
  if (::chown(path().c_str(), 12345, 12345) != 0) GTEST_SKIP() << "giving files away takes root";
  EXPECT_THAT(error(path()), HasSubstr("belongs to another user (uid 12345)"));
}

TEST_F(StateFileTest, SecondSwitchIsRefused) {
  auto file = StateFile::open(path());
  ASSERT_TRUE(file);
  EXPECT_THAT(error(path()), HasSubstr("another switch uses the state file " + path()));
  ASSERT_TRUE(file->put(sample(1)));
  EXPECT_THAT(error(path()), HasSubstr("another switch")) << "the lock goes with the new file";
}

/// A fork of the switch keeps the file open that was locked at that time.
TEST_F(StateFileTest, AnotherProcessThatHoldsAnOldFileIsNotInTheWay) {
  auto file = StateFile::open(path());
  ASSERT_TRUE(file) << file.error().text;
  const Fd forked(::open(path().c_str(), O_RDWR | O_CLOEXEC));
  for (uint32_t id = 1; id < 5; ++id) {
    ASSERT_TRUE(file->put(sample(id, "job" + std::to_string(id))));
    // The file before is the spare one now. As if its lock had not been given back.
    if (id == 1) {
      ASSERT_EQ(::flock(forked.get(), LOCK_EX | LOCK_NB), 0);
    }
  }
  EXPECT_THAT(read(), HasSubstr("job4"));
}

TEST_F(StateFileTest, RestOfAWriteThatWasCutShortDoesNoHarm) {
  ASSERT_TRUE(StateFile::open(path())->put(sample(1)));
  std::ofstream(path() + ".new") << "{\"format\": ";
  const auto file = StateFile::open(path());
  ASSERT_TRUE(file) << file.error().text;
  EXPECT_THAT(file->jobs(), ElementsAre(sample(1)));
}

TEST_F(StateFileTest, TheNextWriteHasRoomOnTheDisk) {
  auto file = StateFile::open(path());
  ASSERT_TRUE(file && file->put(sample(1)));
  struct stat spare {};
  ASSERT_EQ(::stat((path() + ".spare").c_str(), &spare), 0);
  EXPECT_GE(spare.st_blocks * 512, 16384) << "kept for it";
  const ino_t inode = spare.st_ino;
  ASSERT_TRUE(file->put(sample(2, "other")));
  ASSERT_EQ(::stat(path().c_str(), &spare), 0);
  EXPECT_EQ(spare.st_ino, inode) << "the spare file is the next one";
}

TEST_F(StateFileTest, AFileThatAnotherPutThereIsNotWrittenTo) {
  const std::string spare = path() + ".spare";
  const std::string victim = dir_ / "victim";
  for (const bool soft : {true, false}) {
    std::ofstream(victim) << "mine";
    std::filesystem::remove(spare);
    if (soft)
      std::filesystem::create_symlink(victim, spare);
    else
      std::filesystem::create_hard_link(victim, spare);
    ASSERT_TRUE(StateFile::open(path()));
    std::stringstream text;
    text << std::ifstream(victim).rdbuf();
    EXPECT_EQ(text.str(), "mine");
  }
}

}  // namespace
}  // namespace ina::switchd
