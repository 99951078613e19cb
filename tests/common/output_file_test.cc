#include "common/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(OutputFile, NoPathIsNoFile) {
  auto none = OutputFile::open("");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->is_wanted());
  EXPECT_TRUE(none->write("result"));
}

}  // namespace
}  // namespace ina
