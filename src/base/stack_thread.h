// A thread with a given stack size.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace sluice {

// Like std::thread: join it before it is destroyed. Thread safety: used by one thread.
class StackThread {
 public:
  // Calls `run` on a new thread with `stack_bytes` of stack. `name` is a string literal. As with
  // StartThread (base/firewall.h), an exception that leaves `run` is logged. Throws
  // std::system_error if the system cannot start the thread.
  StackThread(const char* name, size_t stack_bytes, std::function<void()> run);
  StackThread(StackThread&& other) noexcept;
  StackThread& operator=(StackThread&& other) = delete;
  ~StackThread();

  void Join();

 private:
  std::optional<pthread_t> thread_;
};

}  // namespace sluice
