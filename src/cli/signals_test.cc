#include "cli/signals.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <semaphore>
#include <system_error>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using std::chrono::duration;

// Sends this process a signal whose handler hangs, under the time limit `limit`.
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

// Sends a SIGTERM after `before_signal`, with a limit of an hour. The process exits with status 7
// once the watcher has called on_first.
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

// Sends three signals: the second ends a wait early, the third ends the process.
void SendThreeSignals() {
  BlockSignals(kWatched);
  std::promise<void> first, second;
  const SignalWatcher watcher(
      [&](int) {
        first.set_value();
        std::this_thread::sleep_for(std::chrono::hours(1));
      },
      std::nullopt, [] {},
      [&, is_cut = false]() mutable {
        if (std::exchange(is_cut, true)) return false;
        second.set_value();
        return true;
      });
  kill(getpid(), SIGTERM);
  first.get_future().wait();
  kill(getpid(), SIGTERM);
  second.get_future().wait();
  kill(getpid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(SignalWatcherDeathTest, AsksWhetherAFurtherSignalCutsAWaitShort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(SendThreeSignals(), ::testing::ExitedWithCode(128 + SIGTERM), "^$");
}

// Makes stderr a full pipe without a reader, and checks that the process ends.
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
    std::signal(SIGHUP, SIG_DFL);  // nohup may have set it to be ignored
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
    std::signal(SIGHUP, SIG_DFL);  // nohup may have set it to be ignored
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
      kill(getpid(), SIGHUP);  // must be handled even after a SIGTERM
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

// Closes the standard descriptors and calls OpenStandardDescriptors; the exit code identifies a
// failed check.
void StartWithoutDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) close(fd);
  OpenStandardDescriptors();
  const int next = open("/dev/null", O_RDONLY);
  if (next <= 2) std::_Exit(1);
  char byte = 0;
  if (read(0, &byte, 1) != 0) std::_Exit(2);
  for (int fd = 1; fd <= 2; ++fd) {
    if (write(fd, "x", 1) != -1 || errno != EBADF) std::_Exit(3);
  }
  std::_Exit(7);
}

TEST(StandardDescriptorsDeathTest, AreTakenByNothingElse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(StartWithoutDescriptors(), ::testing::ExitedWithCode(7), "");
}

TEST(LetWritesFailDeathTest, FilesPastTheirLimitAndClosedPipesAreErrors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write_past_limits = [] {
    LetWritesFail();
    const rlimit limit{1, 1};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(1);
    FILE* const file = std::tmpfile();
    if (write(fileno(file), "xy", 2) != 1 || write(fileno(file), "y", 1) != -1 || errno != EFBIG)
      std::_Exit(2);
    int ends[2];
    if (pipe(ends) != 0) std::_Exit(3);
    close(ends[0]);
    if (write(ends[1], "x", 1) != -1 || errno != EPIPE) std::_Exit(4);
    std::_Exit(7);
  };
  EXPECT_EXIT(write_past_limits(), ::testing::ExitedWithCode(7), "");
}

TEST(EndOnInterruptDeathTest, WithoutDescriptorsItThrows) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto without_descriptors = [] {
    BlockSignals({SIGINT});
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 2; ++i) {
      try {
        if (i == 0) {
          const EndOnInterrupt guard;
        } else {
          const InterruptDescriptor descriptor;
        }
        std::_Exit(1);
      } catch (const std::system_error& error) {
        if (error.code() != std::errc::too_many_files_open) std::_Exit(2);
      }
    }
    std::_Exit(7);
  };
  EXPECT_EXIT(without_descriptors(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace sluice::cli
