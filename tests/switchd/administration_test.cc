// Requests of administrators, and the use of their tickets. The way from `inactl` to here is in
// admin_sockets_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>

#include "common/clock.h"
#include "tests/support/control_peer.h"
#include "tests/support/raw_worker.h"
#include "tests/support/switch_fixture.h"

namespace ina::switchd {
namespace {

namespace request = control::request;
using control::Json;
using test::frame_join;
using test::Peer;
using test::TestSwitch;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Nanos kSecond = 1'000'000'000;
const std::string kRed = "red-token-0123456789";
const std::string kBlue = "blue-token-0123456789";

// ---- the queue of other threads' questions

TEST(AdminQueue, HandsQuestionsOverAndAnswersBack) {
  admin::Queue queue;
  std::thread conductor([&] {
    for (int served = 0; served < 3;) {
      queue.serve([&](admin::Question question) -> admin::Answer {
        ++served;
        if (question == admin::Question::kSlots) return std::nullopt;
        return Json{{"counters", question == admin::Question::kCounters}};
      });
      ::usleep(100);
    }
  });
  EXPECT_EQ(queue.ask(admin::Question::kStatus, 10 * kSecond)->at("counters"), false);
  EXPECT_EQ(queue.ask(admin::Question::kCounters, 10 * kSecond)->at("counters"), true);
  EXPECT_FALSE(queue.ask(admin::Question::kSlots, 10 * kSecond));
  conductor.join();
}

TEST(AdminQueue, WhatWasGivenUpIsForgotten) {
  admin::Queue queue;
  EXPECT_FALSE(queue.ask(admin::Question::kStatus, kSecond / 100));
  queue.serve([](admin::Question) -> admin::Answer {
    ADD_FAILURE() << "answered to nobody";
    return std::nullopt;
  });
}

TEST(AdminQueue, IsBoundedAndClosesForThoseWhoWait) {
  constexpr int kTooMany = 5;
  admin::Queue queue;
  std::vector<std::thread> askers;
  std::atomic<int> turned_away = 0;
  for (size_t i = 0; i < admin::Queue::kMaxWaiting + kTooMany; ++i)
    askers.emplace_back([&] {
      EXPECT_FALSE(queue.ask(admin::Question::kStatus, 60 * kSecond));
      ++turned_away;
    });
  while (turned_away != kTooMany) ::usleep(100);
  queue.close();
  for (auto& asker : askers) asker.join();
  EXPECT_EQ(turned_away, static_cast<int>(askers.size()));
  EXPECT_FALSE(queue.ask(admin::Question::kStatus, 60 * kSecond));
}

// ---- a whole switch

class AdministrationTest : public testing::Test {
 protected:
  using Change = std::function<void(ConductorConfig&)>;

  std::string token_path() const { return folder_ / "tokens"; }
  void write_tokens(const std::string& text) const {
    std::ofstream(token_path()) << text;
    ::chmod(token_path().c_str(), 0600);
  }
  TestSwitch::Options options(const Change& change = {}) const {
    write_tokens("red " + kRed + "\nblue " + kBlue + "\n");
    TestSwitch::Options options;
    options.administered = true;
    options.conductor = [file = token_path(), change](ConductorConfig& config) {
      config.control.listen = "127.0.0.1:0";
      config.control.token_file = file;
      config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
      if (change) change(config);
    };
    return options;
  }
  static request::CreateJob two_workers(const std::string& name = "job",
                                        const std::string& tenant = "red") {
    request::CreateJob request;
    request.name = name;
    request.workers = 2;
    request.tenant = tenant;
    request.ttl_ns = 60 * kSecond;
    return request;
  }
  static std::string create(TestSwitch& sw, const request::CreateJob& request = two_workers()) {
    const auto answer = sw.administer(request);
    EXPECT_TRUE(answer) << answer.error().text;
    return answer ? answer->at("ticket").get<std::string>() : "";
  }
  static std::string refusal(const TestSwitch& sw, const request::Message& message) {
    const auto answer = sw.administer(message);
    EXPECT_FALSE(answer) << *answer;
    if (answer) return {};
    EXPECT_EQ(answer.error().status, INA_ERR_REFUSED);
    return answer.error().text;
  }
  static Json shm_join(const std::string& ticket, int rank, int world = 2,
                       const std::string& job = "job") {
    Json message = frame_join("ticket", ticket, rank, job);
    message["transport"] = "shm";
    message["world_size"] = world;
    return message;
  }
  test::TempDir folder_;
};

TEST_F(AdministrationTest, AJobIsReservedBeforeItsWorkersCome) {
  TestSwitch sw(options());
  const auto made = sw.administer(two_workers());
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_EQ(made->at("name"), "job");
  EXPECT_EQ(made->at("ticket").get<std::string>().size(), 32u);
  EXPECT_EQ(made->at("slots_floor"), 64);
  EXPECT_EQ(made->at("window"), 32);
  EXPECT_EQ(made->at("expires_in_s"), 60);
  const Json status = sw.status();
  EXPECT_EQ(status["jobs"][0]["state"], "joining");
  EXPECT_EQ(status["jobs"][0]["tenant"], "red");
  EXPECT_THAT(status["jobs"][0]["reserved_s"].get<int>(),
              testing::AllOf(testing::Gt(50), testing::Le(60)));
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 64);
  EXPECT_THAT(status.dump(), testing::Not(HasSubstr(made->at("ticket").get<std::string>())));
  EXPECT_THAT(refusal(sw, two_workers()), HasSubstr("there is a job 'job' of red already"));
}

TEST_F(AdministrationTest, WhatCannotBeGuaranteedIsRefusedWithTheShortfall) {
  TestSwitch sw(
      options([](ConductorConfig& config) { config.tenants = {{.name = "blue", .jobs_max = 1}}; }));
  request::CreateJob request = two_workers();
  request.slots_floor = 448;
  request.window_bytes = 4 << 20;
  const auto large = sw.administer(request);
  ASSERT_TRUE(large) << large.error().text;
  EXPECT_EQ(large->at("slots_floor"), 448);
  request.name = "more";
  request.slots_floor = 128;
  EXPECT_THAT(refusal(sw, request),
              HasSubstr("job 'more' does not fit: the job needs 128 slots in one piece, "
                        "64 of 512 are free and the largest piece is 64: short by 64"));
  create(sw, two_workers("first", "blue"));
  EXPECT_THAT(refusal(sw, two_workers("second", "blue")),
              HasSubstr("tenant 'blue' has 1 of 1 jobs: short by 1"));
}

TEST_F(AdministrationTest, RequestsThatMakeNoSenseAreRefused) {
  TestSwitch sw(options());
  const auto text_of = [&](const std::function<void(request::CreateJob&)>& spoil) {
    request::CreateJob request = two_workers();
    spoil(request);
    return refusal(sw, request);
  };
  EXPECT_THAT(text_of([](request::CreateJob& r) { r.name = ""; }),
              HasSubstr("1 to 128 characters"));
  EXPECT_THAT(text_of([](request::CreateJob& r) { r.name.assign(129, 'x'); }),
              HasSubstr("1 to 128"));
  EXPECT_THAT(text_of([](request::CreateJob& r) { r.workers = 0; }), HasSubstr("not in 1..4096"));
  EXPECT_THAT(text_of([](request::CreateJob& r) { r.workers = 4097; }), HasSubstr("not in 1..4096"));
  for (const char* tenant : {"", "a b", "uid:", "uid:x", "uid:4294967295", "uid:1 "})
    EXPECT_THAT(text_of([&](request::CreateJob& r) { r.tenant = tenant; }),
                HasSubstr("the tenant is not"));
  EXPECT_THAT(text_of([](request::CreateJob& r) { r.priority_max = 0; }),
              HasSubstr("not in 1..255"));
  EXPECT_THAT(text_of([](request::CreateJob& r) { r.ttl_ns = 0; }), HasSubstr("the ttl is not in"));
  EXPECT_THAT(text_of([](request::CreateJob& r) { r.ttl_ns = request::kMaxTtlNs + 1; }),
              HasSubstr("7 days"));
  EXPECT_TRUE(sw.status()["jobs"].empty());
}

TEST_F(AdministrationTest, ATicketTakesThePlaceOfATokenForItsJobOnly) {
  TestSwitch sw(options());
  const std::string ticket = create(sw);
  create(sw, two_workers("other"));
  const Peer first(sw.tcp_address());
  EXPECT_EQ(first.ask(frame_join("ticket", ticket, 0))["type"], "joined");
  // Its own tenant needs none, others have no use for it without.
  EXPECT_EQ(Peer(sw.tcp_address()).ask(frame_join("token", kRed, 1))["type"], "joined");
  for (const char* name : {"other", "new"})
    EXPECT_THAT(Peer(sw.tcp_address()).refusal(frame_join("ticket", ticket, 0, name)),
                HasSubstr(std::string("the ticket is for another job than '") + name + "'"));
  // Nor does it open anything else on the connection on which it was shown.
  const Peer curious(sw.tcp_address());
  curious.refusal(frame_join("ticket", ticket, 0, "other"));
  EXPECT_THAT(curious.refusal(frame_join("", "", 0, "other")), HasSubstr("another job"));
  const Json seen = curious.ask({{"type", "status"}})["status"];
  ASSERT_EQ(seen["jobs"].size(), 1u);
  EXPECT_EQ(seen["jobs"][0]["name"], "job");
  EXPECT_TRUE(seen["tenants"].empty());
  for (const std::string wrong : {"", "0", "0123456789abcdef0123456789abcdef"}) {
    Json message = frame_join("", "");
    message["ticket"] = wrong;
    const Peer peer(sw.tcp_address());
    EXPECT_THAT(peer.refusal(message),
                HasSubstr(wrong.empty() ? "'ticket' is empty" : "the ticket is unknown"));
    EXPECT_TRUE(peer.closed());
  }
}

TEST_F(AdministrationTest, ATicketLetsAnotherUserOfTheHostIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  const test::TempDir folder;
  ::chmod((folder / "").c_str(), 0755);
  TestSwitch sw(options([](ConductorConfig& config) { config.control.mode = 0666; }), folder / "");
  const std::string ticket = create(sw);
  const std::string own = create(sw, two_workers("own", "uid:12345"));
  const auto as_user = [&](const Json& message) {
    std::string text;
    std::thread([&] {
      ASSERT_EQ(::syscall(SYS_setresuid, -1, 12345, -1), 0);
      const Json answer = Peer(sw.socket_path()).ask(message);
      text = answer.value("text", answer["type"].get<std::string>());
    }).join();
    return text;
  };
  Json named = shm_join("", 0);
  named["owner"] = "red";
  EXPECT_THAT(as_user(named), HasSubstr("only with the job's ticket"));
  EXPECT_EQ(as_user(shm_join(ticket, 0)), "joined");
  EXPECT_EQ(as_user(shm_join("", 0, 2, "own")), "joined") << "it is the user's own";
  EXPECT_EQ(Peer(sw.tcp_address()).ask(frame_join("ticket", own, 1, "own"))["type"], "joined");
}

TEST_F(AdministrationTest, WorkersMayComeAndGoUntilTheJobBegins) {
  TestSwitch sw(options());
  const std::string ticket = create(sw);
  // A worker whose predecessor has gone, which the switch notices in a moment.
  const auto come = [&] {
    for (int i = 0;; ++i) {
      Peer peer(sw.socket_path());
      const Json answer = peer.ask(shm_join(ticket, 0));
      if (answer["type"] == "joined" || i == 1000) return peer;
      EXPECT_THAT(answer["text"].get<std::string>(), HasSubstr("was joined by"));
      ::usleep(1000);
    }
  };
  for (int i = 0; i < 3; ++i) (void)come();
  const Peer first = come();
  // Mistakes of one worker do not end what an administrator made.
  EXPECT_THAT(Peer(sw.socket_path()).refusal(shm_join(ticket, 1, 3)), HasSubstr("world sizes"));
  EXPECT_THAT(Peer(sw.socket_path()).refusal(shm_join(ticket, 0)), HasSubstr("was joined by"));
  EXPECT_EQ(Peer(sw.socket_path()).ask(shm_join(ticket, 1))["type"], "joined");
}

TEST_F(AdministrationTest, AReservationEndsWithItsTime) {
  TestSwitch sw(options());
  request::CreateJob request = two_workers();
  request.ttl_ns = kSecond;
  const std::string ticket = create(sw, request);
  const Peer first(sw.socket_path());
  ASSERT_EQ(first.ask(shm_join(ticket, 0))["type"], "joined");
  const Json ended = first.hear();
  EXPECT_EQ(ended["type"], "abort");
  EXPECT_EQ(ended["status"], INA_ERR_TIMEOUT);
  EXPECT_THAT(ended["text"].get<std::string>(),
              HasSubstr("job 'job' was made for a time that has passed: waiting for ranks 0, 1"));
  EXPECT_TRUE(sw.status()["jobs"].empty());
  EXPECT_EQ(sw.status()["aggregator"]["slots_reserved"], 0);
  EXPECT_THAT(Peer(sw.socket_path()).refusal(shm_join(ticket, 0)),
              HasSubstr("the ticket is unknown"));
}

/// A job of two whose workers run.
class RunningJobTest : public AdministrationTest {
 protected:
  RunningJobTest() : sw_(options()), ticket_(create(sw_, two_workers("job", "blue"))) {
    first_.emplace(sw_.socket_path(), "job", 0, 2, Json{{"ticket", ticket_}});
    second_.emplace(sw_.socket_path(), "job", 1, 2, Json{{"ticket", ticket_}});
    EXPECT_TRUE(first_->hear_until("ready") && second_->hear_until("ready"));
  }
  TestSwitch sw_;
  std::string ticket_;
  std::optional<test::RawWorker> first_, second_;
};

TEST_F(RunningJobTest, ARunningJobOutlivesTheTimeOfItsReservation) {
  EXPECT_FALSE(sw_.status()["jobs"][0].contains("reserved_s"));
  EXPECT_EQ(sw_.status()["jobs"][0]["state"], "running");
}

TEST_F(RunningJobTest, AbortEndsItForAllAndSaysWhy) {
  EXPECT_EQ(refusal(sw_, request::AbortJob{"jab", "x"}), "there is no job 'jab'");
  ASSERT_TRUE(sw_.administer(request::AbortJob{"job", "maintenance"}));
  for (test::RawWorker* worker : {&*first_, &*second_}) {
    const Json told = worker->hear();
    EXPECT_EQ(told["type"], "abort");
    EXPECT_EQ(told["status"], INA_ERR_ABORTED);
    EXPECT_THAT(told["text"].get<std::string>(), AllOf(HasSubstr("an administrator (uid:"),
                                                       HasSubstr(" ended job 'job': maintenance")));
  }
  EXPECT_TRUE(sw_.status()["jobs"].empty());
  EXPECT_THAT(Peer(sw_.socket_path()).refusal(shm_join(ticket_, 0)), HasSubstr("unknown"));
}

TEST_F(RunningJobTest, KickEndsIt) {
  EXPECT_THAT(refusal(sw_, request::KickWorker{"job", 2, ""}),
              HasSubstr("job 'job' has no rank 2 at present"));
  EXPECT_EQ(refusal(sw_, request::KickWorker{"jab", 0, ""}), "there is no job 'jab'");
  ASSERT_TRUE(sw_.administer(request::KickWorker{"job", 1, "it is slow"}));
  EXPECT_THAT(first_->hear()["text"].get<std::string>(), HasSubstr("sent rank 1 (pid "));
  EXPECT_THAT(second_->hear()["text"].get<std::string>(), HasSubstr("away: it is slow"));
  const auto closed = second_->control.receive(10 * kSecond);
  EXPECT_FALSE(closed) << "the one that is sent away is also hung up on";
  EXPECT_TRUE(sw_.status()["jobs"].empty());
}

TEST_F(RunningJobTest, ItsTicketAndAReservationSurviveARestart) {
  const std::string waiting = create(sw_, two_workers("waiting", "red"));
  sw_.stop();
  sw_.start();
  const Json status = sw_.status();
  ASSERT_EQ(status["jobs"].size(), 2u);
  EXPECT_EQ(status["jobs"][0]["state"], "rejoining");
  EXPECT_EQ(status["jobs"][1]["state"], "joining");
  EXPECT_THAT(status["jobs"][1]["reserved_s"].get<int>(),
              testing::AllOf(testing::Gt(40), testing::Le(60)));
  Json rejoin = frame_join("ticket", ticket_);
  rejoin.update({{"type", "rejoin"},
                 {"job_id", first_->joined["job_id"]},
                 {"job_key", first_->joined["job_key"]},
                 {"low", 0},
                 {"next", 0},
                 {"results_end", 0}});
  EXPECT_EQ(Peer(sw_.tcp_address()).ask(rejoin)["type"], "joined");
  rejoin["ticket"] = waiting;
  EXPECT_THAT(Peer(sw_.tcp_address()).refusal(rejoin), HasSubstr("for another job than 'job'"));
  EXPECT_EQ(Peer(sw_.tcp_address()).ask(frame_join("ticket", waiting, 0, "waiting"))["type"],
            "joined");
}

TEST_F(AdministrationTest, AnAbortedReservationIsFreeAgain) {
  TestSwitch sw(options());
  create(sw);
  ASSERT_TRUE(sw.administer(request::AbortJob{"job", ""}));
  EXPECT_TRUE(sw.status()["jobs"].empty());
  EXPECT_EQ(sw.status()["aggregator"]["slots_reserved"], 0);
  sw.stop();
  sw.start();
  EXPECT_TRUE(sw.status()["jobs"].empty()) << "also for the next switch";
}

TEST_F(AdministrationTest, KickFromAJobThatGathersLeavesTheOthers) {
  TestSwitch sw(options());
  const Peer first(sw.socket_path());
  const Peer second(sw.socket_path());
  ASSERT_EQ(first.ask(shm_join("", 0, 3, "plain"))["type"], "joined");
  EXPECT_THAT(refusal(sw, request::KickWorker{"plain", 1, ""}),
              HasSubstr("job 'plain' has no rank 1 at present"));
  ASSERT_EQ(second.ask(shm_join("", 1, 3, "plain"))["type"], "joined");
  ASSERT_TRUE(sw.administer(request::KickWorker{"plain", 0, "wrong host"}));
  EXPECT_THAT(first.hear()["text"].get<std::string>(), HasSubstr("wrong host"));
  EXPECT_TRUE(first.closed());
  EXPECT_EQ(sw.status()["jobs"][0]["state"], "joining");
}

TEST_F(AdministrationTest, ADrainedSwitchTakesNoNewJobUntilItIsUndrained) {
  TestSwitch sw(options());
  const std::string ticket = create(sw);
  const Json drained = *sw.administer(request::Drain{});
  EXPECT_EQ(drained["draining"], true);
  const Json job = {{"name", "job"}, {"owner", sw.status()["jobs"][0]["owner"]}};
  EXPECT_THAT(drained["jobs"], ElementsAre(job));
  EXPECT_EQ(sw.status()["draining"], true);
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(frame_join("token", kRed, 0, "new")),
              HasSubstr("the switch is drained and takes no new job, such as 'new'"));
  EXPECT_THAT(refusal(sw, two_workers("newer")),
              HasSubstr("the switch is drained: it takes no new job"));
  {
    // Existing jobs may still gather, run, and end.
    test::RawWorker first(sw.socket_path(), "job", 0, 2, {{"ticket", ticket}});
    test::RawWorker second(sw.socket_path(), "job", 1, 2, {{"ticket", ticket}});
    ASSERT_TRUE(first.hear_until("ready") && second.hear_until("ready"));
    EXPECT_THAT((*sw.administer(request::GetDrain{}))["jobs"], ElementsAre(job));
    for (test::RawWorker* worker : {&first, &second})
      EXPECT_TRUE(worker->control.send({{"type", "leave"}}));
    ASSERT_TRUE(first.hear_until("left"));
  }
  EXPECT_TRUE((*sw.administer(request::GetDrain{}))["jobs"].empty());
  EXPECT_EQ((*sw.administer(request::Undrain{}))["draining"], false);
  EXPECT_EQ(Peer(sw.tcp_address()).ask(frame_join("token", kRed, 0, "new"))["type"], "joined");
}

TEST_F(AdministrationTest, TokensAreReadAgain) {
  TestSwitch sw(options());
  const std::string green = "green-token-0123456789";
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(frame_join("token", green)), HasSubstr("unknown"));
  write_tokens("green " + green + "\n");
  EXPECT_EQ((*sw.administer(request::Reload{}))["tokens"], 1);
  EXPECT_EQ(Peer(sw.tcp_address()).ask(frame_join("token", green, 0, "green"))["type"], "joined");
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(frame_join("token", kRed)), HasSubstr("unknown"));
  write_tokens("nonsense\n");
  EXPECT_THAT(
      refusal(sw, request::Reload{}),
      AllOf(HasSubstr("line 1: a line is a tenant and a token"), HasSubstr("all stays as it is")));
  EXPECT_EQ(Peer(sw.tcp_address()).ask(frame_join("token", green, 0, "again"))["type"], "joined");
  // By a signal.
  write_tokens("red " + kRed + "\n");
  sw.conductor().reload();
  std::string answer;
  for (int i = 0; i < 1000 && answer != "joined"; ++i) {
    answer = Peer(sw.tcp_address()).ask(frame_join("token", kRed, 0, "red"))["type"];
    ::usleep(1000);
  }
  EXPECT_EQ(answer, "joined");
}

TEST_F(AdministrationTest, WithoutATokenFileThereIsNothingToReload) {
  TestSwitch sw({.administered = true});
  EXPECT_THAT(refusal(sw, request::Reload{}),
              HasSubstr("neither a configuration file nor a token file (control.token_file)"));
}

TEST_F(AdministrationTest, WithoutAConfigurationThereIsNoPolicyToChange) {
  TestSwitch sw({.administered = true});
  for (const std::string& text :
       {refusal(sw, request::GetPolicy{}), refusal(sw, request::SetPolicy{.name = "esa"})})
    EXPECT_EQ(text, "this switch has no configuration that could be changed");
}

TEST_F(AdministrationTest, APolicyIsCheckedBeforeTheSwitchStartsAgainWithIt) {
  const auto configuration = std::make_shared<Configuration>("", "");
  configuration->set_running(*configuration->parse({.text = ""}));
  TestSwitch::Options wanted{.administered = true};
  wanted.conductor = [configuration](ConductorConfig& config) {
    config.configuration = configuration;
  };
  TestSwitch sw(wanted);
  const Json shown = *sw.administer(request::GetPolicy{});
  EXPECT_EQ(shown["policy"], "static");
  EXPECT_EQ(shown["policies"].size(), scheduler::kPolicies);
  EXPECT_EQ(shown["file"], "");
  EXPECT_THAT(refusal(sw, request::SetPolicy{.name = "best"}),
              HasSubstr("best is unknown (known: static, fcfs, esa)"));
  EXPECT_THAT(refusal(sw, request::SetPolicy{.name = "esa", .settings = {{"log.level", "info"}}}),
              HasSubstr("'log.level' is no key of the policy"));
  const Json same = *sw.administer(request::SetPolicy{.name = "static"});
  EXPECT_TRUE(same["changes"].empty());
  const Json checked = *sw.administer(
      request::SetPolicy{.name = "esa", .settings = {{"aggregator.ways", "4"}}, .check = true});
  EXPECT_EQ(checked["changes"].size(), 1);  // it has four already
  EXPECT_EQ(checked["changes"][0]["text"], "aggregator.policy: static -> esa");
  EXPECT_EQ(checked["applied"], false);
  EXPECT_EQ(checked["keys"][0]["value"], "esa");
  EXPECT_EQ(checked["keys"][0]["in_file"], "static");
  // It goes on as it was.
  EXPECT_EQ((*sw.administer(request::GetPolicy{}))["policy"], "static");
  EXPECT_EQ((*sw.administer(request::SetPolicy{.name = "esa"}))["restart"], true);
}

TEST_F(AdministrationTest, TheStatusIsTheOneOfTheControlSocket) {
  TestSwitch sw(options());
  create(sw);
  Json status = *sw.conductor().admin().ask(admin::Question::kStatus, 10 * kSecond);
  Json other = sw.status();
  for (Json* json : {&status, &other}) {
    json->erase("uptime_s");
    json->erase("lcores");
  }
  EXPECT_EQ(status, other);
}

}  // namespace
}  // namespace ina::switchd
