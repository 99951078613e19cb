// Hostile texts: an error or a configuration, but never a crash or a long wait.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/config/config_texts.h"

namespace ina::config {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string repeated(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Hostile, DeepNestingIsAnError) {
  for (const char* piece : {"[", "{", "{a: ", "- ", "? ", "[{", "&a [", "!!x [", "a: [", "\"", "'",
                            "|\n", ">", "*a ", "<<: "})
    for (const size_t times : {501u, 100'000u})
      EXPECT_FALSE(errors_of(repeated(piece, times)).empty()) << piece;
}

TEST(Hostile, DeepBlockNestingIsAnError) {
  std::string text;
  for (size_t depth = 0; depth < 1200; ++depth) text += std::string(depth, ' ') + "a:\n";
  EXPECT_FALSE(errors_of(text).empty());
}

TEST(Hostile, AliasesAreNotExpanded) {
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 60; ++i) text += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  EXPECT_THAT(errors_of(text), testing::Contains(HasSubstr("aliases are not supported")));
}

TEST(Hostile, LargeTextsEnd) {
  EXPECT_FALSE(errors_of("log: {file: " + std::string(kMaxFileBytes, 'x') + "}").empty());
  EXPECT_FALSE(errors_of(std::string(500'000, 'k') + ": 1").empty());
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += fmt::format("key{}: 1\n", i);
  EXPECT_THAT(errors_of(many), SizeIs(20'000));
}

TEST(Hostile, ControlCharactersDoNotReachTheTerminal) {
  for (const std::string& line : errors_of("\"a\\e[31m\": \"\\a\"\nlog: {level: \"\\e[2J\"}"))
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << line;
}

TEST(Hostile, MutatedSamplesDoNotCrash) {
  const std::string sample = sample_config();
  std::mt19937 random(1);
  constexpr std::string_view kPieces = "{}[]:,-?&*!|>'\"%@`#\n\t \\~ax0";
  for (int round = 0; round < 300; ++round) {
    std::string text = sample;
    for (int change = 0; change < 1 + round % 8; ++change) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = kPieces[random() % kPieces.size()];
          break;
        case 1:
          text.insert(at, 1, kPieces[random() % kPieces.size()]);
          break;
        default:
          text.erase(at, 1 + random() % 20);
      }
    }
    for (const std::string& line : errors_of(text)) EXPECT_TRUE(line.starts_with("x.yaml:"));
  }
}

}  // namespace
}  // namespace ina::config
