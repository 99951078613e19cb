// What a forked child finds of its parent's memberships.
#include "membership/forks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ina::membership {
namespace {

class Parent final : public ForkAware {
 public:
  Parent() { Forks::instance().add(*this); }
  ~Parent() { Forks::instance().remove(*this); }
  void close_in_child() override { ++closed; }
  int closed = 0;
};

/// The exit status of a child that ends with `in_child()`.
template <class InChild>
int status_of_child(InChild in_child) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(in_child());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Forks, AChildClosesOnceWhatIsItsParents) {
  Parent parent;
  { const Parent gone; }
  EXPECT_EQ(status_of_child([&] { return parent.closed; }), 1);
  EXPECT_EQ(parent.closed, 0);
}

TEST(Forks, AGrandchildHasNothingMoreToClose) {
  Parent parent;
  EXPECT_EQ(status_of_child([&] { return status_of_child([&] { return parent.closed; }); }), 1);
}

TEST(Forks, GenerationsTellAChildFromItsParent) {
  const uint32_t own = Forks::instance().generation();
  EXPECT_EQ(status_of_child([&] { return Forks::instance().generation() == own + 1 ? 7 : 8; }), 7);
  EXPECT_EQ(Forks::instance().generation(), own);
}

TEST(Forks, AChildCanHoldItsOwn) {
  EXPECT_EQ(status_of_child([] { return Forks::instance().hold() ? 7 : 8; }), 7);
}

}  // namespace
}  // namespace ina::membership
