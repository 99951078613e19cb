// Text of foreign origin, as it is shown.
#include "common/printable.h"

#include <gtest/gtest.h>

namespace ina {
namespace {

TEST(Printable, OrdinaryTextStaysAsItIs) {
  for (const char* text :
       {"train", "Gr\u00f6\u00dfe \u2264 \U0001f600", "\u4e2d\u6587", "a\\b\"c", ""})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAndBytesThatAreNoUtf8AreBytes) {
  EXPECT_EQ(printable("a\x1b[2J\n\x7f"), "a\\x1b[2J\\x0a\\x7f");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("a\nb\t", "\n"), "a\nb\\x09");
}

TEST(Printable, CharactersThatMisleadAreTheirNumbers) {
  EXPECT_EQ(printable("gnp.\u202egpj"), "gnp.\\u202egpj");
  for (const char* text :
       {"\u0085", "\u009b", "\u00ad", "\u061c", "\u180e",     "\u200b",     "\u200d",    "\u200e",
        "\u200f", "\u2028", "\u2029", "\u202a", "\u2060",     "\u2066",     "\u2069",    "\u206f",
        "\u3164", "\ufe0f", "\ufeff", "\ufff9", "\U000e0001", "\U000e007f", "\U0001d173"}) {
    const std::string shown = printable(text);
    EXPECT_TRUE(shown.starts_with("\\u") || shown.starts_with("\\U")) << shown;
    EXPECT_EQ(shown.find_first_not_of("\\uU0123456789abcdef"), std::string::npos) << shown;
    EXPECT_EQ(printable(shown), shown) << "once is enough";
  }
  EXPECT_EQ(printable("\U000e0001"), "\\U000e0001");
}

}  // namespace
}  // namespace ina
