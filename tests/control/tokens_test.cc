// Token files: access by them, and the errors of a wrong file.
#include "control/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "tests/support/temp_dir.h"

namespace ina::control {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kRed = "red-token-0123456789";
const std::string kBlue = "blue-token-0123456789";

class TokensTest : public testing::Test {
 protected:
  std::string write(const std::string& text, mode_t mode = 0600) const {
    const std::string path = dir_ / "tokens";
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static std::string error(const std::string& path) {
    const auto table = TokenTable::load(path);
    return table ? "no error" : table.error().text;
  }
  test::TempDir dir_;
};

TEST_F(TokensTest, EachTokenIsItsTenants) {
  const auto table = TokenTable::load(
      write("# who\n\n red  " + kRed + " \nblue\t" + kBlue + "\nred another-" + kRed + "\n"));
  ASSERT_TRUE(table) << table.error().text;
  EXPECT_EQ(table->size(), 3u);
  EXPECT_EQ(table->tenant_of(kRed), "red");
  EXPECT_EQ(table->tenant_of("another-" + kRed), "red");
  EXPECT_EQ(table->tenant_of(kBlue), "blue");
  for (const std::string& token :
       {std::string(), kRed.substr(1), kRed.substr(0, kRed.size() - 1), kRed + "x", kRed + kRed,
        std::string("red"), std::string(kRed.size(), 'x'), std::string(100'000, 'x')})
    EXPECT_EQ(table->tenant_of(token), std::nullopt) << token.substr(0, 60);
}

TEST_F(TokensTest, AFileThatOthersMayReadOrWriteIsRefused) {
  for (const mode_t mode : {0604, 0644, 0602, 0620, 0666}) {
    const std::string path = write("red " + kRed + "\n", mode);
    EXPECT_THAT(error(path), HasSubstr("the token file " + path)) << mode;
    EXPECT_THAT(error(path), HasSubstr("others may read or write it")) << mode;
  }
  EXPECT_EQ(error(write("red " + kRed + "\n", 0640)), "no error");
}

TEST_F(TokensTest, AFileThatIsNoneIsNamed) {
  EXPECT_THAT(error(dir_ / "none"), HasSubstr(dir_ / "none"));
  EXPECT_THAT(error(dir_ / "none"), HasSubstr("No such file"));
  EXPECT_THAT(error(dir_ / ""), HasSubstr("not a regular file"));
  EXPECT_THAT(error("/dev/zero"), HasSubstr("not a regular file"));
  EXPECT_THAT(error(write("# nobody\n")), HasSubstr("has no token"));
}

TEST_F(TokensTest, AForeignFileIsRefused) {
  const std::string path = write("red " + kRed + "\n");
  if (::chown(path.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "giving files away takes root";
  EXPECT_THAT(error(path), HasSubstr("belongs to another user (uid 12345)"));
}

TEST_F(TokensTest, ABadLineIsNamedByItsNumberAndNeverShown) {
  const std::map<std::string, std::string> cases = {
      {kRed, "a tenant and a token"},
      {"red " + kRed + " more", "a tenant and a token"},
      {"red secret", "16..256 characters"},
      {"red " + std::string(257, 's'), "16..256 characters"},
      {"r/d " + kRed, "the tenant is not"},
      {std::string(32, 'r') + " " + kRed, "the tenant is not"},
      {"anonymous " + kRed, "without a token"},
      {"red " + kRed + "\xc3\xa4", "printable ASCII"},
      {"red " + kBlue, "stands in an earlier line"},
  };
  for (const auto& [line, problem] : cases) {
    const std::string text = error(write("blue " + kBlue + "\n# next\n" + line + "\n"));
    EXPECT_THAT(text, HasSubstr("line 3: "));
    EXPECT_THAT(text, HasSubstr(problem));
    EXPECT_THAT(text, Not(HasSubstr("red-token")));
    EXPECT_THAT(text, Not(HasSubstr("secret")));
    EXPECT_THAT(text, Not(HasSubstr(kBlue)));
  }
}

// Anybody may have put it there, with a token or ticket of its own.
TEST_F(TokensTest, AnothersFileInAFolderOfEverybodysIsRefused) {
  const std::string path = write(kRed + "\n");
  const auto environment = [&](const char* name) -> const char* {
    return std::string_view(name).ends_with("_FILE") ? path.c_str() : nullptr;
  };
  if (::chown(path.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "giving files away takes root";
  EXPECT_EQ(*own_token(environment), kRed) << "in a folder of this user's own";
  ASSERT_EQ(::chmod((dir_ / "").c_str(), 01777), 0);
  for (const auto& secret : {own_token(environment), own_ticket(environment)}) {
    ASSERT_FALSE(secret);
    EXPECT_THAT(secret.error().text, HasSubstr("belongs to another user"));
    EXPECT_THAT(secret.error().text, HasSubstr(path));
  }
  ASSERT_EQ(::chown(path.c_str(), ::geteuid(), 0), 0);
  EXPECT_EQ(*own_token(environment), kRed);
}

TEST_F(TokensTest, AProcessHasItsTokenFromTheEnvironmentOrAFile) {
  std::map<std::string, std::string> variables;
  const auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(*own_token(environment), "");
  variables["INA_TOKEN_FILE"] = write(kRed + "\n");
  EXPECT_EQ(*own_token(environment), kRed);
  variables["INA_TOKEN"] = kBlue;
  EXPECT_EQ(*own_token(environment), kBlue);
  variables.erase("INA_TOKEN");
  for (const std::string& text : {"\n" + kRed, std::string(), "red " + kRed}) {
    write(text);
    const auto token = own_token(environment);
    ASSERT_FALSE(token) << text;
    EXPECT_THAT(token.error().text, HasSubstr(dir_ / "tokens (INA_TOKEN_FILE)"));
    EXPECT_THAT(token.error().text, Not(HasSubstr("red-token")));
  }
  variables["INA_TOKEN_FILE"] = dir_ / "none";
  EXPECT_THAT(own_token(environment).error().text, HasSubstr("No such file"));
}

}  // namespace
}  // namespace ina::control
