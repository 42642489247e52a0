#include "base/owned_fd.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
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

}  // namespace
}  // namespace sluice
