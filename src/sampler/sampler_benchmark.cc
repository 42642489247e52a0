// Time to sample a row of Llama 3's vocabulary on one thread, and a step of 256 sequences on all
// cores, with logits that are not in the CPU's caches.
#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/block_maxima.h"
#include "sampler/sampler.h"

namespace sluice {
namespace {

constexpr int64_t kVocab = 128256;

std::vector<float> Logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  for (int i = 0; i < 20; ++i) logits[random() % kVocab] += 12;
  return logits;
}

void Sample(benchmark::State& state, const SamplingParams& params) {
  const std::vector<float> logits = Logits();
  ThreadPool pool(1);
  Sampler sampler(kVocab, 1);
  SequenceSampling sequence{&params, 7, {}, {}};
  const std::vector<int32_t> prompt(200, 5);
  SampleJob job{logits, &sequence, {prompt, 100}, -1, {}, {}};
  for (auto _ : state) {
    sampler.Sample(pool, {&job, 1});
    benchmark::DoNotOptimize(job.token);
    ++sequence.seed;
  }
}

void Step(benchmark::State& state, const SamplingParams& params, bool with_maxima) {
  constexpr size_t kRows = 256;
  ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()));
  Sampler sampler(kVocab, pool.num_threads());
  const std::vector<float> row = Logits();
  const std::vector<int32_t> prompt(200, 5);
  const auto blocks = kernels::NumMaxima(kVocab);
  std::vector<float> logits(kRows * row.size());
  std::vector<float> maxima(kRows * static_cast<size_t>(blocks));
  std::vector<SequenceSampling> sequences(kRows);
  std::vector<SampleJob> jobs(kRows);
  for (size_t i = 0; i < kRows; ++i) {
    const std::span<float> own = std::span(logits).subspan(i * row.size(), row.size());
    std::ranges::copy(row, own.begin());
    sequences[i].params = &params;
    sequences[i].seed = i;
    jobs[i] = {own, &sequences[i], {prompt, 100}, -1, {}, {}};
    if (with_maxima)
      jobs[i].maxima =
          std::span(maxima).subspan(i * static_cast<size_t>(blocks), static_cast<size_t>(blocks));
  }
  kernels::FindMaxima(pool, logits.data(), kVocab, kRows, kVocab, {maxima.data(), blocks});
  for (auto _ : state) sampler.Sample(pool, jobs);
}

SamplingParams Params(double temperature, double top_p, int64_t top_k, double min_p,
                      double repetition = 1) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = top_p;
  params.top_k = top_k;
  params.min_p = min_p;
  params.repetition_penalty = repetition;
  return params;
}

BENCHMARK_CAPTURE(Sample, greedy, Params(0, 1, 0, 0));
BENCHMARK_CAPTURE(Sample, temperature, Params(1, 1, 0, 0));
BENCHMARK_CAPTURE(Sample, top_p, Params(1, 0.95, 0, 0));
BENCHMARK_CAPTURE(Sample, top_k, Params(1, 1, 50, 0));
BENCHMARK_CAPTURE(Sample, min_p, Params(1, 1, 0, 0.05));
BENCHMARK_CAPTURE(Sample, all, Params(0.7, 0.95, 50, 0.05, 1.1));
BENCHMARK_CAPTURE(Step, greedy, Params(0, 1, 0, 0), false)->UseRealTime();
BENCHMARK_CAPTURE(Step, greedy_by_maxima, Params(0, 1, 0, 0), true)->UseRealTime();
BENCHMARK_CAPTURE(Step, temperature, Params(1, 1, 0, 0), false)->UseRealTime();
BENCHMARK_CAPTURE(Step, temperature_by_maxima, Params(1, 1, 0, 0), true)->UseRealTime();
BENCHMARK_CAPTURE(Step, top_p, Params(0.6, 0.9, 0, 0), false)->UseRealTime();
BENCHMARK_CAPTURE(Step, top_p_by_maxima, Params(0.6, 0.9, 0, 0), true)->UseRealTime();
BENCHMARK_CAPTURE(Step, top_k, Params(1, 1, 50, 0), false)->UseRealTime();
BENCHMARK_CAPTURE(Step, top_k_by_maxima, Params(1, 1, 50, 0), true)->UseRealTime();

}  // namespace
}  // namespace sluice
