// Compares tokens drawn from rows of logits with those of the CPU's sampler for the same random
// numbers.
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
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams Params(double temperature, double top_p, int64_t top_k, double min_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = top_p;
  params.top_k = top_k;
  params.min_p = min_p;
  return params;
}

// Returns settings without cuts, with each kind of cut, and with several cuts.
std::vector<SamplingParams> AllParams(int64_t cols) {
  std::vector<SamplingParams> all = {Params(1, 1, 0, 0),       Params(0, 1, 0, 0),
                                     Params(0.6, 0.95, 20, 0), Params(1, 0.9, 0, 0),
                                     Params(1.5, 1, 50, 0),    Params(0.7, 1, 0, 0.05),
                                     Params(2, 0.5, 1100, 0),  Params(1, 0.9999999, 0, 0)};
  for (const double temperature : {0.3, 4.0}) {
    all.push_back(Params(temperature, 1, 0, 0));
    for (const double top_p : {0.9, 0.05, 0.999, 0.999999999})
      all.push_back(Params(temperature, top_p, 0, 0));
    for (const int64_t top_k : {int64_t{1}, int64_t{7}, cols / 2, cols, int64_t{1100}})
      all.push_back(Params(temperature, 1, top_k, 0));
    all.push_back(Params(temperature, 1, 0, 0.1));
    all.push_back(Params(temperature, 0.8, 20, 0.01));
  }
  return all;
}

// Returns rows with different distributions of logits.
std::vector<std::vector<float>> AllRows(TestNumbers& numbers, int64_t cols) {
  const auto normals = [&](float deviation) {
    std::vector<float> row = numbers.Normals(cols);
    for (float& logit : row) logit *= deviation;
    return row;
  };
  std::vector<std::vector<float>> rows;
  rows.push_back(normals(3));                 // distribution as in models
  rows.push_back(numbers.Integers(cols, 4));  // few distinct values
  rows.push_back(normals(1));                 // flat: many tokens per bucket
  rows.push_back(normals(12));                // steep: weights from 1 to 0
  rows.push_back(normals(0.02f));             // a single bucket, with equal logits
  for (float& logit : rows.back()) logit = checks::FromBf16Bits(ToBFloat16(logit).bits);
  rows.push_back(std::vector<float>(static_cast<size_t>(cols), 1.5f));
  rows.push_back(normals(3));
  for (int64_t i = 1; i < cols; i += 3) rows.back()[static_cast<size_t>(i)] = -kInfinity;
  // One logit is far larger than all others, and the others are equal.
  rows.push_back(std::vector<float>(static_cast<size_t>(cols), -50.0f));
  rows.back()[static_cast<size_t>(cols / 2)] = 0.0f;
  return rows;
}

// The rows of a step: settings and expected tokens.
struct Draws {
  int64_t cols = 0;
  std::vector<float> logits = {};
  std::vector<kernels::DrawSettings> settings = {};
  std::vector<int32_t> tokens = {};
  std::vector<kernels::DrawError> errors = {};

  void Add(const std::vector<float>& row, const SamplingParams& params, double uniform,
           int32_t token, kernels::DrawError error = kernels::DrawError::kNone) {
    logits.insert(logits.end(), row.begin(), row.end());
    settings.push_back(DrawSettingsOf(params, uniform));
    tokens.push_back(token);
    errors.push_back(error);
  }
};

void CheckDraw(CaseMemory& memory, Comparison& comparison, const Draws& draws) {
  const auto rows = static_cast<int64_t>(draws.tokens.size());
  int32_t* tokens = memory.Out<int32_t>(rows);
  auto* errors = memory.Out<kernels::DrawError>(rows);
  memory.Launch(&device::DeviceKernels::sample_rows, {memory.InOut(draws.logits), rows, draws.cols,
                                                      memory.In(draws.settings), tokens, errors});
  const auto got = memory.Read(tokens, rows);
  const auto got_errors = memory.Read(errors, rows);
  for (size_t i = 0; i < draws.tokens.size(); ++i) {
    comparison.AddEqual(got[i], draws.tokens[i]);
    comparison.AddEqual(static_cast<int64_t>(got_errors[i]), static_cast<int64_t>(draws.errors[i]));
  }
}

// `is_short`: whether to use only some of the rows with some of the settings.
Draws DrawsOfCpu(int64_t cols, bool is_short) {
  TestNumbers numbers(91);
  DrawScratch scratch(cols);
  Draws draws{.cols = cols};
  std::vector<SamplingParams> all = AllParams(cols);
  std::vector<std::vector<float>> rows = AllRows(numbers, cols);
  if (is_short) {
    all.resize(8);
    rows.resize(3);
  }
  for (const std::vector<float>& row : rows) {
    const int32_t best = kernels::ArgMax(row);
    for (size_t i = 0; i < all.size(); ++i) {
      // The ends of the interval, the middle of equal weights, 1 (which rounding could produce),
      // and random numbers.
      constexpr double kEnds[] = {0.0, 1 - 0x1p-53, 0.5, 1.0};
      const double any = static_cast<double>(numbers.Bits() >> 11) * 0x1p-53;
      const double uniform = i % 7 < 4 ? kEnds[i % 7] : any;
      const int32_t token = all[i].temperature == 0 ? best
                                                    : DrawToken(row, row[static_cast<size_t>(best)],
                                                                all[i], uniform, scratch);
      draws.Add(row, all[i], uniform, token);
    }
  }
  return draws;
}

// The expected token is the first of the largest logits; -0 equals 0.
Draws GreedyDraws() {
  Draws draws{.cols = 9000};
  std::vector<float> row(9000, -1.0f);
  draws.Add(row, Params(0, 1, 0, 0), 0, 0);
  row[8999] = row[4500] = 0.0f;
  row[3000] = -0.0f;
  draws.Add(row, Params(0, 1, 0, 0), 0, 3000);
  return draws;
}

Draws ImpossibleDraws() {
  using kernels::DrawError;
  const SamplingParams params = Params(1, 0.5, 0, 0);
  Draws draws{.cols = 3};
  draws.Add({0, kNan, 1}, params, 0.3, -1, DrawError::kNan);
  draws.Add({-kInfinity, -kInfinity, -kInfinity}, params, 0.3, -1, DrawError::kNoFiniteLogit);
  draws.Add({1, kInfinity, -kInfinity}, params, 0.3, -1, DrawError::kNoFiniteLogit);
  draws.Add({2, -kInfinity, -kInfinity}, params, 0.3, 0);
  return draws;
}

}  // namespace

void CheckDraws(CheckRun& run) {
  const auto add = [&](std::string shape, const Draws& draws, bool is_slow = false) {
    const auto check = [&](CaseMemory& memory, Comparison& comparison) {
      CheckDraw(memory, comparison, draws);
    };
    if (is_slow)
      run.SlowCase("sample_rows", std::move(shape), check);
    else
      run.Case("sample_rows", std::move(shape), check);
  };
  const auto add_width = [&](int64_t cols, bool is_short, bool is_slow) {
    const Draws draws = DrawsOfCpu(cols, is_short);
    add(fmt::format("{} x {}, temperature, top_k, top_p, min_p", draws.tokens.size(), cols), draws,
        is_slow);
  };
  for (const int64_t cols : {1, 100, 1003}) add_width(cols, true, false);
  if (run.with_all_shapes()) add_width(5, false, false);
  for (const int64_t cols : {300, 2100}) add_width(cols, false, true);
  if (run.with_large_shapes()) {
    for (const int64_t cols : {128256, 151936, 202048}) add_width(cols, true, false);
  }
  add("2 x 9000, the largest", GreedyDraws());
  add("4 x 3, NaN and infinities", ImpossibleDraws());
  CheckDrawExtras(run);
}

}  // namespace sluice::selftest
