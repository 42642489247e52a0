#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "kernels/attention_layout.h"
#include "kernels/kernel_testing.h"
#include "kernels/reference/reference.h"
#include "kernels/vector_kernel.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {

SLUICE_VECTOR_KERNEL(DecodeE4M3);

namespace {

struct Shape {
  int num_heads, num_kv_heads, head_dim, block_size;
  ElementType type;
  AttentionSpan span = {};
  float k_scale = 1, v_scale = 1;
  float soft_cap = 0;
  bool sinks = false;
  int latent_dim = 0;

  int value_dim() const { return latent_dim == 0 ? head_dim : latent_dim; }
};

constexpr Shape kShapes[] = {
    {8, 2, 64, 16, ElementType::kBF16},
    {4, 4, 32, 16, ElementType::kBF16},
    // Head sizes that do not fill whole vectors.
    {3, 1, 2, 16, ElementType::kBF16},
    {4, 2, 4, 16, ElementType::kBF16},
    {4, 2, 16, 16, ElementType::kBF16},
    {4, 2, 18, 16, ElementType::kBF16},
    {6, 2, 30, 32, ElementType::kBF16, {.window = 70}},
    {3, 1, 100, 16, ElementType::kBF16},
    {2, 1, 510, 16, ElementType::kBF16},
    {4, 4, 4, 16, ElementType::kF32},
    {4, 2, 18, 16, ElementType::kF32},
    {4, 2, 22, 16, ElementType::kF16},
    {4, 2, 2, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f},
    {4, 2, 20, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f},
    {4, 2, 22, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f},
    {4, 1, 18, 4, ElementType::kF8E4M3, {.window = 70}, 0.02f, 0.05f},
    {3, 1, 100, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f},
    {3, 1, 70, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f, 2, true},
    {6, 2, 128, 32, ElementType::kBF16},
    {5, 1, 40, 4, ElementType::kBF16},
    {8, 1, 256, 16, ElementType::kBF16},
    {4, 1, 512, 16, ElementType::kBF16},
    {2, 1, 512, 16, ElementType::kF32, {.window = 70}},
    {2, 2, 512, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f},
    {3, 1, 512, 4, ElementType::kF16},
    {3, 3, 72, 48, ElementType::kBF16},
    {8, 2, 64, 16, ElementType::kF32},
    {5, 1, 104, 4, ElementType::kF32},
    {10, 2, 128, 32, ElementType::kF32},
    {80, 1, 32, 16, ElementType::kBF16},
    {24, 3, 64, 64, ElementType::kBF16, {.window = 150}},
    {200, 4, 32, 16, ElementType::kBF16},
    {18, 3, 40, 32, ElementType::kF8E4M3, {.window = 70}, 0.02f, 0.05f},
    {8, 2, 64, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f},
    {5, 1, 40, 4, ElementType::kF8E4M3, {}, 0.3f, 1},
    {4, 2, 128, 16, ElementType::kF8E4M3, {.chunk = 64}, 1, 0.011f},
    {8, 2, 64, 16, ElementType::kF16},
    {5, 1, 40, 4, ElementType::kF16, {.chunk = 24}},
    {6, 2, 128, 32, ElementType::kF16, {.window = 70}},
    {8, 2, 64, 16, ElementType::kBF16, {.chunk = 64}},
    {4, 2, 96, 16, ElementType::kBF16, {.window = 70}},
    {5, 1, 40, 4, ElementType::kBF16, {.chunk = 24}},
    {6, 2, 128, 32, ElementType::kBF16, {.window = 1}},
    {6, 2, 64, 16, ElementType::kF32, {.window = 33}},
    {3, 3, 72, 48, ElementType::kF32, {.chunk = 50}},
    {80, 1, 32, 16, ElementType::kBF16, {.chunk = 272}},
    {4, 1, 64, 16, ElementType::kBF16, {.chunk = 100, .window = 40}},
    {8, 2, 64, 16, ElementType::kBF16, {}, 1, 1, 1.5f},
    {6, 2, 128, 32, ElementType::kF32, {.window = 70}, 1, 1, 0.7f},
    {5, 1, 40, 4, ElementType::kBF16, {.window = 33}, 1, 1, 30},
    {8, 1, 64, 16, ElementType::kBF16, {.window = 70}, 1, 1, 0, true},
    {8, 2, 64, 16, ElementType::kF8E4M3, {}, 0.02f, 0.05f, 2, true},
    // Latent caches: published sizes, small ones, and some that do not fill whole vectors.
    {5, 1, 576, 16, ElementType::kBF16, {}, 1, 1, 0, false, 512},
    {4, 1, 48, 16, ElementType::kBF16, {}, 1, 1, 0, false, 32},
    {130, 1, 40, 16, ElementType::kBF16, {}, 1, 1, 0, false, 32},
    {6, 1, 26, 32, ElementType::kBF16, {.window = 70}, 1, 1, 3, true, 18},
    {3, 1, 576, 16, ElementType::kF32, {}, 1, 1, 0, false, 512},
    {4, 2, 22, 4, ElementType::kF32, {}, 1, 1, 0, false, 10},
    {4, 1, 320, 16, ElementType::kF16, {}, 1, 1, 0, false, 256},
    {3, 1, 576, 16, ElementType::kF8E4M3, {}, 0.02f, 1, 0, false, 512},
    {4, 1, 50, 4, ElementType::kF8E4M3, {}, 0.02f, 1, 0, false, 34},
};

// Sequences with their keys and values, and a cache of shuffled blocks to which they are appended.
// Unwritten elements are NaN.
class Sequences {
 public:
  Sequences(Random& random, const Shape& shape, const std::vector<int>& lengths) : shape_(shape) {
    int num_blocks = 3;
    for (int length : lengths) num_blocks += (length + shape.block_size - 1) / shape.block_size;
    layout_ = {shape.num_kv_heads, shape.head_dim, shape.block_size, shape.type};
    layout_.latent_dim = shape.latent_dim;
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random.engine());
    for (int length : lengths) {
      const int count = (length + shape.block_size - 1) / shape.block_size;
      tables_.emplace_back(blocks.end() - count, blocks.end());
      blocks.resize(blocks.size() - static_cast<size_t>(count));
      q_.push_back(random.Normal(int64_t{length} * shape.num_heads * shape.head_dim));
      k_.push_back(random.Normal(int64_t{length} * shape.num_kv_heads * shape.head_dim));
      v_.push_back(random.Normal(int64_t{length} * shape.num_kv_heads * shape.head_dim));
    }
    const size_t bytes = static_cast<size_t>(num_blocks * layout_.BlockElements()) * 4;
    k_cache_ = *Buffer::Allocate(bytes, "test");
    v_cache_ = *Buffer::Allocate(bytes, "test");
    Clear();
  }

  void Clear() {
    std::memset(k_cache_.data(), 0xFF, k_cache_.size_bytes());
    std::memset(v_cache_.data(), 0xFF, v_cache_.size_bytes());
  }

  // Tokens [context, context + count) of a sequence, as input of a step. Step appends and attends,
  // and returns one vector per part, in order.
  struct Part {
    int sequence, context, count;
  };
  // Sets the positions to which each token of sequence 0 attends. `lists`: [tokens, most].
  void Choose(int most, std::vector<int32_t> lists, std::vector<int32_t> counts = {}) {
    most_ = most;
    lists_ = std::move(lists);
    counts_ = std::move(counts);
  }
  // The same for lists of `most` blocks of `block` positions per token and KV head.
  void ChooseBlocks(int most, int block, std::vector<int32_t> lists) {
    Choose(most, std::move(lists));
    block_ = block;
  }
  // `type`: type of the products and of the result.
  std::vector<std::vector<float>> Step(ThreadPool& pool, const std::vector<Part>& parts,
                                       ElementType type = ElementType::kF32) {
    return Step(pool, parts, type, type == ElementType::kBF16);
  }
  std::vector<std::vector<float>> Step(ThreadPool& pool, const std::vector<Part>& parts,
                                       ElementType out_type, bool bf16_products) {
    const int64_t q_width = int64_t{shape_.num_heads} * shape_.head_dim;
    const int64_t kv_width = int64_t{shape_.num_kv_heads} * shape_.head_dim;
    const int64_t stride =
        q_width + 2 * kv_width;  // q, k and v in one row, as a single product computes them
    int64_t rows = 0;
    int max_context = 0;
    for (const Part& part : parts) {
      rows += part.count;
      max_context = std::max(max_context, part.context + part.count);
    }
    // Blocks that no row sees must not be read: their entries are invalid.
    std::vector<std::vector<int32_t>> tables;
    for (const Part& part : parts) {
      std::vector<int32_t>& table = tables.emplace_back(tables_[part.sequence]);
      std::fill_n(table.begin(), shape_.span.FirstSeen(part.context) / shape_.block_size,
                  std::numeric_limits<int32_t>::max());
    }
    std::vector<float> qkv(static_cast<size_t>(rows * stride));
    std::vector<AttentionSlice> slices;
    int64_t row = 0;
    for (const Part& part : parts) {
      slices.push_back({row, part.count, part.context, tables[slices.size()].data()});
      for (int i = 0; i < part.count; ++i, ++row) {
        const int64_t token = part.context + i;
        float* to = qkv.data() + row * stride;
        std::copy_n(q_[part.sequence].data() + token * q_width, q_width, to);
        std::copy_n(k_[part.sequence].data() + token * kv_width, kv_width, to + q_width);
        std::copy_n(v_[part.sequence].data() + token * kv_width, kv_width, to + q_width + kv_width);
      }
    }
    const KvCacheView cache{layout_, k_cache_.data(), v_cache_.data(), shape_.k_scale,
                            shape_.v_scale};
    AppendKv(pool, cache, slices, qkv.data() + q_width,
             layout_.is_latent() ? nullptr : qkv.data() + q_width + kv_width, stride);
    const int64_t out_width = int64_t{shape_.num_heads} * shape_.value_dim();
    std::vector<std::byte> scratch(static_cast<size_t>(
        AttentionScratchBytes(layout_, shape_.num_heads, rows, static_cast<int64_t>(parts.size()),
                              max_context, pool.num_threads())));
    std::vector<float> out(static_cast<size_t>(rows * out_width),
                           std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> sinks = Sinks();
    const AttentionScores scores{.scale = Scale(),
                                 .soft_cap = shape_.soft_cap,
                                 .sinks = shape_.sinks ? sinks.data() : nullptr,
                                 .bf16_products = bf16_products};
    Attention(pool, cache, slices, shape_.span, qkv.data(), stride, shape_.num_heads, scores,
              out.data(), out_type, scratch,
              {.positions = most_ == 0 ? nullptr : lists_.data() + parts.front().context * Lists(),
               .stride = Lists(),
               .most = most_,
               .counts = counts_.empty() ? nullptr : counts_.data() + parts.front().context,
               .block = block_});
    if (out_type == ElementType::kBF16) {
      for (int64_t i = rows * out_width - 1; i >= 0; --i) {
        BFloat16 value;
        std::memcpy(&value, reinterpret_cast<const std::byte*>(out.data()) + i * 2, 2);
        out[static_cast<size_t>(i)] = ToFloat(value);
      }
    }
    std::vector<std::vector<float>> results;
    row = 0;
    for (const Part& part : parts) {
      results.emplace_back(out.begin() + row * out_width,
                           out.begin() + (row + part.count) * out_width);
      row += part.count;
    }
    return results;
  }

  // Runs the whole sequence alone, in chunks of `chunk` tokens.
  std::vector<float> RunInChunks(ThreadPool& pool, int sequence, int chunk,
                                 ElementType out_type = ElementType::kF32) {
    std::vector<float> result;
    for (int context = 0; context < Length(sequence); context += chunk) {
      const auto part =
          Step(pool, {{sequence, context, std::min(chunk, Length(sequence) - context)}}, out_type);
      result.insert(result.end(), part[0].begin(), part[0].end());
    }
    return result;
  }

  // Returns the exact result of row `token` and query head `head`, in double precision.
  std::vector<double> Exact(int sequence, int token, int head) const {
    const int dim = shape_.head_dim;
    const int kv_head = head / (shape_.num_heads / shape_.num_kv_heads);
    const auto rounded = [&](float value, float cache_scale) -> double {
      if (shape_.type == ElementType::kF32) return value;
      if (shape_.type == ElementType::kBF16) return ToFloat(sluice::ToBFloat16(value));
      if (shape_.type == ElementType::kF16) return ToFloat(ToFloat16(value));
      return static_cast<double>(ToFloat(ToFloat8E4M3(value / cache_scale))) * cache_scale;
    };
    std::vector<int32_t> seen;
    for (int position = shape_.span.FirstSeen(token); position <= token; ++position)
      seen.push_back(position);
    if (block_ != 0 && token / block_ >= most_) {
      const auto list = lists_.begin() + token * Lists() + kv_head * most_;
      std::erase_if(seen, [&](int32_t position) {
        return !std::binary_search(list, list + most_, position / block_);
      });
    } else if (block_ == 0 && most_ != 0 && token >= most_)
      seen.assign(lists_.begin() + token * most_, lists_.begin() + (token + 1) * most_);
    std::vector<double> scores;
    for (const int position : seen) {
      double score = 0;
      for (int d = 0; d < dim; ++d) {
        score +=
            static_cast<double>(
                q_[sequence][(int64_t{token} * shape_.num_heads + head) * dim + d]) *
            rounded(k_[sequence][(int64_t{position} * shape_.num_kv_heads + kv_head) * dim + d],
                    shape_.k_scale);
      }
      score *= static_cast<double>(Scale());
      if (shape_.soft_cap > 0) score = shape_.soft_cap * std::tanh(score / shape_.soft_cap);
      scores.push_back(score);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    std::vector<double> out(static_cast<size_t>(shape_.value_dim()), 0.0);
    const std::vector<float>& values = shape_.latent_dim == 0 ? v_[sequence] : k_[sequence];
    for (size_t i = 0; i < seen.size(); ++i) {
      const double weight = std::exp(scores[i] - largest);
      sum += weight;
      for (int d = 0; d < shape_.value_dim(); ++d) {
        out[d] +=
            weight * rounded(values[(int64_t{seen[i]} * shape_.num_kv_heads + kv_head) * dim + d],
                             shape_.latent_dim == 0 ? shape_.v_scale : shape_.k_scale);
      }
    }
    if (shape_.sinks) sum += std::exp(Sinks()[static_cast<size_t>(head)] - largest);
    for (double& value : out) value /= sum;
    return out;
  }

  int Length(int sequence) const {
    return static_cast<int>(q_[sequence].size()) / (shape_.num_heads * shape_.head_dim);
  }
  std::vector<float>& v(int sequence) {
    return shape_.latent_dim == 0 ? v_[sequence] : k_[sequence];
  }
  // Returns sinks from far below the scores to far above them.
  std::vector<float> Sinks() const {
    std::vector<float> sinks;
    for (int head = 0; head < shape_.num_heads; ++head)
      sinks.push_back(static_cast<float>(head * 5 - 8));
    return sinks;
  }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }

 private:
  Shape shape_;
  KvLayout layout_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::vector<float>> q_, k_, v_;
  // Returns the number of elements of a token's lists.
  int64_t Lists() const { return int64_t{most_} * (block_ == 0 ? 1 : shape_.num_kv_heads); }

  Buffer k_cache_, v_cache_;
  int most_ = 0, block_ = 0;
  std::vector<int32_t> counts_;
  std::vector<int32_t> lists_;
};

class AttentionTest : public KernelTest {};

// Each result type has separate kernels.
constexpr ElementType kResults[] = {ElementType::kF32, ElementType::kBF16};

std::vector<std::pair<Shape, ElementType>> ShapesAndResults() {
  std::vector<std::pair<Shape, ElementType>> all;
  for (const Shape& shape : kShapes) {
    for (ElementType type : kResults) all.emplace_back(shape, type);
  }
  return all;
}

// Scores are sums of head_dim products and results are averages of values of magnitude one: a few
// hundred roundings of numbers near one have errors below 2e-5. AMX splits each query and weight
// into two BF16 numbers, which hold 16 bits: an error of 2^-16 of scores of up to five. If
// bf16_products allows it, AMX and BF16 dot products round queries and weights once: an error of
// 2^-9 of each.
TEST_P(AttentionTest, AgreesWithExactSoftmax) {
  Random random(1);
  ThreadPool pool(2);
  const double tolerance = GetParam() == Isa::kAmx ? 1e-4 : 2e-5;
  const bool rounds = GetParam() == Isa::kAvx512Bf16 || GetParam() == Isa::kAmx;
  const double narrow_tolerance = rounds ? 0.015 : tolerance;
  for (const Shape& shape : kShapes) {
    const int length = static_cast<int>(random.Integer(300, 330));
    Sequences sequences(random, shape, {length});
    const std::vector<float> out = sequences.RunInChunks(pool, 0, 200);
    const std::vector<float> narrow =
        sequences.RunInChunks(pool, 0, 200, ElementType::kBF16);  // another kernel reads codes
    for (int token :
         {0, 1, 15, 16, 63, 64, 99, 100, 128, 199, 200, 255, 256, 271, 272, length - 1}) {
      for (int head : {0, shape.num_heads - 1}) {
        const std::vector<double> expected = sequences.Exact(0, token, head);
        for (int d = 0; d < shape.value_dim(); ++d) {
          const int64_t at = (int64_t{token} * shape.num_heads + head) * shape.value_dim() + d;
          ASSERT_NEAR(out[at], expected[d], tolerance) << "head_dim " << shape.head_dim << " token "
                                                       << token << " head " << head << " d " << d;
          ASSERT_NEAR(
              narrow[at], expected[d],
              Bf16Tolerance(static_cast<float>(expected[d]), static_cast<float>(narrow_tolerance)));
        }
      }
    }
  }
}

TEST_P(AttentionTest, HeavyChunksOfThePromptLeaveNoTrace) {
  Random random(2);
  ThreadPool pool1(1), pool2(2), pool3(3);
  for (const Shape& shape : kShapes) {
    const int length = GetParam() == Isa::kReference ? 262 : 300;
    Sequences sequences(random, shape, {length});
    for (ElementType type : kResults) {
      const std::vector<float> whole = sequences.RunInChunks(pool2, 0, length, type);
      for (int chunk : {1, 7, 64, 257}) {
        if (GetParam() == Isa::kReference && (chunk == 7 || chunk == 64)) continue;  // slow
        sequences.Clear();
        const std::vector<float> out =
            sequences.RunInChunks(chunk == 7 ? pool3 : pool1, 0, chunk, type);
        ASSERT_EQ(0, std::memcmp(whole.data(), out.data(), out.size() * 4))
            << "chunk " << chunk << " head_dim " << shape.head_dim << " block " << shape.block_size;
      }
    }
  }
}

// Sequences that decode and prefill in one step must have results bit-identical to each sequence
// run alone, with one to three threads. Long sequences are split between threads.
TEST_P(AttentionTest, HeavyNeighboursAndThreadsLeaveNoTrace) {
  Random random(3);
  ThreadPool pool1(1), pool2(2), pool3(3), pool9(9);
  for (const Shape& shape : kShapes) {
    if (GetParam() == Isa::kReference && shape.num_heads * shape.head_dim > 700)
      continue;  // too slow
    Sequences sequences(random, shape, {700, 300, 17, 90});
    for (int sequence = 0; sequence < 4; ++sequence) sequences.RunInChunks(pool2, sequence, 700);
    const std::vector<Sequences::Part> parts = {{0, 699, 1}, {1, 299, 1}, {2, 16, 1}, {3, 41, 49}};
    for (ElementType type : kResults) {
      std::vector<std::vector<float>> alone;
      for (const auto& part : parts) alone.push_back(sequences.Step(pool1, {part}, type)[0]);
      for (ThreadPool* pool : {&pool1, &pool2, &pool3, &pool9}) {
        const auto together = sequences.Step(*pool, parts, type);
        for (size_t i = 0; i < parts.size(); ++i) {
          EXPECT_EQ(0, std::memcmp(alone[i].data(), together[i].data(), alone[i].size() * 4)) << i;
          EXPECT_EQ(alone[i], sequences.Step(*pool, {parts[i]}, type)[0]) << i;
        }
      }
    }
  }
}

// Rows that attend to chosen positions of a latent cache are correct for any chunk size and number
// of threads; a list of all positions gives the same result as no list.
TEST_P(AttentionTest, AttendsToChosenPositions) {
  Random random(9);
  ThreadPool pool1(1), pool3(3);
  constexpr int kLength = 700;
  const double tolerance = GetParam() == Isa::kAmx ? 1e-4 : 2e-5;
  for (const Shape& shape : kShapes) {
    if (shape.latent_dim == 0 || !shape.span.sees_all()) continue;
    if (GetParam() == Isa::kReference && shape.num_heads * shape.head_dim > 200) continue;  // slow
    Sequences sequences(random, shape, {kLength});
    const std::vector<float> all = sequences.RunInChunks(pool1, 0, kLength);
    for (const int most : {1, 40, 300}) {
      std::vector<int32_t> lists(static_cast<size_t>(kLength * most));
      for (int token = most; token < kLength; ++token) {
        std::vector<int32_t> seen(static_cast<size_t>(token + 1));
        std::iota(seen.begin(), seen.end(), 0);
        std::shuffle(seen.begin(), seen.end(), random.engine());
        std::sort(seen.begin(), seen.begin() + most);
        std::copy_n(seen.begin(), most, lists.begin() + token * most);
      }
      sequences.Choose(most, lists);
      const std::vector<float> out = sequences.RunInChunks(pool1, 0, kLength);
      EXPECT_EQ(out, sequences.RunInChunks(pool3, 0, 257));
      const int width = shape.num_heads * shape.value_dim();
      EXPECT_EQ(0, std::memcmp(all.data(), out.data(), static_cast<size_t>(most * width) * 4));
      for (const int token : {0, most, 255, 256, kLength - 1}) {
        const std::vector<double> expected = sequences.Exact(0, token, shape.num_heads - 1);
        const size_t at = static_cast<size_t>((token + 1) * width - shape.value_dim());
        for (size_t d = 0; d < expected.size(); ++d)
          ASSERT_NEAR(out[at + d], expected[d], tolerance) << token << " of " << most;
      }
      // A decoding step that is split between threads.
      const size_t last = out.size() - static_cast<size_t>(width);
      const auto step = sequences.Step(pool3, {{0, kLength - 1, 1}})[0];
      EXPECT_EQ(0, std::memcmp(out.data() + last, step.data(), step.size() * 4));
      // Lists with `counts` give the same result.
      std::vector<int32_t> counts(kLength, most);
      for (int token = 0; token < most; ++token) {
        std::iota(lists.begin() + token * most, lists.begin() + token * most + token + 1, 0);
        counts[static_cast<size_t>(token)] = token + 1;
      }
      sequences.Choose(most, lists, counts);
      EXPECT_EQ(out, sequences.RunInChunks(pool3, 0, 257));
    }
    std::vector<int32_t> lists(static_cast<size_t>(kLength * (kLength - 1)));
    sequences.Choose(kLength, lists);
    EXPECT_EQ(all, sequences.RunInChunks(pool3, 0, 257));
  }
}

// The same for blocks of positions, which each KV head of a row chooses for itself.
TEST_P(AttentionTest, AttendsToChosenBlocks) {
  Random random(10);
  ThreadPool pool1(1), pool3(3);
  constexpr int kLength = 700, kBlock = 32, kBlocks = kLength / kBlock + 1;
  const double tolerance = GetParam() == Isa::kAmx ? 1e-4 : 2e-5;
  for (const Shape& shape : kShapes) {
    if (shape.latent_dim != 0 || !shape.span.sees_all()) continue;
    if (shape.num_heads * shape.head_dim > (GetParam() == Isa::kReference ? 200 : 1000)) continue;
    Sequences sequences(random, shape, {kLength});
    const std::vector<float> all = sequences.RunInChunks(pool1, 0, kLength);
    for (const int most : {1, 3, 12}) {
      const int lists_size = shape.num_kv_heads * most;
      std::vector<int32_t> lists(static_cast<size_t>(kLength * lists_size));
      for (int token = most * kBlock; token < kLength; ++token) {
        for (int head = 0; head < shape.num_kv_heads; ++head) {
          const int own = token / kBlock;
          std::vector<int32_t> before(static_cast<size_t>(own));
          std::iota(before.begin(), before.end(), 0);
          std::shuffle(before.begin(), before.end(), random.engine());
          const auto list = lists.begin() + token * lists_size + head * most;
          std::copy_n(before.begin(), most - 1, list);
          list[most - 1] = own;
          std::sort(list, list + most);
        }
      }
      sequences.ChooseBlocks(most, kBlock, lists);
      const std::vector<float> out = sequences.RunInChunks(pool1, 0, kLength);
      EXPECT_EQ(out, sequences.RunInChunks(pool3, 0, 257));
      const int width = shape.num_heads * shape.value_dim();
      EXPECT_EQ(
          0, std::memcmp(all.data(), out.data(), static_cast<size_t>(most * kBlock * width) * 4));
      for (const int head : {0, shape.num_heads - 1}) {
        for (const int token : {0, most * kBlock, 255, 256, kLength - 1}) {
          const std::vector<double> expected = sequences.Exact(0, token, head);
          const auto at = static_cast<size_t>(token * width + head * shape.value_dim());
          for (size_t d = 0; d < expected.size(); ++d)
            ASSERT_NEAR(out[at + d], expected[d], tolerance) << token << " of " << most;
        }
      }
      // A decoding step that is split between threads.
      const size_t last = out.size() - static_cast<size_t>(width);
      const auto step = sequences.Step(pool3, {{0, kLength - 1, 1}})[0];
      EXPECT_EQ(0, std::memcmp(out.data() + last, step.data(), step.size() * 4));
    }
    sequences.ChooseBlocks(kBlocks, kBlock,
                           std::vector<int32_t>(static_cast<size_t>(kLength * kBlocks) *
                                                static_cast<size_t>(shape.num_kv_heads)));
    EXPECT_EQ(all, sequences.RunInChunks(pool3, 0, 257));
  }
}

TEST_P(AttentionTest, RoundsToBf16) {
  Random random(4);
  ThreadPool pool(2);
  Sequences sequences(random, kShapes[0], {100});
  for (bool bf16_products : {false, true}) {
    const auto exact = sequences.Step(pool, {{0, 0, 100}}, ElementType::kF32, bf16_products);
    const auto rounded = sequences.Step(pool, {{0, 0, 100}}, ElementType::kBF16, bf16_products);
    EXPECT_EQ(Rounded(exact[0]), rounded[0]);
  }
}

// The errors of BF16 products are about as large as the error of rounding the result.
TEST_P(AttentionTest, Bf16ProductsAreNearlyExact) {
  Random random(8);
  ThreadPool pool(2);
  for (const Shape& shape : kShapes) {
    Sequences sequences(random, shape, {300});
    const auto exact = sequences.Step(pool, {{0, 0, 300}}, ElementType::kF32, false)[0];
    const auto nearly = sequences.Step(pool, {{0, 0, 300}}, ElementType::kF32, true)[0];
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += std::pow(nearly[i] - exact[i], 2);
      size += std::pow(exact[i], 2);
    }
    EXPECT_LT(std::sqrt(error / size), 0x1p-8f) << shape.head_dim;
    if (GetParam() == Isa::kAmx) continue;  // AMX splits numbers in two
    const bool rounds = GetParam() == Isa::kAvx512Bf16 && shape.span.window != 1 &&
                        (shape.type == ElementType::kBF16 || shape.type == ElementType::kF8E4M3);
    EXPECT_EQ(error != 0, rounds) << shape.head_dim;
  }
}

// A NaN in a later token must not affect earlier rows.
TEST_P(AttentionTest, LaterTokensCannotPoisonEarlierOnes) {
  Random random(5);
  ThreadPool pool(2);
  for (auto [shape, type] : ShapesAndResults()) {
    Sequences sequences(random, shape, {40});
    const std::vector<float> clean = sequences.RunInChunks(pool, 0, 40, type);
    const int64_t kv_width = int64_t{shape.num_kv_heads} * shape.head_dim;
    for (int64_t i = 21 * kv_width; i < 22 * kv_width; ++i) {
      sequences.v(0)[i] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::vector<float> out = sequences.RunInChunks(pool, 0, 40, type);
    const size_t before = size_t{21} * shape.num_heads * shape.value_dim();
    EXPECT_EQ(0, std::memcmp(clean.data(), out.data(), before * 4)) << shape.head_dim;
    EXPECT_FALSE(std::isfinite(out[before]));
  }
}

// A row must not be affected by positions that its span hides: tokens before its chunk or window,
// and stale contents of reused blocks.
TEST_P(AttentionTest, HiddenTokensCannotPoisonLaterOnes) {
  Random random(6);
  ThreadPool pool(2);
  for (auto [shape, type] : ShapesAndResults()) {
    if (shape.span == AttentionSpan()) continue;
    const int length = 300;
    Sequences sequences(random, shape, {length});
    const std::vector<float> clean = sequences.RunInChunks(pool, 0, 77, type);
    const int64_t kv_width = int64_t{shape.num_kv_heads} * shape.head_dim;
    const int poisoned = 150;
    for (int64_t i = 0; i < kv_width; ++i)
      sequences.v(0)[poisoned * kv_width + i] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = sequences.RunInChunks(pool, 0, 77, type);
    const int64_t width = int64_t{shape.num_heads} * shape.value_dim();
    for (int token = 0; token < length; ++token) {
      const bool sees = token >= poisoned && shape.span.FirstSeen(token) <= poisoned;
      if (sees) {
        EXPECT_TRUE(std::isnan(out[token * width])) << token;
      } else {
        ASSERT_EQ(0, std::memcmp(clean.data() + token * width, out.data() + token * width,
                                 static_cast<size_t>(width) * 4))
            << "head_dim " << shape.head_dim << " chunk " << shape.span.chunk << " window "
            << shape.span.window << " token " << token;
      }
    }
  }
}

// Values far out of range saturate; NaN stays NaN.
TEST_P(AttentionTest, Fp8SaturatesWhatItStores) {
  Random random(7);
  ThreadPool pool(1);
  const Shape shape{1, 1, 32, 16, ElementType::kF8E4M3, {}, 1, 0.5f};
  Sequences sequences(random, shape, {1});
  const float values[] = {1000,    -1000, 224, -0.0f, std::numeric_limits<float>::infinity(),
                          0.12345f};
  std::copy(std::begin(values), std::end(values), sequences.v(0).begin());
  sequences.v(0)[31] = std::numeric_limits<float>::quiet_NaN();
  for (ElementType type : kResults) {
    const std::vector<float> out = sequences.RunInChunks(pool, 0, 1, type);
    const float expected[] = {224, -224, 224, 0, 224, 0.125f};
    for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(out[i], expected[i]) << i;
    EXPECT_TRUE(std::isnan(out[31]));
  }
}

// A row that sees a single position returns its values. Covers every code, in tiles of each number
// of rows.
TEST_P(AttentionTest, ReadsEveryCodeOfAPosition) {
  constexpr int kDim = 256;
  ThreadPool pool(1);
  for (const int heads : {1, 2, 3, 4, 5, 8, 16, 17, 24}) {
    for (const ElementType type : kResults) {
      const KvLayout layout{1, kDim, 16, ElementType::kF8E4M3};
      std::vector<uint8_t> k(16 * kDim, 0), v(16 * kDim, 0x7F);
      for (int d = 0; d < kDim; ++d)
        v[static_cast<size_t>(ValueCodeOffset(kDim, 0, d))] = static_cast<uint8_t>(d);
      const int32_t block = 0;
      const AttentionSlice slice{0, 1, 0, &block};
      const std::vector<float> q(static_cast<size_t>(heads * kDim), 1);
      std::vector<std::byte> scratch(
          static_cast<size_t>(AttentionScratchBytes(layout, heads, 1, 1, 16, pool.num_threads())));
      std::vector<float> out(q.size());
      Attention(pool, {layout, k.data(), v.data()}, {&slice, 1}, {}, q.data(), heads * kDim, heads,
                {.bf16_products = type == ElementType::kBF16}, out.data(), ElementType::kF32,
                scratch);
      for (int i = 0; i < heads * kDim; ++i) {
        const float expected = ToFloat(Float8E4M3{static_cast<uint8_t>(i % kDim)});
        if (std::isnan(expected))
          EXPECT_TRUE(std::isnan(out[static_cast<size_t>(i)]))
              << heads << " heads, code " << i % kDim;
        else
          EXPECT_EQ(out[static_cast<size_t>(i)], expected) << heads << " heads, code " << i % kDim;
      }
    }
  }
}

TEST_P(AttentionTest, DecodesEveryCode) {
  std::vector<uint8_t> codes(512);
  std::vector<uint16_t> decoded(codes.size());
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  kDecodeE4M3(codes.data(), static_cast<int64_t>(codes.size()), decoded.data());
  for (size_t i = 0; i < codes.size(); ++i) {
    const float expected = ToFloat(Float8E4M3{codes[i]});
    EXPECT_EQ(decoded[i], sluice::ToBFloat16(expected).bits) << i;
    if (std::isfinite(expected)) {
      EXPECT_EQ(ToFloat(BFloat16{decoded[i]}), expected) << i;
    }
  }
}

INSTANTIATE_KERNEL_TEST(AttentionTest);

}  // namespace
}  // namespace sluice::kernels
