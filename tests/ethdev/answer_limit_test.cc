#include "io/ethdev/answer_limit.h"

#include <gtest/gtest.h>

namespace ina::io {
namespace {

constexpr Nanos kStart = 1'000'000'000'000;

/// How many of `asked` at the same time are answered.
int64_t answers(AnswerLimit& limit, Nanos now, int asked) {
  int64_t given = 0;
  for (int i = 0; i < asked; ++i) given += limit.take(now);
  return given;
}

TEST(AnswerLimit, AfterSilenceManyAtOnce) {
  AnswerLimit limit;
  EXPECT_EQ(answers(limit, kStart, 1000), AnswerLimit::kAnswersAtOnce + 1);
  // Silence of any length is worth no more than that.
  EXPECT_EQ(answers(limit, 2 * kStart, 1000), AnswerLimit::kAnswersAtOnce + 1);
}

TEST(AnswerLimit, WhoeverGoesOnAskingGetsOneEachTime) {
  AnswerLimit limit;
  answers(limit, kStart, 1000);
  EXPECT_EQ(answers(limit, kStart + AnswerLimit::kAnswerEveryNs - 1, 1000), 0);
  int64_t given = 0;
  for (Nanos time = 1; time <= 50; ++time)
    given += answers(limit, kStart + time * AnswerLimit::kAnswerEveryNs, 10);
  EXPECT_EQ(given, 50);
}

}  // namespace
}  // namespace ina::io
