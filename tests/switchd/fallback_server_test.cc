// A fallback server behind an Ethernet port, by hand: the switch's answers, the peers that it takes
// for the server, and refusals. The server itself does that over a network in tests/net.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

#include "tests/support/as_user.h"
#include "tests/support/control_peer.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using test::Peer;
using testing::HasSubstr;

const wire::Address kPort{{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584};
const wire::Address kServer{{2, 0, 0, 0, 0, 64}, 0x0a000040, 40000};
constexpr auto kFallback = static_cast<io::EndpointIndex>(value(kFallbackRank));

/// Knows who is bound.
struct RecordingPort : switchd::NoFramePort {
  Result<io::EndpointIndex> bind(const wire::Address& worker, JobId, uint64_t, io::JobIndex,
                                 Rank rank, const std::optional<wire::TagKeys>& keys, JobId) {
    const std::lock_guard lock(mutex);
    bound[value(rank)] = worker;
    tagged = keys.has_value();
    return static_cast<io::EndpointIndex>(value(rank));
  }
  void unbind(io::EndpointIndex endpoint) {
    const std::lock_guard lock(mutex);
    bound.erase(endpoint);
  }
  std::optional<wire::Address> at(io::EndpointIndex endpoint) {
    const std::lock_guard lock(mutex);
    const auto found = bound.find(endpoint);
    return found == bound.end() ? std::nullopt : std::optional(found->second);
  }
  std::mutex mutex;
  std::map<io::EndpointIndex, wire::Address> bound;
  bool tagged = false;
};

using Switch = test::BasicTestSwitch<RecordingPort>;

test::SwitchOptions dedicated(const std::function<void(switchd::ConductorConfig&)>& more = {}) {
  test::SwitchOptions options;
  options.conductor = [more](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
    config.rules.home = Home::kDedicated;
    config.jobs.window_bytes = 16 * 1024;
    config.frame_ports = {{.name = "eth0", .address = kPort, .multicast = true}};
    if (more) more(config);
  };
  return options;
}

Json joining(const wire::Address& address = kServer) {
  return {{"transport", "frame"},
          {"address", {{"mac", address.mac}, {"ip", address.ip}, {"udp_port", address.udp_port}}},
          {"port", ""},
          {"interface", 0},
          {"tags", {"siphash"}},
          {"multicast", true}};
}

/// A server that has been told of a job.
class Server {
 public:
  explicit Server(const Switch& sw) : own_(sw.socket_path()), socket_(sw.socket_path()) {
    const Json serving =
        own_.ask({{"type", "serve"}, {"version", control::kControlVersion}, {"library", "test"}});
    EXPECT_EQ(serving["type"], "serving") << serving;
    next_job();
  }
  Json next_job() {
    Json job = own_.ask({{"type", "next_job"}});
    EXPECT_EQ(job["type"], "job") << job;
    id_ = job["job_id"];
    return job;
  }
  Json request(Json more) const {
    more.update({{"type", "join_fallback"}, {"job_id", id_}});
    return more;
  }
  std::string refusal(const Json& more) const { return Peer(socket_).refusal(request(more)); }
  /// Attaches; returns the answer to the join.
  Json join(const Json& more) {
    member_.emplace(socket_);
    Json joined = member_->ask(request(more));
    EXPECT_EQ(joined["type"], "joined") << joined;
    return joined;
  }
  Peer& member() { return *member_; }

 private:
  Peer own_;
  std::string socket_;
  uint32_t id_ = 0;
  std::optional<Peer> member_;
};

/// Both workers of a job, attached.
struct Workers {
  explicit Workers(const Switch& sw, const Json& more = Json::object()) {
    for (int rank = 0; rank < 2; ++rank) {
      Json join = test::frame_join("", "", rank);
      join.update(more);
      peers.emplace_back(sw.socket_path());
      joined.push_back(peers.back().ask(join));
      EXPECT_EQ(joined.back()["type"], "joined") << joined.back();
    }
    for (const Peer& peer : peers) EXPECT_EQ(peer.ask({{"type", "attach"}})["type"], "waiting");
  }
  Workers(const Switch& sw, const std::vector<Json>& before) {
    for (int rank = 0; rank < 2; ++rank) {
      Json join = test::frame_join("", "", rank);
      join.update({{"type", "rejoin"},
                   {"job_id", before[rank]["job_id"]},
                   {"job_key", before[rank]["job_key"]},
                   {"low", 7},
                   {"next", 7},
                   {"results_end", 7}});
      peers.emplace_back(sw.socket_path());
      joined.push_back(peers.back().ask(join));
      EXPECT_EQ(joined.back()["type"], "joined") << joined.back();
    }
    for (const Peer& peer : peers) EXPECT_EQ(peer.ask({{"type", "attach"}})["type"], "waiting");
  }
  void expect(const std::string& type) {
    for (const Peer& peer : peers) {
      Json heard = peer.hear();
      while (heard["type"] == "waiting") heard = peer.hear();
      EXPECT_EQ(heard["type"], type) << heard;
    }
  }
  std::deque<Peer> peers;
  std::vector<Json> joined;
};

void await_unbound(Switch& sw) {
  for (int i = 0; i < 2000 && sw.frame_port(0).at(kFallback); ++i) ::usleep(5000);
  EXPECT_FALSE(sw.frame_port(0).at(kFallback));
}

TEST(FallbackServer, AttachesOverAnEthernetPort) {
  Switch sw(dedicated());
  Workers workers(sw);
  Server server(sw);
  const Json joined = server.join(joining());
  EXPECT_EQ(joined["address"]["ip"], kPort.ip);
  EXPECT_EQ(joined["address"]["udp_port"], kPort.udp_port);
  EXPECT_EQ(joined["job_key"], workers.joined[0]["job_key"]);
  EXPECT_EQ(joined["workers"], 2);
  for (const char* absent : {"shm", "group", "tag"})
    EXPECT_FALSE(joined.contains(absent)) << absent;
  // It is not the server before it says that it is there.
  EXPECT_FALSE(sw.frame_port(0).at(kFallback));
  EXPECT_TRUE(server.member().send({{"type", "attach"}}));
  workers.expect("ready");
  EXPECT_EQ(sw.frame_port(0).at(kFallback), kServer);
}

TEST(FallbackServer, ASuccessorHasAnotherAddressAndANewEpoch) {
  Switch sw(dedicated());
  Workers workers(sw);
  uint32_t epoch = 0;
  {
    Server server(sw);
    epoch = server.join(joining())["epoch"];
    EXPECT_TRUE(server.member().send({{"type", "attach"}}));
    workers.expect("ready");
  }
  await_unbound(sw);
  wire::Address other = kServer;
  ++other.udp_port;
  Server server(sw);
  const Json joined = server.join(joining(other));
  EXPECT_GT(joined["epoch"], epoch);
  EXPECT_EQ(joined["instance"], joined["epoch"]);
  EXPECT_TRUE(server.member().send({{"type", "attach"}}));
  workers.expect("epoch");
  EXPECT_EQ(sw.frame_port(0).at(kFallback), other);
}

TEST(FallbackServer, ComesBackToASwitchThatWasRestarted) {
  Switch sw(dedicated());
  std::optional<Workers> workers(sw);
  std::optional<Server> server(sw);
  server->join(joining());
  EXPECT_TRUE(server->member().send({{"type", "attach"}}));
  workers->expect("ready");
  sw.stop();
  const std::vector<Json> before = workers->joined;
  workers.reset();
  server.reset();
  sw.start();
  workers.emplace(sw, before);
  server.emplace(sw);
  EXPECT_EQ(server->join(joining())["start"], 7);
  EXPECT_TRUE(server->member().send({{"type", "attach"}}));
  workers->expect("ready");
  EXPECT_EQ(sw.frame_port(0).at(kFallback), kServer);
}

TEST(FallbackServer, GetsKeysForTags) {
  Switch sw(dedicated(
      [](switchd::ConductorConfig& config) { config.security.tag = config::Tag::kSiphash; }));
  const Workers workers(sw, Json{{"tags", {"siphash"}}});
  Server server(sw);
  Json without = joining();
  without.erase("tags");
  EXPECT_THAT(server.refusal(without), HasSubstr("security.tag"));
  const Json joined = server.join(joining());
  EXPECT_EQ(joined["tag"]["algorithm"], "siphash");
  EXPECT_EQ(joined["tag"]["payload_key"], workers.joined[0]["tag"]["payload_key"]);
  EXPECT_NE(joined["tag"]["key"], workers.joined[0]["tag"]["key"]);
}

TEST(FallbackServer, IsRefusedWhatThePortIsNot) {
  Switch sw(dedicated());
  const Workers workers(sw);
  Server server(sw);
  Json other = joining();
  other["port"] = "eth7";
  EXPECT_THAT(server.refusal(other), HasSubstr("no Ethernet port named 'eth7'; it has: eth0"));
  other["transport"] = "pigeon";
  EXPECT_THAT(server.refusal(other), HasSubstr("offers no 'pigeon' transport"));
  other = joining();
  other["address"].erase("ip");
  EXPECT_THAT(server.refusal(other), HasSubstr("malformed control message"));
  // None of these has its place.
  server.join(joining());
  EXPECT_THAT(server.refusal(joining()), HasSubstr("has a fallback server"));
}

TEST(FallbackServer, OverSharedMemoryItMustBringItsRegion) {
  Switch sw(dedicated());
  const Workers workers(sw);
  Server server(sw);
  const Json joined = server.join(Json::object());
  EXPECT_TRUE(joined.contains("shm"));
  EXPECT_FALSE(joined.contains("address"));
  EXPECT_THAT(server.member().refusal({{"type", "attach"}}),
              HasSubstr("attach must carry one descriptor"));
}

// ---- its place in a job

/// A user may have four mappings: a job has one, and a place over shared memory two.
test::SwitchOptions with_few_mappings() {
  return dedicated([](switchd::ConductorConfig& config) { config.mappings = 8; });
}

TEST(FallbackServer, AJobWithoutAPlaceForItEnds) {
  const Switch sw(with_few_mappings());
  const Workers workers(sw);
  std::deque<Peer> others;
  for (const char* job : {"second", "third"})
    EXPECT_EQ(others.emplace_back(sw.socket_path()).ask(test::frame_join("", "", 0, job))["type"],
              "joined");
  Server server(sw);
  const Json answer = Peer(sw.socket_path()).ask(server.request(Json::object()));
  EXPECT_EQ(answer["type"], "refused");
  EXPECT_EQ(answer["status"], INA_ERR_ABORTED) << "for the server the job has ended";
  for (const Peer& peer : workers.peers) {
    Json heard = peer.hear();
    while (heard["type"] == "waiting") heard = peer.hear();
    ASSERT_EQ(heard["type"], "abort") << heard;
    EXPECT_EQ(heard["status"], INA_ERR_REFUSED);
    EXPECT_EQ(heard["text"], answer["text"]);
    EXPECT_THAT(heard.value("text", ""),
                HasSubstr("job 'job' has ended, because there is no place in it for the fallback "
                          "server (ina-psd): it needs 2 mappings, the switch has 4 for "));
  }
  // There is one in the next.
  const Json next = server.next_job();
  EXPECT_EQ(next["job"], "second");
  EXPECT_EQ(next["owner"], "uid:" + std::to_string(::geteuid()));
  server.join(Json::object());
}

TEST(FallbackServer, ItsPlaceIsKeptWhileItIsAway) {
  const Switch sw(with_few_mappings());
  const Workers workers(sw);
  std::optional<Server> server(sw);
  server->join(Json::object());
  server.reset();
  const Peer other(sw.socket_path());
  EXPECT_EQ(other.ask(test::frame_join("", "", 0, "second"))["type"], "joined");
  const Peer one_too_many(sw.socket_path());
  EXPECT_THAT(one_too_many.refusal(test::frame_join("", "", 0, "third")), HasSubstr("mappings"));
  server.emplace(sw);
  server->join(Json::object());
}

// ---- what the jobs of one user cost others

class FallbackOfUsers : public testing::Test {
 protected:
  static constexpr uid_t kAlice = 12345, kBob = 12346;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
    ::chmod((folder_ / "").c_str(), 0755);
  }
  void start(const std::function<void(switchd::ConductorConfig&)>& more = {}) {
    sw_.emplace(dedicated([more](switchd::ConductorConfig& config) {
                  config.control.mode = 0666;
                  if (more) more(config);
                }),
                folder_ / "");
  }
  const Peer& connect_as(uid_t uid) {
    test::as_user(uid, [&] { peers_.emplace_back(sw_->socket_path()); });
    return peers_.back();
  }
  Json join_as(uid_t uid, const std::string& job, int rank = 0) {
    return connect_as(uid).ask_if_open(test::frame_join("", "", rank, job));
  }

  test::TempDir folder_;
  std::deque<Peer> peers_;
  std::optional<Switch> sw_;
};

TEST_F(FallbackOfUsers, AreToldInTurn) {
  start();
  for (const char* job : {"one", "two", "three", "four"})
    EXPECT_EQ(join_as(kAlice, job)["type"], "joined");
  for (const char* job : {"one", "two"}) EXPECT_EQ(join_as(kBob, job)["type"], "joined");
  const Peer server(sw_->socket_path());
  EXPECT_EQ(
      server.ask(
          {{"type", "serve"}, {"version", control::kControlVersion}, {"library", "test"}})["type"],
      "serving");
  std::vector<std::string> owners;
  for (int i = 0; i < 6; ++i) owners.push_back(server.ask({{"type", "next_job"}})["owner"]);
  const std::string alice = "uid:12345", bob = "uid:12346";
  EXPECT_EQ(owners, (std::vector<std::string>{alice, bob, alice, bob, alice, alice}));
}

TEST_F(FallbackOfUsers, KeepConnectionsForItAndForNobodyElse) {
  start([](switchd::ConductorConfig& config) {
    config.control.max_connections = 4;
    config.control.max_connections_per_user = 4;
  });
  for (const char* job : {"one", "two"})
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(join_as(kAlice, job, rank)["type"], "joined");
  EXPECT_THAT(connect_as(kBob).hear().value("text", ""), HasSubstr("control.max_connections"));
  EXPECT_THAT(connect_as(0).refusal({{"type", "status"}}),
              HasSubstr("but for workers that come back to their jobs, and for the fallback"));
  Server server(*sw_);
  server.join(joining());
  std::optional<Peer> again(std::in_place, sw_->socket_path());
  server.next_job();
  EXPECT_EQ(again->ask(server.request(joining()))["type"], "joined");
  // It has all that it needs.
  EXPECT_THAT(connect_as(0).hear().value("text", ""), HasSubstr("control.max_connections"));
}

TEST_F(FallbackOfUsers, AreChargedForItsMemoryAndItsConnection) {
  const auto charged = [&](Home home) {
    start([home](switchd::ConductorConfig& config) { config.rules.home = home; });
    const Json joined = join_as(kAlice, "job");
    EXPECT_EQ(joined["type"], "joined") << joined;
    const Json tenant = sw_->status()["tenants"][0];
    EXPECT_EQ(tenant["name"], "uid:12345");
    peers_.clear();
    sw_.reset();
    return std::pair<int64_t, int64_t>(tenant["memory_bytes"], tenant["descriptors"]);
  };
  const auto without = charged(Home::kWorkers);
  const auto with = charged(Home::kDedicated);
  // Sums of twice the window, and a thread; the switch's own part is a receive ring and its rows.
  constexpr int64_t kSums = 2 * 16 * 1024, kThread = 64 * 1024, kRing = 16 * 1024;
  const int64_t rows = with.first - without.first - kSums - kThread;
  EXPECT_GE(rows, 2 * kRing);
  EXPECT_EQ(with.second - without.second, 1);
}

TEST_F(FallbackOfUsers, AreRefusedWhatItsMemoryTakesBeyondTheirs) {
  // Enough for the switch's own part of a job of two workers.
  constexpr uint64_t kBytes = 300 * 1024;
  const auto limited = [&](Home home) {
    start([home](switchd::ConductorConfig& config) {
      config.rules.home = home;
      config.tenants = {{.name = "uid:12345", .memory_bytes = kBytes}};
    });
    const Json answer = join_as(kAlice, "job");
    peers_.clear();
    sw_.reset();
    return answer;
  };
  EXPECT_EQ(limited(Home::kWorkers)["type"], "joined");
  const Json refused = limited(Home::kDedicated);
  EXPECT_EQ(refused["type"], "refused");
  EXPECT_THAT(refused.value("text", ""), HasSubstr("memory"));
}

TEST(FallbackServer, AttachesOnce) {
  Switch sw(dedicated());
  Workers workers(sw);
  Server server(sw);
  server.join(joining());
  EXPECT_TRUE(server.member().send({{"type", "attach"}}));
  workers.expect("ready");
  EXPECT_THAT(server.member().refusal({{"type", "attach"}}), HasSubstr("attach without join"));
}

}  // namespace
}  // namespace ina
