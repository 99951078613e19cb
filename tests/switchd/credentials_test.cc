// Workers' credentials: tokens, certificates' names, and none.
#include "switchd/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace ina::switchd {
namespace {

using testing::HasSubstr;

class CredentialsTest : public testing::Test {
 protected:
  void write_tokens(const std::string& text) {
    std::ofstream(config_.token_file) << text;
    ::chmod(config_.token_file.c_str(), 0600);
  }
  test::TempDir folder_;
  config::ControlConfig config_{.listen = "127.0.0.1:0", .token_file = folder_ / "tokens"};
};

TEST_F(CredentialsTest, WithoutAnyOnlyWhoeverIsMeantToIsLetIn) {
  EXPECT_TRUE(Credentials(config_).check_listen());
  config_.token_file.clear();
  const auto anybody = Credentials(config_).check_listen();
  ASSERT_FALSE(anybody);
  EXPECT_THAT(anybody.error().text, HasSubstr("control.listen would let anybody in"));
  config_.tls.certificate = "switch.pem";
  EXPECT_TRUE(Credentials(config_).check_listen());
  config_.require_client_certificate = false;
  EXPECT_FALSE(Credentials(config_).check_listen())
      << "a certificate of the switch proves no worker";
  config_.allow_anonymous = true;
  EXPECT_TRUE(Credentials(config_).check_listen());
}

TEST_F(CredentialsTest, ATokenIsATenants) {
  auto listener = control::Listener::open_tcp(config_.listen, control::kDeadPeerNs);
  ASSERT_TRUE(listener);
  write_tokens("rack open-sesame-open-sesame\n");
  Credentials credentials(config_);
  ASSERT_TRUE(credentials.load(*listener));
  EXPECT_EQ(credentials.tokens(), 1u);
  EXPECT_EQ(credentials.tenant_of({}, "open-sesame-open-sesame").value(), "rack");
  EXPECT_THAT(credentials.tenant_of({}, "").error().text, HasSubstr("the token is missing"));
  EXPECT_THAT(credentials.tenant_of({}, "open-sesame").error().text, HasSubstr("unknown"));
  EXPECT_EQ(credentials.tenant_of("lab", "").value(), "lab") << "a certificate needs no token";
  EXPECT_FALSE(credentials.tenant_of("no tenant", ""));
  EXPECT_FALSE(credentials.tenant_of(std::string(control::kAnonymousTenant), ""));
  config_.allow_anonymous = true;
  EXPECT_EQ(credentials.tenant_of({}, "").value(), control::kAnonymousTenant);
  EXPECT_FALSE(credentials.tenant_of({}, "open-sesame")) << "a wrong token is not none";

  write_tokens("rack short\n");
  EXPECT_FALSE(credentials.load(*listener));
  EXPECT_EQ(credentials.tenant_of({}, "open-sesame-open-sesame").value(), "rack")
      << "on failure all stays as it is";
}

}  // namespace
}  // namespace ina::switchd
