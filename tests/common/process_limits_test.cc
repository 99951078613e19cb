// Limits of the process that a program cannot do with.
#include "common/process_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ina {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr LimitNeeds kNeeds{.open_files = 64,
                            .file_bytes = 4096,
                            .address_bytes = 1 << 20,
                            .stack_bytes = 1 << 16,
                            .locked_bytes = 512,
                            .threads = 8};

LimitSource source(int low, uint64_t most, size_t threads = 8) {
  return {.most = [=](int resource) { return resource == low ? most : RLIM_INFINITY; },
          .startable_threads = [=](size_t wanted) { return std::min(wanted, threads); }};
}

TEST(ProcessLimits, EachOneThatIsTooLowIsNamedWithWhatToRaise) {
  const auto text = [](int resource, const char* have, const char* need, const char* raise) {
    EXPECT_THAT(low_limits("it", kNeeds, source(resource, 3)),
                ElementsAre(AllOf(HasSubstr(have), HasSubstr(need), HasSubstr(raise))));
  };
  text(RLIMIT_NOFILE, "of open files is 3", "it needs 64", "ulimit -n, LimitNOFILE");
  text(RLIMIT_FSIZE, "of a file's size", "it needs 4096", "ulimit -f, LimitFSIZE");
  text(RLIMIT_AS, "of addresses", "it needs 1048576", "ulimit -v, LimitAS");
  text(RLIMIT_STACK, "of a stack", "it needs 65536", "ulimit -s, LimitSTACK");
  text(RLIMIT_MEMLOCK, "of locked memory", "it needs 512", "ulimit -l, LimitMEMLOCK");
  EXPECT_THAT(low_limits("it", kNeeds, source(-1, 0, 5)),
              ElementsAre(AllOf(HasSubstr("no more than 5 threads"), HasSubstr("it needs 8"),
                                HasSubstr("ulimit -u, LimitNPROC, TasksMax"))));
}

TEST(ProcessLimits, EnoughIsNoProblemAndNothingIsNeededOfTheRest) {
  EXPECT_THAT(low_limits("it", kNeeds, source(RLIMIT_NOFILE, 64)), IsEmpty());
  EXPECT_THAT(low_limits("it", {}, source(RLIMIT_NOFILE, 0, 0)), IsEmpty());
  EXPECT_THAT(low_limits("it", kNeeds), IsEmpty()) << "of this process";
}

TEST(ProcessLimits, AFileThatMayNotGrowIsAnErrorAndLimitsAreRaised) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = 10;
    ::setrlimit(RLIMIT_NOFILE, &files);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    prepare_limits();
    FILE* const file = ::tmpfile();
    const bool refused = file && ::write(::fileno(file), "x", 1) < 0 && errno == EFBIG;
    ::getrlimit(RLIMIT_NOFILE, &files);
    ::_exit(refused && files.rlim_cur == files.rlim_max ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ina
