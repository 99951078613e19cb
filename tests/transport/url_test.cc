#include "transport/url.h"

#include <gtest/gtest.h>

namespace ina::client {
namespace {

std::string error_of(std::string_view text) {
  const auto url = parse_url(text);
  return url ? "" : url.error().text;
}

TEST(Url, TakesSchemePathAndQueryApart) {
  const auto url = parse_url("memif:/run/ina/memif0.sock?id=3&ip=10.0.0.2&control=/run/a=b");
  ASSERT_TRUE(url) << url.error().text;
  EXPECT_EQ(url->scheme, "memif");
  EXPECT_EQ(url->path, "/run/ina/memif0.sock");
  EXPECT_EQ(url->get("id"), "3");
  EXPECT_EQ(url->get("control"), "/run/a=b");
  EXPECT_EQ(url->get("absent", "otherwise"), "otherwise");
  EXPECT_TRUE(url->has("ip"));
  EXPECT_FALSE(url->has("mtu"));
}

TEST(Url, NeedsNoQuery) {
  for (const char* text : {"shm:/run/ina/switch.sock", "shm:/run/ina/switch.sock?"}) {
    const auto url = parse_url(text);
    ASSERT_TRUE(url) << url.error().text;
    EXPECT_EQ(url->path, "/run/ina/switch.sock");
    EXPECT_TRUE(url->query.empty());
  }
}

TEST(Url, ColonInPathAndQueryIsNoScheme) {
  const auto url = parse_url("udp:host:7584?via=a:b");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->path, "host:7584");
  EXPECT_EQ(url->get("via"), "a:b");
}

TEST(Url, ErrorsNameThePart) {
  EXPECT_NE(error_of("/run/ina/switch.sock").find("no scheme"), std::string::npos);
  EXPECT_NE(error_of(":/run").find("no scheme"), std::string::npos);
  EXPECT_NE(error_of("Shm:/run").find("\"Shm\""), std::string::npos);
  EXPECT_NE(error_of("shm:").find("no path"), std::string::npos);
  EXPECT_NE(error_of("shm:?id=1").find("no path"), std::string::npos);
  EXPECT_NE(error_of("memif:/a?id").find("\"id\" is not of the form"), std::string::npos);
  EXPECT_NE(error_of("memif:/a?=1").find("\"=1\" is not of the form"), std::string::npos);
  EXPECT_NE(error_of("memif:/a?id=1&&x=2").find("\"\" is not of the form"), std::string::npos);
  EXPECT_NE(error_of("memif:/a?id=1&id=2").find("\"id\" is given twice"), std::string::npos);
  EXPECT_NE(error_of("memif:/a?id").find("memif:/a?id"), std::string::npos);
}

TEST(Url, NumbersAreWholeAndWithinBounds) {
  const auto url =
      parse_url("memif:/a?mtu=9000&bad=12x&negative=-1&empty=&huge=99999999999999999999");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->number("mtu", 1500, 576, 16000).value(), 9000u);
  EXPECT_EQ(url->number("mtu", 1500, 9000, 9000).value(), 9000u);
  EXPECT_EQ(url->number("absent", 1500, 576, 16000).value(), 1500u);
  for (const char* key : {"bad", "negative", "empty", "huge"})
    EXPECT_FALSE(url->number(key, 0, 0, UINT64_MAX)) << key;
  const auto outside = url->number("mtu", 1500, 576, 8999);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().status, INA_ERR_INVALID);
  EXPECT_NE(outside.error().text.find("mtu=9000 is not a number within 576..8999"),
            std::string::npos);
}

TEST(Url, Addresses) {
  EXPECT_EQ(parse_ipv4("10.0.0.2").value(), 0x0a000002u);
  EXPECT_EQ(parse_ipv4("255.255.255.255").value(), 0xffffffffu);
  for (const char* text :
       {"", "10.0.0", "10.0.0.2.3", "10.0.0.256", "10.0..2", "a.b.c.d", "10.0.0.2 "})
    EXPECT_FALSE(parse_ipv4(text)) << text;
  const auto url = parse_url("memif:/a?bad=10.0.0");
  EXPECT_NE(url->ipv4("ip").error().text.find("\"ip\" is missing"), std::string::npos);
  EXPECT_NE(url->ipv4("bad").error().text.find("bad: \"10.0.0\""), std::string::npos);
}

TEST(Url, UnknownKeysAreErrors) {
  const auto url = parse_url("memif:/a?id=1&bsize=2");
  EXPECT_TRUE(url->check_keys({"id", "bsize"}));
  const auto unknown = url->check_keys({"id", "ip"});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().text.find("\"bsize\" is not known to memif; it takes id, ip."),
            std::string::npos);
}

}  // namespace
}  // namespace ina::client
