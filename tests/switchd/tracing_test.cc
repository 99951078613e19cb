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

namespace request = control::request;
using Code = AdminError::Code;
using testing::HasSubstr;

/// Two jobs, and no lanes: nothing is posted.
class TracingTest : public testing::Test {
 protected:
  TracingTest() { lanes_.set_running(); }

  Job& add(uint32_t id, aggregator::JobIndex index, const std::string& name) {
    auto job = std::make_unique<Job>();
    job->id = JobId{id};
    job->workers = 1;
    job->domains.resize(1);
    job->domains[0].index = index;
    job->domains[0].members = 1;
    job->name = name;
    job->tenant = "red";
    return jobs_.add(std::move(job));
  }
  auto begin(const Job& job, const std::string& who, Nanos now, const std::string& source = {}) {
    return tracing_.begin(job, 10, who, now, source);
  }

  const ConductorConfig config_;
  Lanes lanes_{{}};
  JobTable jobs_{2};
  Tracing tracing_{config_, lanes_, jobs_};
  Job& train_ = add(1, 0, "train");
  Job& tune_ = add(2, 1, "tune");
};

TEST_F(TracingTest, IsBounded) {
  for (const uint32_t packets : {0u, Tracing::kMostPackets + 1}) {
    const auto refused = tracing_.begin(train_, packets, "one", 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refused.error().text, HasSubstr("packets are not in 1..4096"));
  }
}

TEST_F(TracingTest, OneAtATimeUntilItEnds) {
  const auto first = begin(train_, "one", 0);
  ASSERT_TRUE(first) << first.error().text;
  const auto busy = begin(tune_, "another", 1);
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, Code::kBusy);
  EXPECT_THAT(busy.error().text, HasSubstr("traces job red/train for one"));
  const AdminAnswer going_on = tracing_.get(*first, false, 2);
  ASSERT_TRUE(going_on);
  EXPECT_EQ(*going_on, (control::Json{{"done", false}, {"packets_seen", 0}}));
  const AdminAnswer ended = tracing_.get(*first, true, 3);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->at("job"), "red/train");
  EXPECT_EQ(ended->at("complete"), false);
  EXPECT_EQ(ended->at("job_ended"), false);
  EXPECT_TRUE(ended->at("packets").empty());
  EXPECT_EQ(tracing_.get(*first, false, 4).error().code, Code::kNotFound);
  const auto second = begin(tune_, "another", 5);
  ASSERT_TRUE(second) << second.error().text;
  EXPECT_NE(*second, *first);
}

TEST_F(TracingTest, EndsWithItsJob) {
  const auto trace = begin(train_, "one", 0);
  ASSERT_TRUE(trace) << trace.error().text;
  jobs_.remove(train_);
  add(3, 0, "train");  // at the same place
  const AdminAnswer ended = tracing_.get(*trace, false, 1);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->at("done"), true);
  EXPECT_EQ(ended->at("job_ended"), true);
}

// A client that asks may die, and others must not wait for it.
TEST_F(TracingTest, ThatNobodyAsksForGivesWay) {
  ASSERT_EQ(begin(train_, "one", 0).value_or(0), 1u);
  EXPECT_FALSE(begin(train_, "another", Tracing::kForgottenNs - 1));
  const auto begun = begin(train_, "another", Tracing::kForgottenNs);
  ASSERT_TRUE(begun) << begun.error().text;
  EXPECT_EQ(*begun, 2u);
  EXPECT_FALSE(tracing_.get(1, false, Tracing::kForgottenNs)) << "the first has ended";
}

TEST_F(TracingTest, OfAnOwnerGivesWayToAnAdministratorsAlone) {
  ASSERT_TRUE(begin(train_, "an owner", 0, "uid:1000"));
  EXPECT_FALSE(begin(train_, "another owner", 1, "uid:1001"));
  ASSERT_TRUE(begin(train_, "an administrator", 2));
  EXPECT_EQ(tracing_.get(1, false, 3).error().code, Code::kNotFound);
  EXPECT_FALSE(begin(train_, "an owner", 4, "uid:1000"));
  EXPECT_FALSE(begin(train_, "another administrator", 5));
}

// ---- over the control socket, in one message that is answered in the end

/// tests/e2e/own_trace_test.py has other users.
class TraceOfASwitchTest : public testing::Test {
 protected:
  void administer(const request::Message& message) {
    const auto answer = ina_switch_.administer(message);
    ASSERT_TRUE(answer) << answer.error().text;
  }
  void create(const std::string& name) {
    administer(request::CreateJob{
        .name = name, .workers = 2, .tenant = "red", .ttl_ns = 3'600'000'000'000});
  }
  static control::Json message(uint32_t packets, uint32_t timeout_ms,
                               const std::string& job = "train") {
    return {{"type", "trace"}, {"job", job}, {"packets", packets}, {"timeout_ms", timeout_ms}};
  }
  test::Peer peer() const { return test::Peer(ina_switch_.socket_path()); }
  /// Another client's, which ends at once: no packet comes.
  control::Json trace_briefly() const { return peer().ask(message(1, 1)); }

  test::TestSwitch ina_switch_{{.lanes = 2, .administered = true}};
};

TEST_F(TraceOfASwitchTest, IsOfAJobThatThereIsAndBounded) {
  create("train");
  EXPECT_EQ(peer().ask(message(10, 50)), (control::Json{{"type", "trace"}}));
  EXPECT_EQ(peer().refusal(message(10, 50, "other")), "there is no job 'other'");
  EXPECT_THAT(peer().refusal(message(0, 50)), HasSubstr("0 packets are not in 1..4096"));
  for (const uint32_t timeout_ms : {0u, 60'001u})
    EXPECT_THAT(peer().refusal(message(1, timeout_ms)), HasSubstr("takes 1 ms to 60 s"));
}

TEST_F(TraceOfASwitchTest, EndsWithItsJobAndItsConnection) {
  create("train");
  const test::Peer waits = peer();
  ASSERT_TRUE(waits.send(message(10, 60'000)));
  EXPECT_EQ(waits.ask({{"type", "explain"}})["type"], "explain");  // what came before has begun
  EXPECT_THAT(peer().refusal(message(1, 1)), HasSubstr("one job at a time"));
  administer(request::AbortJob{"train", ""});
  EXPECT_EQ(waits.hear()["type"], "trace");
  create("train");
  {
    const test::Peer goes = peer();
    ASSERT_TRUE(goes.send(message(10, 60'000)));
    EXPECT_EQ(goes.ask({{"type", "explain"}})["type"], "explain");
  }
  std::string type;
  for (int i = 0; i < 1000 && type != "trace"; ++i) {
    ::usleep(1000);
    type = trace_briefly().value("type", "");
  }
  EXPECT_EQ(type, "trace");
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
