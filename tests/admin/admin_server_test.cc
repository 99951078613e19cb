// The gRPC server of administrators, before a switch without DPDK: access, answers, and that no
// slow, stuck or vanished client holds the switch up.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <condition_variable>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "common/clock.h"
#include "control/admin/listener.h"
#include "control/admin/server.h"
#include "ina_admin.grpc.pb.h"
#include "tests/support/certificates.h"
#include "tests/support/control_peer.h"
#include "tests/support/switch_fixture.h"

namespace ina::admin {
namespace {

using std::chrono::system_clock;
using test::Peer;
using test::TestSwitch;
using testing::ElementsAre;
using testing::HasSubstr;
using Code = grpc::StatusCode;
using Stub = v1::Administration::Stub;

constexpr Nanos kSecond = 1'000'000'000;
constexpr auto kDeadline = std::chrono::seconds(120);

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class AdminServerTest : public testing::Test {
 protected:
  AdminServerTest() : authority_(folder_, "ca"), sw_(options()) {}

  static TestSwitch::Options options() {
    TestSwitch::Options options;
    options.conductor = [](switchd::ConductorConfig& config) {
      config.tenants = {{.name = "red", .jobs_max = 3}};
    };
    return options;
  }
  ServerConfig on_unix() const { return {.socket = folder_ / "admin"}; }
  ServerConfig on_tcp() {
    const auto own = authority_.issue("the switch", "IP:127.0.0.1,DNS:switch.example");
    return {.listen = "127.0.0.1:0", .tls = {own.certificate, own.key, authority_.file()}};
  }
  void start(const ServerConfig& config) {
    auto started = Server::start(config, sw_.conductor().admin());
    ASSERT_TRUE(started) << started.error().text;
    server_ = std::move(*started);
  }
  std::string start_error(const ServerConfig& config) {
    const auto started = Server::start(config, sw_.conductor().admin());
    return started ? "no error" : started.error().text;
  }
  std::unique_ptr<Stub> stub() const {
    return v1::Administration::NewStub(
        grpc::CreateChannel("unix:" + folder_ / "admin", grpc::InsecureChannelCredentials()));
  }
  std::unique_ptr<Stub> stub(const std::string& ca, const test::CertificateFiles& own,
                             const std::string& host = "127.0.0.1") const {
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = read_file(ca);
    if (!own.key.empty()) {
      tls.pem_private_key = read_file(own.key);
      tls.pem_cert_chain = read_file(own.certificate);
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (host != "127.0.0.1") arguments.SetSslTargetNameOverride(host);
    return v1::Administration::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(server_->tcp_port()), grpc::SslCredentials(tls), arguments));
  }

  // Somebody who is no client of gRPC.
  Fd connect_unix() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (folder_ / "admin").c_str());
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  Fd connect_tcp(uint32_t from = INADDR_LOOPBACK) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(from);
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_->tcp_port());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  template <class Request, class Response>
  static grpc::Status call(
      Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
      const Request& request, Response& response, system_clock::duration timeout = kDeadline) {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + timeout);
    return (stub.*method)(&context, request, &response);
  }
  static grpc::Status status_of(Stub& stub) {
    v1::StatusResponse response;
    return call(stub, &Stub::Status, v1::StatusRequest(), response);
  }
  static v1::CreateJobRequest job_request(const std::string& name = "job") {
    v1::CreateJobRequest request;
    request.set_name(name);
    request.set_workers(2);
    request.set_tenant("red");
    return request;
  }
  grpc::Status create(v1::CreateJobResponse& made,
                      const v1::CreateJobRequest& request = job_request()) {
    return call(*stub(), &Stub::CreateJob, request, made);
  }

  test::TempDir folder_;
  test::CertificateAuthority authority_;
  TestSwitch sw_;
  std::unique_ptr<Server> server_;
};

TEST_F(AdminServerTest, EveryCallReachesTheSwitch) {
  start(on_unix());
  v1::CreateJobResponse made;
  const grpc::Status created = create(made);
  ASSERT_TRUE(created.ok()) << created.error_message();
  EXPECT_EQ(made.ticket().size(), 32u);
  EXPECT_EQ(made.slots_floor(), 64u);
  EXPECT_EQ(made.expires_in().seconds(), 3600);

  v1::StatusResponse status;
  ASSERT_TRUE(call(*stub(), &Stub::Status, v1::StatusRequest(), status).ok());
  ASSERT_EQ(status.jobs_size(), 1);
  EXPECT_EQ(status.jobs(0).name(), "job");
  EXPECT_EQ(status.jobs(0).tenant(), "red");
  EXPECT_EQ(status.jobs(0).state(), "joining");
  EXPECT_EQ(status.jobs(0).workers(), 2u);
  EXPECT_THAT(status.jobs(0).missing(), ElementsAre(0, 1));
  EXPECT_EQ(status.jobs(0).slots_floor(), 64u);
  EXPECT_GT(status.jobs(0).reserved_for().seconds(), 3500);
  ASSERT_EQ(status.tenants_size(), 1);
  EXPECT_EQ(status.tenants(0).name(), "red");
  EXPECT_EQ(status.tenants(0).use().jobs(), 1u);
  EXPECT_EQ(status.tenants(0).quota().jobs(), 3u);
  EXPECT_EQ(status.tenants(0).priority_max(), 255u);
  auto json = nlohmann::json::parse(status.json());
  EXPECT_EQ(json["jobs"], sw_.status()["jobs"]);

  const Peer worker(sw_.socket_path());
  auto join = test::frame_join("ticket", made.ticket());
  join["transport"] = "shm";
  ASSERT_EQ(worker.ask(join)["type"], "joined");
  v1::KickWorkerRequest kick;
  kick.set_job("job");
  kick.set_reason("why not");
  v1::KickWorkerResponse kicked;
  ASSERT_TRUE(call(*stub(), &Stub::KickWorker, kick, kicked).ok());
  const std::string told = worker.hear()["text"];
  EXPECT_THAT(told, HasSubstr("an administrator (uid " + std::to_string(::geteuid()) + ", pid " +
                              std::to_string(::getpid()) + ") sent rank 0"));

  v1::AbortJobRequest abort;
  abort.set_name("job");
  v1::AbortJobResponse aborted;
  ASSERT_TRUE(call(*stub(), &Stub::AbortJob, abort, aborted).ok());
  EXPECT_TRUE(sw_.status()["jobs"].empty());
}

TEST_F(AdminServerTest, RefusalsHaveCodesAndSentences) {
  start(on_unix());
  v1::CreateJobResponse made;
  ASSERT_TRUE(create(made).ok());
  grpc::Status status = create(made);
  EXPECT_EQ(status.error_code(), Code::ALREADY_EXISTS);
  EXPECT_EQ(status.error_message(), "there is a job 'job' of red already");
  auto large = job_request("large");
  large.set_slots_floor(4096);
  large.set_window_bytes(4 << 20);
  status = create(made, large);
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("needs 4096 slots in one piece, 448 of 512 are "
                                                "free"));
  auto wrong = job_request("wrong");
  wrong.set_priority_max(256);
  EXPECT_EQ(create(made, wrong).error_code(), Code::INVALID_ARGUMENT);
  wrong = job_request("wrong");
  wrong.mutable_ttl()->set_seconds(INT64_MAX);
  EXPECT_EQ(create(made, wrong).error_code(), Code::INVALID_ARGUMENT);
  wrong.mutable_ttl()->set_seconds(INT64_MIN);
  EXPECT_EQ(create(made, wrong).error_code(), Code::INVALID_ARGUMENT);
  v1::AbortJobResponse aborted;
  EXPECT_EQ(call(*stub(), &Stub::AbortJob, v1::AbortJobRequest(), aborted).error_code(),
            Code::NOT_FOUND);
  v1::ReloadResponse reloaded;
  EXPECT_EQ(call(*stub(), &Stub::Reload, v1::ReloadRequest(), reloaded).error_code(),
            Code::INVALID_ARGUMENT);
}

TEST_F(AdminServerTest, DrainTellsHowItGoesUntilNothingIsLeft) {
  start(on_unix());
  v1::CreateJobResponse made;
  ASSERT_TRUE(create(made).ok());
  ASSERT_TRUE(create(made, job_request("other")).ok());
  const auto used = stub();
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + kDeadline);
  v1::DrainRequest request;
  request.mutable_timeout()->set_seconds(15);
  const auto reader = used->Drain(&context, request);
  v1::DrainProgress progress;
  ASSERT_TRUE(reader->Read(&progress));
  EXPECT_TRUE(progress.draining());
  EXPECT_FALSE(progress.drained());
  EXPECT_THAT(progress.jobs(), ElementsAre("job", "other"));
  ASSERT_EQ(progress.left_size(), 2);
  EXPECT_EQ(progress.left(1).name(), "other");
  EXPECT_EQ(progress.left(1).owner(), sw_.status()["jobs"][1]["owner"]);
  EXPECT_EQ(create(made, job_request("late")).error_code(), Code::UNAVAILABLE);
  for (const char* name : {"job", "other"}) {
    v1::AbortJobRequest abort;
    abort.set_name(name);
    v1::AbortJobResponse aborted;
    ASSERT_TRUE(call(*stub(), &Stub::AbortJob, abort, aborted).ok());
    ASSERT_TRUE(reader->Read(&progress));
  }
  EXPECT_TRUE(progress.drained());
  EXPECT_FALSE(reader->Read(&progress));
  EXPECT_TRUE(reader->Finish().ok());
  v1::UndrainResponse undrained;
  ASSERT_TRUE(call(*stub(), &Stub::Undrain, v1::UndrainRequest(), undrained).ok());
  EXPECT_TRUE(create(made, job_request("late")).ok());
}

TEST_F(AdminServerTest, DrainEndsWithItsTimeOrWhenItIsCalledOff) {
  start(on_unix());
  v1::CreateJobResponse made;
  ASSERT_TRUE(create(made).ok());
  const auto drain = [&](double seconds, const std::function<void()>& meanwhile) {
    const auto used = stub();
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + kDeadline);
    v1::DrainRequest request;
    request.mutable_timeout()->set_nanos(static_cast<int>(seconds * 1e9));
    const auto reader = used->Drain(&context, request);
    v1::DrainProgress progress;
    EXPECT_TRUE(reader->Read(&progress));
    if (meanwhile) meanwhile();
    while (reader->Read(&progress)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_FALSE(progress.drained());
    return progress;
  };
  EXPECT_TRUE(drain(0, {}).draining());
  EXPECT_TRUE(drain(0.2, {}).draining());
  EXPECT_FALSE(drain(0.999, [&] {
                 v1::UndrainResponse undrained;
                 call(*stub(), &Stub::Undrain, v1::UndrainRequest(), undrained);
               }).draining());
}

TEST_F(AdminServerTest, OnlySoManyWaitForADrain) {
  start(on_unix());
  v1::CreateJobResponse made;
  ASSERT_TRUE(create(made).ok());
  const auto used = stub();
  v1::DrainRequest request;
  request.mutable_timeout()->set_seconds(15);
  struct Drainer {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::DrainProgress>> reader;
  };
  std::vector<std::unique_ptr<Drainer>> drainers;
  v1::DrainProgress progress;
  for (int i = 0; i < 4; ++i) {
    drainers.push_back(std::make_unique<Drainer>());
    drainers.back()->context.set_deadline(system_clock::now() + kDeadline);
    drainers.back()->reader = used->Drain(&drainers.back()->context, request);
    ASSERT_TRUE(drainers.back()->reader->Read(&progress));
  }
  Drainer fifth;
  fifth.context.set_deadline(system_clock::now() + kDeadline);
  fifth.reader = used->Drain(&fifth.context, request);
  EXPECT_FALSE(fifth.reader->Read(&progress));
  EXPECT_EQ(fifth.reader->Finish().error_code(), Code::UNAVAILABLE);
  EXPECT_TRUE(status_of(*stub()).ok()) << "others are answered";
  // Nobody is left waiting when the server ends.
  server_.reset();
  for (auto& drainer : drainers) {
    while (drainer->reader->Read(&progress)) {
    }
    EXPECT_FALSE(drainer->reader->Finish().ok());
  }
}

// ---- nobody holds the switch up

TEST_F(AdminServerTest, AConductorThatDoesNotAnswerIsADeadline) {
  Queue nobody;
  auto started = Server::start(on_unix(), nobody);
  ASSERT_TRUE(started) << started.error().text;
  v1::StatusResponse status;
  const grpc::Status answer =
      call(*stub(), &Stub::Status, v1::StatusRequest(), status, std::chrono::milliseconds(300));
  EXPECT_EQ(answer.error_code(), Code::DEADLINE_EXCEEDED);
  nobody.close();
}

TEST_F(AdminServerTest, ConnectionsThatSayNothingOrNonsenseHoldNobodyUp) {
  start(on_unix());
  std::vector<Fd> silent;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(connect_unix());
    const std::string nonsense(1000, static_cast<char>(i));
    if (i % 2) {
      EXPECT_EQ(::send(silent.back().get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 1000);
    }
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(status_of(*stub()).ok());
  EXPECT_TRUE(sw_.status().contains("jobs")) << "the switch goes on";
  // One connection too many is closed at once.
  while (silent.size() < 2 * Listener::kMaxUnix) silent.push_back(connect_unix());
  char byte;
  EXPECT_EQ(::recv(silent.back().get(), &byte, 1, 0), 0);
}

TEST_F(AdminServerTest, ManyAtOnceAreAllAnswered) {
  start(on_unix());
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i)
    threads.emplace_back([&] {
      const auto own = stub();
      for (int j = 0; j < 20; ++j) {
        const grpc::Status status = status_of(*own);
        EXPECT_TRUE(status.ok()) << status.error_message();
        answered += status.ok();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answered, 12 * 20);
}

TEST_F(AdminServerTest, MoreCallsThanThereAreThreadsWaitOrAreToldToComeAgain) {
  Queue nobody;  // so that all of them are under way at once
  auto started = Server::start(on_unix(), nobody);
  ASSERT_TRUE(started) << started.error().text;
  constexpr int kCalls = 150;
  std::atomic<int> busy = 0, waited = 0;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Stub>> stubs;
  for (int i = 0; i < 50; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(v1::Administration::NewStub(grpc::CreateCustomChannel(
        "unix:" + folder_ / "admin", grpc::InsecureChannelCredentials(), arguments)));
  }
  for (int i = 0; i < kCalls; ++i)
    threads.emplace_back([&, i] {
      const grpc::Status status = status_of(*stubs[static_cast<size_t>(i) % stubs.size()]);
      if (status.error_code() == Code::RESOURCE_EXHAUSTED) {
        EXPECT_THAT(status.error_message(), HasSubstr("the switch is busy"));
        ++busy;
      } else {
        EXPECT_EQ(status.error_code(), Code::UNAVAILABLE) << status.error_message();
        EXPECT_THAT(status.error_message(), HasSubstr("being stopped"));
        ++waited;
      }
    });
  while (busy == 0) ::usleep(1000);
  nobody.close();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(busy + waited, kCalls);
  EXPECT_GE(waited, static_cast<int>(Queue::kMaxWaiting));
}

TEST_F(AdminServerTest, StrangersOverTcpTakeNoPlaceOfAnybodyElse) {
  ServerConfig config = on_tcp();
  config.socket = folder_ / "admin";
  start(config);
  const auto own = authority_.issue("operator");
  // One connection too many is closed at once; earlier ones are left to their handshakes.
  std::vector<Fd> strangers;
  for (size_t i = 0; i < Listener::kMaxOneAddress; ++i) strangers.push_back(connect_tcp());
  const Fd one_too_many = connect_tcp();
  char byte;
  EXPECT_EQ(::recv(one_too_many.get(), &byte, 1, 0), 0);
  EXPECT_EQ(::recv(strangers.back().get(), &byte, 1, MSG_DONTWAIT), -1);
  while (strangers.size() < Listener::kMaxTcp)
    strangers.push_back(connect_tcp(INADDR_LOOPBACK + 1));
  const Fd of_a_third_address = connect_tcp(INADDR_LOOPBACK + 2);
  EXPECT_EQ(::recv(of_a_third_address.get(), &byte, 1, 0), 0) << "all places are taken";
  EXPECT_TRUE(status_of(*stub()).ok()) << "the unix socket has places of its own";
  EXPECT_FALSE(status_of(*stub(authority_.file(), own)).ok());
  strangers.clear();
  grpc::Status status(Code::UNKNOWN, "");
  for (int i = 0; i < 500 && !status.ok(); ++i) {
    status = status_of(*stub(authority_.file(), own));
    if (!status.ok()) ::usleep(20'000);
  }
  EXPECT_TRUE(status.ok()) << "places are free again: " << status.error_message();
}

TEST_F(AdminServerTest, CallsOverTcpLeaveHalfOfTheQueueToThisHost) {
  Queue nobody;  // so that all of them are under way at once
  ServerConfig config = on_tcp();
  config.socket = folder_ / "admin";
  auto started = Server::start(config, nobody);
  ASSERT_TRUE(started) << started.error().text;
  server_ = std::move(*started);
  constexpr size_t kConnections = 9, kCallsOnEach = 8;
  constexpr size_t kMost = Queue::kMaxWaiting / 2;
  struct Call {
    grpc::ClientContext context;
    v1::StatusRequest request;
    v1::StatusResponse response;
  };
  std::deque<Call> calls;
  std::mutex mutex;  // what follows
  std::condition_variable ended;
  size_t over = 0, busy = 0, stopped = 0;
  const auto own = authority_.issue("operator");
  std::vector<std::unique_ptr<Stub>> stubs;
  for (size_t i = 0; i < kConnections; ++i) {
    stubs.push_back(stub(authority_.file(), own));
    for (size_t k = 0; k < kCallsOnEach; ++k) {
      Call& call = calls.emplace_back();
      call.context.set_deadline(system_clock::now() + kDeadline);
      stubs.back()->async()->Status(
          &call.context, &call.request, &call.response, [&](const grpc::Status& status) {
            const std::lock_guard lock(mutex);
            ++over;
            busy += status.error_message().find("administrators elsewhere") != std::string::npos;
            stopped += status.error_message().find("being stopped") != std::string::npos;
            ended.notify_one();
          });
    }
  }
  std::unique_lock lock(mutex);
  ended.wait_for(lock, kDeadline / 2, [&] { return busy == calls.size() - kMost; });
  EXPECT_EQ(busy, calls.size() - kMost);
  EXPECT_EQ(stopped, 0u);
  lock.unlock();
  nobody.close();
  lock.lock();
  ended.wait(lock, [&] { return over == calls.size(); });
  EXPECT_EQ(stopped, kMost);
  lock.unlock();
  server_.reset();
}

TEST_F(AdminServerTest, AConnectionHasOnlySoManyCallsUnderWay) {
  start(on_unix());
  const Fd client = connect_unix();
  const auto read = [&](size_t bytes) {
    std::string got(bytes, '\0');
    EXPECT_EQ(::recv(client.get(), got.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    return got;
  };
  const auto number = [](const std::string& bytes, size_t at, size_t count) {
    uint32_t value = 0;
    for (size_t i = at; i < at + count; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
  };
  // The server speaks first, and says what it takes: RFC 9113, sections 3.4 and 6.5.
  constexpr size_t kFrameHeaderBytes = 9, kSettingBytes = 6;
  constexpr uint32_t kSettings = 4, kMaxConcurrentStreams = 3;
  const std::string header = read(kFrameHeaderBytes);
  ASSERT_EQ(number(header, 3, 1), kSettings);
  const std::string settings = read(number(header, 0, 3));
  std::optional<uint32_t> streams;
  for (size_t at = 0; at + kSettingBytes <= settings.size(); at += kSettingBytes)
    if (number(settings, at, 2) == kMaxConcurrentStreams) streams = number(settings, at + 2, 4);
  EXPECT_EQ(streams, 8u);
}

TEST_F(AdminServerTest, ARequestIsOnlySoLarge) {
  start(on_unix());
  v1::CreateJobResponse made;
  const grpc::Status status = create(made, job_request(std::string(64 << 10, 'x')));
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
}

TEST_F(AdminServerTest, AHandshakeTakesOnlySoLong) {
  ServerConfig config = on_tcp();
  config.handshake_ms = 1;
  start(config);
  const Fd silent = connect_tcp();
  pollfd end{silent.get(), POLLIN | POLLRDHUP, 0};
  ASSERT_EQ(::poll(&end, 1, 10'000), 1);
  char byte;
  EXPECT_LE(::recv(silent.get(), &byte, 1, MSG_DONTWAIT), 0) << "it says nothing";
}

TEST_F(AdminServerTest, TheServerOutlivesItsSwitch) {
  start(on_unix());
  sw_.conductor().stop();
  grpc::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = status_of(*stub());
  EXPECT_EQ(status.error_code(), Code::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("being stopped"));
  server_.reset();
  EXPECT_NE(::access((folder_ / "admin").c_str(), F_OK), 0) << "its path is gone";
}

// ---- the unix socket

TEST_F(AdminServerTest, TheSocketIsItsUsersAlone) {
  start(on_unix());
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "admin").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THAT(start_error(on_unix()), HasSubstr("another switch already listens on"));
  std::ofstream(folder_ / "file") << "no socket";
  EXPECT_THAT(start_error({.socket = folder_ / "file"}),
              HasSubstr("is not a socket; remove it, or set another admin.socket"));
  EXPECT_THAT(start_error({.socket = std::string(200, 'x')}), HasSubstr("admin.socket: "));
  EXPECT_THAT(start_error({.socket = folder_ / "a", .group = "no-such-group"}),
              HasSubstr("admin.group: there is no group 'no-such-group'"));
}

TEST_F(AdminServerTest, OthersAreTurnedAwayByTheKernelsWord) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  constexpr gid_t kGroup = 23456;
  ServerConfig config = on_unix();
  config.group = std::to_string(kGroup);
  start(config);
  ::chmod((folder_ / "").c_str(), 0755);
  // As if the path's mode did not keep them out.
  ::chmod((folder_ / "admin").c_str(), 0666);
  const auto as_user = [&](uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
    const pid_t child = ::fork();
    if (child == 0) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::strcpy(address.sun_path, (folder_ / "admin").c_str());
      if (::syscall(SYS_setgroups, groups.size(), groups.data()) != 0 ||
          ::syscall(SYS_setresgid, gid, gid, gid) != 0 ||
          ::syscall(SYS_setresuid, uid, uid, uid) != 0)
        ::_exit(2);
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) ::_exit(3);
      // The server of HTTP/2 speaks first, if it accepts the client.
      char byte;
      ::_exit(::recv(fd, &byte, 1, 0) == 1 ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(as_user(12345, 12345, {}), 0);
  EXPECT_EQ(as_user(12345, 12345, {1, 2, 3}), 0);
  EXPECT_EQ(as_user(12345, kGroup, {}), 1);
  EXPECT_EQ(as_user(12345, 12345, {1, kGroup, 3}), 1);
  EXPECT_EQ(as_user(0, 0, {}), 1);
}

// ---- TLS

TEST_F(AdminServerTest, OverTcpACertificateOfTheAuthorityOpensIt) {
  start(on_tcp());
  const auto own = authority_.issue("operator");
  EXPECT_TRUE(status_of(*stub(authority_.file(), own)).ok());
  EXPECT_TRUE(status_of(*stub(authority_.file(), own, "switch.example")).ok());
  // Whose certificate it was is told to those concerned.
  v1::CreateJobResponse made;
  ASSERT_TRUE(call(*stub(authority_.file(), own), &Stub::CreateJob, job_request(), made).ok());
  const Peer worker(sw_.socket_path());
  auto join = test::frame_join("ticket", made.ticket());
  join["transport"] = "shm";
  ASSERT_EQ(worker.ask(join)["type"], "joined");
  v1::AbortJobRequest abort;
  abort.set_name("job");
  v1::AbortJobResponse aborted;
  ASSERT_TRUE(call(*stub(authority_.file(), own), &Stub::AbortJob, abort, aborted).ok());
  EXPECT_THAT(worker.hear()["text"].get<std::string>(),
              HasSubstr("an administrator (certificate operator at ipv4:127.0.0.1:"));
}

TEST_F(AdminServerTest, OverTcpNobodyElseGetsIn) {
  start(on_tcp());
  test::CertificateAuthority stranger(folder_, "stranger");
  const auto own = authority_.issue("operator");
  const auto refused = [&](const std::unique_ptr<Stub>& stub) {
    const grpc::Status status = status_of(*stub);
    EXPECT_EQ(status.error_code(), Code::UNAVAILABLE) << status.error_message();
  };
  refused(stub(authority_.file(), {}));
  refused(stub(authority_.file(), stranger.issue("operator")));
  refused(stub(authority_.file(), authority_.issue("operator", "", -60)));
  // Nor is a false switch believed.
  refused(stub(stranger.file(), own));
  refused(stub(authority_.file(), own, "other.example"));
  // Plain gRPC.
  const auto plain = v1::Administration::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server_->tcp_port()), grpc::InsecureChannelCredentials()));
  refused(plain);
  EXPECT_TRUE(status_of(*stub(authority_.file(), own)).ok());
}

TEST_F(AdminServerTest, OverTcpOlderVersionsOfTlsAreNotSpoken) {
  start(on_tcp());
  const auto own = authority_.issue("operator");
  const auto version_of = [&](int most) -> std::string {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
    SSL_CTX_set_max_proto_version(context.get(), most);
    SSL_CTX_use_certificate_file(context.get(), own.certificate.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context.get(), own.key.c_str(), SSL_FILETYPE_PEM);
    const Fd fd = connect_tcp();
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
    SSL_set_fd(ssl.get(), fd.get());
    const unsigned char h2[] = "\x02h2";
    SSL_set_alpn_protos(ssl.get(), h2, 3);
    return SSL_connect(ssl.get()) == 1 ? SSL_get_version(ssl.get()) : "none";
  };
  EXPECT_EQ(version_of(TLS1_3_VERSION), "TLSv1.3");
  EXPECT_EQ(version_of(TLS1_2_VERSION), "none");
}

TEST_F(AdminServerTest, WhatIsWrongWithTheFilesIsSaidAtTheStart) {
  const ServerConfig good = on_tcp();
  using control::TlsFiles;
  const auto with = [&](std::string TlsFiles::*field, const std::string& value) {
    ServerConfig config = good;
    config.tls.*field = value;
    return start_error(config);
  };
  const auto listening_at = [&](const std::string& address) {
    ServerConfig config = good;
    config.listen = address;
    return start_error(config);
  };
  EXPECT_EQ(start_error(good), "no error");
  for (const auto field : {&TlsFiles::certificate, &TlsFiles::key, &TlsFiles::ca}) {
    EXPECT_THAT(with(field, ""), HasSubstr("admin.listen needs admin.certificate, admin.key"));
    EXPECT_THAT(with(field, "/no/such/file"), HasSubstr("cannot open /no/such/file (admin."));
  }
  EXPECT_THAT(with(&TlsFiles::certificate, good.tls.key), HasSubstr("is not a PEM certificate"));
  EXPECT_THAT(with(&TlsFiles::ca, good.tls.key), HasSubstr("has no PEM certificate"));
  const auto other = authority_.issue("other");
  EXPECT_THAT(with(&TlsFiles::key, other.key),
              HasSubstr(other.key + " (admin.key) is not the key of " + good.tls.certificate));
  ::chmod(other.key.c_str(), 0640);
  EXPECT_THAT(with(&TlsFiles::key, other.key), HasSubstr("is not the key of"))
      << "its group may read it";
  ::chmod(other.key.c_str(), 0644);
  EXPECT_THAT(with(&TlsFiles::key, other.key),
              HasSubstr("has mode 0644: others may read or write it; chmod 0600 " + other.key));
  EXPECT_THAT(listening_at("192.0.2.1:1"),
              HasSubstr("cannot listen on 192.0.2.1:1 (admin.listen)"));
  start(good);
  EXPECT_THAT(listening_at("127.0.0.1:" + std::to_string(server_->tcp_port())),
              HasSubstr("(admin.listen)"))
      << "two switches on one port";
}

}  // namespace
}  // namespace ina::admin
