// Checks attention over the paged cache: decode, prefill and both in one step; groups of heads,
// cache types, chunks and windows, soft caps and sinks. Blocks are in random order, with NaN
// wherever kernels must not read.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/checks/attention_step.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct AttentionCase {
  const char* name;
  AttentionShape shape;
};

// The exact result of one query head and, for each element, the bound of the kernel's error.
struct ExactAttention {
  std::vector<double> values, errors;
};

ExactAttention Exact(const DeviceUnderTest& device, const AttentionStep& step, int64_t row,
                     int head) {
  const AttentionShape& shape = step.shape();
  const int dim = shape.heads.head_dim;
  const AttentionStep::RowPlace place = step.PlaceOf(row);
  const int kv_head = head / (shape.heads.num_heads / shape.heads.num_kv_heads);
  const int32_t first = shape.span.FirstSeen(place.position);
  const int32_t last = shape.LastSeen(place.slice, place.position);
  const int64_t num_seen = last - first + 1;
  const auto count = static_cast<size_t>(num_seen);
  std::vector<double> scores(count), score_errors(count);
  std::vector<double> query, numbers;
  step.Query(row, head, query);
  double largest = -1e300;
  for (size_t i = 0; i < count; ++i) {
    double sum = 0, size = 0;
    step.Key(place.slice, first + static_cast<int32_t>(i), kv_head, numbers);
    for (size_t d = 0; d < numbers.size(); ++d) {
      const double product = query[d] * numbers[d];
      sum += product;
      size += std::abs(product);
    }
    scores[i] = sum * step.score_scale();
    score_errors[i] = size * step.score_scale() * ProductError(device, dim, false);
    if (shape.soft_cap > 0) {
      // The error bound includes these roundings: the scaling; exp, two sums, the division, the
      // product.
      score_errors[i] += std::abs(scores[i]) * Gamma(4) + shape.soft_cap * Gamma(kMathUnits + 5);
      scores[i] = shape.soft_cap * std::tanh(scores[i] / shape.soft_cap);
    }
    largest = std::max(largest, scores[i]);
  }
  double weights = 0;
  for (double& score : scores) weights += std::exp(score - largest);
  double weight_error = 0;  // relative error of the least accurate weight
  if (shape.has_sinks) {
    const double sink = step.Sink(head);
    weights += std::exp(sink - largest);
    // Counts only if the sink's weight is not negligible. Includes these roundings: scaling the
    // sink, and the difference of both scores.
    if (sink > largest - 40) weight_error = (std::abs(sink) + std::abs(largest)) * Gamma(4);
  }
  ExactAttention exact;
  exact.values.resize(static_cast<size_t>(shape.value_dim()));
  std::vector<double> size(exact.values.size());
  for (size_t i = 0; i < count; ++i) {
    const double weight = std::exp(scores[i] - largest) / weights;
    // Errors of the score: its products, its scaling, and the difference to the largest score. The
    // errors of exp and of rounding to BF16 are added below.
    const double error = score_errors[i] + (std::abs(scores[i]) + std::abs(largest)) * Gamma(4);
    weight_error = std::max(weight_error, error);
    step.Value(place.slice, first + static_cast<int32_t>(i), kv_head, numbers);
    for (size_t d = 0; d < numbers.size(); ++d) {
      exact.values[d] += weight * numbers[d];
      size[d] += std::abs(weight * numbers[d]);
    }
  }
  weight_error += Gamma(kMathUnits) + kUnitBF16;
  // Errors of both sums, of combining them tile by tile, and of the division.
  const auto positions = static_cast<double>(count);
  const double sum_error = 2 * (ProductError(device, positions, false) + Gamma(positions / 8 + 8));
  for (size_t d = 0; d < exact.values.size(); ++d) {
    // A weight's relative error enters the numerator (bounded by size[d]) and, through the sum of
    // weights, the denominator (bounded by |value|). Errors common to all weights cancel.
    exact.errors.push_back(weight_error * (size[d] + std::abs(exact.values[d])) +
                           sum_error * size[d]);
  }
  return exact;
}

std::vector<uint16_t> Run(CaseMemory& memory, const AttentionShape& shape,
                          const device::AttentionArgs& args, int64_t rows) {
  memory.Launch(&DeviceKernels::attention, args);
  return memory.Read<uint16_t>(args.out, rows * shape.heads.num_heads * shape.value_dim());
}

// Checks that `bits` equal those of `whole` from `first_element` on.
void CompareRowBits(Comparison& comparison, const std::vector<uint16_t>& bits,
                    const std::vector<uint16_t>& whole, int64_t first_element) {
  for (size_t i = 0; i < bits.size(); ++i)
    comparison.AddEqual(bits[i], whole[static_cast<size_t>(first_element) + i]);
}

// Checks that the codes of all rows and heads of a step without wide items are those that
// convert_rows makes of its results, which are at args.out.
void CompareNarrow(CaseMemory& memory, Comparison& comparison, const AttentionShape& shape,
                   device::AttentionArgs args, int64_t rows) {
  constexpr float kScale = 0.0371f;
  const int64_t cols = shape.heads.num_heads * shape.value_dim();
  uint8_t* const expected = memory.Out<uint8_t>(rows * cols);
  memory.Launch(&DeviceKernels::convert_rows, {args.out,
                                               ElementType::kBF16,
                                               rows,
                                               cols,
                                               {.data = expected,
                                                .type = ElementType::kF8E4M3,
                                                .scales = memory.Out<float>(rows),
                                                .static_scale = kScale}});
  args.out = nullptr;
  args.narrow = memory.Out<uint8_t>(rows * cols);
  args.narrow_scales = memory.Out<float>(rows);
  args.narrow_scale = kScale;
  memory.Launch(&DeviceKernels::attention, args);
  comparison.SetSubject("codes of the last rows of all slices");
  const auto codes = memory.Read(args.narrow, rows * cols),
             others = memory.Read(expected, rows * cols);
  for (size_t i = 0; i < codes.size(); ++i) comparison.AddEqual(codes[i], others[i]);
  for (const float scale : memory.Read(args.narrow_scales, rows))
    comparison.AddF32(scale, kScale, 0);
}

// Checks a step of the last token of each slice, as in decoding: that rows have the bits of
// `whole`, the results of all tokens, and the codes of all rows.
void CheckSingleTokens(CaseMemory& memory, Comparison& comparison, const AttentionStep& step,
                       const device::AttentionArgs& args, const std::vector<uint16_t>& whole) {
  const AttentionShape& shape = step.shape();
  const int64_t row_elements = int64_t{shape.heads.num_heads} * shape.value_dim();
  std::vector<AttentionStep::Part> parts;
  for (size_t slice = 0; slice < shape.slices.size(); ++slice)
    parts.push_back({slice, shape.slices[slice].num_tokens - 1, 1});
  const auto rows = std::ssize(parts);
  const auto last_rows = step.UploadParts(memory, args, parts);
  const std::vector<uint16_t> got = Run(memory, shape, last_rows, rows);
  comparison.SetSubject("the last rows of all slices");
  int64_t end = 0;
  auto from = got.begin();
  for (const auto& slice : shape.slices) {
    end += slice.num_tokens;
    CompareRowBits(comparison, {from, from + row_elements}, whole, (end - 1) * row_elements);
    from += row_elements;
  }
  if (last_rows.num_wide_items == 0) CompareNarrow(memory, comparison, shape, last_rows, rows);
}

void CheckStep(CaseMemory& memory, Comparison& comparison, const AttentionShape& shape) {
  const AttentionStep step(shape);
  const device::AttentionArgs args = step.Upload(memory);
  const std::vector<uint16_t> got = Run(memory, shape, args, step.rows());
  // Compares all rows and heads of small steps. Of large steps, compares as many as fit in about a
  // second.
  constexpr double kMaxWork = 1e8;
  const double work = static_cast<double>(got.size()) * step.mean_context() * 2;
  const auto stride = static_cast<int64_t>(std::ceil(work / kMaxWork));
  const int64_t pairs = step.rows() * shape.heads.num_heads;
  double squares = 0, bounds = 0;
  for (int64_t pair = 0; pair < pairs; pair += std::max<int64_t>(stride | 1, 1)) {
    const int64_t row = pair / shape.heads.num_heads;
    const auto head = static_cast<int>(pair % shape.heads.num_heads);
    const ExactAttention exact = Exact(memory.device(), step, row, head);
    for (int d = 0; d < shape.value_dim(); ++d) {
      const auto at = static_cast<size_t>(d);
      const uint16_t bits = got[static_cast<size_t>(pair * shape.value_dim() + d)];
      comparison.AddBf16(bits, exact.values[at], exact.errors[at]);
      const double error = FromBf16Bits(bits) - exact.values[at];
      const double bound = exact.errors[at] + std::abs(exact.values[at]) * kUnitBF16;
      squares += error * error;
      bounds += bound * bound;
    }
  }
  // Most roundings have an error of less than half a unit, and the errors of a row's weights partly
  // cancel.
  if (step.rows() >= 80) {
    comparison.SetSubject("root mean square of the errors, as a share of their bounds");
    comparison.AddWithin(std::sqrt(squares / bounds), 0, std::sqrt(1.0 / 32));
  }
  // A row's bits depend only on its own position and cache, not on its slice or step.
  comparison.SetSubject("the last row of a slice alone");
  const int64_t row_elements = int64_t{shape.heads.num_heads} * shape.value_dim();
  int64_t end = 0;
  for (size_t slice = 0; slice < std::min<size_t>(shape.slices.size(), 4); ++slice) {
    const int32_t tokens = shape.slices[slice].num_tokens;
    end += tokens;
    const auto alone = step.UploadParts(memory, args, {{slice, tokens - 1, 1}});
    CompareRowBits(comparison, Run(memory, shape, alone, 1), got, (end - 1) * row_elements);
  }
  CheckSingleTokens(memory, comparison, step, args, got);
  comparison.SetSubject("results that were not written");
  for (const uint16_t bits : got) {
    if (bits == 0xFFFF) comparison.AddEqual(bits, 0);
  }
}

void CheckCounts(CaseMemory& memory, Comparison& comparison, const AttentionShape& shape) {
  const AttentionStep step(shape, AttentionNumbers::kCounting);
  const std::vector<uint16_t> got = Run(memory, shape, step.Upload(memory), step.rows());
  const int dim = shape.heads.head_dim;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / (int64_t{shape.heads.num_heads} * dim);
    const auto d = static_cast<int32_t>(i % static_cast<size_t>(dim));
    const AttentionStep::RowPlace place = step.PlaceOf(row);
    const int32_t first = shape.span.FirstSeen(place.position);
    const int32_t last = shape.LastSeen(place.slice, place.position);
    const auto below = [&](int32_t position) { return (position + dim - 1 - d) / dim; };
    const double expected =
        static_cast<double>(below(last + 1) - below(first)) / (last + 1 - first);
    // The sums are exact. Their quotient is not exact, because it is computed with a reciprocal.
    comparison.AddBf16(got[i], expected, expected * Gamma(3));
  }
}

// Checks that a row's result is always bit-identical: decoded, or in a prefill chunk of any size;
// alone or among other rows; with or without a split of its positions.
void CheckParts(CaseMemory& memory, Comparison& comparison, AttentionShape shape) {
  shape.slices = {{70, 1000}, {200, 0}};
  const AttentionStep step(shape);
  const device::AttentionArgs args = step.Upload(memory);
  const std::vector<uint16_t> whole = Run(memory, shape, args, step.rows());
  const int64_t row_elements = int64_t{shape.heads.num_heads} * shape.value_dim();
  const auto compare = [&](const std::vector<AttentionStep::Part>& parts, int64_t max_partials) {
    int64_t rows = 0;
    for (const AttentionStep::Part& part : parts) rows += part.count;
    const auto some = step.UploadParts(memory, args, parts, {.max_partial_tokens = max_partials});
    const std::vector<uint16_t> got = Run(memory, shape, some, rows);
    auto from = got.begin();
    for (const AttentionStep::Part& part : parts) {
      comparison.SetSubject(fmt::format("tokens {} to {} of slice {}, of {} rows", part.first,
                                        part.first + part.count - 1, part.slice, rows));
      const auto end = from + part.count * row_elements;
      const int64_t first_row = (part.slice == 0 ? 0 : 70) + part.first;
      CompareRowBits(comparison, {from, end}, whole, first_row * row_elements);
      from = end;
    }
  };
  for (const auto& [first, count] : std::vector<std::pair<int32_t, int32_t>>{{0, 1},
                                                                             {23, 1},
                                                                             {24, 1},
                                                                             {25, 1},
                                                                             {69, 1},
                                                                             {22, 3},
                                                                             {1, 6},
                                                                             {10, 15},
                                                                             {20, 33},
                                                                             {37, 33}}) {
    compare({{0, first, count}}, 2048);
    compare({{0, first, count}}, 0);
  }
  compare({{1, 0, 100}, {0, 24, 1}, {1, 199, 1}, {0, 3, 30}}, 2048);
  for (const int32_t token : {0, 33, 66, 99}) compare({{1, token, 1}}, 2048);
}

// Checks that a NaN value affects only its own column, only in rows that see it, and no other
// sequence.
void CheckNanValue(CaseMemory& memory, Comparison& comparison, ElementType type) {
  const AttentionShape shape{.heads = {2, 1, 64}, .type = type, .slices = {{1, 99}, {1, 99}}};
  AttentionStep step(shape);
  const std::vector<uint16_t> clean = Run(memory, shape, step.Upload(memory), 2);
  step.SetNanValue(0, 50, 0, 7);
  const std::vector<uint16_t> broken = Run(memory, shape, step.Upload(memory), 2);
  for (size_t i = 0; i < clean.size(); ++i) {
    if (i < 128 && i % 64 == 7)
      comparison.AddEqual(std::isnan(FromBf16Bits(broken[i])), 1);
    else
      comparison.AddEqual(broken[i], clean[i]);
  }
}

// Queries far beyond the range of F16. Products with an E4M3 cache are computed in F16.
void CheckQuerySizes(CaseMemory& memory, Comparison& comparison, AttentionShape shape) {
  shape.slices = {{1, 99}, {50, 20}};
  const AttentionStep step(shape);
  const device::AttentionArgs args = step.Upload(memory);
  const std::vector<uint16_t> expected = Run(memory, shape, args, step.rows());
  for (const float factor : {0x1p60f, 0x1p-60f}) {
    comparison.SetSubject(fmt::format("times {}", factor));
    const auto scaled =
        step.UploadParts(memory, args, {{0, 0, 1}, {1, 0, 50}}, {.query_factor = factor});
    CompareRowBits(comparison, Run(memory, shape, scaled, step.rows()), expected, 0);
  }
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
      {"texts",
       {.heads = {2, 2, 64},
        .slices = {{70, 0}, {1, 0}, {20, 0}},
        .ahead = device::kSeesAllBehind}},
      {"texts in windows",
       {.heads = {2, 2, 32}, .span = {.window = 7}, .slices = {{90, 0}, {5, 0}}, .ahead = 6}},
      {"images",
       {.heads = {4, 2, 64}, .slices = {{70, 9}, {1, 30}}, .spans = {{12, 40}, {41, 75}}}},
      {"images in windows",
       {.heads = {4, 1, 32},
        .span = {.window = 7},
        .slices = {{90, 20}, {5, 0}},
        .spans = {{22, 50}, {60, 110}}}},
      {"heads of 512", {.heads = {4, 2, 512}, .slices = {{20, 3}, {1, 600}}}},
      {"heads of 512, fp8 cache",
       {.heads = {2, 1, 512}, .type = ElementType::kF8E4M3, .slices = {{18, 40}, {1, 5}}}},
      {"soft cap", {.heads = {4, 2, 64}, .slices = {{37, 0}, {1, 1200}}, .soft_cap = 2}},
      {"soft cap, fp8 cache",
       {.heads = {4, 2, 256},
        .type = ElementType::kF8E4M3,
        .span = {.window = 24},
        .slices = {{9, 50}, {1, 99}},
        .soft_cap = 2}},
      {"soft cap, heads of 128",
       {.heads = {4, 1, 128}, .slices = {{70, 0}, {1, 600}}, .soft_cap = 2}},
      {"sinks", {.heads = {4, 2, 64}, .slices = {{70, 0}, {1, 1200}}, .has_sinks = true}},
      {"sinks, fp8 cache",
       {.heads = {8, 1, 128},
        .type = ElementType::kF8E4M3,
        .span = {.window = 600},
        .slices = {{20, 30}, {1, 40}, {1, 1200}},
        .has_sinks = true}},
      {"spare rows in blocks",
       {.heads = {4, 2, 32}, .slices = {{20, 30}, {1, 9}, {1, 100}}, .spare_rows = 7}},
      {"latent", {.heads = {4, 1, 80}, .slices = {{20, 30}, {1, 70}}, .latent_dim = 64}},
      {"latent, fp8 cache",
       {.heads = {20, 1, 104},
        .type = ElementType::kF8E4M3,
        .slices = {{3, 40}, {1, 5}},
        .latent_dim = 86}},
      {"latent, many heads", {.heads = {40, 1, 576}, .slices = {{1, 600}}, .latent_dim = 512}},
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
    cases.push_back(
        {"Gemma 2 9B", {.heads = {16, 8, 256}, .slices = {{64, 100}, {1, 3000}}, .soft_cap = 50}});
    cases.push_back(
        {"gpt-oss", {.heads = {64, 8, 64}, .slices = {{64, 100}, {1, 3000}}, .has_sinks = true}});
    cases.push_back({"Gemma 4 31B", {.heads = {32, 4, 512}, .slices = {{64, 100}, {1, 3000}}}});
    cases.push_back(
        {"DeepSeek V3",
         {.heads = {128, 1, 576}, .slices = {{64, 100}, {1, 3000}}, .latent_dim = 512}});
    cases.push_back({"Qwen3 30B", {.heads = {32, 4, 128}, .slices = {{64, 100}, {1, 3000}}}});
    cases.push_back({"BGE-large texts",
                     {.heads = {16, 16, 64},
                      .slices = {{512, 0}, {300, 0}, {33, 0}},
                      .ahead = device::kSeesAllBehind}});
    cases.push_back({"ModernBERT window",
                     {.heads = {12, 12, 64},
                      .span = {.window = 65},
                      .slices = {{8192, 0}, {100, 0}},
                      .ahead = 64}});
  }
  return cases;
}

AttentionShape Shape(AttentionHeads heads, int block_size, ElementType type,
                     const AttentionSpan& span = {}) {
  return {.heads = heads, .type = type, .span = span, .slices = {}, .block_size = block_size};
}

// Shapes: head sizes with and without separate kernels; groups that fill a tile, groups that do
// not, and groups with more heads than a tile has rows; odd block sizes.
const AttentionShape kMixedShapes[] = {
    Shape({8, 1, 128}, 16, ElementType::kBF16),
    Shape({5, 1, 128}, 16, ElementType::kF8E4M3),
    Shape({10, 2, 128}, 24, ElementType::kF8E4M3, {.chunk = 100}),
    Shape({6, 2, 128}, 32, ElementType::kBF16, {.window = 70}),
    Shape({4, 2, 64}, 16, ElementType::kBF16, {.chunk = 64}),
    Shape({8, 2, 64}, 32, ElementType::kF8E4M3, {.window = 600}),
    Shape({12, 1, 64}, 1, ElementType::kF8E4M3),
    Shape({3, 3, 64}, 7, ElementType::kBF16),
    Shape({20, 1, 64}, 16, ElementType::kBF16),
    Shape({2, 2, 32}, 16, ElementType::kBF16),
    Shape({4, 2, 32}, 1, ElementType::kF8E4M3, {.window = 1}),
    Shape({3, 3, 48}, 7, ElementType::kBF16, {.chunk = 130, .window = 40}),
    Shape({5, 1, 96}, 24, ElementType::kF8E4M3),
    Shape({16, 1, 256}, 16, ElementType::kBF16),
    Shape({2, 1, 256}, 16, ElementType::kF8E4M3),
    Shape({5, 1, 40}, 4, ElementType::kBF16),
    Shape({4, 2, 40}, 16, ElementType::kF8E4M3),
    Shape({4, 2, 16}, 16, ElementType::kBF16),
    Shape({3, 1, 24}, 5, ElementType::kF8E4M3),
    Shape({4, 1, 512}, 16, ElementType::kBF16, {.window = 520}),
    Shape({8, 1, 512}, 16, ElementType::kF8E4M3),
    {.heads = {8, 1, 128}, .type = ElementType::kF8E4M3, .soft_cap = 2},
};
// Bidirectional attention over more positions than a range has (kAttentionSplit).
const AttentionShape kTextShapes[] = {
    {.heads = {2, 2, 64},
     .slices = {{600, 0}, {33, 0}, {64, 0}, {16, 0}},
     .ahead = device::kSeesAllBehind},
    {.heads = {3, 3, 32}, .span = {.window = 65}, .slices = {{560, 0}, {130, 0}}, .ahead = 64},
    {.heads = {2, 2, 48},
     .type = ElementType::kF8E4M3,
     .slices = {{530, 0}, {40, 0}},
     .block_size = 7,
     .ahead = device::kSeesAllBehind},
    {.heads = {1, 1, 128},
     .span = {.window = 401},
     .slices = {{1100, 0}},
     .block_size = 32,
     .ahead = 400},
    {.heads = {4, 2, 256},
     .span = {.window = 512},
     .slices = {{700, 200}, {33, 0}},
     .spans = {{210, 466}, {470, 890}}},
};
const AttentionShape kCutShapes[] = {
    Shape({8, 1, 128}, 16, ElementType::kBF16),
    Shape({5, 1, 128}, 16, ElementType::kF8E4M3),
    Shape({4, 1, 64}, 16, ElementType::kF8E4M3, {.window = 300}),
    Shape({2, 1, 64}, 16, ElementType::kBF16, {.chunk = 520}),
    Shape({6, 2, 32}, 16, ElementType::kBF16),
    Shape({3, 1, 96}, 16, ElementType::kF8E4M3, {.window = 513}),
    Shape({2, 1, 512}, 16, ElementType::kBF16),
    {.heads = {20, 1, 40}, .latent_dim = 32},
    {.heads = {3, 1, 296}, .type = ElementType::kF8E4M3, .latent_dim = 256},
    {.heads = {4, 2, 64}, .has_sinks = true},
    {.heads = {4, 1, 40},
     .type = ElementType::kF8E4M3,
     .span = {.window = 300},
     .soft_cap = 2,
     .has_sinks = true},
};

std::string ShapeText(const AttentionCase& c) {
  int64_t rows = 0;
  int32_t context = 0;
  for (const auto& slice : c.shape.slices) {
    rows += slice.num_tokens;
    context = std::max(context, slice.context + slice.num_tokens);
  }
  const AttentionShape& shape = c.shape;
  std::string text =
      fmt::format("{}: {} rows, {} slices to {}, {}/{} x {}{}", c.name, rows, shape.slices.size(),
                  context, shape.heads.num_heads, shape.heads.num_kv_heads, shape.heads.head_dim,
                  shape.type == ElementType::kF8E4M3 ? " fp8" : "");
  if (shape.block_size != 16) text += fmt::format(", blocks of {}", shape.block_size);
  if (shape.span.chunk > 0) text += fmt::format(", chunk {}", shape.span.chunk);
  if (shape.span.window > 0) text += fmt::format(", window {}", shape.span.window);
  if (shape.soft_cap > 0) text += fmt::format(", capped at {}", shape.soft_cap);
  if (shape.has_sinks) text += ", sinks";
  if (shape.latent_dim > 0) text += fmt::format(", latent of {}", shape.latent_dim);
  if (!shape.spans.empty()) text += fmt::format(", {} images", shape.spans.size());
  if (shape.ahead == device::kSeesAllBehind)
    text += ", all behind";
  else if (shape.ahead > 0)
    text += fmt::format(", {} behind", shape.ahead);
  return text;
}

}  // namespace

void CheckAttention(CheckRun& run) {
  for (const AttentionCase& attention_case : Cases(run)) {
    run.Case("attention", ShapeText(attention_case),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckStep(memory, comparison, attention_case.shape);
             });
  }
  for (const AttentionShape& shape : kMixedShapes) {
    AttentionCase mixed{"mixed", shape};
    mixed.shape.slices = {{1, 1099}, {40, 490}, {40, 0}, {1, 0}, {3, 510}, {1, 63}, {1, 64}};
    const auto check = [&](CaseMemory& memory, Comparison& comparison) {
      CheckStep(memory, comparison, mixed.shape);
    };
    if (!run.with_all_shapes()) break;
    if ((&shape - kMixedShapes) % 4 == 0)
      run.Case("attention", ShapeText(mixed), check);
    else
      run.SlowCase("attention", ShapeText(mixed), check);
    run.SlowCase("attention counts", ShapeText(mixed),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckCounts(memory, comparison, mixed.shape);
                 });
  }
  for (const AttentionShape& shape : kTextShapes) {
    const AttentionCase texts{"texts", shape};
    run.SlowCase("attention", ShapeText(texts), [&](CaseMemory& memory, Comparison& comparison) {
      CheckStep(memory, comparison, shape);
    });
    run.SlowCase("attention counts", ShapeText(texts),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckCounts(memory, comparison, shape);
                 });
  }
  for (const AttentionShape& shape : kCutShapes) {
    run.SlowCase(
        "attention in parts", ShapeText({"70 and 200 rows", shape}),
        [&](CaseMemory& memory, Comparison& comparison) { CheckParts(memory, comparison, shape); });
  }
  for (const ElementType type : {ElementType::kBF16, ElementType::kF8E4M3}) {
    run.Case("attention with a NaN",
             type == ElementType::kF8E4M3 ? "2 slices, fp8" : "2 slices, bf16",
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckNanValue(memory, comparison, type);
             });
  }
  for (const AttentionShape& shape :
       {Shape({8, 1, 128}, 16, ElementType::kF8E4M3), Shape({3, 3, 64}, 7, ElementType::kF8E4M3),
        Shape({5, 1, 40}, 4, ElementType::kF8E4M3)}) {
    run.Case("attention of large queries", ShapeText({"times 2^60 and 2^-60", shape}),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckQuerySizes(memory, comparison, shape);
             });
  }
}

}  // namespace sluice::checks
