// A job's name is its owner's: nobody's name stands in another's way, or lures another's workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/as_user.h"
#include "tests/support/control_peer.h"
#include "tests/support/raw_worker.h"
#include "tests/support/switch_fixture.h"

namespace ina::switchd {
namespace {

namespace request = control::request;
using control::Json;
using test::as_user;
using test::frame_join;
using test::Peer;
using test::TestSwitch;
using testing::AllOf;
using testing::HasSubstr;

constexpr Nanos kSecond = 1'000'000'000;
constexpr uid_t kAlice = 12345, kBob = 12346;

class NamesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
    ::chmod((folder_ / "").c_str(), 0755);
    TestSwitch::Options options;
    options.administered = true;
    options.conductor = [](ConductorConfig& config) {
      config.control.mode = 0666;
      config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
    };
    sw_.emplace(options, folder_ / "");
  }
  static Json join(int rank, int world, const std::string& job = "default") {
    Json message = frame_join("", "", rank, job);
    message["world_size"] = world;
    return message;
  }
  Json ask_as(uid_t uid, const Json& message) {
    Json answer;
    as_user(uid, [&] { answer = peers_.emplace_back(sw_->socket_path()).ask(message); });
    return answer;
  }
  Result<Json> administer(const request::Message& message) { return sw_->administer(message); }
  std::string refusal(const request::Message& message) {
    const auto answer = administer(message);
    return answer ? "it was done" : answer.error().text;
  }
  std::string create(const std::string& tenant) {
    request::CreateJob request;
    request.name = "default";
    request.workers = 2;
    request.tenant = tenant;
    request.ttl_ns = 60 * kSecond;
    const auto made = administer(request);
    EXPECT_TRUE(made) << made.error().text;
    return made ? made->at("ticket").get<std::string>() : "";
  }
  size_t jobs() { return sw_->status()["jobs"].size(); }

  test::TempDir folder_;
  std::optional<TestSwitch> sw_;
  std::deque<Peer> peers_;
};

TEST_F(NamesTest, WhoHasMadeADefaultJobGetsNobodyElsesWorkers) {
  const Json squatter = ask_as(kAlice, join(1, 2));
  ASSERT_EQ(squatter["type"], "joined");
  const Json victim = ask_as(0, join(0, 2));
  ASSERT_EQ(victim["type"], "joined");
  EXPECT_NE(victim["job_id"], squatter["job_id"]);
  EXPECT_EQ(ask_as(kBob, join(0, 64))["type"], "joined") << "nor does it spoil others' jobs";
  EXPECT_EQ(jobs(), 3u);
}

TEST_F(NamesTest, AnothersJobIsNotToBeHadByNamingItsOwner) {
  ASSERT_EQ(ask_as(0, join(0, 2))["type"], "joined");
  for (const char* owner : {"uid:0", "uid:12346", "red", ""}) {
    Json message = join(1, 2);
    message["owner"] = owner;
    const Json answer = ask_as(kAlice, message);
    EXPECT_EQ(answer["type"], "refused") << owner;
    EXPECT_EQ(answer["status"], INA_ERR_REFUSED);
    EXPECT_THAT(answer["text"].get<std::string>(),
                AllOf(HasSubstr("of uid:12345"), HasSubstr("INA_TICKET")));
  }
  EXPECT_EQ(jobs(), 1u);
}

TEST_F(NamesTest, RootJoinsAnothersJobIfItSaysSo) {
  const Json first = ask_as(kAlice, join(0, 2));
  ASSERT_EQ(first["type"], "joined");
  Json message = join(1, 2);
  message["owner"] = "uid:12345";
  const Json second = ask_as(0, message);
  ASSERT_EQ(second["type"], "joined") << second;
  EXPECT_EQ(second["job_id"], first["job_id"]);
  message["owner"] = "uid:12346";
  EXPECT_THAT(ask_as(0, message)["text"].get<std::string>(),
              HasSubstr("there is no job 'default' of uid:12346"));
  EXPECT_EQ(jobs(), 1u) << "it makes none in another's name";
}

TEST_F(NamesTest, EachUserComesBackToItsOwnJobAfterARestart) {
  struct Worker {
    uid_t uid;
    std::unique_ptr<test::RawWorker> raw;
  } workers[] = {{kAlice, nullptr}, {kBob, nullptr}};
  for (Worker& worker : workers)
    as_user(worker.uid, [&] {
      worker.raw = std::make_unique<test::RawWorker>(sw_->socket_path(), "default", 0, 1);
      ASSERT_TRUE(worker.raw->hear_until("ready"));
    });
  sw_->stop();
  sw_->start();
  const Json status = sw_->status();
  ASSERT_EQ(status["jobs"].size(), 2u);
  for (const Json& job : status["jobs"]) EXPECT_EQ(job["state"], "rejoining");
  const auto rejoin = [](const Worker& worker) {
    Json message = {{"type", "rejoin"},
                    {"version", control::kControlVersion},
                    {"job", "default"},
                    {"rank", 0},
                    {"world_size", 1},
                    {"transport", "shm"},
                    {"low", 0},
                    {"next", 0},
                    {"results_end", 0},
                    {"job_id", worker.raw->joined["job_id"]},
                    {"job_key", worker.raw->joined["job_key"]}};
    return message;
  };
  EXPECT_THAT(ask_as(kBob, rejoin(workers[0]))["text"].get<std::string>(),
              HasSubstr("belongs to uid:12345"));
  for (const Worker& worker : workers) {
    const Json answer = ask_as(worker.uid, rejoin(worker));
    EXPECT_EQ(answer["type"], "joined") << answer;
    EXPECT_EQ(answer["job_id"], worker.raw->joined["job_id"]);
  }
}

TEST_F(NamesTest, ATicketNamesOneJobWhateverOthersAreCalled) {
  const std::string of_alice = create("uid:12345");
  const std::string of_red = create("red");
  EXPECT_EQ(refusal(request::CreateJob{"default", 2, "red", 0, 0, 255, 0, 60 * kSecond}),
            "there is a job 'default' of red already");
  Json message = join(0, 2);
  message["ticket"] = of_red;
  const Json in_red = ask_as(kBob, message);
  message["ticket"] = of_alice;
  const Json in_alice = ask_as(kBob, message);
  ASSERT_EQ(in_red["type"], "joined") << in_red;
  ASSERT_EQ(in_alice["type"], "joined") << in_alice;
  EXPECT_NE(in_red["job_id"], in_alice["job_id"]);
  EXPECT_EQ(ask_as(kAlice, join(1, 2))["job_id"], in_alice["job_id"]) << "its own needs no ticket";
}

TEST_F(NamesTest, AdministratorsSayWhoseJobTheyMean) {
  for (const uid_t uid : {kAlice, kBob}) ASSERT_EQ(ask_as(uid, join(0, 2))["type"], "joined");
  EXPECT_THAT(refusal(request::AbortJob{"default", ""}),
              AllOf(HasSubstr("2 jobs"), HasSubstr("uid:12345, uid:12346")));
  EXPECT_FALSE(administer(request::KickWorker{"default", 0, ""}));
  EXPECT_EQ(refusal(request::AbortJob{"default", "", "red"}), "there is no job 'default' of red");
  EXPECT_EQ(refusal(request::AbortJob{"red/default", ""}), "there is no job 'red/default'");
  EXPECT_EQ(jobs(), 2u);
  EXPECT_TRUE(administer(request::AbortJob{"uid:12345/default", ""}));
  EXPECT_EQ(sw_->status()["jobs"][0]["owner"], "uid:12346");
  EXPECT_TRUE(administer(request::KickWorker{"default", 0, ""})) << "there is one left";
  ASSERT_EQ(ask_as(kAlice, join(0, 2, "a/b"))["type"], "joined");
  EXPECT_TRUE(administer(request::AbortJob{"a/b", ""})) << "a name may have a slash";
  ASSERT_EQ(ask_as(kAlice, join(0, 2))["type"], "joined");
  EXPECT_TRUE(administer(request::AbortJob{"default", "", "uid:12345"}));
}

}  // namespace
}  // namespace ina::switchd
