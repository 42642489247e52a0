// The exception firewall: an exception fails the task that threw it, never the thread that ran the
// task. Expected failures are a Result (base/result.h). Any code that allocates memory or calls a
// library may also throw, for example std::bad_alloc.
//
// Thread safety: all functions may be called from any thread. None of them throws, except
// StartThread.
#pragma once

#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"

namespace sluice {

// The message of the exception that is being handled; never empty. REQUIRES: the caller is in a
// catch block.
std::string CaughtMessage() noexcept;

// Converts the exception that is being handled: kResourceExhausted for std::bad_alloc, else
// kInternal. REQUIRES: the caller is in a catch block.
Error CaughtError() noexcept;

// Logs at level error that `task` failed, with the exception's message. REQUIRES: the caller is in
// a catch block.
void LogCaught(std::string_view component, std::string_view task) noexcept;

// Runs `work`. If it throws, logs "`task` failed: MESSAGE" and returns false. If the caller holds
// mutexes that `work` needs, `work` names them with REQUIRES.
template <typename Work>
bool RunGuarded(std::string_view component, std::string_view task, Work&& work) noexcept
    SLUICE_LOCK_ATTRIBUTE(no_thread_safety_analysis) {
  try {
    std::forward<Work>(work)();
    return true;
  } catch (...) {
    LogCaught(component, task);
    return false;
  }
}

// Returns the Result or Status that `work` returns. An exception becomes an error.
template <typename Work>
auto CatchToResult(Work&& work) noexcept -> decltype(std::forward<Work>(work)()) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    return tl::unexpected<Error>(CaughtError());
  }
}

// Names the calling thread for `top -H` and debuggers. Only the first 15 bytes of `name` are used.
void NameThread(const char* name) noexcept;

// Starts a thread named `name`. An exception that leaves `work` is logged and ends the thread, so a
// thread that must continue guards each of its tasks. Throws std::system_error if the system cannot
// start the thread. `name` is a string literal.
template <typename Work>
std::thread StartThread(const char* name, Work work) {
  return std::thread([name, work = std::move(work)]() mutable {
    NameThread(name);
    RunGuarded(name, "the thread", work);
  });
}

}  // namespace sluice
