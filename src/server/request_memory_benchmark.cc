// Measures the cost of counting memory in a step of 256 streams: each stream reserves the memory of
// an event and releases it once the event is sent.
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "server/request_memory.h"

namespace sluice {
namespace {

void CountAStepsEvents(benchmark::State& state) {
  constexpr int kStreams = 256;
  constexpr uint64_t kUnsent = 6000, kEventBytes = 300;
  static const auto memory = std::make_shared<RequestMemory>(uint64_t{1} << 30);
  std::vector<MemoryLease> leases;
  leases.reserve(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    leases.emplace_back(memory);
    CHECK(leases.back().TryResize(kUnsent));
  }
  for (auto _ : state) {
    for (MemoryLease& lease : leases) CHECK(lease.TryResize(kUnsent + kEventBytes));
    for (MemoryLease& lease : leases) lease.Shrink(kUnsent);
  }
}

// Number of threads that write answers. Each has its own streams; the budget is shared.
BENCHMARK(CountAStepsEvents)->Threads(1)->Threads(2)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice
