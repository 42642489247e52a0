#include "kernels/cuda/checks/check_indexer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "kernels/cuda/checks/tail_numbers.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct IndexShape {
  int64_t rows;
  int heads, dim;
  TailShape rope;
  ElementType type = ElementType::kBF16;
};

void CheckIndexAppend(CaseMemory& memory, Comparison& comparison, const IndexShape& shape) {
  constexpr float kEps = 1e-6f, kScale = 0.125f;
  TestNumbers numbers(44);
  const int dim = shape.dim;
  const int64_t width = int64_t{shape.heads} * dim;
  const std::vector<float> q = numbers.Normals(shape.rows * width);
  const std::vector<float> k = numbers.Normals(shape.rows * dim);
  const std::vector<float> norm = numbers.Normals(dim), bias = numbers.Normals(dim);
  const std::vector<float> cos_sin = TailCosSin(shape.rope, shape.rows);
  const bool is_f8 = shape.type == ElementType::kF8E4M3;
  // The last row must not be written to the cache.
  std::vector<int64_t> slots;
  for (int64_t row = 0; row < shape.rows; ++row) slots.push_back(3 * row + 1);
  slots.back() = -1;
  const int64_t key_bytes = int64_t{dim} * (is_f8 ? 1 : 2);
  const int64_t cache_bytes = 3 * shape.rows * key_bytes;
  auto* const keys = memory.Out<uint8_t>(cache_bytes);
  auto* const q_out = memory.Out<uint16_t>(shape.rows * width);
  device::IndexAppendArgs args{};
  args.q = memory.In(q);
  args.k = memory.In(k);
  args.rows = shape.rows;
  args.heads = shape.heads;
  args.dim = dim;
  args.k_norm = memory.In(norm);
  args.k_bias = memory.In(bias);
  args.eps = kEps;
  args.rope = {.dim = shape.rope.dim,
               .cos_sin = cos_sin.empty() ? nullptr : memory.In(cos_sin),
               .interleaved = shape.rope.interleaved};
  args.slots = memory.In(slots);
  args.keys = keys;
  args.type = shape.type;
  args.k_scale = is_f8 ? kScale : 1;
  args.q_out = q_out;
  memory.Launch(&DeviceKernels::index_append, args);
  const std::vector<uint16_t> queries = memory.Read<uint16_t>(q_out, shape.rows * width);
  const std::vector<uint8_t> cache = memory.Read<uint8_t>(keys, cache_bytes);
  std::vector<bool> is_written(static_cast<size_t>(3 * shape.rows));
  for (int64_t row = 0; row < shape.rows; ++row) {
    comparison.SetSubject("queries");
    for (int64_t head = 0; head < shape.heads; ++head) {
      const float* const from = q.data() + row * width + head * dim;
      for (int i = 0; i < dim; ++i) {
        RotatedNumber number = {from[i], 0};
        if (i < shape.rope.dim) number = RotateTail(shape.rope, cos_sin, row, from, i);
        comparison.AddBf16(queries[static_cast<size_t>(row * width + head * dim + i)], number.value,
                           number.error);
      }
    }
    const int64_t slot = slots[static_cast<size_t>(row)];
    if (slot < 0) continue;
    is_written[static_cast<size_t>(slot)] = true;
    comparison.SetSubject("keys");
    const float* const from = k.data() + row * dim;
    double mean = 0, size = 0, variance = 0;
    for (int i = 0; i < dim; ++i) {
      mean += from[i] / double{static_cast<double>(dim)};
      size += std::abs(from[i]) / static_cast<double>(dim);
    }
    for (int i = 0; i < dim; ++i) variance += (from[i] - mean) * (from[i] - mean) / dim;
    const double factor = 1 / std::sqrt(variance + kEps);
    // The error bound includes the roundings of a sum in a block: of a thread's own elements, of
    // ten levels, and of the division.
    const double roundings = dim / 128.0 + 12;
    const double mean_error = size * Gamma(roundings);
    // An error of the mean shifts all differences equally, which adds the square of that error to
    // the variance.
    const double variance_error = Gamma(roundings + 2) + mean_error * mean_error / variance;
    std::vector<float> normed;
    std::vector<double> errors;
    for (int i = 0; i < dim; ++i) {
      const double weight = norm[static_cast<size_t>(i)];
      const double value = (from[i] - mean) * factor * weight;
      const double sum = value + bias[static_cast<size_t>(i)];
      normed.push_back(static_cast<float>(sum));
      errors.push_back(mean_error * factor * std::abs(weight) +
                       std::abs(value) * (variance_error / 2 + Gamma(6)) +
                       std::abs(sum) * Gamma(2));
    }
    for (int i = 0; i < dim; ++i) {
      const auto at = static_cast<size_t>(i);
      RotatedNumber number = {normed[at], errors[at]};
      if (i < shape.rope.dim) {
        number = RotateTail(shape.rope, cos_sin, row, normed.data(), i);
        // The error of both elements of the pair, for the largest possible cosine and sine.
        const double worst = *std::ranges::max_element(errors);
        number.error += 8 * worst;
      }
      const auto byte = static_cast<size_t>(slot * key_bytes);
      if (is_f8) {
        comparison.AddE4m3(cache[byte + at], number.value / kScale, number.error / kScale);
      } else {
        comparison.AddBf16(
            static_cast<uint16_t>(cache[byte + 2 * at] | cache[byte + 2 * at + 1] << 8),
            number.value, number.error);
      }
    }
  }
  comparison.SetSubject("other keys of the cache");
  for (size_t slot = 0; slot < is_written.size(); ++slot) {
    for (size_t i = 0; !is_written[slot] && i < static_cast<size_t>(key_bytes); ++i)
      comparison.AddEqual(cache[slot * static_cast<size_t>(key_bytes) + i], 0xFF);
  }
}

struct SelectShape {
  struct Slice {
    int32_t num_tokens, context;
  };
  std::vector<Slice> slices;
  int heads, dim, top_k;
  ElementType type = ElementType::kBF16;
  int64_t max_context = 0;  // 0: the end of the longest slice
  int padding = 0;          // number of rows after the last one, at the same position
  bool has_nan = false;     // one key of each sequence is NaN
};

// The keys of a sequence, as stored, and its blocks.
struct IndexedSequence {
  std::vector<float> keys;
  std::vector<int32_t> table;
};

class SelectStep {
 public:
  explicit SelectStep(const SelectShape& shape) : shape_(shape) {
    TestNumbers numbers(45);
    for (const SelectShape::Slice& slice : shape.slices) {
      const int32_t end = slice.context + slice.num_tokens;
      IndexedSequence& sequence = sequences_.emplace_back();
      sequence.keys = numbers.Integers(int64_t{end} * shape.dim, 3);
      // Some keys are equal, so that some scores are equal.
      for (int32_t position = 3; position < end; position += 3)
        std::copy_n(sequence.keys.begin() + ptrdiff_t{position - 2} * shape.dim, shape.dim,
                    sequence.keys.begin() + ptrdiff_t{position} * shape.dim);
      if (shape.has_nan) sequence.keys[static_cast<size_t>(2 * shape.dim + 1)] = NAN;
      for (int32_t block = 0; block * kBlockSize < end; ++block)
        sequence.table.push_back(static_cast<int32_t>(num_blocks_++));
      std::ranges::reverse(sequence.table);
      for (int32_t i = 0; i < slice.num_tokens; ++i)
        rows_.push_back({sequences_.size() - 1, slice.context + i});
    }
    for (int i = 0; i < shape.padding; ++i) rows_.push_back(rows_.back());
    q_ = numbers.Integers(rows() * shape.heads * shape.dim, 3);
    weights_ = numbers.Integers(rows() * shape.heads, 3);
  }

  int64_t rows() const { return std::ssize(rows_); }

  // Selects positions for rows [first, first + count). Returns their lists, [count, top_k].
  std::vector<int32_t> Run(CaseMemory& memory, int64_t first, int64_t count) const {
    const bool is_f8 = shape_.type == ElementType::kF8E4M3;
    const int64_t key_bytes = int64_t{shape_.dim} * (is_f8 ? 1 : 2);
    // NaN wherever there is no key.
    std::vector<uint8_t> keys(static_cast<size_t>(num_blocks_ * kBlockSize * key_bytes), 0xFF);
    std::vector<int32_t> tables, begins;
    int64_t max_context = shape_.max_context;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const IndexedSequence& sequence = sequences_[i];
      begins.push_back(static_cast<int32_t>(tables.size()));
      tables.insert(tables.end(), sequence.table.begin(), sequence.table.end());
      const int64_t end = std::ssize(sequence.keys) / shape_.dim;
      if (shape_.max_context == 0) max_context = std::max(max_context, end);
      for (int64_t position = 0; position < end; ++position) {
        const int64_t slot =
            int64_t{sequence.table[static_cast<size_t>(position / kBlockSize)]} * kBlockSize +
            position % kBlockSize;
        for (int d = 0; d < shape_.dim; ++d) {
          const float value = sequence.keys[static_cast<size_t>(position * shape_.dim + d)];
          const uint16_t bits = is_f8 ? uint16_t{ToFloat8E4M3(value).bits} : ToBFloat16(value).bits;
          const auto at = static_cast<size_t>(slot * key_bytes + (is_f8 ? d : 2 * d));
          keys[at] = static_cast<uint8_t>(bits);
          if (!is_f8) keys[at + 1] = static_cast<uint8_t>(bits >> 8);
        }
      }
    }
    std::vector<device::IndexRow> index_rows;
    for (int64_t row = first; row < first + count; ++row) {
      const Row& one = rows_[static_cast<size_t>(row)];
      index_rows.push_back({one.position, begins[one.sequence]});
    }
    const auto cut = [&](const std::vector<float>& values, int64_t width) {
      return std::vector(values.begin() + first * width, values.begin() + (first + count) * width);
    };
    device::SelectPositionsArgs args{};
    args.q = memory.In(ToBf16Bits(cut(q_, int64_t{shape_.heads} * shape_.dim)));
    args.weights = memory.In(cut(weights_, shape_.heads));
    args.rows = count;
    args.heads = shape_.heads;
    args.dim = shape_.dim;
    args.keys = memory.In(keys);
    args.type = shape_.type;
    args.index_rows = memory.In(index_rows);
    args.tables = memory.In(tables);
    args.block_size = kBlockSize;
    args.block_rows = kBlockRows;
    args.top_k = shape_.top_k;
    args.max_context = max_context;
    args.scores = memory.Out<float>(device::SelectScoreBytes(count, max_context) / 4);
    args.chosen = memory.Out<int32_t>(count * shape_.top_k);
    memory.Launch(&DeviceKernels::select_positions, args);
    return memory.Read<int32_t>(args.chosen, count * shape_.top_k);
  }

  // The expected list of a row; -1 where nothing is written. Scores are sums of integers, and
  // therefore exact.
  std::vector<int32_t> Expected(int64_t row) const {
    const Row& one = rows_[static_cast<size_t>(row)];
    const IndexedSequence& sequence = sequences_[one.sequence];
    std::vector<double> scores;
    for (int32_t position = 0; position <= one.position; ++position) {
      double score = 0;
      for (int head = 0; head < shape_.heads; ++head) {
        double sum = 0;
        for (int d = 0; d < shape_.dim; ++d) {
          sum += double{q_[static_cast<size_t>((row * shape_.heads + head) * shape_.dim + d)]} *
                 sequence.keys[static_cast<size_t>(int64_t{position} * shape_.dim + d)];
        }
        const double weight = weights_[static_cast<size_t>(row * shape_.heads + head)];
        score += weight * (sum < 0 ? 0 : sum);
      }
      scores.push_back(std::isnan(score) ? -HUGE_VAL : score);
    }
    std::vector<int32_t> positions(scores.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::ranges::stable_sort(positions, [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    positions.resize(std::min(positions.size(), static_cast<size_t>(shape_.top_k)));
    std::ranges::sort(positions);
    std::vector<int32_t> places(static_cast<size_t>(shape_.top_k), -1);
    std::ranges::transform(positions, places.begin(), [&](int32_t position) {
      return sequence.table[static_cast<size_t>(position / kBlockSize)] * kBlockRows +
             position % kBlockSize;
    });
    return places;
  }

 private:
  static constexpr int kBlockSize = 4, kBlockRows = 5;
  struct Row {
    size_t sequence;
    int32_t position;
  };

  const SelectShape& shape_;
  std::vector<IndexedSequence> sequences_;
  int64_t num_blocks_ = 0;
  std::vector<Row> rows_;
  std::vector<float> q_, weights_;
};

void CheckSelect(CaseMemory& memory, Comparison& comparison, const SelectShape& shape) {
  const SelectStep step(shape);
  const std::vector<int32_t> got = step.Run(memory, 0, step.rows());
  // Computing expected lists takes long for long sequences, so only some rows are compared.
  const int64_t stride = std::max<int64_t>(1, step.rows() / 64);
  for (int64_t row = 0; row < step.rows(); row += stride) {
    comparison.SetSubject(fmt::format("row {}", row));
    const std::vector<int32_t> expected = step.Expected(row);
    for (size_t i = 0; i < expected.size(); ++i)
      comparison.AddEqual(got[static_cast<size_t>(row * shape.top_k) + i], expected[i]);
  }
  comparison.SetSubject("a row alone");
  const int64_t last = step.rows() - 1;
  const std::vector<int32_t> alone = step.Run(memory, last, 1);
  for (size_t i = 0; i < alone.size(); ++i)
    comparison.AddEqual(alone[i], got[static_cast<size_t>(last * shape.top_k) + i]);
}

}  // namespace

void CheckIndexer(CheckRun& run) {
  std::vector<IndexShape> appends = {
      {5, 3, 24, {8}},
      {3, 16, 128, {64, true, true}, ElementType::kF8E4M3},
      {2, 5, 250, {250, true, true}},
      {2, 9, 34, {}},
  };
  std::vector<SelectShape> selects = {
      {.slices = {{12, 60}, {1, 150}, {3, 0}}, .heads = 9, .dim = 24, .top_k = 12},
      {.slices = {{1, 40}, {1, 9}},
       .heads = 3,
       .dim = 34,
       .top_k = 17,
       .type = ElementType::kF8E4M3,
       .padding = 3,
       .has_nan = true},
      // With this max_context, two rows are computed at once.
      {.slices = {{5, 70}}, .heads = 2, .dim = 16, .top_k = 5, .max_context = int64_t{1} << 23},
      {.slices = {{2, 1200}}, .heads = 4, .dim = 16, .top_k = 600, .has_nan = true},
  };
  if (!run.with_all_shapes()) {
    appends.resize(2);
    selects.resize(2);
  }
  if (run.with_large_shapes()) {
    appends.push_back({300, 64, 128, {64}});
    selects.push_back({.slices = {{100, 5000}, {1, 70000}, {1, 2047}},
                       .heads = 64,
                       .dim = 128,
                       .top_k = 2048,
                       .max_context = 131072});
  }
  for (const IndexShape& shape : appends) {
    run.Case("index_append",
             fmt::format("{} rows, {} heads of {}{}{}", shape.rows, shape.heads, shape.dim,
                         TailText(shape.rope), shape.type == ElementType::kF8E4M3 ? ", fp8" : ""),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckIndexAppend(memory, comparison, shape);
             });
  }
  for (const SelectShape& shape : selects) {
    run.Case("select_positions",
             fmt::format("{} of {}, {} heads of {}{}{}", shape.top_k,
                         shape.slices.front().context + shape.slices.front().num_tokens,
                         shape.heads, shape.dim, shape.type == ElementType::kF8E4M3 ? ", fp8" : "",
                         shape.has_nan ? ", NaN" : ""),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckSelect(memory, comparison, shape);
             });
  }
}

}  // namespace sluice::checks
