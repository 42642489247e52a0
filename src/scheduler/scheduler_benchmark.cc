// Time to plan a step of 256 decoding sequences, while others wait for a place.
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "scheduler/scheduler.h"

namespace sluice {
namespace {

constexpr int64_t kSequences = 256, kSteps = 2000;

// Each of `num_clients` clients has an equal part of the running and of the waiting sequences.
void Step(benchmark::State& state, SchedulingPolicy policy, int64_t num_clients,
          int64_t num_waiting) {
  SchedulerLimits limits;
  limits.block_size = 16;
  limits.max_num_batched_tokens = 2048;
  limits.max_num_seqs = kSequences;
  limits.max_prompt_logit_rows = 32;
  limits.chunked_prefill = true;
  limits.policy = policy;
  BlockPool pool(kSequences * MostBlocks(limits, kSteps + 16));
  Scheduler scheduler(limits, pool, nullptr);
  std::vector<std::unique_ptr<ScheduledSequence>> sequences;
  for (int64_t i = 0; i < kSequences + num_waiting; ++i) {
    auto sequence = std::make_unique<ScheduledSequence>();
    sequence->tokens = {1};
    sequence->num_prompt_tokens = 1;
    sequence->max_total_tokens = kSteps + 16;
    sequence->client = static_cast<uint64_t>(i % num_clients);
    scheduler.Add(*sequence);
    sequences.push_back(std::move(sequence));
  }
  const auto step = [&] {
    const StepPlan& plan = scheduler.Plan();
    scheduler.Commit();
    for (const PlannedSlice& slice : plan.slices) slice.sequence->tokens.push_back(1);
  };
  while (scheduler.num_running() < kSequences) step();
  for (auto _ : state) step();
}

void Policies(benchmark::State& state) {
  Step(state, static_cast<SchedulingPolicy>(state.range(0)), state.range(1), state.range(2));
}
// Arguments: policy (0: fcfs, 2: fair), number of clients, number of waiting sequences.
BENCHMARK(Policies)
    ->ArgsProduct({{0, 2}, {1, 256}, {0, 4096}})
    ->ArgNames({"policy", "clients", "waiting"})
    ->Iterations(kSteps)
    ->Repetitions(5)
    ->ReportAggregatesOnly()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice
