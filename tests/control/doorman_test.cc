// The doorman against descriptors whose closing takes long, or for ever: its callers go on.
#include "control/doorman.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "common/clock.h"
#include "common/sealed_memory.h"
#include "control/doorman_protocol.h"
#include "control/socket.h"
#include "tests/support/deadline.h"
#include "tests/support/evil_files.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using control::Connection;
using control::Doorman;
using control::Json;
using control::doorman::Kind;
using control::doorman::Request;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::kTimeoutNs;
/// No caller may be held up for longer: the operations of these tests would take for ever.
constexpr Nanos kAtOnceNs = 4'000'000'000;

/// A listening socket with a doorman, and its clients.
class DoormanTest : public testing::Test {
 protected:
  void SetUp() override {
    auto doorman = Doorman::start();
    ASSERT_TRUE(doorman) << doorman.error().text;
    doorman_ = std::move(*doorman);
    auto listener = control::Listener::open(folder_ / "socket", 0600);
    ASSERT_TRUE(listener) << listener.error().text;
    listener_.emplace(std::move(*listener));
    listener_->set_doorman(doorman_.get());
  }

  struct Pair {
    Connection theirs;
    Connection ours;
  };
  Connection connect() {
    auto opened = Connection::open(folder_ / "socket", kTimeoutNs);
    EXPECT_TRUE(opened);
    return opened ? std::move(*opened) : Connection();
  }
  Pair pair() {
    Pair pair{connect(), {}};
    auto accepted = listener_->accept();
    EXPECT_TRUE(accepted && *accepted);
    if (accepted && *accepted) pair.ours = std::move(**accepted);
    return pair;
  }
  /// The doorman's answer to a message with these descriptors.
  Doorman::Answer ask(const std::vector<int>& fds, uid_t user = 1) {
    Pair ends = pair();
    EXPECT_TRUE(ends.theirs.send({{"type", "attach"}}, fds));
    return ask(ends.ours, user);
  }
  Doorman::Answer ask(Connection& connection, uid_t user = 1) {
    const auto seen = connection.receive(kTimeoutNs);
    EXPECT_TRUE(seen && *seen && (*seen)->carries_descriptors);
    const uint64_t token = ++token_;
    const auto asked = doorman_->ask(connection.fd(), user, token);
    EXPECT_TRUE(asked) << asked.error().text;
    Doorman::Answer answer = await();
    EXPECT_EQ(answer.token, token);
    return answer;
  }
  Doorman::Answer await() {
    for (;;) {
      Doorman::Answer answer = await_any();
      if (answer.cpu_ns == 0) return answer;
    }
  }
  /// Also what requests have cost.
  Doorman::Answer await_any() {
    pollfd waiter{doorman_->fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiter, 1, static_cast<int>(kTimeoutNs / 1'000'000)), 1) << "no answer";
    auto answer = doorman_->next();
    EXPECT_TRUE(answer);
    if (!answer) return {};
    if (answer->token == 0) cost_ns_[answer->user] += answer->cpu_ns;
    return std::move(*answer);
  }
  /// Processor time that was spent for a user, once there is some.
  Nanos await_cost(uid_t user) {
    const Nanos deadline = now_ns() + kTimeoutNs;
    while (cost_ns_[user] == 0 && now_ns() < deadline) await_any();
    return cost_ns_[user];
  }
  /// Processes that the doorman has, at first or in the end.
  size_t children() const {
    const std::string pid = std::to_string(doorman_->pid());
    std::ifstream file("/proc/" + pid + "/task/" + pid + "/children");
    size_t count = 0;
    for (std::string child; file >> child;) ++count;
    return count;
  }

  /// Descriptors that the doorman may have from now on, and its children.
  void limit_descriptors(rlim_t most) const {
    rlimit limit{};
    ASSERT_EQ(::prlimit(doorman_->pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
    limit.rlim_cur = most;
    ASSERT_EQ(::prlimit(doorman_->pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  }

  const test::TempDir folder_;
  std::unique_ptr<Doorman> doorman_;
  std::optional<control::Listener> listener_;
  uint64_t token_ = 0;
  std::map<uid_t, Nanos> cost_ns_;
};

/// A connection of a stranger who has sent a descriptor that nobody has read.
struct Loaded {
  Loaded() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    theirs = Fd(ends[0]);
    ours = Fd(ends[1]);
    Request any;
    EXPECT_GT(control::doorman::send_message(theirs.get(), any, 0, 0), 0);
    number = ours.get();
    inode = inode_of(number);
  }
  static ino_t inode_of(int fd) {
    struct stat status {};
    EXPECT_EQ(::fstat(fd, &status), 0);
    return status.st_ino;
  }
  /// The switch has no descriptor of it any more.
  bool is_let_go() const {
    struct stat status {};
    return ::fstat(number, &status) != 0 || status.st_ino != inode;
  }
  bool is_closed_within(int ms) const {
    pollfd end{theirs.get(), 0, 0};
    return ::poll(&end, 1, ms) == 1 && (end.revents & POLLHUP) != 0;
  }

  Fd theirs;
  Fd ours;
  int number = -1;
  ino_t inode = 0;
};

TEST_F(DoormanTest, PassesOnAMemoryFile) {
  const Fd file = test::sealed_file(8192);
  const Doorman::Answer answer = ask({file.get()});
  EXPECT_EQ(answer.status, INA_OK) << answer.text;
  struct stat theirs {};
  struct stat ours {};
  ASSERT_EQ(::fstat(file.get(), &theirs), 0);
  ASSERT_EQ(::fstat(answer.file.get(), &ours), 0);
  EXPECT_EQ(theirs.st_ino, ours.st_ino);
}

TEST_F(DoormanTest, RefusesWhatIsNone) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const Fd file = test::sealed_file(8192);
  EXPECT_THAT(ask({null.get()}).text, HasSubstr("is no memory file"));
  EXPECT_THAT(ask({file.get(), file.get()}).text, HasSubstr("must carry one descriptor"));
  EXPECT_THAT(ask(std::vector<int>(80, null.get())).text, HasSubstr("must carry one"));
  const Fd sparse(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sparse.get(), 8192), 0);
  ASSERT_EQ(::fcntl(sparse.get(), F_ADD_SEALS, kRegionSeals), 0);
  const Doorman::Answer answer = ask({sparse.get()});
  EXPECT_THAT(answer.text, HasSubstr("the memory file has holes"));
  EXPECT_EQ(answer.status, INA_ERR_REFUSED);
  EXPECT_FALSE(answer.file);
}

TEST_F(DoormanTest, RefusesWhatIsNotSealed) {
  const Fd file(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string bytes(4096, 'x');
  ASSERT_EQ(::write(file.get(), bytes.data(), bytes.size()), 4096);
  const Doorman::Answer answer = ask({file.get()});
  EXPECT_THAT(answer.text, HasSubstr("is not sealed"));
  EXPECT_FALSE(answer.file);
}

TEST_F(DoormanTest, MessagesKeepTheirOrder) {
  const Fd file = test::sealed_file(4096);
  Pair ends = pair();
  ASSERT_TRUE(ends.theirs.send({{"type", "first"}}));
  ASSERT_TRUE(ends.theirs.send({{"type", "second"}}, {file.get()}));
  ASSERT_TRUE(ends.theirs.send({{"type", "third"}}));
  auto first = ends.ours.receive(kTimeoutNs);
  ASSERT_TRUE(first && *first);
  EXPECT_EQ((*first)->body["type"], "first");
  EXPECT_FALSE((*first)->carries_descriptors);
  auto second = ends.ours.receive(kTimeoutNs);
  ASSERT_TRUE(second && *second);
  EXPECT_EQ((*second)->body["type"], "second");
  EXPECT_TRUE((*second)->fds.empty()) << "a descriptor came into this process";
  EXPECT_EQ(ask(ends.ours).status, INA_OK);
  auto third = ends.ours.receive(kTimeoutNs);
  ASSERT_TRUE(third && *third);
  EXPECT_EQ((*third)->body["type"], "third");
}

// ---- descriptors whose closing takes for ever

TEST_F(DoormanTest, ASocketThatLingersHoldsNobodyUp) {
  test::LingeringSocket socket;
  Pair ends = pair();
  ASSERT_TRUE(ends.theirs.send({{"type", "attach"}}, {socket.fd()}));
  ends.theirs.close();
  socket.let_go();  // the last descriptor is in the message now
  const Nanos begun = now_ns();
  EXPECT_THAT(ask(ends.ours).text, HasSubstr("is no memory file"));
  ends.ours.close();
  EXPECT_LT(now_ns() - begun, kAtOnceNs);
}

TEST_F(DoormanTest, ConnectionsWithOneAreClosedAtOnceHoweverTheyEnd) {
  test::LingeringSocket one;
  test::LingeringSocket two;
  Pair ends = pair();
  ASSERT_TRUE(ends.theirs.send({{"type", "leave"}}, {one.fd()}));
  Connection waits = connect();
  ASSERT_TRUE(waits.send({{"type", "leave"}}, {two.fd()}));
  one.let_go();
  two.let_go();
  waits.close();
  const Nanos begun = now_ns();
  ends.ours.close();
  EXPECT_FALSE(ends.theirs.receive(kTimeoutNs)) << "the peer is not told";
  listener_.reset();
  doorman_.reset();
  EXPECT_LT(now_ns() - begun, kAtOnceNs);
}

TEST_F(DoormanTest, ThePeerLearnsAtOnceThatItsConnectionIsClosed) {
  Pair ends = pair();
  ASSERT_TRUE(ends.theirs.send({{"type", "leave"}}, {0}));
  ASSERT_EQ(::kill(doorman_->pid(), SIGSTOP), 0);  // so that nobody closes it now
  ends.ours.close();
  const auto end = ends.theirs.receive(kTimeoutNs);
  EXPECT_EQ(::kill(doorman_->pid(), SIGCONT), 0);
  EXPECT_FALSE(end);
}

TEST_F(DoormanTest, AFileSystemThatNeverAnswersHoldsOneChildUpAndNoOtherUser) {
  test::SilentFuse fuse;
  if (!fuse.mounted()) GTEST_SKIP() << "no FUSE mount here: " << fuse.problem();
  const auto evil = [&] { return fuse.descriptor(); };
  for (int i = 0; i < Doorman::kChildrenPerUser; ++i) {
    Fd file = evil();
    ASSERT_TRUE(file);
    Pair ends = pair();
    ASSERT_TRUE(ends.theirs.send({{"type", "attach"}}, {file.get()}));
    ends.theirs.close();
    fuse.keep(std::move(file));
    EXPECT_THAT(ask(ends.ours, 7).text, HasSubstr("is no memory file"));
  }
  // They hang, each in a process of its own.
  EXPECT_EQ(children(), static_cast<size_t>(Doorman::kChildrenPerUser));
  const Fd good = test::sealed_file(4096);
  EXPECT_EQ(ask({good.get()}, 8).status, INA_OK) << "another user";
  const Doorman::Answer same = ask({good.get()}, 7);
  EXPECT_EQ(same.status, INA_ERR_REFUSED);
  EXPECT_THAT(same.text, HasSubstr("cannot be closed"));
}

// ---- the order in which they are closed: closing the last descriptor of one may hang

TEST_F(DoormanTest, AConnectionIsBuriedAfterItsSenderHasClosedItAndNotBefore) {
  const auto say = [&](Kind kind, uid_t user, int connection) {
    Request request{kind, user};
    ASSERT_GT(control::doorman::send_message(doorman_->fd(), request, connection, 0), 0);
  };
  Loaded first, second;
  say(Kind::kBury, 1, first.ours.get());
  say(Kind::kBury, 2, second.ours.get());
  first.ours.reset();
  second.ours.reset();
  say(Kind::kClosed, 0, -1);
  EXPECT_TRUE(first.is_closed_within(10'000)) << "the oldest is meant";
  // Its work on the second is done when it has answered this and has no child left.
  const Fd file = test::sealed_file(4096);
  EXPECT_EQ(ask({file.get()}, 3).status, INA_OK);
  for (int i = 0; i < 10'000 && children() != 0; ++i) ::usleep(1000);
  EXPECT_EQ(children(), 0u);
  EXPECT_FALSE(second.is_closed_within(0));
  say(Kind::kClosed, 0, -1);
  EXPECT_TRUE(second.is_closed_within(10'000));
}

/// Takes the place of a doorman's process. Messages of its switch stay in the queue until they are
/// taken, and the queue is short.
class ShortQueue {
 public:
  explicit ShortQueue(const Doorman& doorman) : sender_(doorman.fd()) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd theirs(ends[0]);
    ours_ = Fd(ends[1]);
    const int little = 4096;
    EXPECT_EQ(::setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)), 0);
    EXPECT_EQ(::dup3(theirs.get(), sender_, O_CLOEXEC), sender_);
  }
  /// No room is left for the switch's messages.
  void fill() const {
    Request filler{Kind::kAsk};
    while (control::doorman::send_message(sender_, filler, -1, MSG_DONTWAIT) > 0) {
    }
  }
  /// The next message. Makes room for one, as they all have the same size.
  std::string take() {
    Request request;
    control::doorman::Envelope<1> envelope(&request, sizeof(request));
    if (::recvmsg(ours_.get(), &envelope.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) return "";
    std::string text = request.kind == Kind::kBury     ? "bury"
                       : request.kind == Kind::kClosed ? "closed"
                       : request.token != 0            ? "ask " + std::to_string(request.token)
                                                       : "filler";
    envelope.each([&](int fd) {
      text += " " + std::to_string(Loaded::inode_of(fd));
      taken_.emplace_back(fd);
    });
    return text;
  }
  /// All that are not fillers.
  std::vector<std::string> take_all() {
    std::vector<std::string> all;
    for (std::string text = take(); !text.empty(); text = take())
      if (text != "filler") all.push_back(text);
    return all;
  }

 private:
  const int sender_;
  Fd ours_;
  std::vector<Fd> taken_;
};

std::string burial_of(const Loaded& connection) {
  return "bury " + std::to_string(connection.inode);
}

TEST_F(DoormanTest, WhereThereIsNoRoomConnectionsWaitInTurn) {
  ShortQueue queue(*doorman_);
  Loaded first, second, third;
  queue.fill();
  doorman_->close(std::move(first.ours));
  doorman_->close(std::move(second.ours));
  EXPECT_EQ(doorman_->waiting(), 2u);
  EXPECT_FALSE(first.is_let_go()) << "nobody else has it yet";
  EXPECT_THAT(queue.take_all(), IsEmpty());
  // Now there is room, but not before the others.
  doorman_->close(std::move(third.ours));
  EXPECT_EQ(doorman_->waiting(), 3u);
  doorman_->turn();
  EXPECT_EQ(doorman_->waiting(), 0u);
  EXPECT_THAT(queue.take_all(), ElementsAre(burial_of(first), "closed", burial_of(second), "closed",
                                            burial_of(third), "closed"));
}

TEST_F(DoormanTest, WhereThereIsNoRoomQuestionsWaitInTurnAndAreNotRefused) {
  ShortQueue queue(*doorman_);
  Loaded first, second, third, fourth;
  const auto question = [](const Loaded& of, int token) {
    return "ask " + std::to_string(token) + " " + std::to_string(of.inode);
  };
  queue.fill();
  EXPECT_TRUE(doorman_->ask(first.ours.get(), 7, 1));
  EXPECT_TRUE(doorman_->ask(second.ours.get(), 7, 2));
  EXPECT_TRUE(doorman_->ask(third.ours.get(), 8, 3));
  EXPECT_EQ(doorman_->waiting(), 3u);
  EXPECT_EQ(doorman_->unclosed(), 0u);
  doorman_->withdraw(2);  // its connection is closed
  second.ours.reset();
  EXPECT_THAT(queue.take_all(), IsEmpty());
  EXPECT_TRUE(
      doorman_->ask(fourth.ours.get(), 8, 4));  // now there is room, but not before the others
  EXPECT_EQ(doorman_->waiting(), 3u);
  doorman_->turn();
  EXPECT_EQ(doorman_->waiting(), 0u);
  EXPECT_THAT(queue.take_all(),
              ElementsAre(question(first, 1), question(third, 3), question(fourth, 4)));
}

TEST_F(DoormanTest, WhereTheKernelCollectsOnCloseItClosesConnectionsWithoutDescriptors) {
  const auto closed_by_doorman = [&](bool collects) {
    ShortQueue queue(*doorman_);
    doorman_->set_kernel_collects(collects);
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd theirs(ends[0]);
    doorman_->close(Fd(ends[1]));
    return queue.take_all().size();
  };
  EXPECT_EQ(closed_by_doorman(false), 0u);
  EXPECT_EQ(closed_by_doorman(true), 2u) << "handed over, and said to be closed here";
}

TEST_F(DoormanTest, NoOtherIsHandedOverBeforeItKnowsThatTheLastOneIsClosedHere) {
  ShortQueue queue(*doorman_);
  Loaded first, second;
  queue.fill();
  EXPECT_EQ(queue.take(), "filler");
  doorman_->close(std::move(first.ours));  // there is room for the one message, not for the other
  EXPECT_TRUE(first.is_let_go());
  EXPECT_EQ(doorman_->waiting(), 1u);
  EXPECT_EQ(queue.take(), "filler");
  doorman_->close(std::move(second.ours));
  EXPECT_FALSE(second.is_let_go());
  EXPECT_EQ(doorman_->waiting(), 2u);
  EXPECT_THAT(queue.take_all(), ElementsAre(burial_of(first)));
  doorman_->turn();
  EXPECT_EQ(doorman_->waiting(), 0u);
  EXPECT_TRUE(second.is_let_go());
  EXPECT_THAT(queue.take_all(), ElementsAre("closed", burial_of(second), "closed"));
}

// ---- who has no room for descriptors, or sends none

TEST_F(DoormanTest, AMessageIsRefusedOfWhoseDescriptorsSomeFindNoRoom) {
  const Fd file = test::sealed_file(4096);
  limit_descriptors(control::kMaxDescriptors / 2);
  const Doorman::Answer answer = ask(std::vector<int>(control::kMaxDescriptors, file.get()));
  EXPECT_EQ(answer.status, INA_ERR_NO_MEMORY);
  EXPECT_THAT(answer.text, HasSubstr("no room for the message's descriptors"));
  EXPECT_EQ(ask({file.get()}).status, INA_OK);
}

TEST_F(DoormanTest, OutOfDescriptorsItRefusesAndGoesOn) {
  const Fd file = test::sealed_file(4096);
  limit_descriptors(2);  // those that it has, and it may still poll them
  const Doorman::Answer answer = ask({file.get()});
  EXPECT_EQ(answer.status, INA_ERR_NO_MEMORY);
  EXPECT_THAT(answer.text, HasSubstr("out of descriptors: try again"));
  limit_descriptors(256);
  EXPECT_EQ(ask({file.get()}).status, INA_OK);
}

TEST_F(DoormanTest, HasRoomForAllThatMayWaitWhateverItsProgramMayOpen) {
  rlimit before{}, its{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto other = Doorman::start();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(other) << other.error().text;
  ASSERT_EQ(::prlimit((*other)->pid(), RLIMIT_NOFILE, nullptr, &its), 0);
  EXPECT_EQ(its.rlim_cur, before.rlim_max);
}

/// This process has all that it may have.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = 128;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int fd; (fd = ::dup(0)) >= 0;) fill_.emplace_back(fd);
  }
  ~NoDescriptorLeft() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
  std::vector<Fd> fill_;
};

TEST_F(DoormanTest, ASwitchThatIsOutOfDescriptorsGetsNoFileAndSaysSo) {
  const Fd file = test::sealed_file(4096);
  Pair ends = pair();
  ASSERT_TRUE(ends.theirs.send({{"type", "attach"}}, {file.get()}));
  ASSERT_TRUE(doorman_->ask(ends.ours.fd(), 1, 1));
  std::optional<NoDescriptorLeft> full(std::in_place);
  const Doorman::Answer answer = await();
  full.reset();
  EXPECT_EQ(answer.status, INA_ERR_NO_MEMORY);
  EXPECT_THAT(answer.text, HasSubstr("no descriptor left for the memory"));
}

TEST_F(DoormanTest, DescriptorsThatFindNoRoomAreMissedAndTheMessageIsNot) {
  Pair ends = pair();
  ASSERT_TRUE(ends.ours.send({{"type", "joined"}}, {0, 0}));
  std::optional<NoDescriptorLeft> full(std::in_place);
  const auto received = ends.theirs.receive(kTimeoutNs);
  full.reset();
  ASSERT_TRUE(received && *received) << received.error().text;
  EXPECT_EQ((*received)->body["type"], "joined");
  EXPECT_TRUE((*received)->lost_descriptors);
}

// ---- without a doorman

TEST_F(DoormanTest, WhatItCostsIsTheUsers) {
  const Fd file = test::sealed_file(4096);
  ask({file.get()}, 7);
  EXPECT_GT(await_cost(7), 0);
  Pair ends = pair();
  ASSERT_TRUE(ends.theirs.send({{"type", "leave"}}, {file.get()}));
  doorman_->set_kernel_collects(true);  // so that the doorman closes it
  ends.ours = Connection();
  EXPECT_GT(await_cost(::getuid()), 0) << "the one whose connection was closed";
  EXPECT_EQ(cost_ns_.size(), 2u);
}

TEST_F(DoormanTest, ADeadOneIsNoticedAndNamed) {
  ASSERT_EQ(::kill(doorman_->pid(), SIGKILL), 0);
  const Fd file = test::sealed_file(4096);
  Pair ends = pair();
  ASSERT_TRUE(ends.theirs.send({{"type", "attach"}}, {file.get()}));
  pollfd waiter{doorman_->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiter, 1, 10'000), 1);
  EXPECT_FALSE(doorman_->next());
  EXPECT_FALSE(doorman_->alive());
  const auto asked = doorman_->ask(ends.ours.fd(), 1, 1);
  ASSERT_FALSE(asked);
  EXPECT_THAT(asked.error().text, HasSubstr("ina-doorman"));
  ends.ours.close();  // it is kept, and does not wait
  EXPECT_EQ(doorman_->waiting(), 1u);
}

TEST_F(DoormanTest, ManyRequestsAtOnceAreAllAnswered) {
  const Fd file = test::sealed_file(4096);
  std::vector<Pair> pairs;
  constexpr uint64_t kRequests = 60;
  for (uint64_t i = 0; i < kRequests; ++i) {
    pairs.push_back(pair());
    ASSERT_TRUE(pairs.back().theirs.send({{"type", "attach"}}, {file.get()}));
    ASSERT_TRUE(doorman_->ask(pairs.back().ours.fd(), static_cast<uid_t>(i % 3), i));
  }
  std::vector<bool> answered(kRequests);
  for (uint64_t i = 0; i < kRequests; ++i) {
    const Doorman::Answer answer = await();
    ASSERT_LT(answer.token, kRequests);
    EXPECT_EQ(answer.status, INA_OK) << answer.text;
    answered[answer.token] = true;
  }
  EXPECT_EQ(std::ranges::count(answered, true), static_cast<ptrdiff_t>(kRequests));
}

TEST_F(DoormanTest, EndsWithItsSwitch) {
  const pid_t pid = doorman_->pid();
  doorman_.reset();
  for (int i = 0; i < 1'000 && ::kill(pid, 0) == 0; ++i) ::usleep(10'000);
  // Where nobody takes in orphans it stays as a zombie.
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line) && !line.starts_with("State:")) {
  }
  EXPECT_TRUE(line.empty() || line.find('Z') != std::string::npos) << line;
}

}  // namespace
}  // namespace ina
