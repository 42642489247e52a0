#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <climits>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// The time that a worker spins. It is longer than the gaps between the operators of a step, and
// shorter than the time to wake a sleeping core.
constexpr auto kSpinTime = std::chrono::microseconds(40);

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
            nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
            nullptr, 0);
}

int UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0)
    return CPU_SETSIZE;  // The set is too small for this machine's CPUs.
  return CPU_COUNT(&set);
}

void Pin(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Pinning fails if the CPU was taken offline meanwhile. The thread then stays unpinned, which is
  // only slower.
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

// An atomic integer that some threads change while another thread waits for the change: the waiting
// thread first spins, then sleeps.
struct alignas(64) Event {
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> sleepers{0};

  // Waits until `done(word)` and returns the word. The accesses to (sleepers, word) are
  // sequentially consistent: either the changing thread sees the sleeper, or the sleeper sees the
  // change.
  template <typename Done>
  uint32_t Wait(bool spin, Done done) {
    uint32_t value = word.load(std::memory_order_acquire);
    if (done(value)) return value;
    if (spin) {
      const auto deadline = Clock::now() + kSpinTime;
      do {
        for (int i = 0; i < 16; ++i) {
          Relax();
          value = word.load(std::memory_order_acquire);
          if (done(value)) return value;
        }
      } while (Clock::now() < deadline);
    }
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (value = word.load(std::memory_order_seq_cst), !done(value)) FutexWait(word, value);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return value;
  }

  void WakeSleepers() {
    if (sleepers.load(std::memory_order_seq_cst) > 0) FutexWakeAll(word);
  }
};

}  // namespace

struct ThreadPool::State {
  Event start;            // number of sections started so far
  Event pending;          // number of workers that have not finished the current section
  Erased task = nullptr;  // null: the workers exit
  void* context = nullptr;
  bool spin = true;
  std::vector<int> cpus;
  std::vector<std::thread> workers;

  void Work(int thread) {
    if (!cpus.empty()) Pin(cpus[static_cast<size_t>(thread) % cpus.size()]);
    ::pthread_setname_np(::pthread_self(), ("kernel-" + std::to_string(thread)).c_str());
    uint32_t seen = 0;
    while (true) {
      seen = start.Wait(spin, [&](uint32_t section) { return section != seen; });
      if (task == nullptr) return;
      Call(task, context, thread);
      if (pending.word.fetch_sub(1, std::memory_order_seq_cst) == 1) pending.WakeSleepers();
    }
  }

  void Begin(Erased new_task, void* new_context) {
    task = new_task;
    context = new_context;
    pending.word.store(static_cast<uint32_t>(workers.size()), std::memory_order_relaxed);
    start.word.fetch_add(1, std::memory_order_seq_cst);
    start.WakeSleepers();
  }

  void Stop() {
    Begin(nullptr, nullptr);
    for (std::thread& worker : workers) worker.join();
  }

  // Keeps the first exception of a section until all threads have finished the section. If the
  // calling thread threw it immediately, its caller would destroy data that other threads still
  // use.
  void Call(Erased task_of_section, void* context_of_section, int thread) noexcept {
    try {
      task_of_section(context_of_section, thread);
    } catch (...) {
      if (!has_thrown.exchange(true)) thrown = std::current_exception();
    }
  }

  void ThrowWhatWasThrown() {
    const std::exception_ptr first = std::exchange(thrown, nullptr);
    has_thrown = false;
    std::rethrow_exception(first);
  }

  std::atomic<bool> has_thrown{false};
  std::exception_ptr thrown;  // written by the thread that sets has_thrown
};

ThreadPool::ThreadPool(int num_threads, std::vector<int> cpus)
    : num_threads_(num_threads), state_(std::make_unique<State>()) {
  CHECK_GE(num_threads, 1);
  // With fewer cores than threads, a spinning thread would occupy a core that the thread it waits
  // for needs.
  const int usable = cpus.empty() ? UsableCpus() : static_cast<int>(cpus.size());
  state_->spin = num_threads <= usable;
  state_->cpus = std::move(cpus);
  state_->workers.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int thread = 1; thread < num_threads; ++thread)
      state_->workers.emplace_back([state = state_.get(), thread] { state->Work(thread); });
  } catch (...) {
    state_->Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  state_->Stop();
}

void ThreadPool::PinCaller() {
  if (!state_->cpus.empty()) Pin(state_->cpus[0]);
}

void ThreadPool::RunErased(Erased task, void* context) {
  if (num_threads_ > 1) state_->Begin(task, context);
  state_->Call(task, context, 0);
  if (num_threads_ > 1) state_->pending.Wait(state_->spin, [](uint32_t left) { return left == 0; });
  if (state_->has_thrown) [[unlikely]]
    state_->ThrowWhatWasThrown();
}

}  // namespace sluice
