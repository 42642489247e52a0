#include "base/owned_fd.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

bool IsOpen(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

OwnedFd OpenNothing() {
  return OwnedFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(OwnedFdTest, ClosesWhatItOwnsOnce) {
  int number = -1;
  {
    OwnedFd first = OpenNothing();
    ASSERT_TRUE(first);
    number = first.get();
    OwnedFd second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(IsOpen(number)) << "the owner has changed";
    EXPECT_EQ(second.get(), number);
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(OwnedFdTest, AnAssignmentClosesWhatWasOwned) {
  OwnedFd owner = OpenNothing();
  const int before = owner.get();
  OwnedFd other = OpenNothing();
  const int number = other.get();
  owner = std::move(other);
  EXPECT_EQ(owner.get(), number);
  EXPECT_FALSE(IsOpen(before));
  owner = OwnedFd();
  EXPECT_FALSE(owner);
  EXPECT_FALSE(IsOpen(number));
  EXPECT_FALSE(OwnedFd(-1));
}

TEST(OwnedFdTest, ACallThatFailedIsNamedWithItsReason) {
  errno = EMFILE;
  const auto refused = OwnFd(-1, "eventfd");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("eventfd: Too many open files"));
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("ulimit -n"));
  errno = ENOSYS;
  EXPECT_THROW(OwnFdOrThrow(-1, "pidfd_open"), std::system_error);
  EXPECT_TRUE(OwnFd(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open").has_value());
}

}  // namespace
}  // namespace sluice
