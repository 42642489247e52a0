#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace sluice {
namespace {

TEST(ThreadPool, RunsEveryThreadIndexOnce) {
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    std::vector<std::atomic<int>> calls(static_cast<size_t>(num_threads));
    for (int round = 0; round < 200; ++round)
      pool.Run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
    for (auto& count : calls) EXPECT_EQ(count.load(), 200);
  }
}

TEST(ThreadPool, AnExceptionLeavesASectionOnceAllThreadsHaveFinishedIt) {
  for (int num_threads : {1, 2, 3}) {
    ThreadPool pool(num_threads);
    for (int thrower = 0; thrower < num_threads; ++thrower) {
      std::atomic<int> finished{0};
      const auto section = [&](int thread) {
        if (thread == thrower) throw std::runtime_error("no");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++finished;
      };
      EXPECT_THROW(pool.Run(section), std::runtime_error);
      EXPECT_EQ(finished, num_threads - 1);
    }
    EXPECT_THROW(pool.Run([](int) { throw std::bad_alloc(); }), std::bad_alloc);
    std::atomic<int> calls{0};
    pool.Run([&](int) { ++calls; });
    EXPECT_EQ(calls, num_threads) << "the pool works on";
  }
}

TEST(ThreadPool, OneThreadRunsOnTheCaller) {
  ThreadPool pool(1);
  std::thread::id id;
  pool.Run([&](int) { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(ThreadPool, WritesOfASectionAreSeenByTheNext) {
  ThreadPool pool(3);
  std::vector<int64_t> values(3, 0);  // Plain memory, so that the sanitizer checks the ordering.
  for (int round = 0; round < 2000; ++round) {
    pool.Run([&](int thread) { ++values[static_cast<size_t>((thread + round) % 3)]; });
  }
  EXPECT_EQ(values[0] + values[1] + values[2], 6000);
}

TEST(ThreadPool, ParallelForCoversEachElementOnceInWholeGrains) {
  for (int num_threads : {1, 2, 3, 5}) {
    ThreadPool pool(num_threads);
    for (int64_t count : {0, 1, 15, 16, 17, 64, 1000}) {
      for (int64_t grain : {1, 16, 100}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        std::atomic<int> uneven = 0;
        pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
          if (begin % grain != 0 || (end % grain != 0 && end != count)) ++uneven;
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (auto& hit : hits)
          ASSERT_EQ(hit.load(), 1) << num_threads << " " << count << " " << grain;
        EXPECT_EQ(uneven.load(), 0);
      }
    }
  }
}

// More threads than cores, with sleeps between the sections so that the workers fall asleep and
// must be woken.
TEST(ThreadPool, WakesSleepingWorkersWhenOversubscribed) {
  ThreadPool pool(16);
  std::atomic<int> total = 0;
  for (int round = 0; round < 30; ++round) {
    pool.Run([&](int) { ++total; });
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  EXPECT_EQ(total.load(), 480);
}

double ProcessCpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(ThreadPool, AnIdlePoolUsesNoCpu) {
  ThreadPool pool(2);  // Workers spin for a while if there are as many cores as threads.
  pool.Run([](int) {});
  // On a busy machine, workers may fall asleep late. A worker that never sleeps would use CPU in
  // every time window.
  double used = 1;
  for (int window = 0; window < 20 && used >= 0.005; ++window) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double before = ProcessCpuSeconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    used = ProcessCpuSeconds() - before;
  }
  EXPECT_LT(used, 0.005);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // both sanitizers reserve much
                                                                     // address space
TEST(ThreadPoolDeathTest, AThreadThatIsRefusedEndsThoseBeforeIt) {
  const auto try_it = [] {
    long pages = 0;
    if (FILE* file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
      std::fclose(file);
    }
    // Limits the address space so that the stacks of some threads still fit, but not those of
    // hundreds.
    rlimit limit{};
    ::getrlimit(RLIMIT_STACK, &limit);
    const auto stack = limit.rlim_cur == RLIM_INFINITY ? rlim_t{2} << 20 : limit.rlim_cur;
    const auto bytes = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + 20 * stack;
    limit = {bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      ThreadPool pool(500);
    } catch (const std::system_error&) {
      std::_Exit(0);
    }
    std::_Exit(1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(try_it(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(ThreadPool, PinsWorkersAndCaller) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  ThreadPool pool(3, cpus);
  std::vector<int> ran_on(3, -1);
  std::thread([&] {  // a separate thread, so that the test's own thread is not pinned
    pool.PinCaller();
    pool.Run([&](int thread) {
      cpu_set_t set;
      if (::sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1) {
        ran_on[static_cast<size_t>(thread)] = ::sched_getcpu();
      }
    });
  })
      .join();
  for (size_t thread = 0; thread < 3; ++thread)
    EXPECT_EQ(ran_on[thread], cpus[thread % cpus.size()]);
}

}  // namespace
}  // namespace sluice
