#include "cli/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <semaphore>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/firewall.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  return set;
}

timespec TimeUntil(Clock::time_point deadline) {
  const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
}

OwnedFd InterruptFd() {
  const sigset_t set = SetOf({SIGINT});
  return OwnFdOrThrow(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd");
}

}  // namespace

void EndAtOnce(int code, const std::string& last_words) {
  static std::binary_semaphore written(0);
  try {
    std::thread([last_words] {
      std::fputs(last_words.c_str(), stderr);
      std::fflush(nullptr);
      written.release();
    }).detach();
  } catch (const std::system_error&) {
    std::_Exit(code);  // no thread could be started for writing
  }
  static_cast<void>(written.try_acquire_for(std::chrono::seconds(2)));
  std::_Exit(code);
}

void BlockSignals(std::initializer_list<int> signals) {
  sigset_t set = SetOf(signals);
  // A blocked signal stays pending even if the process ignores it.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
    sigdelset(&set, SIGHUP);
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0, "pthread_sigmask");
}

void LetWritesFail() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void OpenStandardDescriptors() {
  // open() returns the lowest free descriptor.
  while (true) {
    const int fd = open("/dev/null", O_RDONLY);
    if (fd > STDERR_FILENO) close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

SignalWatcher::SignalWatcher(std::function<void(int signal)> on_first,
                             std::optional<EndLimit> limit, std::function<void()> on_hangup,
                             std::function<bool()> on_further)
    : limit_(std::move(limit)),
      on_hangup_(std::move(on_hangup)),
      on_further_(std::move(on_further)),
      first_thread_(
          [on_first = std::move(on_first), signal = first_signal_.get_future()]() mutable {
            if (const int number = signal.get(); number != 0)
              RunGuarded("serve", "to end in order", [&] { on_first(number); });
          }) {
  try {
    hangup_thread_ = std::thread([this] { CallOnHangups(); });
    watching_thread_ = std::thread([this] { Watch(); });
  } catch (const std::system_error&) {
    EndThreads();
    throw;
  }
}

SignalWatcher::~SignalWatcher() {
  EndThreads();
}

void SignalWatcher::EndThreads() {
  // The time limit applies until on_first has returned.
  over_ = true;
  hangups_.release();
  if (hangup_thread_.joinable()) hangup_thread_.join();
  if (watching_thread_.joinable()) {
    pthread_kill(watching_thread_.native_handle(), SIGUSR1);
    watching_thread_.join();
  }
  if (!asked_to_end_) first_signal_.set_value(0);
  first_thread_.join();
}

void SignalWatcher::CallOnHangups() {
  while (true) {
    hangups_.acquire();
    while (hangups_.try_acquire()) {
    }
    if (over_) return;
    RunGuarded("serve", "to read settings again", on_hangup_);
  }
}

void SignalWatcher::Watch() {
  const sigset_t set = SetOf(kWatched);
  std::optional<Clock::time_point> deadline;
  while (true) {
    int signal = 0;
    if (deadline) {
      const timespec left = TimeUntil(*deadline);
      signal = sigtimedwait(&set, nullptr, &left);
      if (signal < 0 && errno == EAGAIN) EndAtOnce(1, "error: " + limit_->why + "\n");
    } else {
      signal = sigwaitinfo(&set, nullptr);
    }
    if (signal < 0) continue;
    if (signal == SIGUSR1) return;
    if (signal == SIGHUP) {
      hangups_.release();
      continue;
    }
    if (std::exchange(asked_to_end_, true)) {
      if (on_further_()) continue;
      EndAtOnce(128 + signal);
    }
    if (limit_) deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit_->time);
    first_signal_.set_value(signal);
  }
}

EndOnInterrupt::EndOnInterrupt()
    : over_(OwnFdOrThrow(eventfd(0, EFD_CLOEXEC), "eventfd")),
      interrupt_(InterruptFd()),
      thread_([this] {
        pollfd fds[2] = {{over_.get(), POLLIN, 0}, {interrupt_.get(), POLLIN, 0}};
        while (fds[0].revents == 0 && fds[1].revents == 0) poll(fds, 2, -1);
        if (fds[0].revents == 0) std::_Exit(128 + SIGINT);
      }) {}

EndOnInterrupt::~EndOnInterrupt() {
  CHECK(eventfd_write(over_.get(), 1) == 0, "eventfd");
  thread_.join();
}

InterruptDescriptor::InterruptDescriptor() : fd_(InterruptFd()) {}

bool InterruptDescriptor::Clear() {
  bool any = false;
  signalfd_siginfo info;
  while (read(fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) any = true;
  return any;
}

}  // namespace sluice::cli
