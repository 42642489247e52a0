#include "cli/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <semaphore>
#include <utility>

#include "base/check.h"

namespace sluice::cli {
namespace {

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void EndAtOnce(int code, const std::string& last_words) {
  static std::binary_semaphore written(0);
  std::thread([last_words] {
    std::fputs(last_words.c_str(), stderr);
    std::fflush(nullptr);
    written.release();
  }).detach();
  static_cast<void>(written.try_acquire_for(std::chrono::seconds(2)));
  std::_Exit(code);
}

void BlockSignals(std::initializer_list<int> signals) {
  sigset_t set = SetOf(signals);
  // A signal that is blocked waits even where it is ignored.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
    sigdelset(&set, SIGHUP);
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0, "pthread_sigmask");
}

void IgnoreClosedPipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

SignalWatcher::SignalWatcher(std::function<void(int signal)> on_first)
    : thread_([on_first = std::move(on_first)] {
        const sigset_t set = SetOf(kWatched);
        std::jthread first;
        bool asked_to_end = false;
        while (true) {
          int signal = 0;
          if (sigwait(&set, &signal) != 0) continue;
          if (signal == SIGUSR1) return;
          if (asked_to_end && signal != SIGHUP) EndAtOnce(128 + signal);
          asked_to_end |= signal != SIGHUP;
          if (!first.joinable()) first = std::jthread(on_first, signal);
        }
      }) {}

SignalWatcher::~SignalWatcher() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

void EndWithin(std::chrono::duration<double> time, std::string why) {
  std::thread([time, why = std::move(why)] {
    std::this_thread::sleep_for(time);
    EndAtOnce(1, "error: " + why + "\n");
  }).detach();
}

EndOnInterrupt::EndOnInterrupt()
    : over_(eventfd(0, EFD_CLOEXEC)), thread_([this] {
        const InterruptDescriptor interrupt;
        pollfd fds[2] = {{over_, POLLIN, 0}, {interrupt.fd(), POLLIN, 0}};
        while (fds[0].revents == 0 && fds[1].revents == 0) poll(fds, 2, -1);
        if (fds[0].revents == 0) std::_Exit(128 + SIGINT);
      }) {}

EndOnInterrupt::~EndOnInterrupt() {
  CHECK(eventfd_write(over_, 1) == 0, "eventfd");
  thread_.join();
  close(over_);
}

InterruptDescriptor::InterruptDescriptor() {
  const sigset_t set = SetOf({SIGINT});
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  CHECK(fd_ >= 0, "signalfd");
}

InterruptDescriptor::~InterruptDescriptor() {
  close(fd_);
}

bool InterruptDescriptor::Clear() {
  bool any = false;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) any = true;
  return any;
}

}  // namespace sluice::cli
