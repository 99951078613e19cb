// A switch that has no room just now, and one with answers that no switch gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "common/clock.h"
#include "control/client.h"
#include "ina/ina.h"
#include "tests/support/captured_log.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadline.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using test::TestSwitch;
using testing::HasSubstr;

using test::kTimeoutNs;

Json no_room() {
  return {{"type", "refused"},
          {"status", INA_ERR_REFUSED},
          {"text", "no room (a test)"},
          {"retry", true}};
}

struct Outcome {
  int status = INA_OK;
  std::string text;
};

class Worker {
 public:
  ~Worker() {
    if (context_) ina_finalize(context_, 1'000'000);
  }
  Outcome join(const std::string& url, int64_t timeout_us = 10'000'000,
               int64_t rejoin_timeout_us = 10'000'000) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = "job";
    config.rank = 0;
    config.world_size = 1;
    config.timeout_us = timeout_us;
    config.rejoin_timeout_us = rejoin_timeout_us;
    const int status = ina_init(&config, &context_);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  Outcome sum() {
    float value = 1;
    const int status = ina_allreduce(context_, &value, &value, 1, INA_FLOAT32, INA_SUM, 0);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }

 private:
  ina_context* context_ = nullptr;
};

TestSwitch::Options of_one_connection() {
  TestSwitch::Options options;
  options.conductor = [](switchd::ConductorConfig& config) { config.control.max_connections = 1; };
  return options;
}

Json join_of(const std::string& job) {
  Json message = test::frame_join("", "", 0, job);
  message["transport"] = "shm";
  return message;
}

TEST(NoRoom, AJoinTriesAgainUntilThereIsSome) {
  const test::CapturedLog log;
  TestSwitch sw(of_one_connection());
  auto holder = std::make_unique<test::Peer>(sw.socket_path());
  ASSERT_EQ(holder->ask(join_of("other"))["type"], "joined");
  Worker worker;
  Outcome outcome{INA_ERR_INTERNAL, "not asked"};
  std::thread joining([&] { outcome = worker.join(sw.url()); });
  while (log.text().find("connection refused") == std::string::npos) ::usleep(1000);
  holder.reset();
  joining.join();
  EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
  EXPECT_EQ(worker.sum().status, INA_OK);
}

TEST(NoRoom, AJoinGivesUpWithItsTimeoutAndSaysWhy) {
  TestSwitch sw(of_one_connection());
  const test::Peer holder(sw.socket_path());
  ASSERT_EQ(holder.ask(join_of("other"))["type"], "joined");
  Outcome outcome;
  // Where the shorter time was over before anybody had answered, there is a longer one.
  for (const int64_t timeout_us : {200'000, 8'000'000}) {
    Worker worker;
    outcome = worker.join(sw.url(), timeout_us);
    if (outcome.status != INA_ERR_TIMEOUT) break;
  }
  EXPECT_EQ(outcome.status, INA_ERR_REFUSED);
  EXPECT_THAT(outcome.text, HasSubstr("(control.max_connections)"));
}

TEST(NoRoom, AJoinThatIsNotAnsweredAgainTellsWhyItWasRefusedBefore) {
  const test::TempDir folder;
  auto full = control::Listener::open(folder / "switch.sock", 0600);
  ASSERT_TRUE(full) << full.error().text;
  Outcome outcome;
  for (const int64_t timeout_us : {100'000, 8'000'000}) {
    std::jthread answering([&](const std::stop_token& stop) {
      std::vector<control::Connection> attempts;
      while (!stop.stop_requested()) {
        pollfd waiting{full->fd(), POLLIN, 0};
        if (::poll(&waiting, 1, 20) != 1) continue;
        auto connection = full->accept();
        if (!connection || !*connection) continue;
        if (attempts.empty()) (void)(*connection)->send(no_room());
        attempts.push_back(std::move(**connection));
      }
    });
    Worker worker;
    outcome = worker.join("shm:" + folder / "switch.sock", timeout_us);
    if (outcome.status != INA_ERR_TIMEOUT) break;
  }
  EXPECT_EQ(outcome.status, INA_ERR_REFUSED);
  EXPECT_THAT(outcome.text, HasSubstr("no room (a test)"));
}

TEST(NoRoom, AWorkerThatComesBackTriesAgain) {
  TestSwitch sw;
  Worker worker;
  ASSERT_EQ(worker.join(sw.url()).status, INA_OK);
  sw.stop();
  {
    auto full = control::Listener::open(sw.socket_path(), 0600);
    ASSERT_TRUE(full) << full.error().text;
    const Nanos deadline = now_ns() + kTimeoutNs;
    for (int refused = 0; refused < 3;) {
      ASSERT_LT(now_ns(), deadline) << "it has tried " << refused << " times";
      auto connection = full->accept();
      ASSERT_TRUE(connection);
      if (!*connection) {
        ::usleep(1000);
        continue;
      }
      // One is told when it has asked, the others before.
      if (refused == 0) (void)(*connection)->receive(kTimeoutNs);
      ASSERT_TRUE((*connection)->send(no_room()));
      ++refused;
    }
  }
  sw.start();
  const Outcome outcome = worker.sum();
  EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(NoRoom, AWorkerThatComesBackGivesUpWithItsRejoinTimeoutAndSaysWhy) {
  // Where the shorter time was over before anybody had answered, there is a longer one.
  std::string text;
  for (const int64_t rejoin_timeout_us : {200'000, 8'000'000}) {
    TestSwitch sw;
    Worker worker;
    ASSERT_EQ(worker.join(sw.url(), 60'000'000, rejoin_timeout_us).status, INA_OK);
    sw.stop();
    auto full = control::Listener::open(sw.socket_path(), 0600);
    ASSERT_TRUE(full) << full.error().text;
    const std::jthread refusing([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        pollfd waiting{full->fd(), POLLIN, 0};
        if (::poll(&waiting, 1, 20) != 1) continue;
        auto connection = full->accept();
        if (connection && *connection) (void)(*connection)->send(no_room());
      }
    });
    const Outcome outcome = worker.sum();
    EXPECT_EQ(outcome.status, INA_ERR_SWITCH_LOST);
    EXPECT_THAT(outcome.text, HasSubstr("(rejoin_timeout_us): "));
    text = outcome.text;
    if (text.find("no room") != std::string::npos) break;
  }
  EXPECT_THAT(text, HasSubstr("no room (a test)"));
}

// ---- somebody in between

/// Stands between a worker and its switch, and says something of its own in between.
class Proxy {
 public:
  Proxy(const std::string& path, const std::string& to)
      : listener_(std::move(*control::Listener::open(path, 0600))), to_(to) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  /// The worker hears this from now on in the place of the first message of that type.
  void replace(const std::string& type, const Json& message) {
    const std::lock_guard lock(mutex_);
    replaced_ = type;
    message_ = message;
  }
  /// The worker hears this as the answer to its next message of that type, and the switch nothing.
  void answer(const std::string& type, const Json& message) {
    const std::lock_guard lock(mutex_);
    answered_ = type;
    answer_ = message;
  }
  bool has_answered() {
    const std::lock_guard lock(mutex_);
    return answered_.empty();
  }
  /// The worker hears this.
  void say(const Json& message) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(worker_->send(message));
  }

 private:
  void run(const std::stop_token& stop) {
    std::optional<control::Connection> server;
    while (!stop.stop_requested()) {
      if (!worker_) {
        // Not listener_.accept(): a switch leaves descriptors where they are.
        if (Fd accepted(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            accepted) {
          const std::lock_guard lock(mutex_);
          worker_.emplace(std::move(accepted));
          server = std::move(*control::Connection::open(to_, kTimeoutNs));
        }
      } else if (!pass(*worker_, *server, false) || !pass(*server, *worker_, true)) {
        const std::lock_guard lock(mutex_);
        worker_.reset();
        server.reset();
      }
      ::usleep(200);
    }
  }
  bool pass(const control::Connection& from, const control::Connection& to, bool to_worker) {
    auto received = from.receive(0);
    if (!received) return false;
    if (!*received) return true;
    const std::lock_guard lock(mutex_);
    std::vector<int> fds;
    for (const Fd& fd : (*received)->fds) fds.push_back(fd.get());
    if (!to_worker && (*received)->body["type"] == answered_) {
      answered_.clear();
      return from.send(answer_).has_value();
    }
    const bool replaced = to_worker && (*received)->body["type"] == replaced_;
    return to.send(replaced ? message_ : (*received)->body, fds).has_value();
  }

  control::Listener listener_;
  std::string to_;
  std::mutex mutex_;  ///< what follows
  std::optional<control::Connection> worker_;
  std::string replaced_;
  Json message_;
  std::string answered_;
  Json answer_;
  std::jthread thread_;
};

TEST(NoRoom, AWorkerWhosePlaceGoesToOthersBeforeTheJobGoesOnTriesAgain) {
  TestSwitch sw;
  test::TempDir folder;
  Proxy proxy(folder / "proxy", sw.socket_path());
  Worker worker;
  const Outcome joined = worker.join("shm:" + folder / "proxy");
  ASSERT_EQ(joined.status, INA_OK) << joined.text;
  proxy.answer("attach", no_room());
  sw.stop();
  sw.start();
  const Outcome outcome = worker.sum();
  EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
  EXPECT_TRUE(proxy.has_answered());
}

// ---- what no switch says

const std::vector<Json> kWrong = {5, -1, 1.5, true, nullptr, "text", {1, "x"}, {{"a", 1}}};

TEST(Malformed, AnswersToAJoinAreErrors) {
  TestSwitch sw;
  test::TempDir folder;
  Proxy proxy(folder / "proxy", sw.socket_path());
  Json joined;
  {
    const test::Peer peer(sw.socket_path());
    joined = peer.ask(join_of("job"));
    ASSERT_EQ(joined["type"], "joined");
  }
  const Json refused = {{"type", "refused"}, {"status", -5}, {"text", "no"}, {"retry", false}};
  const Json waiting = {{"type", "waiting"}, {"missing", {1}}, {"fallback_missing", false}};
  for (const auto& [replaced, sample] :
       {std::pair{"joined", joined}, {"joined", refused}, {"ready", waiting}})
    for (const auto& [field, value] : sample.items())
      for (const Json& wrong : kWrong) {
        if (wrong.type() == value.type() || (wrong == 5 && value.is_number())) continue;
        Json message = sample;
        message[field] = wrong;
        proxy.replace(replaced, message);
        Worker worker;
        EXPECT_NE(worker.join("shm:" + folder / "proxy", 100'000).status, INA_OK) << message;
      }
}

TEST(Malformed, MessagesToARunningWorkerEndItsJobAndNotItsProcess) {
  TestSwitch sw;
  test::TempDir folder;
  Proxy proxy(folder / "proxy", sw.socket_path());
  for (const Json& message :
       {Json{{"type", 5}}, Json{{"text", "no type"}}, Json{{"type", "refused"}, {"text", 5}},
        Json{{"type", "abort"}, {"status", "x"}}, Json{{"type", "epoch"}, {"epoch", {1}}},
        Json{{"type", "registered"}, {"number", "1"}}, Json{{"type", "results"}, {"bytes", -1}},
        Json{{"type", "explain"}, {"text", nullptr}}}) {
    Worker worker;
    const Outcome joined = worker.join("shm:" + folder / "proxy");
    ASSERT_EQ(joined.status, INA_OK) << joined.text;
    proxy.say(message);
    Outcome outcome;
    while (outcome.status == INA_OK) outcome = worker.sum();
    EXPECT_EQ(outcome.status, INA_ERR_INTERNAL) << message;
    EXPECT_THAT(outcome.text, HasSubstr("malformed message")) << message;
  }
}

TEST(Malformed, AnswersToAStatusQueryAreErrors) {
  test::TempDir folder;
  auto listener = control::Listener::open(folder / "fake", 0600);
  ASSERT_TRUE(listener);
  for (const Json& answer :
       {Json{{"type", "refused"}, {"text", 5}}, Json{{"type", 5}}, Json{{"type", "joined"}},
        Json{{"type", "status"}}, Json{{"type", "status"}, {"status", 5}}, Json::object()}) {
    std::thread faking([&] {
      for (;;) {
        auto accepted = listener->accept();
        if (accepted && *accepted) {
          (void)(*accepted)->receive(kTimeoutNs);
          EXPECT_TRUE((*accepted)->send(answer));
          return;
        }
        ::usleep(1000);
      }
    });
    const auto status = control::query_status(folder / "fake", kTimeoutNs);
    faking.join();
    ASSERT_FALSE(status) << answer;
    EXPECT_FALSE(status.error().text.empty());
  }
}

}  // namespace
}  // namespace ina
