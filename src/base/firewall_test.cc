#include "base/firewall.h"

#include <new>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(FirewallTest, SaysWhatWasThrown) {
  const auto message_of = [](const auto& thrown) {
    try {
      throw thrown;
    } catch (...) {
      return CaughtMessage();
    }
  };
  EXPECT_EQ(message_of(std::runtime_error("the disk is on fire")), "the disk is on fire");
  EXPECT_EQ(message_of(std::bad_alloc()), "out of memory");
  EXPECT_EQ(message_of(std::runtime_error("")), "unknown error");
  EXPECT_EQ(message_of(7), "unknown error");
}

TEST(FirewallTest, AnExceptionEndsItsTaskAlone) {
  EXPECT_TRUE(RunGuarded("test", "nothing", [] {}));
  EXPECT_FALSE(RunGuarded("test", "a task", [] { throw std::runtime_error("no"); }));
  EXPECT_FALSE(RunGuarded("test", "a task", [] { throw 7; }));
  std::thread thread = StartThread("a name that is too long", [] { throw std::bad_alloc(); });
  thread.join();
}

TEST(FirewallTest, ExceptionsBecomeErrors) {
  const auto result_of = [](const auto& work) { return CatchToResult(work); };
  const Result<int> good = result_of([]() -> Result<int> { return 5; });
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, 5);
  const Status failed = result_of([]() -> Status { throw std::runtime_error("no"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInternal);
  EXPECT_EQ(failed.error().message, "no");
  const Status full = result_of([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(full.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice
