#include "kernels/select_blocks.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/kernel_testing.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {
namespace {

class SelectBlocksTest : public KernelTest {};
INSTANTIATE_KERNEL_TEST(SelectBlocksTest);

constexpr int kBlock = 32;

// A sequence with an indexer's keys and queries.
class BlockSequence {
 public:
  BlockSequence(Random& random, ElementType type, int length, int heads, int dim, int block_size)
      : heads_(heads),
        keys_(random.Normal(int64_t{length} * dim)),
        q_(random.Normal(int64_t{length} * heads * dim)) {
    layout_ = {.num_kv_heads = heads, .head_dim = 8, .block_size = block_size, .type = type};
    layout_.side_dim = dim;
    const int blocks = (length + block_size - 1) / block_size + 2;
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random.engine());
    const auto bytes = static_cast<size_t>(blocks * layout_.BlockElements()) * 4;
    k_ = *Buffer::Allocate(bytes, "test");
    v_ = *Buffer::Allocate(bytes, "test");
  }

  // Returns the blocks that each head of each token of [context, context + count) chooses.
  std::vector<int32_t> Step(ThreadPool& pool, int context, int count, int top_k, int local = 1) {
    const AttentionSlice slice{0, count, context, table_.data()};
    const KvCacheView cache{layout_, k_.data(), v_.data(), 1, 1};
    const int dim = layout_.side_dim;
    AppendSide(pool, cache, {&slice, 1}, keys_.data() + context * dim, dim);
    std::vector<std::byte> scratch(static_cast<size_t>(
        SelectBlocksScratchBytes(layout_, heads_, kBlock, context + count, pool.num_threads())));
    std::vector<int32_t> chosen(static_cast<size_t>(count * heads_ * top_k), -1);
    SelectBlocks(pool, cache, {&slice, 1},
                 {.q = q_.data() + int64_t{context} * heads_ * dim,
                  .num_heads = heads_,
                  .block = kBlock,
                  .local = local},
                 top_k, chosen.data(), scratch);
    return chosen;
  }

  // Returns a head's score of a block for a token.
  double Score(int token, int head, int block) const {
    const auto dim = static_cast<size_t>(layout_.side_dim);
    double largest = -std::numeric_limits<double>::infinity();
    for (int p = block * kBlock; p < std::min((block + 1) * kBlock, token + 1); ++p) {
      double dot = 0;
      for (size_t d = 0; d < dim; ++d) {
        dot += double{q_[static_cast<size_t>(token * heads_ + head) * dim + d]} *
               Stored(keys_[static_cast<size_t>(p) * dim + d]);
      }
      largest = std::max(largest, dot);
    }
    return largest;
  }
  std::vector<float>& keys() { return keys_; }

 private:
  double Stored(float value) const {
    switch (layout_.type) {
      case ElementType::kBF16: return ToFloat(sluice::ToBFloat16(value));
      case ElementType::kF16: return ToFloat(ToFloat16(value));
      case ElementType::kF8E4M3: return ToFloat(ToFloat8E4M3(value));
      default: return value;
    }
  }

  int heads_;
  KvLayout layout_;
  std::vector<float> keys_, q_;
  std::vector<int32_t> table_;
  Buffer k_, v_;
};

TEST_P(SelectBlocksTest, ChoosesTheLargestScoresAndTheLocalBlocks) {
  Random random(1);
  ThreadPool pool(2);
  constexpr int kLength = 300, kHeads = 5;
  for (const ElementType type :
       {ElementType::kF32, ElementType::kBF16, ElementType::kF16, ElementType::kF8E4M3}) {
    BlockSequence sequence(random, type, kLength, kHeads, 12, type == ElementType::kF16 ? 4 : 16);
    for (const auto& [top_k, local] : {std::pair(1, 1), std::pair(3, 1), std::pair(4, 3)}) {
      const std::vector<int32_t> chosen = sequence.Step(pool, 0, kLength, top_k, local);
      for (int token = 0; token < kLength; ++token) {
        const int own = token / kBlock;
        for (int head = 0; head < kHeads; ++head) {
          const auto first = chosen.begin() + (token * kHeads + head) * top_k;
          if (own < top_k) {
            EXPECT_EQ(*first, -1);
            continue;
          }
          ASSERT_TRUE(std::is_sorted(first, first + top_k));
          ASSERT_EQ(std::adjacent_find(first, first + top_k), first + top_k);
          for (int i = 0; i < local; ++i) ASSERT_EQ(first[top_k - 1 - i], own - i);
          double least = std::numeric_limits<double>::infinity(), most_left = -least;
          for (int block = 0; block + local <= own; ++block) {
            const double score = sequence.Score(token, head, block);
            if (std::binary_search(first, first + top_k, block))
              least = std::min(least, score);
            else
              most_left = std::max(most_left, score);
          }
          ASSERT_GE(least, most_left - 1e-4) << token << " of " << top_k;
        }
      }
    }
  }
}

TEST_P(SelectBlocksTest, ChunksAndThreadsDoNotMatter) {
  Random random(2);
  ThreadPool pool1(1), pool3(3);
  constexpr int kTopK = 5, kLength = 700;
  BlockSequence sequence(random, ElementType::kBF16, kLength, 4, 32, 16);
  const std::vector<int32_t> whole = sequence.Step(pool1, 0, kLength, kTopK);
  for (const int chunk : {1, 77, 257}) {
    std::vector<int32_t> parts;
    for (int context = 0; context < kLength; context += chunk) {
      const auto part = sequence.Step(pool3, context, std::min(chunk, kLength - context), kTopK);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << chunk;
  }
}

// Among equal scores the earlier blocks are chosen; a block of NaN alone is chosen last.
TEST_P(SelectBlocksTest, TiesAndNaNs) {
  Random random(3);
  ThreadPool pool(2);
  constexpr int kLength = 6 * kBlock, kDim = 4;
  BlockSequence sequence(random, ElementType::kF32, kLength, 1, kDim, 16);
  std::fill(sequence.keys().begin(), sequence.keys().end(), 0.0f);
  std::fill_n(sequence.keys().begin(), kBlock * kDim, std::numeric_limits<float>::quiet_NaN());
  const std::vector<int32_t> chosen = sequence.Step(pool, 0, kLength, 4);
  EXPECT_EQ(std::vector<int32_t>(chosen.end() - 4, chosen.end()),
            (std::vector<int32_t>{1, 2, 3, 5}));
}

}  // namespace
}  // namespace sluice::kernels
