#include "cli/signals.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
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

void BlockSignals(std::initializer_list<int> signals) {
  const sigset_t set = SetOf(signals);
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0, "pthread_sigmask");
}

void IgnoreClosedPipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

SignalWatcher::SignalWatcher(std::function<void(int signal)> on_first)
    : thread_([on_first = std::move(on_first)] {
        const sigset_t set = SetOf(kWatched);
        bool first = true;
        while (true) {
          int signal = 0;
          if (sigwait(&set, &signal) != 0) continue;
          if (signal == SIGUSR1) return;
          if (!first) {
            std::fflush(nullptr);
            std::_Exit(128 + signal);
          }
          first = false;
          on_first(signal);
        }
      }) {}

SignalWatcher::~SignalWatcher() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

void EndWithin(std::chrono::duration<double> time, std::string why) {
  std::thread([time, why = std::move(why)] {
    std::this_thread::sleep_for(time);
    std::fprintf(stderr, "error: %s\n", why.c_str());
    std::fflush(nullptr);
    std::_Exit(1);
  }).detach();
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
