// A thread whose stack has a given size, whatever the system's default is.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace sluice {

// Like std::thread: join it before it is destroyed. Thread safety: used by one thread.
class StackThread {
 public:
  // Calls `run` on a new thread with `stack_bytes` of stack, as StartThread of base/firewall.h
  // does: `name` is a string literal, and an exception that leaves `run` is logged. Throws
  // std::system_error if the system refuses the thread.
  StackThread(const char* name, size_t stack_bytes, std::function<void()> run);
  StackThread(StackThread&& other) noexcept;
  StackThread& operator=(StackThread&& other) = delete;
  ~StackThread();

  void Join();

 private:
  std::optional<pthread_t> thread_;
};

}  // namespace sluice
