#include "cli/drain_delay.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using std::chrono::milliseconds;

TEST(DrainDelay, LeavesThenCloses) {
  DrainDelay delay(0.01, milliseconds(1));
  std::string calls;
  delay.Run([&] { calls += "leave "; }, [&] { calls += "close"; });
  EXPECT_EQ(calls, "leave close");
  EXPECT_FALSE(delay.Skip()) << "it is over";
}

TEST(DrainDelay, WithoutADelayNothingIsCalled) {
  DrainDelay delay(0);
  delay.Run([] { ADD_FAILURE(); }, [] { ADD_FAILURE(); });
}

TEST(DrainDelay, ASecondSignalEndsIt) {
  DrainDelay delay(1e6);
  EXPECT_FALSE(delay.Skip()) << "it does not run yet";
  bool is_closed = false;
  std::thread second;
  delay.Run([&] { second = std::thread([&] { EXPECT_TRUE(delay.Skip()); }); },
            [&] { is_closed = true; });
  second.join();
  EXPECT_TRUE(is_closed);
  EXPECT_FALSE(delay.Skip());
}

TEST(DrainDelay, TheEndOfTheServerEndsIt) {
  DrainDelay delay(1e6);
  std::thread end;
  delay.Run([&] { end = std::thread([&] { delay.End(); }); }, [] {});
  end.join();
  delay.Run([] { ADD_FAILURE(); }, [] { ADD_FAILURE(); });
}

}  // namespace
}  // namespace sluice::cli
