// Access to traces, and their end; tests/e2e/inactl_admin_test.cc has traces of real
// jobs.
#include "switchd/reports/tracing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>

#include "tests/support/as_user.h"
#include "tests/support/captured_log.h"
#include "tests/support/control_peer.h"
#include "tests/support/switch_fixture.h"

namespace ina::switchd {
namespace {

using admin::Answer;
using Code = admin::Error::Code;
using testing::HasSubstr;

class TracingTest : public testing::Test {
 protected:
  template <class Request>
  Answer ask(Request request) {
    return ina_switch_.conductor().admin().ask(std::move(request), "a test", 60'000'000'000);
  }
  void create(const std::string& name) {
    const Answer made = ask(
        admin::CreateJob{.name = name, .workers = 2, .tenant = "red", .ttl_ns = 3'600'000'000'000});
    ASSERT_TRUE(made) << made.error().text;
  }
  uint64_t begin(const std::string& job) {
    const Answer begun = ask(admin::BeginTrace{.job = job, .packets = 10});
    EXPECT_TRUE(begun) << begun.error().text;
    return begun ? begun->at("trace").get<uint64_t>() : 0;
  }

  test::TestSwitch ina_switch_{{.lanes = 2}};
};

TEST_F(TracingTest, IsOfAJobThatThereIsAndBounded) {
  create("train");
  const Answer none = ask(admin::BeginTrace{.job = "other", .packets = 1});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_EQ(none.error().text, "there is no job 'other'");
  for (const uint32_t packets : {0u, admin::kMaxTracedPackets + 1}) {
    const Answer refused = ask(admin::BeginTrace{.job = "train", .packets = packets});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refused.error().text, HasSubstr("packets are not in 1..4096"));
  }
}

TEST_F(TracingTest, OneAtATimeUntilItEnds) {
  create("train");
  create("tune");
  const uint64_t first = begin("train");
  const Answer busy = ask(admin::BeginTrace{.job = "tune", .packets = 10});
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, Code::kBusy);
  EXPECT_THAT(busy.error().text, HasSubstr("traces job red/train for a test"));
  const Answer going_on = ask(admin::GetTrace{first});
  ASSERT_TRUE(going_on);
  EXPECT_EQ(*going_on, (control::Json{{"done", false}, {"packets_seen", 0}}));
  const Answer ended = ask(admin::GetTrace{first, true});
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->at("job"), "red/train");
  EXPECT_EQ(ended->at("complete"), false);
  EXPECT_EQ(ended->at("job_ended"), false);
  EXPECT_TRUE(ended->at("packets").empty());
  EXPECT_EQ(ask(admin::GetTrace{first}).error().code, Code::kNotFound);
  EXPECT_NE(begin("tune"), first);
}

TEST_F(TracingTest, EndsWithItsJob) {
  create("train");
  const uint64_t trace = begin("train");
  ASSERT_TRUE(ask(admin::AbortJob{"train", ""}));
  create("train");  // at the same place
  const Answer ended = ask(admin::GetTrace{trace});
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->at("done"), true);
  EXPECT_EQ(ended->at("job_ended"), true);
}

/// One job, and no lanes: nothing is posted.
class TracesInTurnTest : public testing::Test {
 protected:
  TracesInTurnTest() {
    auto job = std::make_unique<Job>();
    job->name = "train";
    jobs_.add(std::move(job));
    lanes_.set_running();
  }

  const ConductorConfig config_;
  Lanes lanes_{{}};
  JobTable jobs_{1};
  Tracing tracing_{config_, lanes_, jobs_};
  const admin::BeginTrace request_{.job = "train", .packets = 10};
};

// A client that asks may die, and others must not wait for it.
TEST_F(TracesInTurnTest, ThatNobodyAsksForGivesWay) {
  ASSERT_TRUE(tracing_.begin(request_, "one", 0));
  EXPECT_FALSE(tracing_.begin(request_, "another", Tracing::kForgottenNs - 1));
  const Answer begun = tracing_.begin(request_, "another", Tracing::kForgottenNs);
  ASSERT_TRUE(begun) << begun.error().text;
  EXPECT_EQ(begun->at("trace"), 2);
  EXPECT_FALSE(tracing_.get({1}, Tracing::kForgottenNs)) << "the first has ended";
}

TEST_F(TracesInTurnTest, OfAnOwnerGivesWayToAnAdministratorsAlone) {
  ASSERT_TRUE(tracing_.begin(request_, "an owner", 0, "uid:1000"));
  EXPECT_FALSE(tracing_.begin(request_, "another owner", 1, "uid:1001"));
  ASSERT_TRUE(tracing_.begin(request_, "an administrator", 2));
  EXPECT_EQ(tracing_.get({1}, 3).error().code, Code::kNotFound);
  EXPECT_FALSE(tracing_.begin(request_, "an owner", 4, "uid:1000"));
  EXPECT_FALSE(tracing_.begin(request_, "another administrator", 5));
}

// tests/e2e/own_trace_test.py has other users.
TEST_F(TracingTest, OverTheControlSocketOneMessageIsAnsweredInTheEnd) {
  create("train");
  const auto ask_for = [](uint32_t packets, uint32_t timeout_ms) {
    return control::Json{
        {"type", "trace"}, {"job", "train"}, {"packets", packets}, {"timeout_ms", timeout_ms}};
  };
  test::Peer peer(ina_switch_.socket_path());
  EXPECT_EQ(peer.ask(ask_for(10, 50)), (control::Json{{"type", "trace"}}));
  EXPECT_THAT(test::Peer(ina_switch_.socket_path()).refusal(ask_for(0, 50)),
              HasSubstr("0 packets are not in 1..4096"));
  for (const uint32_t timeout_ms : {0u, 60'001u})
    EXPECT_THAT(test::Peer(ina_switch_.socket_path()).refusal(ask_for(1, timeout_ms)),
                HasSubstr("takes 1 ms to 60 s"));
  // It ends with its job, and with its connection.
  test::Peer waits(ina_switch_.socket_path());
  ASSERT_TRUE(waits.send(ask_for(10, 60'000)));
  EXPECT_EQ(waits.ask({{"type", "explain"}})["type"], "explain");  // what came before has begun
  EXPECT_EQ(ask(admin::BeginTrace{.job = "train", .packets = 1}).error().code, Code::kBusy);
  ASSERT_TRUE(ask(admin::AbortJob{"train", ""}));
  EXPECT_EQ(waits.hear()["type"], "trace");
  create("train");
  {
    test::Peer goes(ina_switch_.socket_path());
    ASSERT_TRUE(goes.send(ask_for(10, 60'000)));
    EXPECT_EQ(goes.ask({{"type", "explain"}})["type"], "explain");
  }
  Answer begun = tl::unexpected(admin::Error{});
  for (int i = 0; i < 1000 && !begun; ++i) {
    ::usleep(1000);
    begun = ask(admin::BeginTrace{.job = "train", .packets = 1});
  }
  EXPECT_TRUE(begun);
}

// ---- the log

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Has `traces` traces of a job begin, each given up at once by the end of its connection.
void trace_often(const std::string& job, int traces, const std::function<test::Peer()>& connect) {
  const control::Json message = {
      {"type", "trace"}, {"job", job}, {"packets", 1}, {"timeout_ms", 5'000}};
  int begun = 0;
  for (int tries = 0; begun < traces && tries < 10 * traces; ++tries) {
    const test::Peer peer = connect();
    EXPECT_TRUE(peer.send(message));
    // Where the trace before has not ended yet, a refusal comes first.
    const control::Json answer = peer.ask_if_open({{"type", "explain"}});
    begun += answer.is_object() && answer.value("type", "") == "explain" ? 1 : 0;
  }
  EXPECT_EQ(begun, traces);
}

TEST(TracesOfOwners, AreNoFloodOfLines) {
  constexpr uid_t kUser = 12345;
  constexpr int kTraces = 200, kOfAdministrator = 50;
  const test::CapturedLog log;
  const test::TempDir folder;
  ::chmod((folder / "").c_str(), 0755);
  test::SwitchOptions options;
  options.conductor = [](ConductorConfig& config) {
    config.control.mode = 0666;
    config.control.listen = "127.0.0.1:0";
    config.control.allow_anonymous = true;
    config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
  };
  test::TestSwitch sw(options, folder / "");
  const auto over_tcp = [&] { return test::Peer(sw.tcp_address()); };
  const test::Peer remote = over_tcp();
  ASSERT_EQ(remote.ask(test::frame_join("", "", 0, "remote"))["type"], "joined");
  trace_often("remote", kTraces, over_tcp);
  // The switch's own user is an administrator here. Other users take root.
  const test::Peer own(sw.socket_path());
  ASSERT_EQ(own.ask(test::frame_join("", "", 0, "own"))["type"], "joined");
  trace_often("own", kOfAdministrator, [&] { return test::Peer(sw.socket_path()); });
  const bool is_root = ::geteuid() == 0;
  std::optional<test::Peer> user;
  if (is_root) {
    const auto as_other = [&] {
      std::optional<test::Peer> peer;
      test::as_user(kUser, [&] { peer.emplace(sw.socket_path()); });
      return std::move(*peer);
    };
    user.emplace(as_other());
    ASSERT_EQ(user->ask(test::frame_join("", "", 0, "other"))["type"], "joined");
    trace_often("other", kTraces, as_other);
  }
  sw.stop();
  const std::string lines = log.text();
  EXPECT_LT(count_of(lines, "info packets traced by=\"anonymous, 127.0.0.1:"), 100u);
  EXPECT_LT(count_of(lines, "info packets traced by=\"uid:12345, pid "), 100u);
  // The counts are of what the switch writes, and nobody limits administrators.
  EXPECT_EQ(
      count_of(lines, "info packets traced by=\"uid:" + std::to_string(::geteuid()) + ", pid "),
      static_cast<size_t>(kOfAdministrator));
}

}  // namespace
}  // namespace ina::switchd
