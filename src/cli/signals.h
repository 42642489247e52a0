// Handles SIGINT, SIGTERM and SIGHUP as events rather than interruptions.
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

// Blocks the signals in the calling thread and in all threads that it starts later, so that they
// can be waited for. Call before any other thread exists. A SIGHUP that the caller ignores (nohup)
// stays ignored.
void BlockSignals(std::initializer_list<int> signals);

// Makes certain writes fail instead of raising a signal that ends the program: to a closed pipe or
// connection (SIGPIPE), or beyond the file size limit (SIGXFSZ).
void LetWritesFail();

// Opens /dev/null read-only for each of the descriptors 0 to 2 that is closed, so that no other
// file or socket gets its number. Writing to it still fails. REQUIRES: this process has opened
// nothing yet.
void OpenStandardDescriptors();

// Ends the process. First writes pending output and `last_words` (to stderr) with a short timeout,
// because a write to a full pipe without a reader would block forever.
[[noreturn]] void EndAtOnce(int code, const std::string& last_words = "");

// A time limit for calls that may never return, such as a hanging GPU kernel or driver. `why` is
// printed to stderr.
struct EndLimit {
  std::chrono::duration<double> time;
  std::string why;
};

// The signals that SignalWatcher handles.
inline constexpr std::initializer_list<int> kWatched = {SIGINT, SIGTERM, SIGHUP,
                                                        // The last signal ends the thread.
                                                        SIGUSR1};

// Calls a function when a signal arrives:
// - The first SIGINT or SIGTERM: `on_first`, on its own thread. If the process still exists
//   `limit.time` later, it exits with status 1.
// - Each further SIGINT or SIGTERM: `on_further`, which must not block. If it returns true,
//   because it ended a wait early, the process continues. Otherwise the process exits immediately
//   with status 128 + the signal's number, even while `on_first` runs.
// - SIGHUP: `on_hangup`, on another thread. SIGHUPs that arrive during a call cause one more call.
//
// The constructor creates all threads, because creating one during a drain could fail. REQUIRES:
// BlockSignals(kWatched) was called.
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
  std::promise<int> first_signal_;  // the first signal; 0: the watcher ended without one
  bool asked_to_end_ = false;       // used only by the watching thread
  std::atomic<bool> over_{false};
  std::counting_semaphore<> hangups_{0};  // also released to end the thread
  std::thread first_thread_;              // calls on_first
  std::thread hangup_thread_;             // calls on_hangup
  std::thread watching_thread_;
};

// During its lifetime, SIGINT ends the process immediately with 130. For long operations that may
// be interrupted at any time. Throws std::system_error if the system refuses a descriptor or
// thread. REQUIRES: BlockSignals({SIGINT}) was called.
class EndOnInterrupt {
 public:
  EndOnInterrupt();
  ~EndOnInterrupt();
  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;

 private:
  const OwnedFd over_;  // an eventfd
  const OwnedFd interrupt_;
  std::thread thread_;
};

// A descriptor for polling that becomes readable when SIGINT arrives. Ownership: closes it when
// destroyed. Throws std::system_error if the system refuses one. REQUIRES: BlockSignals({SIGINT})
// was called.
class InterruptDescriptor {
 public:
  InterruptDescriptor();

  int fd() const { return fd_.get(); }
  // Resets it. Returns true if a signal had arrived.
  bool Clear();

 private:
  OwnedFd fd_;
};

}  // namespace sluice::cli
