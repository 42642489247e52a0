// Tokens drawn from rows of logits, which are those of the CPU's sampler for the same numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/sampling.h"
#include "sampler/draw.h"
#include "selftest/check_parts.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::CheckRun;
using checks::Comparison;
using checks::TestNumbers;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Cuts {
  double temperature, top_p;
  int64_t top_k;
  double min_p;
};
constexpr Cuts kCuts[] = {{1, 1, 0, 0},      {0, 1, 0, 0},        {0.6, 0.95, 20, 0},
                          {1, 0.9, 0, 0},    {1.5, 1, 50, 0},     {0.7, 1, 0, 0.05},
                          {2, 0.5, 1100, 0}, {1, 0.9999999, 0, 0}};

SamplingParams ParamsOf(const Cuts& cuts) {
  SamplingParams params;
  params.temperature = cuts.temperature;
  params.top_p = cuts.top_p;
  params.top_k = cuts.top_k;
  params.min_p = cuts.min_p;
  return params;
}

// Logits as models have them, few different ones, and all equal.
std::vector<float> RowOf(TestNumbers& numbers, int64_t cols, size_t kind) {
  if (kind == 1) return numbers.Integers(cols, 4);
  std::vector<float> row = numbers.Normals(cols);
  for (float& logit : row) logit *= kind == 0 ? 3.0f : 0.0f;
  return row;
}

Status CheckDraw(CheckRun& run, CaseMemory& memory, Comparison& comparison, int64_t cols) {
  TestNumbers numbers(91);
  DrawScratch scratch(cols);
  std::vector<float> logits;
  std::vector<device::DrawSettings> settings;
  std::vector<int32_t> expected;
  for (size_t kind = 0; kind < 3; ++kind) {
    const std::vector<float> row = RowOf(numbers, cols, kind);
    const int32_t best = kernels::ArgMax(row);
    for (const Cuts& cuts : kCuts) {
      const SamplingParams params = ParamsOf(cuts);
      const double uniform = static_cast<double>(numbers.Bits() >> 11) * 0x1p-53;
      const bool is_greedy = params.temperature == 0;
      settings.push_back(
          {.scale = is_greedy ? 0.0f : static_cast<float>(1 / params.temperature),
           .farthest = params.min_p > 0 ? static_cast<float>(-std::log(params.min_p)) : kInfinity,
           .top_k = static_cast<int32_t>(params.top_k),
           .top_p = params.top_p,
           .uniform = uniform});
      logits.insert(logits.end(), row.begin(), row.end());
      expected.push_back(
          is_greedy ? best
                    : DrawToken(row, row[static_cast<size_t>(best)], params, uniform, scratch));
    }
  }
  const auto rows = static_cast<int64_t>(expected.size());
  // The last two have nothing to draw.
  std::fill(logits.end() - 2 * cols, logits.end() - cols, -kInfinity);
  *(logits.end() - cols) = std::nanf("");
  const float* device_logits = memory.In(logits);
  const device::DrawSettings* device_settings = memory.In(settings);
  int32_t* tokens = memory.Out<int32_t>(rows);
  auto* errors = memory.Out<device::DrawError>(rows);
  if (!memory.ok()) return memory.status();
  run.device().kernels().sample_rows(run.device().handle(),
                                     {device_logits, rows, cols, device_settings, tokens, errors});
  const auto got = memory.Read(tokens, rows);
  const auto got_errors = memory.Read(errors, rows);
  if (!memory.ok()) return memory.status();
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto error = i + 1 == expected.size()   ? device::DrawError::kNan
                       : i + 2 == expected.size() ? device::DrawError::kNoFiniteLogit
                                                  : device::DrawError::kNone;
    comparison.AddEqual(got[i], error == device::DrawError::kNone ? expected[i] : -1);
    comparison.AddEqual(static_cast<int64_t>(got_errors[i]), static_cast<int64_t>(error));
  }
  return {};
}

}  // namespace

void CheckDraws(CheckRun& run) {
  std::vector<int64_t> widths = {1, 100, 1003};
  if (run.with_large_shapes()) widths.insert(widths.end(), {128256, 151936, 202048});
  for (const int64_t cols : widths) {
    run.Case("sample_rows",
             fmt::format("24 x {}, top_k, top_p, min_p, equals, NaN, infinities", cols),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckDraw(run, memory, comparison, cols);
             });
  }
}

}  // namespace sluice::selftest
