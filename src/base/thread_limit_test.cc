#include "base/thread_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ThreadLimitTest : public ::testing::Test {
 protected:
  ThreadLimitTest() : root_(std::filesystem::path(::testing::TempDir()) / "thread_limit") {
    std::filesystem::remove_all(root_);
  }
  ~ThreadLimitTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  const std::filesystem::path root_;
};

TEST_F(ThreadLimitTest, NamesTheLowestGroupAboveTheProcess) {
  Write("proc/self/cgroup", "0::/slice/unit\n");
  Write("sys/fs/cgroup/slice/unit/pids.max", "max\n");
  Write("sys/fs/cgroup/slice/pids.max", "77\n");
  Write("proc/sys/kernel/threads-max", "127000\n");
  const std::string text = ThreadLimits(root_);
  EXPECT_THAT(text, HasSubstr("pids.max of the control group 77"));
  EXPECT_LT(text.find("group 77"), text.find("kernel.threads-max 127000"));
}

TEST_F(ThreadLimitTest, ReadsTheOlderControlGroups) {
  Write("proc/self/cgroup", "8:memory:/a\n7:pids:/a/b\n");
  Write("sys/fs/cgroup/pids/a/b/pids.max", "90\n");
  EXPECT_THAT(ThreadLimits(root_), HasSubstr("pids.max of the control group 90"));
}

TEST_F(ThreadLimitTest, NamesTheLimitOfTheUser) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NPROC, &limit), 0);
  const rlimit old = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 54321);
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &limit), 0);
  EXPECT_THAT(ThreadLimits(root_),
              HasSubstr("ulimit -u of this user " + std::to_string(limit.rlim_cur)));
  EXPECT_THAT(ThreadsRefused("4 threads", "EAGAIN", "lower threads"),
              HasSubstr(std::to_string(limit.rlim_cur)));
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &old), 0);
}

TEST_F(ThreadLimitTest, NamesTheLimitOfMemory) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  const rlimit old = limit;
  EXPECT_THAT(ThreadsRefused("a thread", "EAGAIN", ""), Not(HasSubstr("ulimit -v")));
  limit.rlim_cur = rlim_t{64} << 40;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_THAT(ThreadsRefused("a thread", "EAGAIN", "lower threads"),
              AllOf(HasSubstr("limited to 67108864 MiB (ulimit -v)"), HasSubstr("lower threads")));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
}

}  // namespace
}  // namespace sluice
