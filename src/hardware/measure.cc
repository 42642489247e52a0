#include "hardware/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>

#include "hardware/arm/peak_loops.h"
#include "hardware/cpu_features.h"
#include "hardware/memory.h"
#include "hardware/x86/peak_loops.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Sums `count` words and prefetches the cache line `ahead` words further on.
uint64_t SumWords(const uint64_t* words, int64_t count, int64_t ahead) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    __builtin_prefetch(words + i + ahead);
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const int64_t wanted = std::min(int64_t{1} << 30, ReadMemoryLimits().available_bytes / 8);
  const int64_t bytes = wanted / kHugePage * kHugePage;
  if (bytes == 0) return 0;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  auto* words = static_cast<uint64_t*>(memory);
  const int64_t count = bytes / 8;
  pool.ParallelFor(count, kHugePage / 8, [&](int64_t begin, int64_t end) {
    std::memset(words + begin, 1, static_cast<size_t>(end - begin) * 8);
  });
  double best = 0;
  std::atomic<uint64_t> sink = 0;  // keeps the compiler from removing the reads
  // Prefetch distances to try, in words. The hardware's prefetching is not always enough: on some
  // machines, a loop that prefetches reads 1.7 x as fast.
  constexpr int64_t kAhead[] = {0, 512, 1024};
  for (int i = 0; i < 6; ++i) {
    const auto start = Clock::now();
    pool.ParallelFor(count, kHugePage / 8, [&](int64_t begin, int64_t end) {
      sink += SumWords(words + begin, end - begin, kAhead[i % 3]);
    });
    best = std::max(best, static_cast<double>(bytes) / Seconds(Clock::now() - start));
  }
  ::munmap(memory, static_cast<size_t>(bytes));
  return best;
}

namespace {

// Runs `loop` on all threads: first to find how many rounds take about 15 ms, then six times.
// Returns the best rate.
[[maybe_unused]] double BestRate(ThreadPool& pool, double (*loop)(int64_t rounds)) {
  int64_t rounds = 10000;
  double best = 0;
  const auto run = [&] {
    std::atomic<double> operations = 0;
    const auto start = Clock::now();
    pool.Run([&](int) { operations.fetch_add(loop(rounds)); });
    const double seconds = Seconds(Clock::now() - start);
    best = std::max(best, operations.load() / seconds);
    return seconds;
  };
  const double seconds = std::max(run(), 1e-6);
  rounds = static_cast<int64_t>(static_cast<double>(rounds) * 0.015 / seconds) + 1;
  for (int i = 0; i < 6; ++i) run();
  return best;
}

}  // namespace

double MeasureFp32Peak([[maybe_unused]] ThreadPool& pool) {
  [[maybe_unused]] const CpuFeatures& cpu = DetectCpuFeatures();
#if defined(__x86_64__)
  if (cpu.avx512) return BestRate(pool, peak_loops::Avx512Fma);
  if (cpu.avx2) return BestRate(pool, peak_loops::Avx2Fma);
#elif defined(__aarch64__)
  if (cpu.neon) return BestRate(pool, peak_loops::NeonFma);
#endif
  return 0;
}

double MeasureAvx512Bf16Peak([[maybe_unused]] ThreadPool& pool) {
#if defined(__x86_64__)
  if (DetectCpuFeatures().avx512_bf16) return BestRate(pool, peak_loops::Avx512Bf16);
#endif
  return 0;
}

double MeasureAmxBf16Peak([[maybe_unused]] ThreadPool& pool) {
#if defined(__x86_64__)
  if (DetectCpuFeatures().amx_bf16) return BestRate(pool, peak_loops::AmxBf16);
#endif
  return 0;
}

double MeasureNeonBf16Peak([[maybe_unused]] ThreadPool& pool) {
#if defined(__aarch64__)
  if (DetectCpuFeatures().neon_bf16) return BestRate(pool, peak_loops::NeonBf16);
#endif
  return 0;
}

double MeasureBf16Peak(ThreadPool& pool) {
  const double peak =
      std::max({MeasureAvx512Bf16Peak(pool), MeasureAmxBf16Peak(pool), MeasureNeonBf16Peak(pool)});
  return peak > 0 ? peak : MeasureFp32Peak(pool);
}

}  // namespace sluice
