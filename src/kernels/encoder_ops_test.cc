// Tests the operators of encoders: layer norm, GELU, bidirectional attention.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/bidirectional_attention.h"
#include "kernels/gelu.h"
#include "kernels/kernel_testing.h"
#include "kernels/layer_norm.h"
#include "tensor/buffer.h"

namespace sluice::kernels {
namespace {

class EncoderOpsTest : public KernelTest {};

TEST_P(EncoderOpsTest, LayerNormOfEachRow) {
  Random random(1);
  ThreadPool pool(2);
  for (const int64_t cols : {1, 7, 33, 64, 384, 1000}) {
    const int64_t rows = 3;
    std::vector<float> x = random.Normal(rows * cols, 3);
    for (float& value : x) value += 5;
    const std::vector<float> weight = random.Normal(cols), bias = random.Normal(cols), input = x;
    std::vector<BFloat16> rounded(x.size());
    LayerNorm(pool, x.data(), weight.data(), bias.data(), 1e-5f, rows, cols, rounded.data(),
              ElementType::kBF16);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = input.data() + row * cols;
      const double mean = std::accumulate(from, from + cols, 0.0) / static_cast<double>(cols);
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += (from[i] - mean) * (from[i] - mean);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      for (int64_t i = 0; i < cols; ++i) {
        const auto k = static_cast<size_t>(row * cols + i);
        const double want = (from[i] - mean) * factor * weight[static_cast<size_t>(i)] +
                            bias[static_cast<size_t>(i)];
        EXPECT_NEAR(x[k], want, 3e-5) << cols;
        EXPECT_EQ(rounded[k].bits, sluice::ToBFloat16(x[k]).bits);
      }
    }
    // A row's result does not depend on the other rows.
    std::vector<float> alone(input.begin() + cols, input.begin() + 2 * cols);
    LayerNorm(pool, alone.data(), weight.data(), bias.data(), 1e-5f, 1, cols, nullptr,
              ElementType::kF32);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), x.begin() + cols));
  }
}

TEST_P(EncoderOpsTest, GeluByErf) {
  ThreadPool pool(2);
  std::vector<float> x;
  for (int i = -3000; i <= 3000; ++i) x.push_back(static_cast<float>(i) * 0.005f);
  x.push_back(-100);
  x.push_back(100);
  std::vector<float> y(x.size());
  Gelu(pool, x.data(), static_cast<int64_t>(x.size()), y.data(), ElementType::kF32);
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = 0.5 * x[i] * (1 + std::erf(x[i] / std::sqrt(2.0)));
    EXPECT_NEAR(y[i], want, 1e-6 * std::max(1.0f, std::abs(x[i]))) << x[i];
  }
}

TEST_P(EncoderOpsTest, GatedGeluByErf) {
  ThreadPool pool(2);
  Random random(3);
  const int64_t rows = 3, width = 1500;
  const std::vector<float> x = random.Normal(rows * 2 * width, 2);
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    std::vector<float> gates_changed = x;
    std::vector<float> y(static_cast<size_t>(rows * width));
    GeluErfMul(pool, gates_changed.data(), rows, width, y.data(), type);
    for (int64_t i = 0; i < rows * width; ++i) {
      const double gate = x[static_cast<size_t>(i / width * 2 * width + i % width)];
      const double up = x[static_cast<size_t>(i / width * 2 * width + width + i % width)];
      const double want = 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0))) * up;
      const float got = type == ElementType::kF32
                            ? y[static_cast<size_t>(i)]
                            : ToFloat(reinterpret_cast<const BFloat16*>(y.data())[i]);
      EXPECT_NEAR(got, want, (type == ElementType::kF32 ? 2e-6 : 0.005) * (1 + std::abs(want)) * 4)
          << i;
    }
  }
}

// Compares sequences of several lengths in one step with the formula.
TEST_P(EncoderOpsTest, AttentionSeesTheTokensBehind) {
  Random random(2);
  for (const auto& [type, reach] : {std::pair{ElementType::kF32, 0},
                                    {ElementType::kBF16, 0},
                                    {ElementType::kF32, 1},
                                    {ElementType::kF32, 64},
                                    {ElementType::kBF16, 100},
                                    {ElementType::kF32, 400}}) {
    const int heads = 3, dim = 32, block = 16, width = heads * dim;
    const std::vector<int> lengths = {1, 5, 70, 300};
    const int rows = std::accumulate(lengths.begin(), lengths.end(), 0);
    const KvLayout layout{
        .num_kv_heads = heads, .head_dim = dim, .block_size = block, .type = type};
    std::vector<std::vector<int32_t>> tables;
    std::vector<AttentionSlice> slices;
    int32_t next_block = 0;
    int64_t first_row = 0;
    for (const int length : lengths) {
      tables.emplace_back(static_cast<size_t>((length + block - 1) / block));
      for (int32_t& id : tables.back()) id = next_block++;
      slices.push_back({first_row, length, 0, tables.back().data()});
      first_row += length;
    }
    const auto bytes = static_cast<size_t>(next_block * layout.BlockElements() * 4);
    Buffer k_memory = *Buffer::Allocate(bytes, "test"), v_memory = *Buffer::Allocate(bytes, "test");
    const KvCacheView cache{.layout = layout,
                            .k = k_memory.As<std::byte>().data(),
                            .v = v_memory.As<std::byte>().data()};
    const auto make = [&] {
      const std::vector<float> values = random.Normal(int64_t{rows} * width);
      return type == ElementType::kBF16 ? Rounded(values) : values;
    };
    const std::vector<float> q = make(), k = make(), v = make();
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      AppendKv(pool, cache, slices, k.data(), v.data(), width);
      Buffer scratch = *Buffer::Allocate(
          static_cast<size_t>(AttentionScratchBytes(layout, heads, rows, 4, 512, threads)), "test");
      std::vector<float>& out = results.emplace_back(q.size());
      BidirectionalAttention(pool, cache, slices, reach, q.data(), width, heads, 0.2f, out.data(),
                             ElementType::kF32, scratch.As<std::byte>());
    }
    EXPECT_EQ(results[0], results[1]);
    for (const AttentionSlice& slice : slices) {
      for (int64_t row = slice.first_row; row < slice.first_row + slice.num_tokens; row += 7) {
        for (int head = 0; head < heads; ++head) {
          std::vector<double> weights;
          for (int64_t other = slice.first_row; other < slice.first_row + slice.num_tokens;
               ++other) {
            if (reach > 0 && std::abs(other - row) > reach) {
              weights.push_back(0);
              continue;
            }
            double score = 0;
            for (int d = 0; d < dim; ++d)
              score += double{q[row * width + head * dim + d]} * k[other * width + head * dim + d];
            weights.push_back(std::exp(0.2 * score));
          }
          const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
          for (int d = 0; d < dim; d += 5) {
            double want = 0;
            for (size_t i = 0; i < weights.size(); ++i) {
              want += weights[i] / sum *
                      v[(slice.first_row + static_cast<int64_t>(i)) * width + head * dim + d];
            }
            EXPECT_NEAR(results[0][row * width + head * dim + d], want,
                        type == ElementType::kBF16 ? 0.02 : 1e-5);
          }
        }
      }
    }
  }
}

INSTANTIATE_KERNEL_TEST(EncoderOpsTest);

}  // namespace
}  // namespace sluice::kernels
