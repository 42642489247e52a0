#include "cli/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using std::chrono::duration;

TEST(EndWithinDeathTest, EndsAProcessThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    EndWithin(duration<double>(0.05), "the device did not come to its end");
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1), "error: the device did not come to its end");
}

TEST(EndWithinDeathTest, LeavesAloneWhatEndsInTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    EndWithin(duration<double>(3600), "too late");
    std::exit(7);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(7), "^$");
}

// Makes stderr a pipe that is full and that nobody reads, and sees to it that the process ends.
void FillStandardError() {
  alarm(60);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const std::string bytes(4096, 'x');
  while (write(ends[1], bytes.data(), bytes.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
}

TEST(EndWithinDeathTest, EndsAProcessWhoseLogNobodyReads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    FillStandardError();
    EndWithin(duration<double>(0), "nobody hears it");
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1), "");
}

TEST(SignalWatcherDeathTest, ASecondSignalEndsWhateverTheFirstOneWaitsFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    BlockSignals(kWatched);
    FillStandardError();
    std::promise<void> began;
    const SignalWatcher watcher([&](int) {
      began.set_value();
      std::fputs("a line of the log", stderr);
    });
    kill(getpid(), SIGINT);
    began.get_future().wait();
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(SignalWatcherDeathTest, TheFirstSignalIsTheProgramsOwnMatter) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::signal(SIGHUP, SIG_DFL);  // nohup has it ignored
    BlockSignals(kWatched);
    std::promise<int> told;
    int signal = 0;
    {
      const SignalWatcher watcher([&](int number) { told.set_value(number); });
      kill(getpid(), SIGTERM);
      signal = told.get_future().get();
    }
    std::exit(signal);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(SIGTERM), "^$");
}

TEST(SignalWatcherDeathTest, AHangupBeginsTheEndAndNeverCutsItShort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::signal(SIGHUP, SIG_DFL);  // nohup has it ignored
    BlockSignals(kWatched);
    std::promise<int> told;
    int signal = 0;
    {
      const SignalWatcher watcher([&](int number) { told.set_value(number); });
      kill(getpid(), SIGHUP);
      signal = told.get_future().get();
      kill(getpid(), SIGHUP);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    std::exit(signal);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(SIGHUP), "^$");
}

TEST(SignalWatcherDeathTest, TheFirstRequestToEndAfterAHangupCutsNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::signal(SIGHUP, SIG_DFL);
    BlockSignals(kWatched);
    std::promise<void> told;
    const SignalWatcher watcher([&](int) { told.set_value(); });
    kill(getpid(), SIGHUP);
    told.get_future().get();
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::fputs("still here", stderr);
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(128 + SIGTERM), "still here");
}

TEST(SignalWatcherDeathTest, AHangupThatIsIgnoredStaysIgnored) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::signal(SIGHUP, SIG_IGN);
    BlockSignals(kWatched);
    std::atomic<bool> told{false};
    {
      const SignalWatcher watcher([&](int) { told = true; });
      kill(getpid(), SIGHUP);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    std::exit(told ? 1 : 7);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(7), "^$");
}

TEST(EndOnInterruptDeathTest, EndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    BlockSignals({SIGINT});
    const EndOnInterrupt guard;
    kill(getpid(), SIGINT);
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(130), "^$");
}

TEST(EndOnInterruptDeathTest, LeavesLaterInterruptsToOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    BlockSignals({SIGINT});
    { const EndOnInterrupt guard; }
    kill(getpid(), SIGINT);
    std::exit(InterruptDescriptor().Clear() ? 7 : 0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace sluice::cli
