// Tables and lines for a terminal.
#include "common/text_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace ina {
namespace {

TextTable sample() {
  TextTable table({"NAME", "N", "WHERE", "RARE"}, {true, false, true, false});
  table.set_expendable({3});
  table.add({"a-name-of-more-than-thirty-columns", "1,000", "somewhere far away, too", "77"});
  table.add({"b", "2", "here", "8"});
  return table;
}

TEST(TextTable, WithoutAWidthAllIsShown) {
  EXPECT_EQ(sample().str(),
            "NAME                                    N  WHERE                    RARE\n"
            "a-name-of-more-than-thirty-columns  1,000  somewhere far away, too    77\n"
            "b                                       2  here                        8\n");
}

TEST(TextTable, TextsAreShortenedWidestFirst) {
  EXPECT_EQ(sample().str(60),
            "NAME                        N  WHERE                    RARE\n"
            "a-name-of-more-than-t…  1,000  somewhere far away, too    77\n"
            "b                           2  here                        8\n");
}

TEST(TextTable, ColumnsGoWhereTextsAreAsShortAsTheyMayBe) {
  EXPECT_EQ(sample().str(33),
            "NAME              N  WHERE\n"
            "a-name-of-m…  1,000  somewhere f…\n"
            "b                 2  here\n");
}

TEST(TextTable, NoLineIsWiderThanTheTerminal) {
  for (size_t width = 1; width < 100; ++width) {
    std::istringstream lines(sample().str(width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << line;
  }
}

TEST(TextTable, WideCharactersCountTwice) {
  EXPECT_EQ(columns_of("a\u00e9\u4e2d\u0301\U0001f600"), 6u);
  EXPECT_EQ(shortened("\u4e2d\u4e2d\u4e2d", 4), "\u4e2d…");
  EXPECT_EQ(shortened("\u4e2d\u4e2d", 4), "\u4e2d\u4e2d");
}

TEST(Wrapped, BreaksAtBlanksAndIndents) {
  EXPECT_EQ(wrapped("  - one two three four\nshort\n", 12),
            "  - one two\n      three\n      four\nshort\n");
  EXPECT_EQ(wrapped("a-word-that-is-longer-than-a-line and more", 10),
            "a-word-tha\n  t-is-lon\n  ger-than\n  -a-line\n  and more");
  for (size_t width = 4; width < 90; ++width) {
    std::istringstream lines(
        wrapped("  - some words and a-word-that-is-longer-than-a-line, too", width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << line;
  }
  EXPECT_EQ(wrapped("any width will do\n", 0), "any width will do\n");
}

}  // namespace
}  // namespace ina
