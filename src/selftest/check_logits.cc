// The most likely token, as kernels/sampling.h has it.
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/sampling.h"
#include "selftest/check_run.h"
#include "selftest/test_numbers.h"

namespace sluice::selftest {
namespace {

Status CheckArgMax(CheckRun& run, CaseMemory& memory, Comparison& comparison, int64_t rows,
                   int64_t cols) {
  TestNumbers numbers(81);
  // Few different values: the first of many equals must win.
  std::vector<float> logits = numbers.Integers(rows * cols, 20);
  const auto at = [&](int64_t row, int64_t col) -> float& {
    return logits[static_cast<size_t>(row * cols + col)];
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (rows > 1) at(1, cols - 1) = 100;
  if (rows > 2) at(2, cols / 2) = std::nanf("");
  for (int64_t col = 0; rows > 3 && col < cols; ++col) at(3, col) = -kInfinity;
  for (int64_t col = 0; rows > 4 && col < cols; ++col) at(4, col) = std::nanf("");
  const float* device_logits = memory.In(logits);
  int32_t* tokens = memory.Out<int32_t>(rows);
  int32_t* has_nan = memory.Out<int32_t>(rows);
  if (!memory.ok()) return memory.status();
  run.device().kernels().arg_max(run.device().handle(),
                                 {device_logits, rows, cols, tokens, has_nan});
  const auto got = memory.Read(tokens, rows), got_nan = memory.Read(has_nan, rows);
  if (!memory.ok()) return memory.status();
  for (int64_t row = 0; row < rows; ++row) {
    const std::span<const float> values(&at(row, 0), static_cast<size_t>(cols));
    comparison.AddEqual(got[static_cast<size_t>(row)], kernels::ArgMax(values));
    comparison.AddEqual(got_nan[static_cast<size_t>(row)], row == 2 || row == 4);
  }
  return {};
}

}  // namespace

void CheckLogits(CheckRun& run) {
  std::vector<int64_t> widths = {1, 100, 1024};
  if (run.with_large_shapes()) widths.insert(widths.end(), {128256, 151936, 202048});
  for (const int64_t cols : widths) {
    run.Case("arg_max", fmt::format("6 x {}, equals, NaN, infinities", cols),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckArgMax(run, memory, comparison, 6, cols);
             });
  }
}

}  // namespace sluice::selftest
