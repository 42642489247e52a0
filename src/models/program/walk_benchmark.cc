// Measures the overhead of walking a list of operators: 80 layers of 15 operators with operands but
// no rows.
#include <benchmark/benchmark.h>

#include "base/check.h"
#include "models/cpu/executor.h"

namespace sluice {
namespace {

void BM_Walk80Layers(benchmark::State& state) {
  constexpr int64_t kOperators = int64_t{80} * 15;
  program::Program program;
  program.limits = {.rows = 8, .wanted = 8, .part = 8, .rounded = 8, .pairs = 8};
  for (const char* name : {"residual", "delta", "out"})
    program.buffers.push_back({.name = name, .row_bytes = 256});
  for (int64_t i = 0; i < kOperators; ++i) {
    if (i % 3 == 0)
      program.ops.emplace_back(program::Norm{.residual = 0, .delta = 1, .out = 2, .width = 64});
    else if (i % 3 == 1)
      program.ops.emplace_back(program::Add{.x = 0, .y = 1, .width = 64});
    else
      program.ops.emplace_back(program::Scale{.x = 1, .width = 64, .factor = 2});
  }
  program.results_begin = static_cast<int32_t>(program.ops.size());
  auto executor = CpuExecutor::Create(std::move(program), ModelOptions(), {});
  CHECK(executor.has_value());
  ThreadPool pool(1);
  const StepInput input;
  for (auto _ : state) executor->RunBody({.pool = pool, .input = input});
  state.counters["operators"] = static_cast<double>(kOperators);
}
BENCHMARK(BM_Walk80Layers);

}  // namespace
}  // namespace sluice
