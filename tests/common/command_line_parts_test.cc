#include "common/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ina::command_line {
namespace {

using testing::HasSubstr;

enum class Colour : uint8_t { kRed, kGreen };  // one byte: CLI11 prints these as bytes

/// A program with one option of each kind.
struct Program {
  command_line::App app{"A program", "program"};
  Colour colour = Colour::kGreen;
  uint32_t count = 0;
  int64_t offset = 0;
  double rate = 1;
  uint64_t time_s = 0;
  uint64_t bytes = 0;

  Program() {
    add_choice(app, "--colour", colour, {{"red", Colour::kRed}, {"green", Colour::kGreen}},
               "Paint");
    app.add_option("--count", count)->check(between(1, 64));
    app.add_option("--offset", offset);
    app.add_option("--rate", rate)->check(positive());
    app.add_option("--time", time_s)->transform(duration())->type_name("TIME");
    app.add_option("--bytes", bytes)->transform(size())->type_name("SIZE");
  }
  std::optional<int> run(const std::string& argument) {
    const char* arguments[] = {"program", argument.c_str()};
    testing::internal::CaptureStderr();
    const auto status = parse(app, 2, arguments);
    said = testing::internal::GetCapturedStderr();
    return status;
  }
  std::string said;
};

TEST(CommandLine, ChoicesHaveNamesInTheHelpAndInErrors) {
  Program program;
  EXPECT_THAT(program.app.help(), HasSubstr("--colour NAME=green"));
  EXPECT_THAT(program.app.help(), HasSubstr("Paint: red, green"));
  EXPECT_EQ(program.run("--colour=blue"), kExitUsage);
  EXPECT_EQ(program.said,
            "program: --colour: 'blue' is none of red, green; --help lists what there is\n");
  EXPECT_EQ(Program().run("--colour=red"), std::nullopt);
  Program other;
  EXPECT_EQ(other.run("--colour=RED"), std::nullopt);
  EXPECT_EQ(other.colour, Colour::kRed);
}

TEST(CommandLine, NumbersAreNumbersThatFit) {
  for (const char* wrong : {"--count=0",
                            "--count=65",
                            "--count=-1",
                            "--count=4294967297",
                            "--count=1e1",
                            "--count=0x10",
                            "--count=",
                            "--count=18446744073709551617",
                            "--offset=9223372036854775808",
                            "--offset=-",
                            "--rate=0",
                            "--rate=inf",
                            "--rate=nan",
                            "--rate=1e999",
                            "--rate=-1",
                            "--rate=1x",
                            "--time=soon",
                            "--time=-1s",
                            "--time=1 y",
                            "--time=9223372036854775807d",
                            "--bytes=4XB",
                            "--bytes=",
                            "--bytes=9999999999GiB"}) {
    Program program;
    EXPECT_EQ(program.run(wrong), kExitUsage) << wrong;
    EXPECT_THAT(program.said, HasSubstr(std::string(wrong).substr(0, 5))) << wrong;
  }
  Program program;
  EXPECT_EQ(program.run("--count=64"), std::nullopt);
  EXPECT_EQ(program.count, 64u);
  EXPECT_EQ(program.run("--offset=-9223372036854775808"), std::nullopt);
  EXPECT_EQ(program.offset, INT64_MIN);
  EXPECT_EQ(program.run("--rate=2.5e3"), std::nullopt);
  EXPECT_EQ(program.rate, 2500);
}

TEST(CommandLine, TimesAndSizesHaveUnits) {
  for (const auto& [text, seconds] :
       std::map<std::string, uint64_t>{{"90", 90}, {"90s", 90}, {"2 min", 120}, {"3H", 10'800}}) {
    Program program;
    EXPECT_EQ(program.run("--time=" + text), std::nullopt) << program.said;
    EXPECT_EQ(program.time_s, seconds) << text;
  }
  for (const auto& [text, bytes] : std::map<std::string, uint64_t>{
           {"7", 7}, {"4KiB", 4096}, {"2 MiB", 2 << 20}, {"1g", 1 << 30}}) {
    Program program;
    EXPECT_EQ(program.run("--bytes=" + text), std::nullopt) << program.said;
    EXPECT_EQ(program.bytes, bytes) << text;
  }
}

TEST(CommandLine, ErrorsAreOneLineForATerminal) {
  Program program;
  EXPECT_EQ(program.run("--no\nsuch\x1b[2J"), kExitUsage);
  EXPECT_THAT(program.said, HasSubstr("--no\\x0asuch\\x1b[2J"));
  EXPECT_EQ(std::ranges::count(program.said, '\n'), 1);
}

}  // namespace
}  // namespace ina::command_line
