#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/emulated_queue.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_fragments.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/device_code.h"
#include "kernels/kernel_testing.h"
#include "tensor/buffer.h"

namespace sluice::device {
namespace {

using kernels::AttentionSpan;
using kernels::Random;

struct DeviceShape {
  int num_heads, num_kv_heads, head_dim, block_size;
  ElementType type;
  AttentionSpan span = {};
  float k_scale = 1, v_scale = 1;

  std::string Name() const {
    return std::to_string(num_heads) + "/" + std::to_string(num_kv_heads) + " heads of " +
           std::to_string(head_dim) + ", blocks of " + std::to_string(block_size) +
           (type == ElementType::kF8E4M3 ? ", F8" : ", BF16") + ", chunk " +
           std::to_string(span.chunk) + ", window " + std::to_string(span.window);
  }
};

constexpr ElementType kBF16 = ElementType::kBF16;
constexpr ElementType kF8 = ElementType::kF8E4M3;

// New tokens of one sequence in a step.
struct Part {
  int sequence, context, count;
};

using Row = std::vector<uint16_t>;

// Sequences whose keys and values are in a cache of shuffled blocks. Every slot that nothing was
// written to is NaN, and block tables hold nonsense where nothing may be read.
class CachedSequences {
 public:
  CachedSequences(const DeviceShape& shape, const std::vector<int>& lengths)
      : shape_(shape), lengths_(lengths), random_(7) {
    int num_blocks = 3;
    for (int length : lengths) num_blocks += (length + shape.block_size - 1) / shape.block_size;
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_.engine());
    const int64_t numbers =
        int64_t{num_blocks} * shape.num_kv_heads * shape.block_size * shape.head_dim;
    const auto bytes = static_cast<size_t>(numbers * Bytes());
    for (Buffer* buffer : {&keys_, &values_}) {
      *buffer = *Buffer::Allocate(bytes, "test");
      std::memset(buffer->data(), 0xFF, bytes);
    }
    for (int length : lengths) {
      const int count = (length + shape.block_size - 1) / shape.block_size;
      tables_.emplace_back(blocks.end() - count, blocks.end());
      blocks.resize(blocks.size() - static_cast<size_t>(count));
      queries_.push_back(
          kernels::Rounded(random_.Normal(int64_t{length} * shape.num_heads * shape.head_dim, 2)));
      for (int position = 0; position < length; ++position) {
        for (int head = 0; head < shape.num_kv_heads; ++head) {
          for (int d = 0; d < shape.head_dim; ++d) {
            SetNumber(&keys_, tables_.size() - 1, position, head, d, random_.Normal(1)[0]);
            SetNumber(&values_, tables_.size() - 1, position, head, d, random_.Normal(1)[0]);
          }
        }
      }
    }
  }

  int Bytes() const { return shape_.type == ElementType::kF8E4M3 ? 1 : 2; }
  Buffer* values() { return &values_; }
  void ClearQueries(size_t sequence) { std::ranges::fill(queries_[sequence], 0.0f); }

  void SetNumber(Buffer* buffer, size_t sequence, int position, int head, int d, float number) {
    const int64_t at = Place(sequence, position, head, d);
    if (shape_.type == ElementType::kF8E4M3)
      reinterpret_cast<uint8_t*>(buffer->data())[at] = emulated::FloatToE4m3(number);
    else
      reinterpret_cast<uint16_t*>(buffer->data())[at] = emulated::FloatToBf16(number);
  }

  // What the kernels' queries are multiplied by, and their scale divided: a power of two.
  void set_query_factor(float factor) { query_factor_ = factor; }

  // The results of the emulated kernels, token by token.
  std::vector<Row> Run(const std::vector<Part>& parts, int64_t max_partial_tokens = 2048) {
    std::vector<AttentionSliceInfo> slices;
    std::vector<int32_t> tables;
    std::vector<uint16_t> queries;
    AttentionLimits limits{.num_heads = shape_.num_heads,
                           .num_kv_heads = shape_.num_kv_heads,
                           .head_dim = shape_.head_dim,
                           .max_partial_tokens = max_partial_tokens};
    for (const Part& part : parts) {
      slices.push_back({static_cast<int32_t>(limits.max_rows), part.count, part.context,
                        static_cast<int32_t>(tables.size())});
      const std::vector<int32_t> table = TableFor(part);
      tables.insert(tables.end(), table.begin(), table.end());
      for (const float number : QueriesOf(part))
        queries.push_back(emulated::FloatToBf16(number * query_factor_));
      limits.max_rows += part.count;
      limits.max_slices += 1;
      limits.max_context = std::max<int64_t>(limits.max_context, part.context + part.count);
    }
    AttentionPlan plan(limits);
    PlanAttention(limits, slices, shape_.span, plan);
    // Padding, as in a graph of fixed size.
    plan.items.push_back({-1, 0, 0, 0, 0, -1});
    plan.merges.push_back({});
    std::vector<float> partials(static_cast<size_t>(AttentionPartialsBytes(limits) / 4),
                                std::numeric_limits<float>::quiet_NaN());
    std::vector<uint16_t> out(queries.size(), 0xFFFF);
    const AttentionArgs args{
        .q = queries.data(),
        .num_heads = shape_.num_heads,
        .scale = Scale() / query_factor_,
        .cache = {keys_.data(), values_.data(), shape_.type, shape_.k_scale, shape_.v_scale,
                  shape_.num_kv_heads, shape_.head_dim, shape_.block_size},
        .chunk = shape_.span.chunk,
        .window = shape_.span.window,
        .items = plan.items.data(),
        .num_items = static_cast<int>(plan.items.size()),
        .num_wide_items = plan.num_wide_items,
        .merges = plan.merges.data(),
        .num_merges = static_cast<int>(plan.merges.size()),
        .slices = slices.data(),
        .tables = tables.data(),
        .partials = partials.data(),
        .out = out.data(),
    };
    EmulatedQueue queue;
    LaunchFailure failure;
    emulated::LaunchAttention({&queue, &failure}, args);
    queue.RunAll();
    return Split(out);
  }

  // The same by the reference operator, unrounded, from a cache of its own, which it lays out in
  // its own way. Absolute values: with each value replaced by its size.
  std::vector<std::vector<float>> Reference(const std::vector<Part>& parts, bool absolute_values) {
    const kernels::KvLayout layout{
        shape_.num_kv_heads, shape_.head_dim, shape_.block_size,
        shape_.type == ElementType::kF8E4M3 ? ElementType::kF8E4M3 : ElementType::kBF16};
    Buffer keys = *Buffer::Allocate(keys_.size_bytes(), "test");
    Buffer values = *Buffer::Allocate(values_.size_bytes(), "test");
    const kernels::KvCacheView cache{layout, keys.data(), values.data(), shape_.k_scale,
                                     shape_.v_scale};
    ThreadPool pool(1);
    const int64_t kv_width = int64_t{shape_.num_kv_heads} * shape_.head_dim;
    for (size_t sequence = 0; sequence < tables_.size(); ++sequence) {
      const int length = lengths_[sequence];
      std::vector<float> k, v;
      for (int position = 0; position < length; ++position) {
        for (int head = 0; head < shape_.num_kv_heads; ++head) {
          for (int d = 0; d < shape_.head_dim; ++d) {
            k.push_back(NumberAt(keys_, sequence, position, head, d) * shape_.k_scale);
            v.push_back(NumberAt(values_, sequence, position, head, d) * shape_.v_scale);
            if (absolute_values) v.back() = std::abs(v.back());
          }
        }
      }
      const kernels::AttentionSlice all{0, length, 0, tables_[sequence].data()};
      kernels::AppendKv(pool, cache, {&all, 1}, k.data(), v.data(), kv_width);
    }
    std::vector<std::vector<int32_t>> tables;
    for (const Part& part : parts) tables.push_back(TableFor(part));
    std::vector<kernels::AttentionSlice> slices;
    std::vector<float> queries;
    int64_t rows = 0, max_context = 0;
    for (const Part& part : parts) {
      slices.push_back({rows, part.count, part.context, tables[slices.size()].data()});
      const std::vector<float> some = QueriesOf(part);
      queries.insert(queries.end(), some.begin(), some.end());
      rows += part.count;
      max_context = std::max<int64_t>(max_context, part.context + part.count);
    }
    std::vector<std::byte> scratch(static_cast<size_t>(kernels::AttentionScratchBytes(
        layout, shape_.num_heads, rows, static_cast<int64_t>(parts.size()), max_context, 1)));
    std::vector<float> out(queries.size());
    kernels::Attention(pool, cache, slices, shape_.span, queries.data(),
                       int64_t{shape_.num_heads} * shape_.head_dim, shape_.num_heads, Scale(),
                       out.data(), ElementType::kF32, scratch);
    return Split(out);
  }

 private:
  int64_t Place(size_t sequence, int position, int head, int d) const {
    const int64_t block = tables_[sequence][static_cast<size_t>(position / shape_.block_size)];
    return ((block * shape_.num_kv_heads + head) * shape_.block_size +
            position % shape_.block_size) *
               shape_.head_dim +
           d;
  }
  float NumberAt(const Buffer& buffer, size_t sequence, int position, int head, int d) const {
    const int64_t at = Place(sequence, position, head, d);
    return shape_.type == ElementType::kF8E4M3
               ? emulated::E4m3ToFloat(reinterpret_cast<const uint8_t*>(buffer.data())[at])
               : emulated::Bf16ToFloat(reinterpret_cast<const uint16_t*>(buffer.data())[at]);
  }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }

  std::vector<int32_t> TableFor(const Part& part) const {
    const auto& table = tables_[static_cast<size_t>(part.sequence)];
    const int length = (part.context + part.count + shape_.block_size - 1) / shape_.block_size;
    std::vector<int32_t> result(table.begin(), table.begin() + length);
    std::fill_n(result.begin(), shape_.span.FirstSeen(part.context) / shape_.block_size,
                std::numeric_limits<int32_t>::max());
    return result;
  }

  std::vector<float> QueriesOf(const Part& part) const {
    const auto& all = queries_[static_cast<size_t>(part.sequence)];
    const int64_t width = int64_t{shape_.num_heads} * shape_.head_dim;
    return {all.begin() + part.context * width, all.begin() + (part.context + part.count) * width};
  }

  template <typename T>
  std::vector<std::vector<T>> Split(const std::vector<T>& out) const {
    const auto width = static_cast<std::ptrdiff_t>(shape_.num_heads) * shape_.head_dim;
    std::vector<std::vector<T>> rows;
    for (auto row = out.begin(); row != out.end(); row += width)
      rows.emplace_back(row, row + width);
    return rows;
  }

  DeviceShape shape_;
  std::vector<int> lengths_;
  Random random_;
  float query_factor_ = 1;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::vector<float>> queries_;
  Buffer keys_, values_;
};

class DeviceAttention : public testing::Test {
 protected:
  void SetUp() override { kernels::SelectIsa(kernels::Isa::kReference); }
  void TearDown() override {
    emulator::SetOrder(emulator::Order::kForward);
    ASSERT_TRUE(kernels::SelectIsa("auto").has_value());
  }
};

// Head sizes of their own kernels and others, groups that fill a tile and that do not, groups of
// more heads than a tile has rows, blocks that are no multiple of anything.
const DeviceShape kShapes[] = {
    {8, 1, 128, 16, kBF16},
    {5, 1, 128, 16, kF8, {}, 0.5f, 0.25f},
    {10, 2, 128, 24, kF8, {.chunk = 100}, 0.02f, 1.5f},
    {6, 2, 128, 32, kBF16, {.window = 70}},
    {4, 2, 64, 16, kBF16, {.chunk = 64}},
    {8, 2, 64, 32, kF8, {.window = 600}, 0.3f, 1},
    {12, 1, 64, 1, kF8},
    {3, 3, 64, 7, kBF16},
    {20, 1, 64, 16, kBF16},
    {2, 2, 32, 16, kBF16},
    {4, 2, 32, 1, kF8, {.window = 1}},
    {3, 3, 48, 7, kBF16, {.chunk = 130, .window = 40}},
    {5, 1, 96, 24, kF8},
    {16, 1, 256, 16, kBF16},
    {2, 1, 256, 16, kF8},
    {5, 1, 40, 4, kBF16},
    {4, 2, 40, 16, kF8},
};

// Decoding at several lengths, prompts, a chunk of a prompt across ranges, and a few tokens at
// once.
const std::vector<int> kLengths = {1100, 530, 40, 1, 515};
const std::vector<Part> kMixedStep = {
    {0, 1099, 1}, {1, 490, 40}, {2, 0, 40}, {3, 0, 1}, {4, 510, 3}, {4, 63, 1}, {4, 64, 1},
};

// Of every `step`-th shape from `first` on.
void ExpectTheReference(size_t first, size_t step) {
  constexpr float kUnit = 0x1p-8f;  // a rounding to BF16 is off by at most this share
  for (size_t index = first; index < std::size(kShapes); index += step) {
    const DeviceShape& shape = kShapes[index];
    SCOPED_TRACE(shape.Name());
    CachedSequences sequences(shape, kLengths);
    const auto expected = sequences.Reference(kMixedStep, false);
    const auto sizes = sequences.Reference(kMixedStep, true);
    emulator::SetOrder(emulator::Order::kForward);
    const auto rows = sequences.Run(kMixedStep);
    emulator::SetOrder(emulator::Order::kReverse);
    EXPECT_EQ(rows, sequences.Run(kMixedStep));
    double squares = 0, bounds = 0;
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t i = 0; i < rows[row].size(); ++i) {
        // Each weight is rounded in the sum of values and in the sum that it is divided by, then
        // the result.
        const float bound = 2 * kUnit * sizes[row][i] + kUnit * std::abs(expected[row][i]) + 1e-4f;
        const float error = emulated::Bf16ToFloat(rows[row][i]) - expected[row][i];
        ASSERT_LE(std::abs(error), bound) << "row " << row << ", column " << i;
        squares += static_cast<double>(error) * error;
        bounds += static_cast<double>(bound) * bound;
      }
    }
    // Most roundings are off by less, and those of a row's weights cancel in part.
    EXPECT_LE(squares, bounds / 32);
  }
}

TEST_F(DeviceAttention, AgreesWithTheReference) {
  ExpectTheReference(0, 4);
}
TEST_F(DeviceAttention, HeavyAgreesWithTheReference) {
  for (const size_t first : {1, 2, 3}) ExpectTheReference(first, 4);
}

// Queries of zero weigh alike all that a row sees, exactly; position p is 1 in column p % head_dim
// alone: the results count what was seen.
TEST_F(DeviceAttention, HeavySeesEveryPositionOnce) {
  for (DeviceShape shape : kShapes) {
    SCOPED_TRACE(shape.Name());
    shape.v_scale = 1;
    CachedSequences sequences(shape, kLengths);
    for (size_t sequence = 0; sequence < kLengths.size(); ++sequence) {
      sequences.ClearQueries(sequence);
      for (int position = 0; position < kLengths[sequence]; ++position) {
        for (int head = 0; head < shape.num_kv_heads; ++head) {
          for (int d = 0; d < shape.head_dim; ++d) {
            sequences.SetNumber(sequences.values(), sequence, position, head, d,
                                position % shape.head_dim == d ? 1 : 0);
          }
        }
      }
    }
    const auto rows = sequences.Run(kMixedStep);
    size_t row = 0;
    for (const Part& part : kMixedStep) {
      for (int last = part.context; last < part.context + part.count; ++last, ++row) {
        const int first = shape.span.FirstSeen(last);
        for (int i = 0; i < shape.num_heads * shape.head_dim; ++i) {
          const int d = i % shape.head_dim;
          const auto below = [&](int p) { return (p + shape.head_dim - 1 - d) / shape.head_dim; };
          const auto count = static_cast<float>(below(last + 1) - below(first));
          const float expected = count / static_cast<float>(last + 1 - first);
          ASSERT_NEAR(emulated::Bf16ToFloat(rows[row][static_cast<size_t>(i)]), expected,
                      expected * 0x1p-7f)
              << "position " << last << ", column " << i;
        }
      }
    }
  }
}

// A row's bits, whether it is decoded or part of a prompt's chunk, of whatever size, alone or among
// others, with its positions split or not.
TEST_F(DeviceAttention, HeavyRowsKeepTheirBits) {
  const DeviceShape shapes[] = {
      {8, 1, 128, 16, kBF16},
      {5, 1, 128, 16, kF8},
      {4, 1, 64, 16, kF8, {.window = 300}},
      {2, 1, 64, 16, kBF16, {.chunk = 520}},
      {6, 2, 32, 16, kBF16},
      {3, 1, 96, 16, kF8, {.window = 513}},
  };
  for (const DeviceShape& shape : shapes) {
    SCOPED_TRACE(shape.Name());
    CachedSequences sequences(shape, {1090, 200});
    constexpr int kBegin = 1000, kEnd = 1070;
    const auto whole = sequences.Run({{0, kBegin, kEnd - kBegin}});
    const auto expect_rows = [&](const std::vector<Row>& rows, size_t begin, int context,
                                 int count) {
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(rows[begin + static_cast<size_t>(i)],
                  whole[static_cast<size_t>(context - kBegin + i)])
            << "position " << context + i << " in a part of " << count;
      }
    };
    for (const auto& [context, count] : std::vector<std::pair<int, int>>{{1000, 1},
                                                                         {1023, 1},
                                                                         {1024, 1},
                                                                         {1025, 1},
                                                                         {1069, 1},
                                                                         {1022, 3},
                                                                         {1001, 6},
                                                                         {1010, 15},
                                                                         {1020, 33},
                                                                         {1037, 33}}) {
      expect_rows(sequences.Run({{0, context, count}}), 0, context, count);
      expect_rows(sequences.Run({{0, context, count}}, 0), 0, context, count);
    }
    const auto mixed = sequences.Run({{1, 0, 100}, {0, 1024, 1}, {1, 199, 1}, {0, 1003, 30}});
    expect_rows(mixed, 100, 1024, 1);
    expect_rows(mixed, 102, 1003, 30);
    for (size_t row = 0; row < 100; row += 33) {
      const auto alone = sequences.Run({{1, static_cast<int>(row), 1}});
      EXPECT_EQ(alone[0], mixed[row]) << row;
    }
  }
}

// A broken number reaches those who see it, and nobody else.
TEST_F(DeviceAttention, PassesOnWhatIsNoNumber) {
  for (const ElementType type : {kBF16, kF8}) {
    const DeviceShape shape{2, 1, 64, 16, type};
    CachedSequences sequences(shape, {100, 100});
    const std::vector<Part> parts = {{0, 99, 1}, {1, 99, 1}};
    const auto clean = sequences.Run(parts);
    sequences.SetNumber(sequences.values(), 0, 50, 0, 7, std::nanf(""));
    const auto broken = sequences.Run(parts);
    EXPECT_TRUE(std::isnan(emulated::Bf16ToFloat(broken[0][7])));
    EXPECT_EQ(clean[0][8], broken[0][8]);
    EXPECT_EQ(clean[1], broken[1]);
  }
}

// Queries far beyond the numbers of F16, which a cache of E4M3 is multiplied in.
TEST_F(DeviceAttention, TakesQueriesOfAnySize) {
  for (const DeviceShape& shape :
       {DeviceShape{8, 1, 128, 16, kF8}, {3, 3, 64, 7, kF8}, {5, 1, 40, 4, kF8}}) {
    CachedSequences sequences(shape, {100, 70});
    const std::vector<Part> parts = {{0, 99, 1}, {1, 20, 50}};
    const auto expected = sequences.Run(parts);
    for (const float factor : {0x1p60f, 0x1p-60f}) {
      sequences.set_query_factor(factor);
      EXPECT_EQ(expected, sequences.Run(parts)) << shape.Name() << ", " << factor;
    }
  }
}

struct DecodeArgs {
  uint16_t* numbers;  // [256]
};

void DecodeKernel(DecodeArgs args) {
  for (uint32_t code = threadIdx.x * 4; code < 256; code += 128) {
    uint32_t low, high;
    emulated::E4m3x4ToF16(code * 0x01010101u + 0x03020100u, low, high);
    args.numbers[code] = static_cast<uint16_t>(low);
    args.numbers[code + 1] = static_cast<uint16_t>(low >> 16);
    args.numbers[code + 2] = static_cast<uint16_t>(high);
    args.numbers[code + 3] = static_cast<uint16_t>(high >> 16);
  }
}

TEST_F(DeviceAttention, DecodesEveryCodeExactly) {
  uint16_t numbers[256];
  EmulatedQueue queue;
  LaunchFailure failure;
  emulated::Launch<DecodeKernel>({&queue, &failure}, "decode", {}, DecodeArgs{numbers});
  queue.RunAll();
  for (int code = 0; code < 256; ++code) {
    const float expected = emulated::E4m3ToFloat(static_cast<uint8_t>(code));
    // E4M3's least number is 2^-9: all but 0 are normal numbers of F16.
    const int magnitude_bits = numbers[code] & 0x7FFF;
    const bool is_nan = magnitude_bits > 0x7C00;
    const auto mantissa =
        static_cast<float>(magnitude_bits == 0 ? 0 : (magnitude_bits & 0x3FF) + 0x400);
    const float magnitude = std::ldexp(mantissa, (magnitude_bits >> 10) - 25);
    EXPECT_EQ(std::isnan(expected), is_nan) << code;
    if (!is_nan) {
      EXPECT_EQ(std::abs(expected), magnitude) << code;
      EXPECT_EQ(std::signbit(expected), numbers[code] >> 15 != 0) << code;
    }
  }
}

}  // namespace
}  // namespace sluice::device
