// Attention over the paged cache: decode, prefill and both in one step; groups of heads, kinds of
// cache, chunks and windows; blocks in no order, with NaN wherever nothing may be read.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "kernels/cuda/checks/attention_step.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

struct AttentionCase {
  const char* name;
  AttentionShape shape;
};

// The exact result of one query head and how far the kernel's may be from it, for each element.
struct ExactAttention {
  std::vector<double> values, errors;
};

ExactAttention Exact(const DeviceUnderTest& device, const AttentionStep& step, int64_t row,
                     int head) {
  const AttentionShape& shape = step.shape();
  const int dim = shape.heads.head_dim;
  const AttentionStep::RowPlace place = step.PlaceOf(row);
  const int kv_head = head / (shape.heads.num_heads / shape.heads.num_kv_heads);
  const int32_t first = shape.span.FirstSeen(place.position), last = place.position;
  const int64_t num_seen = last - first + 1;
  const auto count = static_cast<size_t>(num_seen);
  std::vector<double> scores(count), score_errors(count);
  double largest = -1e300;
  for (size_t i = 0; i < count; ++i) {
    double sum = 0, size = 0;
    for (int d = 0; d < dim; ++d) {
      const double product =
          step.Q(row, head, d) * step.Key(place.slice, first + static_cast<int32_t>(i), kv_head, d);
      sum += product;
      size += std::abs(product);
    }
    scores[i] = sum * step.score_scale();
    score_errors[i] = size * step.score_scale() * ProductError(device, dim, false);
    largest = std::max(largest, scores[i]);
  }
  double weights = 0;
  for (double& score : scores) weights += std::exp(score - largest);
  ExactAttention exact;
  exact.values.resize(static_cast<size_t>(dim));
  std::vector<double> size(static_cast<size_t>(dim));
  double weight_error = 0;  // relative, of the worst weight
  for (size_t i = 0; i < count; ++i) {
    const double weight = std::exp(scores[i] - largest) / weights;
    // The score's products, its scaling and the difference to the largest; exp; rounding to BF16.
    const double error = score_errors[i] + (std::abs(scores[i]) + std::abs(largest)) * Gamma(4);
    weight_error = std::max(weight_error, error);
    for (int d = 0; d < dim; ++d) {
      const double value = step.Value(place.slice, first + static_cast<int32_t>(i), kv_head, d);
      exact.values[static_cast<size_t>(d)] += weight * value;
      size[static_cast<size_t>(d)] += std::abs(weight * value);
    }
  }
  weight_error += Gamma(kMathUnits) + kUnitBF16;
  // Both sums, folding them tile by tile, and the division.
  const auto positions = static_cast<double>(count);
  const double sum_error = 2 * (ProductError(device, positions, false) + Gamma(positions / 8 + 8));
  for (size_t d = 0; d < exact.values.size(); ++d) {
    // Weights stand in the sum and, added up, below it: what they share cancels.
    exact.errors.push_back(weight_error * (size[d] + std::abs(exact.values[d])) +
                           sum_error * size[d]);
  }
  return exact;
}

Status CheckStep(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                 const AttentionShape& shape) {
  AttentionStep step(shape);
  const device::AttentionArgs args = step.Upload(memory);
  if (!memory.ok()) return memory.status();
  run.device().kernels().attention(run.device().handle(), args);
  const int64_t count = step.rows() * shape.heads.num_heads * shape.heads.head_dim;
  const auto got = memory.Read<uint16_t>(args.out, count);
  if (!memory.ok()) return memory.status();
  // All rows and heads of small steps; of large ones as many as a second allows.
  constexpr double kMaxWork = 1e8;
  const double work = static_cast<double>(count) * step.mean_context() * 2;
  const auto stride = static_cast<int64_t>(std::ceil(work / kMaxWork));
  const int64_t pairs = step.rows() * shape.heads.num_heads;
  for (int64_t pair = 0; pair < pairs; pair += std::max<int64_t>(stride | 1, 1)) {
    const int64_t row = pair / shape.heads.num_heads;
    const auto head = static_cast<int>(pair % shape.heads.num_heads);
    const ExactAttention exact = Exact(run.device(), step, row, head);
    for (int d = 0; d < shape.heads.head_dim; ++d) {
      const auto at = static_cast<size_t>(d);
      comparison.AddBf16(got[static_cast<size_t>(pair * shape.heads.head_dim + d)],
                         exact.values[at], exact.errors[at]);
    }
  }
  // A row's bits depend on its own position and cache alone: not on its slice, not on the step.
  const int64_t row_elements = int64_t{shape.heads.num_heads} * shape.heads.head_dim;
  int64_t end = 0;
  for (size_t slice = 0; slice < std::min<size_t>(shape.slices.size(), 4); ++slice) {
    end += shape.slices[slice].num_tokens;
    const device::AttentionArgs alone = step.UploadLastToken(memory, args, slice);
    if (!memory.ok()) return memory.status();
    run.device().kernels().attention(run.device().handle(), alone);
    const auto bits = memory.Read<uint16_t>(alone.out, row_elements);
    if (!memory.ok()) return memory.status();
    for (int64_t i = 0; i < row_elements; ++i) {
      comparison.AddEqual(bits[static_cast<size_t>(i)],
                          got[static_cast<size_t>((end - 1) * row_elements + i)]);
    }
  }
  // Nothing was written that is no row's result.
  for (const uint16_t bits : got) {
    if (bits == 0xFFFF) comparison.AddEqual(bits, 0);
  }
  return {};
}

std::vector<AttentionCase> Cases(const CheckRun& run) {
  std::vector<AttentionCase> cases = {
      {"decode", {.heads = {8, 2, 64}, .slices = {{1, 0}, {1, 17}, {1, 70}}}},
      {"decode, fp8 cache",
       {.heads = {8, 1, 128}, .type = ElementType::kF8E4M3, .slices = {{1, 40}, {1, 5}}}},
      {"prefill", {.heads = {4, 2, 64}, .slices = {{37, 0}}}},
      {"both, fp8 cache",
       {.heads = {4, 1, 64}, .type = ElementType::kF8E4M3, .slices = {{20, 30}, {1, 9}, {1, 100}}}},
      {"one head a group", {.heads = {2, 2, 128}, .slices = {{3, 20}, {1, 1}}}},
      {"chunks of 32", {.heads = {5, 1, 64}, .span = {.chunk = 32}, .slices = {{6, 60}, {1, 95}}}},
      {"window of 24", {.heads = {4, 2, 64}, .span = {.window = 24}, .slices = {{9, 50}, {1, 99}}}},
      {"long, split", {.heads = {4, 1, 64}, .slices = {{1, 1200}}}},
  };
  if (run.with_large_shapes()) {
    const AttentionHeads llama70 = {64, 8, 128};
    for (const ElementType type : {ElementType::kBF16, ElementType::kF8E4M3}) {
      cases.push_back({"70B decode", {.heads = llama70, .type = type, .slices = {}}});
      for (int i = 0; i < 64; ++i) cases.back().shape.slices.push_back({1, 1000 + 17 * i});
      cases.push_back({"70B prefill", {.heads = llama70, .type = type, .slices = {{2048, 2048}}}});
      cases.push_back({"70B one long", {.heads = llama70, .type = type, .slices = {{1, 60000}}}});
      cases.push_back({"8B mixed",
                       {.heads = {32, 8, 128},
                        .type = type,
                        .slices = {{512, 0}, {300, 1000}, {1, 4000}, {1, 31}, {1, 32}, {5, 7}}}});
    }
    cases.push_back(
        {"Scout chunk",
         {.heads = {40, 8, 128}, .span = {.chunk = 8192}, .slices = {{700, 8000}, {1, 20000}}}});
    cases.push_back({"Qwen3 30B", {.heads = {32, 4, 128}, .slices = {{64, 100}, {1, 3000}}}});
  }
  return cases;
}

std::string ShapeText(const AttentionCase& c) {
  int64_t rows = 0;
  int32_t context = 0;
  for (const auto& slice : c.shape.slices) {
    rows += slice.num_tokens;
    context = std::max(context, slice.context + slice.num_tokens);
  }
  return fmt::format("{}: {} rows, {} slices to {}, {}/{} x {}{}", c.name, rows,
                     c.shape.slices.size(), context, c.shape.heads.num_heads,
                     c.shape.heads.num_kv_heads, c.shape.heads.head_dim,
                     c.shape.type == ElementType::kF8E4M3 ? " fp8" : "");
}

}  // namespace

void CheckAttention(CheckRun& run) {
  for (const AttentionCase& attention_case : Cases(run)) {
    run.Case("attention", ShapeText(attention_case),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckStep(run, memory, comparison, attention_case.shape);
             });
  }
}

}  // namespace sluice::checks
