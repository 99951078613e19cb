// Access over HTTP, the rate of questions to the conductor, and the page in the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/json_schema.h"
#include "control/metrics/own_host.h"
#include "control/metrics/page_files.h"
#include "control/metrics/snapshot.h"

namespace ina::metrics {
namespace {

using testing::ElementsAre;

TEST(OwnHost, AddressesAndLocalhostAre) {
  for (const char* host : {"127.0.0.1", "127.0.0.1:7586", "10.0.0.1:80", "[::1]", "[::1]:7586",
                           "[fe80::1]:1", "localhost", "LocalHost:7586"})
    EXPECT_TRUE(is_own_host(host, {})) << host;
}

TEST(OwnHost, NamesAreOnlyIfListed) {
  const std::vector<std::string> names = {"switch1", "switch1.example"};
  for (const char* host : {"switch1", "switch1:7586", "SWITCH1.example:1"})
    EXPECT_TRUE(is_own_host(host, names)) << host;
  for (const char* host :
       {"", ":", ":80", "evil.example", "evil.example:7586", "switch2", "localhost.evil.example",
        "127.0.0.1.evil.example", "1.2.3", "1.2.3.4.evil", "1..2.3", "[evil]", "[]", "::1",
        "switch1.evil", "switch1:80:80", "127.0.0.1:evil", "127.0.0.1 "})
    EXPECT_FALSE(is_own_host(host, names)) << host;
}

TEST(Snapshot, ServesLongerTheMoreItCosts) {
  EXPECT_EQ(Snapshot::fresh_for(0), Snapshot::kFreshNs);
  EXPECT_EQ(Snapshot::fresh_for(10'000'000), Snapshot::kFreshNs);
  EXPECT_EQ(Snapshot::fresh_for(1'000'000'000), 9'000'000'000);
}

/// A conductor that answers what it is told to, and counts.
class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() {
    now = 1;
    conductor_ = std::thread([this] {
      while (!stop_) {
        queue_.serve([this](admin::Question) {
          ++asked_;
          return answer_;
        });
        std::this_thread::yield();
      }
    });
  }
  ~SnapshotTest() override {
    stop_ = true;
    conductor_.join();
  }

  static inline std::atomic<Nanos> now = 0;
  std::atomic<int> asked_ = 0;
  admin::Answer answer_ = nlohmann::json{{"name", "caf\xe9"}};
  admin::Queue queue_;
  Snapshot snapshot_{queue_, admin::Question::kSlots, [] { return now.load(); }};

 private:
  std::atomic<bool> stop_ = false;
  std::thread conductor_;
};

TEST_F(SnapshotTest, IsOneForAllWhoComeSoon) {
  const auto first = snapshot_.text();
  ASSERT_TRUE(first);
  const auto json = nlohmann::json::parse(*first);
  EXPECT_EQ(json.at("schema"), kJsonSchema);
  EXPECT_EQ(json.at("name"), "caf\xef\xbf\xbd") << "made UTF-8";
  now = Snapshot::kFreshNs;
  EXPECT_EQ(snapshot_.text(), first);
  EXPECT_EQ(asked_, 1);
  ++now;
  EXPECT_EQ(snapshot_.text(), first);
  EXPECT_EQ(asked_, 2);
}

TEST_F(SnapshotTest, IsNoneForAllWhoComeSoonWhereTheConductorDoesNotAnswer) {
  ASSERT_TRUE(snapshot_.text());
  answer_.reset();
  now = 1 + Snapshot::kFreshNs;
  EXPECT_EQ(snapshot_.text(), std::nullopt);
  EXPECT_EQ(snapshot_.text(), std::nullopt);
  EXPECT_EQ(asked_, 2);
  now = 1 + 2 * Snapshot::kFreshNs;
  EXPECT_EQ(snapshot_.text(), std::nullopt);
  EXPECT_EQ(asked_, 3);
}

TEST(Page, IsInTheProgram) {
  std::vector<std::string> paths;
  for (const PageFile& file : page_files()) {
    paths.emplace_back(file.path);
    EXPECT_FALSE(file.text.empty()) << file.path;
    EXPECT_TRUE(file.type.ends_with("; charset=utf-8")) << file.type;
  }
  EXPECT_THAT(paths, ElementsAre("/", "/page.css", "/page.js"));
}

}  // namespace
}  // namespace ina::metrics
