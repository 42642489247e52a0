// SIGINT and SIGTERM as events instead of interruptions.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>

namespace sluice::cli {

// Blocks the signals in the calling thread and all threads it starts from now on, so that they can
// be waited for. Call it before any other thread exists.
void BlockSignals(std::initializer_list<int> signals);

// Nobody needs to read what a server says: writing to a closed pipe fails instead of ending the
// program.
void IgnoreClosedPipes();

// A thread that takes SIGINT and SIGTERM: the first one calls `on_first` on a thread of its own,
// the second ends the process at once with 128 + its number, whatever `on_first` waits for.
// REQUIRES: BlockSignals(kWatched) was called.
inline constexpr std::initializer_list<int> kWatched = {SIGINT, SIGTERM,
                                                        SIGUSR1};  // the last one ends the thread
class SignalWatcher {
 public:
  explicit SignalWatcher(std::function<void(int signal)> on_first);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  std::thread thread_;
};

// From now on the process has so long to end by itself; then it ends with 1, and says why on
// stderr. For what may never return: a kernel that hangs on a GPU, a driver that does not answer.
void EndWithin(std::chrono::duration<double> time, std::string why);

// While it lives, SIGINT ends the process at once with 130: for what takes long and leaves nothing
// half done. REQUIRES: BlockSignals({SIGINT}) was called.
class EndOnInterrupt {
 public:
  EndOnInterrupt();
  ~EndOnInterrupt();
  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;

 private:
  const int over_;  // an event
  std::thread thread_;
};

// A descriptor that becomes readable when SIGINT arrives, for those who wait for several things at
// a time. Ownership: closes it when destroyed.   REQUIRES: BlockSignals({SIGINT}) was called.
class InterruptDescriptor {
 public:
  InterruptDescriptor();
  ~InterruptDescriptor();
  InterruptDescriptor(const InterruptDescriptor&) = delete;
  InterruptDescriptor& operator=(const InterruptDescriptor&) = delete;

  int fd() const { return fd_; }
  // Forgets what has arrived. True if there was something.
  bool Clear();

 private:
  int fd_;
};

}  // namespace sluice::cli
