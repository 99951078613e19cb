// The log: no value is anything but a value, nobody writes as much as he likes, and its file can be
// moved away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "common/json/json.h"
#include "common/logging/escape.h"
#include "common/logging/file_sink.h"
#include "common/logging/journal.h"
#include "common/logging/rate_limit.h"
#include "common/logging/record.h"
#include "tests/support/temp_dir.h"

namespace ina::logging {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Nanos kSecond = 1'000'000'000;

std::string escaped(std::string_view value) {
  std::string line;
  append_escaped(line, value);
  return line;
}

/// The log of the process while this object exists.
class Captured {
 public:
  explicit Captured(LogFormat format = LogFormat::kText, const std::string& pattern = "%l %v")
      : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_st>(out_));
    logger->set_pattern(pattern);
    spdlog::set_default_logger(std::move(logger));
    set_format(format);
  }
  ~Captured() {
    set_format(LogFormat::kText);
    spdlog::set_default_logger(before_);
  }
  std::string text() const { return out_.str(); }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream out_;
};

TEST(Escape, LeavesPlainTextAsItIs) {
  EXPECT_EQ(escaped("rank 3 of job 'train' (10.0.0.2:33)"), "rank 3 of job 'train' (10.0.0.2:33)");
  EXPECT_EQ(escaped("Gr\u00f6\u00dfe \u2264 \U0001f600"), "Gr\u00f6\u00dfe \u2264 \U0001f600");
}

TEST(Escape, LetsNothingOutOfItsQuotesOrItsLine) {
  EXPECT_EQ(escaped("a\" job=\"b"), "a\\\" job=\\\"b");
  EXPECT_EQ(escaped("a\\"), "a\\\\");
  EXPECT_EQ(escaped("a\nb\r\t\x1b[2J\x7f"), "a\\x0ab\\x0d\\x09\\x1b[2J\\x7f");
  EXPECT_EQ(escaped(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escaped("\u0085\u009b"), "\\xc2\\x85\\xc2\\x9b") << "controls of two bytes";
  EXPECT_EQ(escaped("\u2028\u202e\u2066"), "\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xe2\\x81\\xa6");
}

TEST(Escape, WhatIsNoUtf8IsWrittenAsNumbers) {
  EXPECT_EQ(escaped("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(escaped("\xc3"), "\\xc3") << "cut short";
  EXPECT_EQ(escaped("\xc0\x8a"), "\\xc0\\x8a") << "an overlong line feed";
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
}

TEST(Escape, IsBounded) {
  const std::string line = escaped(std::string(100'000, '\n'));
  EXPECT_LE(line.size(), kMaxValueBytes + 20);
  EXPECT_THAT(line, testing::EndsWith("\\x0a..."));
  EXPECT_EQ(escaped(std::string(kMaxValueBytes, 'x')), std::string(kMaxValueBytes, 'x'));
}

TEST(Escape, OfAnyBytesIsOneLineOfPrintableText) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string line = escaped(bytes);
    for (size_t at = 0; at < line.size(); ++at) {
      ASSERT_GE(static_cast<uint8_t>(line[at]), 0x20) << line;
      ASSERT_NE(line[at], '\x7f') << line;
      if (line[at] == '\\')
        ++at;  // what follows belongs to it
      else
        ASSERT_NE(line[at], '"') << line;
    }
  }
}

std::string escaped_for_json(std::string_view value) {
  std::string line;
  append_escaped(line, value, Escapes::kJson);
  return line;
}

TEST(Escape, ForJsonGivesCodePoints) {
  EXPECT_EQ(escaped_for_json("Gr\u00f6\u00dfe \"x\" \\"), "Gr\u00f6\u00dfe \\\"x\\\" \\\\");
  EXPECT_EQ(escaped_for_json("a\nb\x1b\x7f"), "a\\u000ab\\u001b\\u007f");
  EXPECT_EQ(escaped_for_json("\u0085\u2028\u202e\u2066"), "\\u0085\\u2028\\u202e\\u2066");
  EXPECT_EQ(escaped_for_json("\xff\xc3"), "\\ufffd\\ufffd") << "no UTF-8";
  EXPECT_LE(escaped_for_json(std::string(100'000, '\n')).size(), kMaxValueBytes + 20);
}

TEST(Record, QuotesEveryValue) {
  Captured log;
  info("job admitted")("job", "a\nwarn forged job=\"b\"")("workers", 4)("tls", true)("text", "");
  warn("refused")("status", INA_ERR_MISMATCH);
  EXPECT_EQ(log.text(),
            "info job admitted job=\"a\\x0awarn forged job=\\\"b\\\"\" workers=\"4\" tls=\"true\" "
            "text=\"\"\nwarning refused status=\"INA_ERR_MISMATCH\"\n");
}

TEST(Record, InJsonIsAnObjectALineWithTimeAndLevel) {
  Captured log(LogFormat::kJson, pattern_of(LogFormat::kJson));
  info("job admitted")("job", "a\nb=\"c\"")("workers", 4)("tls", true)("share", 0.5)("text", "");
  error("odd")("ratio", std::nan(""))("status", INA_ERR_MISMATCH);
  std::istringstream lines(log.text());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  auto record = nlohmann::json::parse(line);
  EXPECT_THAT(record.at("time").get<std::string>(),
              testing::MatchesRegex("....-..-..T..:..:..\\.......[+-]..:.."));
  record.erase("time");
  EXPECT_EQ(record, (nlohmann::json{{"level", "info"},
                                    {"message", "job admitted"},
                                    {"job", "a\nb=\"c\""},
                                    {"workers", 4},
                                    {"tls", true},
                                    {"share", 0.5},
                                    {"text", ""}}));
  ASSERT_TRUE(std::getline(lines, line));
  record = nlohmann::json::parse(line);
  EXPECT_EQ(record.at("level"), "error");
  EXPECT_EQ(record.at("ratio"), "nan");
  EXPECT_EQ(record.at("status"), "INA_ERR_MISMATCH");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(Record, InJsonKeepsAnyBytesAValueOfOneLine) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    Captured log(LogFormat::kJson, pattern_of(LogFormat::kJson));
    info("x")("text", bytes)("after", 1);
    const std::string text = log.text();
    ASSERT_EQ(std::ranges::count(text, '\n'), 1);
    const auto record = nlohmann::json::parse(text);
    ASSERT_EQ(record.size(), 5u) << text;
    // The value's characters as another library takes them.
    const std::string expected = nlohmann::json::parse(
        nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    const auto without_replacements = [](std::string value) {
      for (size_t at; (at = value.find("\ufffd")) != std::string::npos;) value.erase(at, 3);
      return value;
    };
    ASSERT_EQ(without_replacements(record.at("text")), without_replacements(expected));
  }
}

TEST(Record, InJsonIsLimitedLikeText) {
  Captured log(LogFormat::kJson);
  for (int i = 0; i < 5000; ++i) warn("flood of objects", "uid:4713")("text", "x");
  EXPECT_LT(std::ranges::count(log.text(), '\n'), 100);
}

TEST(Record, NamesOfValuesAreFieldsAndNoMembersOfEveryLine) {
  EXPECT_TRUE(is_key("slot_bytes") && is_key("rank2") && is_key("log.file"));
  for (const char* no : {"", "time", "level", "message", "Job", "a-b", "a\"b"})
    EXPECT_FALSE(is_key(no)) << no;
}

TEST(Journal, FieldsAreNamesInCapitalsAndValuesOfAnyBytes) {
  EXPECT_EQ(journal_field("slot_bytes", "1024"), "INA_SLOT_BYTES=1024");
  EXPECT_EQ(journal_field("log.file", "x"), "INA_LOG_FILE=x");
  EXPECT_EQ(journal_field("job", "a\nMESSAGE=b"), "INA_JOB=a\nMESSAGE=b");
  EXPECT_EQ(journal_field("text", std::string(100'000, 'x')),
            "INA_TEXT=" + std::string(kMaxValueBytes, 'x') + "...");
}

TEST(Record, FormatsNothing) {
  Captured log;
  info("braces")("text", "{} {0} {:x} %v %l");
  EXPECT_EQ(log.text(), "info braces text=\"{} {0} {:x} %v %l\"\n");
}

TEST(Record, OfOneSourceIsLimitedAndWhatIsLeftOutIsCounted) {
  Captured log;
  for (int i = 0; i < 5000; ++i) warn("flood", "uid:4711")("text", "x");
  warn("flood", "uid:4712")("text", "the other");
  warn("flood")("text", "our own");
  const std::string text = log.text();
  EXPECT_LT(std::ranges::count(text, '\n'), 100);
  EXPECT_THAT(text, HasSubstr("the other"));
  EXPECT_THAT(text, HasSubstr("our own"));
  report_omitted(INT64_MAX);
  EXPECT_THAT(log.text(), HasSubstr("warning records left out source=\"uid:4711\" event=\"flood\" "
                                    "records=\"49"));
}

// ---- RateLimit

RateLimit::Limits small() {
  return {.burst = 3,
          .every_ns = kSecond,
          .burst_of_all = 10,
          .every_of_all_ns = kSecond,
          .sources = 4};
}

int admitted(RateLimit& limit, std::string_view source, int times, Nanos now,
             std::string_view event = "refused") {
  int count = 0;
  for (int i = 0; i < times; ++i) count += limit.admit(source, event, now);
  return count;
}

TEST(RateLimit, GivesABurstAndThenARate) {
  RateLimit limit(small());
  EXPECT_EQ(admitted(limit, "a", 100, kSecond), 3);
  EXPECT_EQ(admitted(limit, "a", 100, kSecond + kSecond / 2), 0);
  EXPECT_EQ(admitted(limit, "a", 100, 2 * kSecond), 1);
  EXPECT_EQ(admitted(limit, "a", 100, 100 * kSecond), 3) << "no more than a burst is saved up";
}

TEST(RateLimit, SourcesAndEventsHaveBucketsOfTheirOwn) {
  RateLimit limit(small());
  EXPECT_EQ(admitted(limit, "a", 100, kSecond), 3);
  EXPECT_EQ(admitted(limit, "a", 100, kSecond, "job ended"), 3);
  EXPECT_EQ(admitted(limit, "b", 1, kSecond), 1);
}

TEST(RateLimit, AllTogetherAreLimitedToo) {
  RateLimit limit(small());
  int count = 0;
  for (const char* source : {"a", "b", "c", "d", "e", "f"})
    count += admitted(limit, source, 100, kSecond);
  EXPECT_LE(count, 10);
}

TEST(RateLimit, TheTableIsBounded) {
  RateLimit limit(small());
  for (int i = 0; i < 1000; ++i) limit.admit("10.0.0." + std::to_string(i), "refused", kSecond);
  EXPECT_LE(limit.size(), 4u);
  // Sources that have been silent make room again.
  limit.take_omitted();
  EXPECT_EQ(admitted(limit, "late", 100, 100 * kSecond), 3);
  EXPECT_LE(limit.size(), 4u);
}

TEST(RateLimit, CountsWhatIsLeftOut) {
  RateLimit limit(small());
  admitted(limit, "a", 10, kSecond);
  admitted(limit, "b", 2, kSecond);
  const auto omitted = limit.take_omitted();
  ASSERT_EQ(omitted.size(), 1u);
  EXPECT_EQ(omitted[0].source, "a");
  EXPECT_EQ(omitted[0].event, "refused");
  EXPECT_EQ(omitted[0].records, 7u);
  EXPECT_TRUE(limit.take_omitted().empty());
}

TEST(RateLimit, KeepsNoLongKeys) {
  RateLimit limit(small());
  EXPECT_EQ(admitted(limit, std::string(1 << 20, 'x'), 10, kSecond), 3);
  EXPECT_LT(limit.take_omitted().at(0).source.size(), 100u);
}

// ---- FileSink

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(FileSink, GoesOnInANewFileWhenTheOldOneWasMovedAway) {
  test::TempDir folder;
  const std::string path = folder / "log";
  auto sink = FileSink::open(path, "log.file");
  ASSERT_TRUE(sink) << sink.error().text;
  spdlog::logger logger("test", *sink);
  logger.set_pattern("%v");
  logger.info("one");
  ASSERT_EQ(::rename(path.c_str(), (path + ".1").c_str()), 0);
  logger.info("two");
  ASSERT_TRUE((*sink)->reopen());
  logger.info("three");
  EXPECT_EQ(contents(path + ".1"), "one\ntwo\n");
  EXPECT_EQ(contents(path), "three\n");
}

TEST(FileSink, MakesNoFoldersAndSaysSo) {
  test::TempDir folder;
  const auto sink = FileSink::open(folder / "missing/log", "log.file");
  ASSERT_FALSE(sink);
  EXPECT_THAT(sink.error().text, HasSubstr("(log.file)"));
  EXPECT_THAT(sink.error().text, HasSubstr("create its folder first"));
  struct stat status {};
  EXPECT_NE(::stat((folder / "missing").c_str(), &status), 0);
}

TEST(FileSink, GoesOnWhereItWasIfThePathCannotBeOpened) {
  test::TempDir folder;
  const std::string path = folder / "log";
  auto sink = FileSink::open(path, "log.file");
  ASSERT_TRUE(sink);
  spdlog::logger logger("test", *sink);
  logger.set_pattern("%v");
  ASSERT_EQ(::rename(path.c_str(), (path + ".1").c_str()), 0);
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  const auto reopened = (*sink)->reopen();
  ASSERT_FALSE(reopened);
  EXPECT_THAT(reopened.error().text, HasSubstr("the log goes on where it was"));
  logger.info("still here");
  EXPECT_EQ(contents(path + ".1"), "still here\n");
}

TEST(FileSink, AFifoThatNobodyReadsHoldsNothingUp) {
  test::TempDir folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(FileSink::open(folder / "fifo", "log.file"));
}

}  // namespace
}  // namespace ina::logging
