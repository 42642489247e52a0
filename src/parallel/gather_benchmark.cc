// Compares the time of a gather over threads with that of copying the same bytes from memory that
// another thread has just written. The copy is a lower bound for any way to transfer them.
//
//   docs/distributed.md states gather_of(us) / copy_of_another's(us).
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "parallel/local_group.h"

namespace sluice {
namespace {

// `ranks` threads gather an array of `bytes` bytes in total. Measures the time of one rank,
// including its reading of the result.
void BM_Gather(benchmark::State& state) {
  const auto ranks = static_cast<size_t>(state.range(0));
  const int64_t bytes = state.range(1);
  auto group = MakeLocalGroup({.size = static_cast<int>(ranks)});
  const std::vector<int64_t> widths(ranks, bytes / state.range(0));
  const auto gather = [&](size_t rank, std::vector<std::byte>& own, std::vector<std::byte>& all) {
    static thread_local ThreadPool pool(1);
    std::memset(own.data(), static_cast<int>(rank) + 1, own.size());
    group[rank]->Gather(pool, widths, 1, own.data(), all.data());
  };
  std::vector<std::thread> others;
  for (size_t rank = 1; rank < ranks; ++rank) {
    others.emplace_back([&, rank] {
      std::vector<std::byte> own(static_cast<size_t>(widths[rank])),
          all(static_cast<size_t>(bytes));
      while (true) {
        gather(rank, own, all);
        char more = 0;
        group[rank]->Broadcast(&more, 1, 0, Patience::kStep);
        if (more == 0) break;
      }
    });
  }
  std::vector<std::byte> own(static_cast<size_t>(widths[0])), all(static_cast<size_t>(bytes));
  char more = 1;
  for (auto _ : state) {
    gather(0, own, all);
    benchmark::DoNotOptimize(all.data());
    // The measured time includes the message that tells the other ranks whether to continue.
    group[0]->Broadcast(&more, 1, 0, Patience::kStep);
  }
  more = 0;
  gather(0, own, all);
  group[0]->Broadcast(&more, 1, 0, Patience::kStep);
  for (std::thread& other : others) other.join();
  state.SetBytesProcessed(state.iterations() * bytes);
}

// Copies `bytes` bytes that another thread wrote and announced with a flag.
void BM_CopyOfAnothers(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> source(bytes), copy(bytes);
  std::atomic<int64_t> written{0}, taken{0};
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (int64_t round = 1; !ends.load(std::memory_order_relaxed); ++round) {
      std::memset(source.data(), static_cast<int>(round), bytes);
      written.store(round, std::memory_order_release);
      while (taken.load(std::memory_order_acquire) < round && !ends.load(std::memory_order_relaxed))
        benchmark::DoNotOptimize(round);
    }
  });
  int64_t round = 0;
  for (auto _ : state) {
    ++round;
    while (written.load(std::memory_order_acquire) < round) benchmark::DoNotOptimize(round);
    std::memcpy(copy.data(), source.data(), bytes);
    benchmark::DoNotOptimize(copy.data());
    taken.store(round, std::memory_order_release);
  }
  ends.store(true);
  writer.join();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Copies `bytes` from this core's cache.
void BM_Copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> source(bytes, std::byte{1}), copy(bytes);
  for (auto _ : state) {
    std::memcpy(copy.data(), source.data(), bytes);
    benchmark::DoNotOptimize(copy.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BENCHMARK(BM_Gather)
    ->Args({2, 64})
    ->Args({2, 16 << 10})
    ->Args({2, 64 << 10})
    ->Args({2, 1 << 20})
    ->UseRealTime();
BENCHMARK(BM_CopyOfAnothers)->Arg(64)->Arg(16 << 10)->Arg(64 << 10)->Arg(1 << 20)->UseRealTime();
BENCHMARK(BM_Copy)->Arg(16 << 10)->Arg(64 << 10)->Arg(1 << 20)->UseRealTime();

}  // namespace
}  // namespace sluice
