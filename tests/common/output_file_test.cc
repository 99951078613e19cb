#include "common/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace ina {
namespace {

std::string content_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(OutputFile, APathThatCannotBeWrittenIsAnErrorAtOnce) {
  test::TempDir folder;
  const auto file = OutputFile::open(folder / "none/x");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().text, testing::HasSubstr("none/x: No such file or directory"));
}

TEST(OutputFile, WithoutAResultNothingIsLeftAndNothingIsLost) {
  test::TempDir folder;
  std::ofstream(folder / "old") << "before";
  {
    const auto made = OutputFile::open(folder / "new");
    const auto old = OutputFile::open(folder / "old");
    ASSERT_TRUE(made && old);
    EXPECT_TRUE(std::filesystem::exists(folder / "new"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  EXPECT_EQ(content_of(folder / "old"), "before");
}

TEST(OutputFile, TheResultReplacesWhatWasThere) {
  test::TempDir folder;
  std::ofstream(folder / "old") << "something longer than the result";
  for (const char* name : {"old", "new"}) {
    auto file = OutputFile::open(folder / name);
    ASSERT_TRUE(file && file->write("result\n"));
    EXPECT_EQ(content_of(folder / name), "result\n");
  }
  EXPECT_EQ(content_of(folder / "new"), "result\n") << "when it is closed";
}

TEST(OutputFile, WhatCannotBeWrittenIsToldThen) {
  auto full = OutputFile::open("/dev/full");
  ASSERT_TRUE(full);
  EXPECT_FALSE(full->write("result"));
}

TEST(OutputFile, AResultThatDoesNotFitLeavesTheOldOne) {
  test::TempDir folder;
  std::ofstream(folder / "old") << "before";
  std::filesystem::create_symlink(folder / "old", folder / "link");
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1024, before.rlim_max};
  for (const char* name : {"old", "link"}) {
    auto file = OutputFile::open(folder / name);
    ASSERT_TRUE(file);
    ::setrlimit(RLIMIT_FSIZE, &small);
    const auto written = file->write(std::string(4096, 'x'));
    ::setrlimit(RLIMIT_FSIZE, &before);
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().text, testing::HasSubstr("(ulimit -f) is too low"));
    EXPECT_EQ(content_of(folder / "old"), "before");
    ASSERT_TRUE(file->write("after")) << "as soon as it fits";
    EXPECT_EQ(content_of(folder / "old"), "after");
    std::ofstream(folder / "old") << "before";
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 2);
}

TEST(OutputFile, NoPathIsNoFile) {
  auto none = OutputFile::open("");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->is_wanted());
  EXPECT_TRUE(none->write("result"));
}

}  // namespace
}  // namespace ina
