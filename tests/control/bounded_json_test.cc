// Long JSON of a peer: it is parsed whole or not at all, and takes a bounded part of memory.
#include "control/bounded_json.h"

#include <gtest/gtest.h>

#include <string>

namespace ina::control {
namespace {

std::string repeated(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(BoundedJson, TakesWhatASwitchSays) {
  const nlohmann::json status = {{"jobs", {{{"id", 1}, {"name", "a"}}, {{"id", 2}}}},
                                 {"lcores", 4}};
  EXPECT_EQ(parse_bounded(status.dump()), status);
  // 2 parts for the array, and one for each number.
  EXPECT_EQ(parse_bounded("[" + repeated("0,", kMaxJsonParts - 3) + "0]").size(),
            kMaxJsonParts - 2);
}

TEST(BoundedJson, TakesNothingOfMoreParts) {
  EXPECT_TRUE(parse_bounded("[" + repeated("0,", kMaxJsonParts - 2) + "0]").is_discarded());
  EXPECT_TRUE(parse_bounded("{" + repeated("\"\":{},", kMaxJsonParts)).is_discarded());
}

TEST(BoundedJson, TakesNothingThatIsDeeper) {
  const auto nested = [](size_t depth) {
    return parse_bounded(repeated("[", depth) + repeated("]", depth));
  };
  EXPECT_FALSE(nested(kMaxJsonDepth).is_discarded());
  EXPECT_TRUE(nested(kMaxJsonDepth + 2).is_discarded());
  EXPECT_TRUE(parse_bounded(std::string(16 << 20, '[')).is_discarded());
}

TEST(BoundedJson, TakesNothingThatIsNoJson) {
  for (const char* text : {"", "{", "{}}", "{'a':1}", "[1,]", "\xff"})
    EXPECT_TRUE(parse_bounded(text).is_discarded()) << text;
}

}  // namespace
}  // namespace ina::control
