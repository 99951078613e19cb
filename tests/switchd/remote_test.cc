// Access over TCP: tokens, tenants and addresses, as a worker by hand and a hostile stranger meet
// them. Whole jobs over TCP are in tests/e2e.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>

#include "common/clock.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadline.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using test::Peer;
using test::TestSwitch;
using testing::HasSubstr;
using testing::Not;

using test::kTimeoutNs;
const std::string kRed = "red-token-0123456789";
const std::string kBlue = "blue-token-0123456789";

Json join_of(const std::string& token, int rank = 0, const std::string& job = "job") {
  return test::frame_join("token", token, rank, job);
}

Json rejoin_of(const std::string& token) {
  Json message = join_of(token);
  message.update({{"type", "rejoin"},
                  {"job_id", 5},
                  {"job_key", 77},
                  {"low", 0},
                  {"next", 0},
                  {"results_end", 0}});
  return message;
}

class RemoteTest : public testing::Test {
 protected:
  using Change = std::function<void(switchd::ConductorConfig&)>;

  std::string token_file() const {
    const std::string path = folder_ / "tokens";
    std::ofstream(path) << "red " << kRed << "\nblue " << kBlue << "\n";
    ::chmod(path.c_str(), 0600);
    return path;
  }
  TestSwitch::Options options(const Change& change = {}) const {
    TestSwitch::Options options;
    options.conductor = [file = token_file(), change](switchd::ConductorConfig& config) {
      config.control.listen = "127.0.0.1:0";
      config.control.token_file = file;
      config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
      if (change) change(config);
    };
    return options;
  }
  static std::string start_error(const Change& change) {
    const test::TempDir folder;
    auto state = switchd::StateFile::open(folder / "state");
    EXPECT_TRUE(state);
    switchd::ConductorConfig config;
    config.control.socket = folder / "switch.sock";
    config.aggregator.slots = 64;
    config.aggregator.slot_bytes = 1024;
    config.control.listen = "127.0.0.1:0";
    change(config);
    switchd::LaneLink lane;  // nobody runs it: the switch does not get so far
    switchd::Conductor conductor(config, std::move(*state), {&lane});
    const auto opened = conductor.open();
    return opened ? "no error" : opened.error().text;
  }
  test::TempDir folder_;
};

TEST_F(RemoteTest, TwoWorkersOfATenantJoinAJob) {
  TestSwitch sw(options());
  const Peer first(sw.tcp_address());
  const Peer second(sw.tcp_address());
  const Json joined = first.ask(join_of(kRed, 0));
  ASSERT_EQ(joined["type"], "joined") << joined;
  EXPECT_EQ(joined["address"]["ip"], 0x0a000001);
  const Json other = second.ask(join_of(kRed, 1));
  ASSERT_EQ(other["type"], "joined") << other;
  EXPECT_EQ(other["job_key"], joined["job_key"]);
  EXPECT_EQ(sw.status()["jobs"][0]["tenant"], "red");
}

TEST_F(RemoteTest, WorkersGetKeysForTags) {
  TestSwitch sw(options(
      [](switchd::ConductorConfig& config) { config.security.tag = config::Tag::kSiphash; }));
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(join_of(kRed)), HasSubstr("security.tag"));
  const auto ask = [&](const Peer& peer, int rank, const std::string& job) {
    Json join = join_of(kRed, rank, job);
    join["tags"] = {"other", "siphash"};
    const Json joined = peer.ask(join);
    EXPECT_EQ(joined["type"], "joined") << joined;
    EXPECT_EQ(joined["tag"]["algorithm"], "siphash");
    return joined["tag"];
  };
  const Peer first(sw.tcp_address()), second(sw.tcp_address()), stranger(sw.tcp_address());
  const Json one = ask(first, 0, "job");
  const Json two = ask(second, 1, "job");
  const Json three = ask(stranger, 0, "another");
  EXPECT_NE(one["key"], two["key"]);
  EXPECT_NE(one["key"], one["payload_key"]);
  EXPECT_EQ(one["payload_key"], two["payload_key"]) << "the job's";
  EXPECT_NE(one["payload_key"], three["payload_key"]);
}

TEST_F(RemoteTest, ATenantTracesItsOwnJobsAndHearsOfNoOthers) {
  TestSwitch sw(options());
  const Peer worker(sw.tcp_address());
  ASSERT_EQ(worker.ask(join_of(kRed))["type"], "joined");
  const auto trace = [](const std::string& token, const std::string& owner = "") {
    Json message = {{"type", "trace"},  {"job", "job"},   {"packets", 1},
                    {"timeout_ms", 50}, {"token", token}, {"owner", owner}};
    return message;
  };
  const Json own = Peer(sw.tcp_address()).ask(trace(kRed));
  ASSERT_EQ(own["type"], "trace") << own;
  EXPECT_EQ(own["trace"]["job"], "red/job");
  EXPECT_EQ(own["trace"]["complete"], false);
  for (const char* owner : {"", "red"})
    EXPECT_EQ(Peer(sw.tcp_address()).refusal(trace(kBlue, owner)), "there is no job 'job' of blue");
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(trace("")), HasSubstr("the token is missing"));
  // Whose job is traced is told to nobody either.
  const Peer busy(sw.tcp_address());
  Json longer = trace(kRed);
  longer["timeout_ms"] = 10'000;
  ASSERT_TRUE(busy.send(longer));
  EXPECT_EQ(busy.ask({{"type", "explain"}})["type"], "explain");
  const Peer blue(sw.tcp_address());
  ASSERT_EQ(blue.ask(join_of(kBlue))["type"], "joined");
  EXPECT_EQ(Peer(sw.tcp_address()).refusal(trace(kBlue)),
            "the switch traces another job, and one at a time; try again");
}

TEST_F(RemoteTest, NobodyJoinsWithoutATokenOrWithAWrongOne) {
  TestSwitch sw(options());
  for (const Json& message : {join_of(""), rejoin_of(""), Json{{"type", "status"}}}) {
    const Peer peer(sw.tcp_address());
    EXPECT_THAT(peer.refusal(message), HasSubstr("the token is missing"));
    EXPECT_TRUE(peer.closed());
  }
  const std::string wrong = kRed + "x";
  for (const Json& message :
       {join_of(wrong), rejoin_of(wrong), Json{{"type", "status"}, {"token", wrong}}}) {
    const Peer peer(sw.tcp_address());
    const std::string text = peer.refusal(message);
    EXPECT_THAT(text, HasSubstr("the token is unknown"));
    EXPECT_THAT(text, Not(HasSubstr("red-token")));
    EXPECT_TRUE(peer.closed());
  }
  EXPECT_TRUE(sw.status()["jobs"].empty());
}

TEST_F(RemoteTest, NothingElseIsSaidBeforeTheToken) {
  TestSwitch sw(options());
  for (const char* type : {"attach", "leave", "abort", "explain", "mismatch", "share_results",
                           "next_job", "nonsense"}) {
    const Peer peer(sw.tcp_address());
    EXPECT_THAT(peer.refusal({{"type", type}, {"token", kRed}}),
                HasSubstr(std::string("'") + type + "' before join"));
    EXPECT_TRUE(peer.closed());
  }
  const Peer peer(sw.tcp_address());
  EXPECT_THAT(peer.refusal({{"type", "join"}, {"token", 7}}), HasSubstr("malformed"));
  EXPECT_TRUE(peer.closed());
}

TEST_F(RemoteTest, WhatNeedsDescriptorsIsRefused) {
  TestSwitch sw(options());
  Json shm = join_of(kRed);
  shm["transport"] = "shm";
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(shm), HasSubstr("the shm transport needs"));
  for (const char* type : {"serve", "join_fallback", "register"})
    EXPECT_THAT(Peer(sw.tcp_address()).refusal({{"type", type}, {"token", kRed}}),
                HasSubstr(std::string("'") + type + "' needs the switch's unix socket"));
  // Frames would need none.
  EXPECT_THAT(Peer(sw.tcp_address()).refusal({{"type", "join_fallback"}, {"token", kRed}}),
              HasSubstr("over TCP nobody may serve as fallback"));
  const Peer member(sw.tcp_address());
  ASSERT_EQ(member.ask(join_of(kRed))["type"], "joined");
  EXPECT_THAT(member.refusal({{"type", "register"}, {"number", 1}, {"bytes", 4096}}),
              HasSubstr("no descriptors pass over TCP"));
}

TEST_F(RemoteTest, AWorkerGivesItsOwnAddressAndNoOther) {
  TestSwitch sw(options());
  for (const uint32_t ip : {0x7f000002u, 0x0a000005u, 0u}) {
    Json message = join_of(kRed);
    message["address"]["ip"] = ip;
    EXPECT_THAT(Peer(sw.tcp_address()).refusal(message),
                HasSubstr("is not the address 127.0.0.1 that the control connection comes from"));
  }
  EXPECT_TRUE(sw.status()["jobs"].empty());
}

TEST_F(RemoteTest, OfSeveralPortsOneMustBeNamedOrKnown) {
  TestSwitch sw(options([](switchd::ConductorConfig& config) {
    config.frame_ports.push_back({"eth1", {{2, 0, 0, 0, 0, 8}, 0x0a000001, 7584}});
  }));
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(join_of(kRed)),
              testing::AllOf(HasSubstr("port="), HasSubstr("eth0, eth1")));
  Json join = join_of(kRed);
  join["port"] = "eth2";
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(join), HasSubstr("no Ethernet port named 'eth2'"));
  join["port"] = "eth1";
  const Peer worker(sw.tcp_address());
  const Json joined = worker.ask(join);
  ASSERT_EQ(joined["type"], "joined") << joined;
  EXPECT_EQ(joined["address"]["mac"][5], 8);
}

TEST_F(RemoteTest, AForeignTenantIsKeptOut) {
  TestSwitch sw(options());
  const Peer red(sw.tcp_address());
  ASSERT_EQ(red.ask(join_of(kRed))["type"], "joined");
  // It does not even learn the job's name: under that name it has a job of its own.
  const auto theirs = control::query_status(sw.tcp_address(), kTimeoutNs, kBlue);
  ASSERT_TRUE(theirs) << theirs.error().text;
  EXPECT_TRUE((*theirs)["jobs"].empty());
  const Peer blue(sw.tcp_address());
  const Json joined = blue.ask(join_of(kBlue, 1));
  EXPECT_EQ(joined["type"], "joined");
  EXPECT_EQ(sw.status()["jobs"].size(), 2u);
  Json greedy = join_of(kBlue, 1);
  greedy["owner"] = "red";
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(greedy), HasSubstr("only with the job's ticket"));
  const auto own = control::query_status(sw.tcp_address(), kTimeoutNs, kRed);
  ASSERT_TRUE(own) << own.error().text;
  ASSERT_EQ((*own)["jobs"].size(), 1u);
  EXPECT_EQ((*own)["jobs"][0]["name"], "job");
  const auto nobody = control::query_status(sw.tcp_address(), kTimeoutNs);
  ASSERT_FALSE(nobody);
  EXPECT_THAT(nobody.error().text, HasSubstr("the token is missing"));
}

TEST_F(RemoteTest, UsersOfTheSwitchsHostAndTenantsDoNotMix) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  const test::TempDir folder;
  ::chmod((folder / "").c_str(), 0755);
  TestSwitch sw(options([](switchd::ConductorConfig& config) { config.control.mode = 0666; }),
                folder / "");
  const auto as_user = [&](uid_t uid, const Json& message) {
    // A socket's credentials are those of when it was connected. glibc's call would change all
    // threads.
    std::string text;
    std::thread([&] {
      ASSERT_EQ(::syscall(SYS_setresuid, -1, uid, -1), 0);
      const Peer peer(sw.socket_path());
      const Json answer = peer.ask(message);
      text = answer["type"] == "refused" ? answer["text"].get<std::string>() : "";
    }).join();
    return text;
  };
  const Peer red(sw.tcp_address());
  ASSERT_EQ(red.ask(join_of(kRed))["type"], "joined");
  Json theirs = join_of("", 1);
  theirs["owner"] = "red";
  EXPECT_THAT(as_user(12345, theirs), HasSubstr("only with the job's ticket"));
  EXPECT_EQ(sw.status()["jobs"].size(), 1u);
  // Root says that it means that one.
  EXPECT_EQ(Peer(sw.socket_path()).ask(theirs)["type"], "joined");
  // And the other way round.
  const Peer local(sw.socket_path());
  ASSERT_EQ(local.ask(join_of("", 0, "local"))["type"], "joined");
  Json ours = join_of(kRed, 1, "local");
  ours["owner"] = "uid:0";
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(ours), HasSubstr("only with the job's ticket"));
}

TEST_F(RemoteTest, AnonymousWorkersAreATenantOfTheirOwn) {
  TestSwitch sw(
      options([](switchd::ConductorConfig& config) { config.control.allow_anonymous = true; }));
  const Peer anonymous(sw.tcp_address());
  ASSERT_EQ(anonymous.ask(join_of(""))["type"], "joined");
  EXPECT_EQ(Peer(sw.tcp_address()).ask(join_of(kRed, 1))["type"], "joined");
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(join_of(kRed + "x", 1)),
              HasSubstr("the token is unknown"));
  EXPECT_EQ(Peer(sw.tcp_address()).ask(join_of("", 1))["type"], "joined");
}

TEST_F(RemoteTest, ARestartedSwitchKnowsWhoseTheJobIs) {
  const test::TempDir folder;
  {
    auto state = switchd::StateFile::open(folder / "switch.sock.state");
    ASSERT_TRUE(state);
    ASSERT_TRUE(state->put({.name = "job",
                            .id = 5,
                            .key = 77,
                            .uid = UINT32_MAX,
                            .workers = 2,
                            .epoch = 4097,
                            .lanes = 1,
                            .slot_bytes = 1024,
                            .window = 32,
                            .first_slot = 0,
                            .slots_per_lane = 64,
                            .tenant = "red"}));
  }
  TestSwitch sw(options(), folder / "");
  EXPECT_EQ(sw.status()["jobs"][0]["tenant"], "red");
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(rejoin_of("")), HasSubstr("the token is missing"));
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(rejoin_of(kBlue)),
              HasSubstr("does not belong to tenant 'blue'"));
  Json foreign = rejoin_of(kRed);
  foreign["address"]["ip"] = 0x0a000005;
  EXPECT_THAT(Peer(sw.tcp_address()).refusal(foreign), HasSubstr("is not the address 127.0.0.1"));
  const Json back = Peer(sw.tcp_address()).ask(rejoin_of(kRed));
  EXPECT_EQ(back["type"], "joined") << back;
  EXPECT_EQ(back["job_id"], 5);
}

TEST_F(RemoteTest, SlowStrangersAreClosedAndHoldUpNobody) {
  TestSwitch sw(options([](switchd::ConductorConfig& config) {
    config.control.join_timeout_ns = 300'000'000;
    config.control.max_unjoined = 3;
  }));
  std::vector<Peer> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.emplace_back(sw.tcp_address());
    // The beginning of a message that never ends.
    ASSERT_EQ(::send(strangers.back().fd(), "\x20\0\0\0{", 5, MSG_NOSIGNAL), 5);
  }
  const Peer fourth(sw.tcp_address());
  EXPECT_THAT(fourth.hear().value("text", ""), HasSubstr("(control.max_unjoined)"));
  const auto local = control::query_status(sw.socket_path(), kTimeoutNs);
  EXPECT_TRUE(local) << "the unix socket has nothing to do with it";
  for (const Peer& stranger : strangers) EXPECT_TRUE(stranger.closed());
  EXPECT_EQ(Peer(sw.tcp_address()).ask(join_of(kRed))["type"], "joined");
}

TEST_F(RemoteTest, TooLargeAMessageClosesTheConnection) {
  TestSwitch sw(options());
  const Peer peer(sw.tcp_address());
  ASSERT_EQ(::send(peer.fd(), "\xff\xff\xff\x7f", 4, MSG_NOSIGNAL), 4);
  EXPECT_THAT(peer.hear().value("text", ""), HasSubstr("2147483647 bytes; 1 to 16384"));
  EXPECT_TRUE(peer.closed());
}

TEST_F(RemoteTest, AWorkerThatNeverReadsHoldsUpNobody) {
  TestSwitch sw(options());
  const Peer deaf(sw.tcp_address());
  ASSERT_EQ(deaf.ask(join_of(kRed))["type"], "joined");
  control::Connection asking = *control::Connection::open(sw.tcp_address(), kTimeoutNs);
  // Answers pile up until the switch gives it up.
  bool lost = false;
  const Json status = {{"type", "status"}, {"token", kRed}};
  for (const Nanos deadline = now_ns() + 3 * kTimeoutNs; !lost && now_ns() < deadline;)
    lost = !asking.send(status);
  EXPECT_TRUE(lost);
  EXPECT_EQ(sw.status()["jobs"].size(), 1u);
}

TEST_F(RemoteTest, AStatusLargerThanTheSocketComesAsItIsRead) {
  constexpr size_t kPorts = 20'000;
  TestSwitch sw(options([](switchd::ConductorConfig& config) {
    config.frame_ports.assign(kPorts, {std::string(60, 'p'), {}});
  }));
  const auto status = control::query_status(sw.tcp_address(), kTimeoutNs, kRed);
  ASSERT_TRUE(status) << status.error().text;
  EXPECT_EQ((*status)["ports"].size(), 1 + kPorts);
}

TEST_F(RemoteTest, AWorkerThatIsGoneIsNamedByItsAddress) {
  TestSwitch sw(options());
  {
    const Peer first(sw.tcp_address());
    ASSERT_EQ(first.ask(join_of(kRed))["type"], "joined");
    const Peer second(sw.tcp_address());
    EXPECT_THAT(second.refusal(join_of(kRed)), HasSubstr("was joined by 127.0.0.1:"));
  }
  for (int i = 0; i < 1000 && !sw.status()["jobs"].empty(); ++i) ::usleep(5000);
  EXPECT_TRUE(sw.status()["jobs"].empty());
}

// ---- the start

TEST_F(RemoteTest, ListeningToAnybodyMustBeMeant) {
  EXPECT_THAT(start_error([](switchd::ConductorConfig&) {}),
              HasSubstr("set control.token_file, or control.allow_anonymous: true"));
  EXPECT_EQ(
      start_error([](switchd::ConductorConfig& config) { config.control.allow_anonymous = true; }),
      "no error");
}

TEST_F(RemoteTest, ATokenFileThatOthersMayReadEndsTheStart) {
  const std::string file = token_file();
  ::chmod(file.c_str(), 0644);
  const auto use = [&](switchd::ConductorConfig& config) { config.control.token_file = file; };
  EXPECT_THAT(start_error(use), HasSubstr("the token file " + file));
  EXPECT_THAT(start_error(use), HasSubstr("has mode 0644"));
  ::unlink(file.c_str());
  EXPECT_THAT(start_error(use), HasSubstr("cannot open the token file " + file));
}

}  // namespace
}  // namespace ina
