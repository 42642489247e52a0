#include "cli/signals.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <optional>
#include <semaphore>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using std::chrono::duration;

// Ends as the process of a program whose watcher has this limit, after its first signal.
void HangAfterASignal(EndLimit limit) {
  BlockSignals(kWatched);
  const SignalWatcher watcher([](int) { std::this_thread::sleep_for(std::chrono::hours(1)); },
                              std::move(limit));
  kill(getpid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(SignalWatcherDeathTest, EndsAProcessThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(HangAfterASignal({duration<double>(0.05), "the device did not come to its end"}),
              ::testing::ExitedWithCode(1), "error: the device did not come to its end");
}

// Watches with an hour to go, sends a SIGTERM after `before_signal`, and ends with status 7 once
// the watcher has told of it.
void EndInTime(void (*before_signal)()) {
  BlockSignals(kWatched);
  std::promise<void> told;
  {
    const SignalWatcher watcher([&](int) { told.set_value(); },
                                EndLimit{duration<double>(3600), "too late"});
    before_signal();
    kill(getpid(), SIGTERM);
    told.get_future().wait();
  }
  std::_Exit(7);
}

TEST(SignalWatcherDeathTest, LeavesAloneWhatEndsInTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(EndInTime([] {}), ::testing::ExitedWithCode(7), "^$");
}

TEST(SignalWatcherDeathTest, NeedsNoNewThreadForADrain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto leave_no_memory = [] {
    const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  };
  EXPECT_EXIT(EndInTime(leave_no_memory), ::testing::ExitedWithCode(7), "^$");
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

TEST(SignalWatcherDeathTest, EndsAProcessWhoseLogNobodyReads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    FillStandardError();
    HangAfterASignal({duration<double>(0), "nobody hears it"});
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(1), "");
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
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(128 + SIGTERM), "");
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
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(SIGTERM), "^$");
}

TEST(SignalWatcherDeathTest, AHangupEndsNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::signal(SIGHUP, SIG_DFL);  // nohup has it ignored
    BlockSignals(kWatched);
    std::promise<int> told;
    std::counting_semaphore<> hangups(0);
    int signal = 0;
    {
      const SignalWatcher watcher([&](int number) { told.set_value(number); }, std::nullopt,
                                  [&] { hangups.release(); });
      for (int i = 0; i < 3; ++i) {
        kill(getpid(), SIGHUP);
        hangups.acquire();
      }
      kill(getpid(), SIGTERM);
      signal = told.get_future().get();
      kill(getpid(), SIGHUP);  // also while it ends
      hangups.acquire();
    }
    std::exit(signal);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(SIGTERM), "^$");
}

TEST(SignalWatcherDeathTest, AHangupThatTakesLongHoldsNothingUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::signal(SIGHUP, SIG_DFL);
    BlockSignals(kWatched);
    std::promise<void> began, told;
    const SignalWatcher watcher([&](int) { told.set_value(); }, std::nullopt,
                                [&] {
                                  began.set_value();
                                  std::this_thread::sleep_for(std::chrono::hours(1));
                                });
    kill(getpid(), SIGHUP);
    began.get_future().get();
    kill(getpid(), SIGTERM);
    told.get_future().get();
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(128 + SIGTERM), "^$");
}

TEST(SignalWatcherDeathTest, AHangupThatIsIgnoredStaysIgnored) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::signal(SIGHUP, SIG_IGN);
    BlockSignals(kWatched);
    std::atomic<bool> told{false};
    {
      const SignalWatcher watcher([&](int) { told = true; }, std::nullopt, [&] { told = true; });
      kill(getpid(), SIGHUP);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    std::exit(told ? 1 : 7);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(7), "^$");
}

TEST(EndOnInterruptDeathTest, EndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    BlockSignals({SIGINT});
    const EndOnInterrupt guard;
    kill(getpid(), SIGINT);
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(130), "^$");
}

TEST(EndOnInterruptDeathTest, LeavesLaterInterruptsToOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    BlockSignals({SIGINT});
    { const EndOnInterrupt guard; }
    kill(getpid(), SIGINT);
    std::exit(InterruptDescriptor().Clear() ? 7 : 0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace sluice::cli
