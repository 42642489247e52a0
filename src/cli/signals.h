// SIGINT, SIGTERM and SIGHUP as events instead of interruptions.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <initializer_list>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>

#include "base/owned_fd.h"

namespace sluice::cli {

// Blocks the signals in the calling thread and in all threads that it starts afterwards, so that
// they can be waited for. To be called before any other thread exists. A SIGHUP that the caller
// ignores (nohup) stays ignored.
void BlockSignals(std::initializer_list<int> signals);

// Makes a write that cannot be completed fail, instead of a signal that ends the program: to a
// closed pipe or connection (SIGPIPE), past the limit of a file's size (SIGXFSZ).
void LetWritesFail();

// Opens /dev/null as those of the descriptors 0 to 2 that the caller has closed, for reading alone:
// no file or socket of this program takes their place, and a write to them fails, as before.
// REQUIRES: this process has opened nothing yet.
void OpenStandardDescriptors();

// Ends the process. Pending output and `last_words`, for stderr, are written first, but not waited
// for long: a write to a full pipe that is not read never returns.
[[noreturn]] void EndAtOnce(int code, const std::string& last_words = "");

// A limit for calls that may never return: a kernel that hangs on a GPU, a driver that does not
// answer. `why` is for stderr.
struct EndLimit {
  std::chrono::duration<double> time;
  std::string why;
};

// Handles SIGINT and SIGTERM: the first one calls `on_first` on a thread of its own; a further one
// calls `on_further`, which must not block, and unless that returns true, for a wait that it has
// cut short, ends the process at once with 128 + its number, even while `on_first` runs. A process
// that is still there `limit.time` after the first one ends with 1. A SIGHUP calls `on_hangup`, on
// a thread of its own, and ends nothing; those that come while it runs call it once more. Its
// threads exist before any signal: a system that refuses new ones must not cut a drain short.
// REQUIRES: BlockSignals(kWatched) was called.
inline constexpr std::initializer_list<int> kWatched = {SIGINT, SIGTERM, SIGHUP,
                                                        SIGUSR1};  // the last one ends the thread
class SignalWatcher {
 public:
  explicit SignalWatcher(
      std::function<void(int signal)> on_first, std::optional<EndLimit> limit = std::nullopt,
      std::function<void()> on_hangup = [] {},
      std::function<bool()> on_further = [] { return false; });
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Watch();
  void CallOnHangups();
  void EndThreads();

  const std::optional<EndLimit> limit_;
  const std::function<void()> on_hangup_;
  const std::function<bool()> on_further_;
  std::promise<int> first_signal_;  // 0: there was none
  bool asked_to_end_ = false;       // of the watching thread
  std::atomic<bool> over_{false};
  std::counting_semaphore<> hangups_{0};  // and the end
  std::thread first_thread_;              // calls on_first
  std::thread hangup_thread_;             // calls on_hangup
  std::thread watching_thread_;
};

// During its lifetime SIGINT ends the process at once with 130: for long operations that may be
// interrupted at any time. Throws std::system_error where the system gives no descriptor or thread.
// REQUIRES: BlockSignals({SIGINT}) was called.
class EndOnInterrupt {
 public:
  EndOnInterrupt();
  ~EndOnInterrupt();
  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;

 private:
  const OwnedFd over_;  // an event
  const OwnedFd interrupt_;
  std::thread thread_;
};

// A descriptor that becomes readable when SIGINT arrives, to be polled beside others. Ownership:
// closes it when destroyed. Throws std::system_error where the system gives none. REQUIRES:
// BlockSignals({SIGINT}) was called.
class InterruptDescriptor {
 public:
  InterruptDescriptor();

  int fd() const { return fd_.get(); }
  // Resets it. True if a signal had arrived.
  bool Clear();

 private:
  OwnedFd fd_;
};

}  // namespace sluice::cli
