// The groups that follow from the requests of a job's workers when they split it.
#include "switchd/jobs/splits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

namespace ina::switchd {
namespace {

using control::request::Split;
using testing::ElementsAre;
using testing::IsEmpty;

Job job_that_says(std::initializer_list<Split> said) {
  Job job;
  job.workers = static_cast<uint32_t>(said.size());
  job.members.resize(said.size());
  uint32_t rank = 0;
  for (const Split& split : said) job.members[rank++].split = split;
  return job;
}

TEST(Colours, RanksOfOneColourAreAGroupInTheOrderOfTheirKeys) {
  const auto colours = colours_of(job_that_says({{.colour = 2, .key = 9, .number = 1},
                                                 {.colour = 1, .key = 0, .number = 1},
                                                 {.colour = 2, .key = 4, .number = 1},
                                                 {.colour = 2, .key = 4, .number = 1}}));
  ASSERT_TRUE(colours) << colours.error().text;
  // Ranks of the same key stay in the job's order.
  EXPECT_THAT(*colours, ElementsAre(Colour{.colour = 1, .ranks = {1}, .group = {}},
                                    Colour{.colour = 2, .ranks = {2, 3, 0}, .group = {}}));
}

TEST(Colours, ANegativeColourIsInNoGroup) {
  const auto some = colours_of(job_that_says({{.colour = -1, .number = 3}, {.number = 3}}));
  ASSERT_TRUE(some) << some.error().text;
  EXPECT_THAT(*some, ElementsAre(Colour{.colour = 0, .ranks = {1}, .group = {}}));
  const auto none =
      colours_of(job_that_says({{.colour = -1, .number = 3}, {.colour = -7, .number = 3}}));
  ASSERT_TRUE(none) << none.error().text;
  EXPECT_THAT(*none, IsEmpty());
}

TEST(Colours, WorkersAtDifferentSplitsDisagree) {
  const auto colours = colours_of(job_that_says({{.number = 2}, {.number = 2}, {.number = 3}}));
  ASSERT_FALSE(colours);
  EXPECT_EQ(colours.error().status, INA_ERR_MISMATCH);
  EXPECT_EQ(colours.error().text,
            "for rank 0 this is split 2 of the job, for rank 2 it is split 3");
}

}  // namespace
}  // namespace ina::switchd
