#include "kernels/select_positions.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/kernel_testing.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {
namespace {

class SelectPositionsTest : public KernelTest {};
INSTANTIATE_KERNEL_TEST(SelectPositionsTest);

// A sequence with an indexer's keys and queries.
class IndexedSequence {
 public:
  IndexedSequence(Random& random, ElementType type, int length, int heads, int dim, int block_size)
      : length_(length),
        heads_(heads),
        keys_(random.Normal(int64_t{length} * dim)),
        q_(random.Normal(int64_t{length} * heads * dim)),
        weights_(random.Normal(int64_t{length} * heads)) {
    layout_ = {.num_kv_heads = 1, .head_dim = 8, .block_size = block_size, .type = type};
    layout_.latent_dim = 4;
    layout_.side_dim = dim;
    const int blocks = (length + block_size - 1) / block_size + 2;
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random.engine());
    memory_ =
        *Buffer::Allocate(static_cast<size_t>(blocks * layout_.ValueBlockElements()) * 4, "test");
  }

  // Returns the positions that each token of [context, context + count) chooses.
  std::vector<int32_t> Step(ThreadPool& pool, int context, int count, int top_k) {
    const AttentionSlice slice{0, count, context, table_.data()};
    const KvCacheView cache{layout_, nullptr, memory_.data(), 1, 1};
    const int dim = layout_.side_dim;
    AppendSide(pool, cache, {&slice, 1}, keys_.data() + context * dim, dim);
    std::vector<std::byte> scratch(
        static_cast<size_t>(SelectScratchBytes(layout_, context + count, pool.num_threads())));
    std::vector<int32_t> chosen(static_cast<size_t>(count * top_k), -1);
    SelectPositions(pool, cache, {&slice, 1},
                    {.q = q_.data() + int64_t{context} * heads_ * dim,
                     .weights = weights_.data() + int64_t{context} * heads_,
                     .num_heads = heads_},
                    top_k, chosen.data(), scratch);
    return chosen;
  }

  double Score(int token, int position) const {
    const int dim = layout_.side_dim;
    double sum = 0;
    for (int head = 0; head < heads_; ++head) {
      double dot = 0;
      for (int d = 0; d < dim; ++d) {
        dot += static_cast<double>(q_[static_cast<size_t>((token * heads_ + head) * dim + d)]) *
               Stored(keys_[static_cast<size_t>(position * dim + d)]);
      }
      sum += weights_[static_cast<size_t>(token * heads_ + head)] * std::max(dot, 0.0);
    }
    return sum;
  }
  std::vector<float>& keys() { return keys_; }
  int length() const { return length_; }

 private:
  double Stored(float value) const {
    switch (layout_.type) {
      case ElementType::kBF16: return ToFloat(sluice::ToBFloat16(value));
      case ElementType::kF16: return ToFloat(ToFloat16(value));
      case ElementType::kF8E4M3: return ToFloat(ToFloat8E4M3(value));
      default: return value;
    }
  }

  int length_, heads_;
  KvLayout layout_;
  std::vector<float> keys_, q_, weights_;
  std::vector<int32_t> table_;
  Buffer memory_;
};

TEST_P(SelectPositionsTest, ChoosesTheLargestScores) {
  Random random(1);
  ThreadPool pool(2);
  for (const ElementType type :
       {ElementType::kF32, ElementType::kBF16, ElementType::kF16, ElementType::kF8E4M3}) {
    IndexedSequence sequence(random, type, 300, 5, 12, type == ElementType::kF16 ? 4 : 16);
    for (const int top_k : {1, 40, 256}) {
      const std::vector<int32_t> chosen = sequence.Step(pool, 0, 300, top_k);
      for (const int token : {0, top_k - 1, top_k, 257, 299}) {
        const auto first = chosen.begin() + token * top_k;
        if (token < top_k) {
          EXPECT_EQ(*first, -1);
          continue;
        }
        EXPECT_TRUE(std::is_sorted(first, first + top_k));
        double least = std::numeric_limits<double>::infinity(), most_left = -least;
        for (int position = 0; position <= token; ++position) {
          const double score = sequence.Score(token, position);
          if (std::binary_search(first, first + top_k, position))
            least = std::min(least, score);
          else
            most_left = std::max(most_left, score);
        }
        EXPECT_GE(least, most_left - 1e-4) << token << " of " << top_k;
        EXPECT_LE(first[top_k - 1], token);
      }
    }
  }
}

TEST_P(SelectPositionsTest, ChunksAndThreadsDoNotMatter) {
  Random random(2);
  ThreadPool pool1(1), pool3(3);
  constexpr int kTopK = 30;
  IndexedSequence sequence(random, ElementType::kBF16, 700, 4, 32, 16);
  const std::vector<int32_t> whole = sequence.Step(pool1, 0, 700, kTopK);
  for (const int chunk : {1, 77, 257}) {
    std::vector<int32_t> parts;
    for (int context = 0; context < 700; context += chunk) {
      const auto part = sequence.Step(pool3, context, std::min(chunk, 700 - context), kTopK);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << chunk;
  }
}

// If a key represents a group of tokens, a row chooses only among the keys of complete groups.
TEST_P(SelectPositionsTest, KeysOfGroups) {
  Random random(4);
  ThreadPool pool(2);
  constexpr int kTokens = 103, kRate = 4, kTopK = 5, kDim = 6, kHeads = 3;
  const std::vector<float> keys = random.Normal((kTokens / kRate) * kDim);
  const std::vector<float> q = random.Normal(kTokens * kHeads * kDim);
  const std::vector<float> weights = random.Normal(kTokens * kHeads);
  KvLayout layout{.num_kv_heads = 1, .head_dim = 8, .block_size = 16, .type = ElementType::kF32};
  layout.latent_dim = 8;
  layout.side_dim = kDim;
  layout.entries = 16 / kRate;
  const std::vector<int32_t> table = {2, 0, 5, 1, 6, 3, 4};
  std::vector<float> memory(7 * static_cast<size_t>(layout.ValueBlockElements()));
  const KvCacheView cache{layout.Entries(), nullptr, memory.data(), 1, 1};
  const AttentionSlice all{0, kTokens / kRate, 0, table.data()};
  AppendSide(pool, cache, {&all, 1}, keys.data(), kDim);
  const auto choose = [&](int context, int count) {
    const AttentionSlice slice{0, count, context, table.data()};
    std::vector<std::byte> scratch(
        static_cast<size_t>(SelectScratchBytes(cache.layout, kTokens, pool.num_threads())));
    std::vector<int32_t> chosen(static_cast<size_t>(count * kTopK), -1);
    SelectPositions(pool, cache, {&slice, 1},
                    {.q = q.data() + context * kHeads * kDim,
                     .weights = weights.data() + context * kHeads,
                     .num_heads = kHeads,
                     .rate = kRate},
                    kTopK, chosen.data(), scratch);
    return chosen;
  };
  const std::vector<int32_t> chosen = choose(0, kTokens);
  for (int token = 0; token < kTokens; ++token) {
    const int seen = (token + 1) / kRate;
    const auto first = chosen.begin() + token * kTopK;
    if (seen <= kTopK) {
      EXPECT_EQ(*first, -1);
      continue;
    }
    std::vector<std::pair<double, int32_t>> scores;
    for (int key = 0; key < seen; ++key) {
      double score = 0;
      for (int head = 0; head < kHeads; ++head) {
        double dot = 0;
        for (int d = 0; d < kDim; ++d)
          dot += double{q[static_cast<size_t>((token * kHeads + head) * kDim + d)]} *
                 keys[static_cast<size_t>(key * kDim + d)];
        score += weights[static_cast<size_t>(token * kHeads + head)] * std::max(dot, 0.0);
      }
      scores.emplace_back(-score, key);
    }
    std::sort(scores.begin(), scores.end());
    std::vector<int32_t> expected;
    for (size_t i = 0; i < kTopK; ++i) expected.push_back(scores[i].second);
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(std::vector<int32_t>(first, first + kTopK), expected) << token;
  }
  const std::vector<int32_t> last = choose(kTokens - 1, 1);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), chosen.end() - kTopK));
}

// Among equal scores the earlier positions are chosen; NaN is chosen last.
TEST_P(SelectPositionsTest, TiesAndNaNs) {
  Random random(3);
  ThreadPool pool(2);
  IndexedSequence sequence(random, ElementType::kF32, 50, 1, 4, 16);
  std::fill(sequence.keys().begin(), sequence.keys().end(), 0.0f);
  sequence.keys()[4 * 4] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> chosen = sequence.Step(pool, 0, 50, 6);
  const std::vector<int32_t> last(chosen.end() - 6, chosen.end());
  EXPECT_EQ(last.front(), 0);
  // max(0, NaN) is NaN or zero, depending on the instruction set; chosen positions are valid
  // anyway.
  for (const int32_t position : last) EXPECT_TRUE(position >= 0 && position < 8) << position;
}

}  // namespace
}  // namespace sluice::kernels
