// A persistent thread pool for short parallel sections. Kernels use no other threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace sluice {

// Runs one parallel section at a time on num_threads() threads, including the caller. Between
// sections of one step the workers spin for some ten microseconds; then they sleep, so that an idle
// program uses no CPU. Thread safety: one thread at a time may call Run and ParallelFor.
class ThreadPool {
 public:
  // `num_threads` >= 1 includes the caller. If `cpus` is not empty, worker i is pinned to cpus[i %
  // size]; PinCaller() pins the calling thread to cpus[0].
  explicit ThreadPool(int num_threads, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  void PinCaller();

  // Calls task(thread_index) once on each thread, thread_index in [0, num_threads), and waits for
  // all of them. If tasks throw, throws the first exception once all threads have finished. `task`
  // must not call the pool.
  template <typename Task>
  void Run(Task&& task) {
    RunErased([](void* context,
                 int thread) { (*static_cast<std::remove_reference_t<Task>*>(context))(thread); },
              const_cast<void*>(static_cast<const void*>(&task)));
  }

  // Cuts [0, count) into num_threads() contiguous parts of nearly equal length, each a multiple of
  // `grain` except the last. Calls body(begin, end) for each part that is not empty.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, Body&& body) {
    if (num_threads_ == 1 || count <= grain) {
      if (count > 0) body(int64_t{0}, count);
      return;
    }
    Run([&](int thread) {
      const int64_t grains = (count + grain - 1) / grain;
      const int64_t begin = grains * thread / num_threads_ * grain;
      const int64_t end = std::min(count, grains * (thread + 1) / num_threads_ * grain);
      if (begin < end) body(begin, end);
    });
  }

 private:
  struct State;
  using Erased = void (*)(void* context, int thread);
  void RunErased(Erased task, void* context);

  int num_threads_;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
