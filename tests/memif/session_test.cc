// Messages between a memif worker and the bridge, beside a real switch and without DPDK: the test
// plays the worker, and its frames lie in the transport.
#include "programs/memif/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>

#include "common/clock.h"
#include "tests/support/deadline.h"
#include "tests/support/raw_worker.h"
#include "tests/support/switch_fixture.h"

namespace ina::memif {
namespace {

using control::Json;
using test::RawWorker;
using test::TestSwitch;
using testing::HasSubstr;

using test::kTimeoutNs;
const wire::Address kOurs{{2, 0, 0, 0, 0, 0xfe}, 0x0a000001, 7584};

struct FakeInterfaces : Interfaces {
  Result<wire::Address> attach(uint32_t interface, const Binding& to,
                               client::ShmTransport& through) override {
    if (interface > 3) return fail(INA_ERR_INVALID, "there is no such interface");
    EXPECT_EQ(transport, nullptr);
    number = interface;
    binding = to;
    transport = &through;
    return kOurs;
  }
  void detach(uint32_t interface) override {
    EXPECT_EQ(interface, number);
    transport = nullptr;
  }
  uint32_t number = 0;
  Binding binding;
  client::ShmTransport* transport = nullptr;
};

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

/// A worker's end of a session, which is served whenever the worker waits.
class Worker {
 public:
  Worker(const std::string& switch_socket, FakeInterfaces& interfaces) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    control = control::Connection(Fd(ends[0]));
    session = std::make_unique<Session>(control::Connection(Fd(ends[1])), "", switch_socket,
                                        control::Trust{}, interfaces);
  }

  static Json join(const std::string& job, int rank, int world) {
    return {{"type", "join"},
            {"version", control::kControlVersion},
            {"library", "test"},
            {"job", job},
            {"rank", rank},
            {"world_size", world},
            {"window_bytes", 0},
            {"transport", "frame"},
            {"address", {{"mac", {2, 0, 0, 0, 0, 1}}, {"ip", 0x0a000002}, {"udp_port", 9000}}},
            {"port", "rack1"},
            {"interface", 2}};
  }
  void say(const Json& message, const std::vector<int>& fds = {}) {
    EXPECT_TRUE(control.send(message, fds));
  }
  /// The next message; null at the end of the session.
  Json hear() {
    const Nanos deadline = now_ns() + kTimeoutNs;
    while (now_ns() < deadline) {
      serve();
      auto message = control.receive(0);
      if (!message) return nullptr;
      if (*message) return (*message)->body;
    }
    ADD_FAILURE() << "nothing came";
    return nullptr;
  }
  Json hear_of(const std::string& type) {
    for (;;)
      if (Json message = hear(); message.is_null() || message["type"] == type) return message;
  }
  void serve() {
    if (!session) return;
    pollfd fds[2] = {{session->worker_fd(), POLLIN, 0}, {session->switch_fd(), POLLIN, 0}};
    ::poll(fds, 2, 1);
    if ((fds[1].revents != 0 && !session->on_switch()) ||
        (fds[0].revents != 0 && !session->on_worker()))
      session.reset();
  }

  control::Connection control;
  std::unique_ptr<Session> session;
};

wire::Message grad(Rank rank) {
  wire::Message m;
  m.type = wire::Type::kGrad;
  m.dtype = DType::kInt32;
  m.op = Op::kSum;
  m.collective = Collective::kAllReduce;
  m.elements = 2;
  m.operation_elements = 2;
  m.bitmap = WorkerSet::of(rank);
  return m;
}

/// One fragment there and back.
void expect_sum(client::Transport& one, client::Transport& other, uint32_t epoch) {
  const int32_t values[2] = {20, 1};
  for (client::Transport* transport : {&one, &other}) {
    client::TxPacket packet{grad(Rank{0}), reinterpret_cast<const std::byte*>(values), 8};
    packet.message.epoch = epoch;
    EXPECT_EQ(transport->tx_burst({&packet, 1}), 1u);
  }
  for (client::Transport* transport : {&one, &other}) {
    client::RxPacket packet;
    const Nanos deadline = now_ns() + kTimeoutNs;
    while (transport->rx_burst({&packet, 1}) == 0 && now_ns() < deadline)
      transport->wait(1'000'000);
    ASSERT_EQ(packet.payload_bytes, 8u);
    int32_t sum[2];
    std::memcpy(sum, packet.payload, 8);
    EXPECT_EQ(sum[0], 40);
    EXPECT_EQ(sum[1], 2);
    transport->rx_release();
  }
}

TEST(Session, AMemifWorkerIsAnShmWorkerToTheSwitch) {
  TestSwitch sw({.lanes = 2});
  FakeInterfaces interfaces;
  Worker worker(sw.socket_path(), interfaces);
  worker.say(Worker::join("job", 1, 2));
  const Json joined = worker.hear();
  ASSERT_EQ(joined["type"], "joined") << joined;
  EXPECT_EQ(joined["address"], (Json{{"mac", kOurs.mac}, {"ip", kOurs.ip}, {"udp_port", 7584}}));
  EXPECT_FALSE(joined.contains("shm"));
  EXPECT_EQ(joined["lanes"], 2);
  EXPECT_EQ(joined["policy"], "static");
  EXPECT_EQ(interfaces.number, 2u);
  EXPECT_EQ(interfaces.binding.worker, (wire::Address{{2, 0, 0, 0, 0, 1}, 0x0a000002, 9000}));
  EXPECT_EQ(interfaces.binding.job, JobId{joined["job_id"].get<uint32_t>()});
  EXPECT_EQ(interfaces.binding.job_key, joined["job_key"].get<uint64_t>());
  EXPECT_EQ(interfaces.binding.slot_bytes, 1024u);
  EXPECT_EQ(interfaces.binding.lanes, 2u);

  worker.say({{"type", "attach"}});
  RawWorker local(sw.socket_path(), "job", 0, 2);
  EXPECT_EQ(worker.hear_of("ready")["type"], "ready");
  ASSERT_NE(interfaces.transport, nullptr);
  expect_sum(*local.transport, *interfaces.transport, joined["epoch"]);

  worker.say({{"type", "explain"}});
  EXPECT_EQ(worker.hear()["type"], "explain");
  // Nobody has a result buffer where one worker's results come in frames.
  EXPECT_TRUE(local.hear_until("ready"));
  EXPECT_TRUE(local.control.send({{"type", "share_results"}, {"bytes", 4096}}));
  worker.say({{"type", "share_results"}, {"bytes", 4096}});
  EXPECT_EQ(worker.hear()["first_unit"], nullptr);
  EXPECT_EQ(local.hear()["first_unit"], nullptr);

  worker.say({{"type", "leave"}});
  EXPECT_TRUE(local.control.send({{"type", "leave"}}));
  EXPECT_EQ(worker.hear()["type"], "left");
  worker.control.close();
  while (worker.session) worker.serve();
  EXPECT_EQ(interfaces.transport, nullptr);
  EXPECT_TRUE(sw.status()["jobs"].empty());
}

TEST(Session, WhenTheWorkerGoesItsJobIsTold) {
  TestSwitch sw;
  FakeInterfaces interfaces;
  RawWorker local(sw.socket_path(), "job", 0, 2);
  {
    Worker worker(sw.socket_path(), interfaces);
    worker.say(Worker::join("job", 1, 2));
    EXPECT_EQ(worker.hear()["type"], "joined");
    worker.say({{"type", "attach"}});
    EXPECT_FALSE(worker.hear_of("ready").is_null());
    worker.control.close();
    while (worker.session) worker.serve();
    EXPECT_EQ(interfaces.transport, nullptr);
  }
  EXPECT_TRUE(local.hear_until("ready"));
  const Json told = local.hear();
  EXPECT_EQ(told["type"], "abort");
  EXPECT_EQ(told["status"], INA_ERR_PEER_LOST);
  EXPECT_THAT(told["text"].get<std::string>(), HasSubstr("rank 1"));
}

TEST(Session, WhenTheSwitchGoesTheWorkerMayComeBack) {
  TestSwitch sw;
  FakeInterfaces interfaces;
  Worker first(sw.socket_path(), interfaces);
  first.say(Worker::join("job", 0, 1));
  const Json joined = first.hear();
  first.say({{"type", "attach"}});
  EXPECT_FALSE(first.hear_of("ready").is_null());
  sw.stop();
  EXPECT_EQ(first.hear(), nullptr) << "as if the bridge were the switch";
  EXPECT_EQ(interfaces.transport, nullptr);

  Json rejoin = Worker::join("job", 0, 1);
  rejoin.update({{"type", "rejoin"},
                 {"job_id", joined["job_id"]},
                 {"job_key", joined["job_key"]},
                 {"low", 0},
                 {"next", 0},
                 {"results_end", 0}});
  {
    Worker early(sw.socket_path(), interfaces);
    early.say(rejoin);
    EXPECT_EQ(early.hear(), nullptr) << "closed, so that it tries again: a refusal would be final";
  }
  {
    Worker newcomer(sw.socket_path(), interfaces);
    newcomer.say(Worker::join("other", 0, 1));
    const Json refused = newcomer.hear();
    EXPECT_EQ(refused["status"], INA_ERR_NO_SWITCH);
    EXPECT_THAT(refused["text"].get<std::string>(), HasSubstr(sw.socket_path()));
    sw.start();
    newcomer.say(Worker::join("other", 0, 1));
    EXPECT_EQ(newcomer.hear()["type"], "joined") << "a refused worker may ask again";
  }
  Worker again(sw.socket_path(), interfaces);
  again.say(rejoin);
  const Json back = again.hear();
  ASSERT_EQ(back["type"], "joined") << back;
  EXPECT_GT(back["epoch"], joined["epoch"]);
  again.say({{"type", "attach"}});
  EXPECT_FALSE(again.hear_of("ready").is_null());
  ASSERT_NE(interfaces.transport, nullptr);
}

TEST(Session, WhatMakesNoSenseIsRefused) {
  TestSwitch sw;
  FakeInterfaces interfaces;
  const auto refusal = [&](const Json& message) {
    Worker worker(sw.socket_path(), interfaces);
    worker.say(message);
    const Json answer = worker.hear();
    EXPECT_EQ(answer["type"], "refused") << message;
    return answer.value("text", std::string());
  };
  Json join = Worker::join("job", 0, 1);
  EXPECT_THAT(refusal({{"type", "attach"}}), HasSubstr("attach without join"));
  EXPECT_THAT(refusal({{"type", "leave"}}), HasSubstr("leave without attach"));
  for (const char* type : {"serve", "join_fallback", "register", "next_job", "nonsense"})
    EXPECT_THAT(refusal({{"type", type}}), HasSubstr("passes no '" + std::string(type) + "'"));
  EXPECT_THAT(refusal({{"no", "type"}}), HasSubstr("malformed"));
  EXPECT_THAT(refusal({{"type", 3}}), HasSubstr("malformed"));
  join["transport"] = "shm";
  EXPECT_THAT(refusal(join), HasSubstr("join the switch itself at " + sw.socket_path()));
  join = Worker::join("job", 0, 1);
  join.erase("address");
  EXPECT_THAT(refusal(join), HasSubstr("malformed"));
  for (const Json& mac : {Json({1, 2, 3}), Json("02:00:00:00:00:01"), Json()}) {
    join = Worker::join("job", 0, 1);
    join["address"]["mac"] = mac;
    EXPECT_THAT(refusal(join), HasSubstr("malformed"));
  }
  join = Worker::join("job", 0, 1);
  join["interface"] = 4;
  EXPECT_THAT(refusal(join), HasSubstr("no such interface"));
  Worker other(sw.socket_path(), interfaces);
  other.say(join);
  EXPECT_EQ(other.hear()["type"], "refused");
  EXPECT_EQ(other.hear(), nullptr) << "or it would keep a place at the switch";
  join = Worker::join("job", 5, 2);
  EXPECT_THAT(refusal(join), HasSubstr("rank 5 is not in 0..1"))
      << "what the switch itself refuses";

  Worker worker(sw.socket_path(), interfaces);
  ASSERT_GT(::send(worker.control.fd(), "{no json", 8, 0), 0);
  EXPECT_EQ(worker.hear()["type"], "refused");
  EXPECT_EQ(worker.hear(), nullptr);
}

TEST(Session, KeepsNoDescriptorThatAWorkerSends) {
  TestSwitch sw;
  FakeInterfaces interfaces;
  {
    Worker worker(sw.socket_path(), interfaces);
    worker.say({{"type", "explain"}});
    EXPECT_EQ(worker.hear()["type"], "explain");
    const int before = open_descriptors();
    const std::vector<int> many(50, 0);
    for (const char* type : {"explain", "register"}) {
      worker.say({{"type", type}}, many);
      EXPECT_FALSE(worker.hear().is_null());
    }
    EXPECT_EQ(open_descriptors(), before);
  }
  // Those of the switch pass: the status is one.
  Worker worker(sw.socket_path(), interfaces);
  worker.say({{"type", "status"}});
  while (true) {
    worker.serve();
    const auto answer = worker.control.receive(0);
    ASSERT_TRUE(answer);
    if (!*answer) continue;
    EXPECT_EQ((*answer)->body["type"], "status");
    EXPECT_EQ((*answer)->fds.size(), 1u);
    break;
  }
}

}  // namespace
}  // namespace ina::memif
