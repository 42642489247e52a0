// Time of sampling one row of Llama 3's vocabulary on one thread.
#include <random>

#include <benchmark/benchmark.h>

#include "sampler/sampler.h"

namespace sluice {
namespace {

void Sample(benchmark::State& state, const SamplingParams& params) {
  constexpr int64_t kVocab = 128256;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  for (int i = 0; i < 20; ++i) logits[random() % kVocab] += 12;
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

}  // namespace
}  // namespace sluice
