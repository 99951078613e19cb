// A member that has lost its switch, up to the answer of the next one, which the test plays. How it
// goes on after a place was given is tested with real switches.
#include "membership/rejoin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <deque>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/event_fd.h"
#include "tests/support/deadline.h"
#include "tests/support/temp_dir.h"

namespace ina::membership {
namespace {

using testing::HasSubstr;

/// A switch that says the next of its answers on each connection, or closes it if there are none.
class Answering {
 public:
  Answering(const std::string& path, std::vector<std::vector<std::string>> answers) {
    auto listener = control::Listener::open(path, 0600);
    EXPECT_TRUE(listener) << listener.error().text;
    if (!listener) return;
    thread_ = std::thread([this, answers = std::move(answers), own = std::move(*listener)] {
      for (const auto& texts : answers) answer(own, texts);
    });
  }
  ~Answering() { thread_.join(); }
  /// Requests to re-join.
  int asked() const { return asked_.load(); }

 private:
  void answer(const control::Listener& listener, const std::vector<std::string>& texts) {
    const Nanos deadline = now_ns() + test::kTimeoutNs;
    while (now_ns() < deadline) {
      auto accepted = listener.accept();
      if (!accepted || !*accepted) {
        std::this_thread::yield();
        continue;
      }
      const auto request = (*accepted)->receive(test::kTimeoutNs);
      if (!request || !*request) return;
      if ((*request)->body["type"] == "rejoin") ++asked_;
      for (const std::string& text : texts) (void)(*accepted)->send_text(text);
      if (texts.empty()) return;
      // Until the member has heard it.
      while ((*accepted)->receive(test::kTimeoutNs)) {
      }
      return;
    }
  }

  std::atomic<int> asked_{0};
  std::thread thread_;
};

class LostMember final : public ReturningMember {
 public:
  void open(std::unique_ptr<client::FrameTransport>) override {}
  void begin(const client::EngineConfig&) override {}
  void register_memory(client::Transport&) override {}
  void connect(std::unique_ptr<client::Transport>) override {}
  void set_epoch(uint32_t) override {}
  bool going_on() const override { return going_on_.load(); }
  int wake_fd() const override { return wake_.get(); }
  void drain_wakes() override { drain_event(wake_.get()); }
  const client::EngineConfig& engine_config() const override { return config_; }
  request::Rejoin rejoin_message() const override { return {}; }
  void on_registered(const answer::Registered&) override {}
  void come_back(const client::EngineConfig&, std::unique_ptr<client::Transport>,
                 const answer::Ready&) override {
    ends_.push_back("back");
  }
  void on_refused(const Error& error) override { ends_.push_back("refused: " + error.text); }
  void on_ended(const Error& error) override { ends_.push_back("ended: " + error.text); }
  void end(int, const std::string& text) override { ends_.push_back(text); }

  void stop() {
    going_on_ = false;
    ring_event(wake_.get());
  }
  std::vector<std::string> ends_;

 private:
  std::atomic<bool> going_on_{true};
  const Fd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  const client::EngineConfig config_{};
};

class RejoinTest : public testing::Test {
 protected:
  RejoinTest() {
    settings_.url = "shm:" + path_;
    settings_.rejoin_timeout_ns = test::kTimeoutNs;
    EXPECT_TRUE(connection_.resolve(*client::parse_url(settings_.url), settings_));
  }
  void run() {
    {
      const auto state = callers_.lock();
      presence_.go_away(now_ns());
    }
    Rejoin(settings_, connection_, attachment_, admission_, presence_, member_).run();
  }

  const test::TempDir folder_;
  const std::string path_ = folder_ / "switch.sock";
  Settings settings_;
  Callers callers_;
  Presence presence_{callers_};
  SwitchConnection connection_{[] {}};
  client::BulkCopier copier_{1, 1};
  Attachment attachment_{copier_};
  LostMember member_;
  Admission admission_{settings_, connection_, 0, attachment_, member_};
};

std::string refusal(const std::string& text, bool retry = false) {
  return control::to_text(answer::Refused{.status = INA_ERR_REFUSED, .text = text, .retry = retry});
}

TEST_F(RejoinTest, ASwitchThatDoesNotKnowTheJobIsBelieved) {
  const Answering next(path_, {{refusal("no such job")}});
  run();
  EXPECT_EQ(member_.ends_, std::vector<std::string>{"refused: no such job"});
  EXPECT_TRUE(admission_.job_is_gone());
  EXPECT_EQ(next.asked(), 1);
}

TEST_F(RejoinTest, ASwitchWithoutRoomIsAskedAgain) {
  const Answering next(path_, {{refusal("full", true)}, {}, {refusal("no such job")}});
  run();
  EXPECT_EQ(member_.ends_, std::vector<std::string>{"refused: no such job"});
  EXPECT_EQ(next.asked(), 3);
}

TEST_F(RejoinTest, AnswersToItsGroupsAreNotItsOwn) {
  const auto of_group = control::to_text(answer::Refused{.text = "of a group"}, 7);
  const Answering next(path_, {{of_group, refusal("no such job")}});
  run();
  EXPECT_EQ(member_.ends_, std::vector<std::string>{"refused: no such job"});
}

TEST_F(RejoinTest, WithoutASwitchItEndsInTimeAndSaysWhy) {
  settings_.rejoin_timeout_ns = 20'000'000;
  run();
  ASSERT_EQ(member_.ends_.size(), 1u);
  EXPECT_THAT(member_.ends_[0], HasSubstr("did not come back within 0.02 s"));
  EXPECT_THAT(member_.ends_[0], HasSubstr(path_));
  EXPECT_FALSE(admission_.job_is_gone());
}

TEST_F(RejoinTest, ItsOwnerEndsIt) {
  std::thread owner([this] { member_.stop(); });
  run();
  owner.join();
  EXPECT_TRUE(member_.ends_.empty());
  EXPECT_FALSE(static_cast<bool>(connection_.control()));
}

}  // namespace
}  // namespace ina::membership
