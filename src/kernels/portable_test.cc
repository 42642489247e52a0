// Compares the portable kernels with exact definitions, and with stored bits that were computed
// once. Both tests run on x86-64 and aarch64, so the kernels' results are bit-identical on both.
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/attention.h"
#include "kernels/gelu_mul.h"
#include "kernels/kernel_testing.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/numeric_fingerprint.h"
#include "kernels/quantize_rows.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "kernels/silu_mul.h"

namespace sluice::kernels {
namespace {

class PortableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Isa isa : AvailableIsas()) {
      if (isa == Isa::kPortable) return SelectIsa(isa);
    }
    GTEST_SKIP() << "this CPU has neither AVX2 nor NEON";
  }
  void TearDown() override { ASSERT_TRUE(SelectIsa("auto").has_value()); }

  // Numbers in (-2, 2), generated without any library function.
  std::vector<float> Numbers(int64_t count) {
    std::vector<float> numbers;
    for (int64_t i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      numbers.push_back(static_cast<float>(static_cast<int32_t>(state_ >> 40) - (1 << 23)) *
                        0x1p-22F);
    }
    return numbers;
  }

  static uint64_t Hash(const void* data, size_t bytes) {
    uint64_t hash = 14695981039346656037U;
    const auto* byte = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 1099511628211U;
    return hash;
  }
  static uint64_t Hash(const std::vector<float>& values) {
    return Hash(values.data(), values.size() * sizeof(float));
  }

  ThreadPool pool_{2};
  uint64_t state_ = 1;
};

TEST_F(PortableTest, ProductsAreChainsOfMultiplyAdds) {
  for (const auto& [rows, outputs, inputs] :
       {std::tuple{1, 40, 300}, {2, 16, 31}, {7, 50, 513}, {95, 33, 64}}) {
    for (const ElementType weights : {ElementType::kBF16, ElementType::kF32}) {
      for (const bool has_bf16_inputs : {false, true}) {
        if (has_bf16_inputs && weights == ElementType::kF32) continue;
        std::vector<float> x = Numbers(int64_t{rows} * inputs);
        std::vector<float> w = Numbers(int64_t{outputs} * inputs);
        const std::vector<float> bias = Numbers(outputs);
        const std::vector<BFloat16> x_bf16 = ToBFloat16(x);
        if (has_bf16_inputs) x = Rounded(x);
        if (weights == ElementType::kBF16) w = Rounded(w);
        PackedMatrix packed = *AllocatePacked({.type = weights}, outputs, inputs, "test");
        PackRows(pool_, packed, 0, PlainMatrix(w.data(), ElementType::kF32, outputs, inputs), 0,
                 outputs);
        Activations in{.data = x.data(),
                       .type = ElementType::kF32,
                       .rows = rows,
                       .cols = inputs,
                       .stride = inputs};
        if (has_bf16_inputs) {
          in.data = x_bf16.data();
          in.type = ElementType::kBF16;
        }
        std::vector<float> y(static_cast<size_t>(rows * outputs));
        Linear(pool_, packed, in, y.data(), outputs, bias.data());
        for (int m = 0; m < rows; ++m) {
          for (int n = 0; n < outputs; ++n) {
            float sum = 0;
            for (int k = 0; k < inputs; ++k)
              sum = std::fma(x[static_cast<size_t>(m * inputs + k)],
                             w[static_cast<size_t>(n * inputs + k)], sum);
            ASSERT_EQ(y[static_cast<size_t>(m * outputs + n)], sum + bias[static_cast<size_t>(n)])
                << rows << " x " << outputs << " x " << inputs << " at " << m << ", " << n;
          }
        }
      }
    }
  }
}

TEST_F(PortableTest, Int8ProductsScaleExactSums) {
  constexpr int kRows = 5, kOutputs = 19, kInputs = 200;
  std::vector<int8_t> x(kRows * kInputs), w(kOutputs * kInputs);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<int8_t>(static_cast<int>(i * 91 % 255) - 127);
  const std::vector<float> x_scales = Numbers(kRows), w_scales = Numbers(kOutputs);
  const DataFormat format{.type = ElementType::kI8,
                          .scale_layout = DataFormat::ScaleLayout::kPerRow};
  PackedMatrix packed = *AllocatePacked(format, kOutputs, kInputs, "test");
  StoredMatrix stored{.format = format, .rows = kOutputs, .cols = kInputs};
  stored.data = reinterpret_cast<const std::byte*>(w.data());
  stored.scales = reinterpret_cast<const std::byte*>(w_scales.data());
  PackRows(pool_, packed, 0, stored, 0, kOutputs);
  std::vector<float> y(kRows * kOutputs);
  Linear(pool_, packed,
         {.data = x.data(),
          .type = ElementType::kI8,
          .rows = kRows,
          .cols = kInputs,
          .stride = kInputs,
          .scales = x_scales.data()},
         y.data(), kOutputs);
  EXPECT_EQ(Hash(y), 0x70450C0CBDA27ED7ULL);
}

// Runs the operators of a layer. The expected bits were computed on the first machine that ran this
// test.
TEST_F(PortableTest, HasTheBitsOfEveryMachine) {
  constexpr int kRows = 3, kCols = 203;
  std::vector<float> x = Numbers(2 * kRows * kCols);
  const std::vector<float> weight = Numbers(kCols), bias = Numbers(kCols);
  std::vector<float> y(kRows * kCols);
  RmsNorm(pool_, x.data(), kCols, weight.data(), 1e-5F, kRows, kCols, y.data(), ElementType::kF32);
  EXPECT_EQ(Hash(y), 0x97BDD7EB954CA08DULL);
  SiluMul(pool_, x.data(), kRows, kCols, y.data(), ElementType::kF32);
  EXPECT_EQ(Hash(y), 0xB7A63787D40699F5ULL);
  GeluMul(pool_, x.data(), kRows, kCols, y.data(), ElementType::kF32);
  EXPECT_EQ(Hash(y), 0x5358393873CC3C46ULL);
  LayerNorm(pool_, x.data(), weight.data(), bias.data(), 1e-5F, kRows, kCols, y.data(),
            ElementType::kF32);
  EXPECT_EQ(Hash(y), 0xE18A96583293E9C8ULL);
  const LogSumExp sum = ComputeLogSumExp(x);
  EXPECT_EQ(Hash({sum.largest, sum.log_sum}), 0xDD5C31B1D449515DULL);

  const std::vector<float> frequencies = RopeFrequencies(64, 500'000, {});
  const std::vector<int32_t> positions{0, 1, 77, 4095, 131'071};
  std::vector<float> table(positions.size() * 64);
  RopeTable(pool_, positions, frequencies, table.data());
  EXPECT_EQ(Hash(table), 0xF51BF5E6C6A9BAECULL);
}

TEST_F(PortableTest, AttentionHasTheBitsOfEveryMachine) {
  constexpr int kHeads = 4, kDim = 40, kLength = 700, kBlock = 16;
  constexpr uint64_t kBits[] = {0x59806795822B6D03ULL, 0x16D1A7D48D3991BCULL, 0x7750E458D023EE06ULL,
                                0x73A3C0F7B416D543ULL};
  size_t next = 0;
  for (const ElementType type : {ElementType::kBF16, ElementType::kF32, ElementType::kF8E4M3}) {
    for (const int window : {0, 75}) {
      if (window != 0 && type != ElementType::kBF16) continue;
      state_ = 99;
      const KvLayout layout{
          .num_kv_heads = 2, .head_dim = kDim, .block_size = kBlock, .type = type};
      constexpr int kBlocks = (kLength + kBlock - 1) / kBlock;
      const auto bytes = static_cast<size_t>(kBlocks * layout.BlockElements() * 4);
      Buffer k_cache = *Buffer::Allocate(bytes, "test"), v_cache = *Buffer::Allocate(bytes, "test");
      std::memset(k_cache.data(), 0, bytes);
      std::memset(v_cache.data(), 0, bytes);
      const KvCacheView cache{.layout = layout,
                              .k = k_cache.data(),
                              .v = v_cache.data(),
                              .k_scale = 0.03125F,
                              .v_scale = 0.03125F};
      std::vector<int32_t> blocks(kBlocks);
      std::iota(blocks.begin(), blocks.end(), 0);
      const std::vector<float> q = Numbers(kLength * kHeads * kDim),
                               k = Numbers(kLength * 2 * kDim), v = Numbers(kLength * 2 * kDim);
      const AttentionSlice slice{.num_tokens = kLength, .block_table = blocks.data()};
      AppendKv(pool_, cache, {&slice, 1}, k.data(), v.data(), 2 * kDim);
      const AttentionSpan span{.window = window};
      std::vector<std::byte> scratch(static_cast<size_t>(
          AttentionScratchBytes(layout, kHeads, kLength, 1, kLength, pool_.num_threads())));
      std::vector<float> out(kLength * kHeads * kDim);
      Attention(pool_, cache, {&slice, 1}, span, q.data(), kHeads * kDim, kHeads, {.scale = 0.25F},
                out.data(), ElementType::kF32, scratch);
      EXPECT_EQ(Hash(out), kBits[next]) << "case " << next;
      ++next;
    }
  }
}

// Samples of the math library's results are equal on all machines that were tested.
TEST_F(PortableTest, FingerprintIsThatOfOtherMachines) {
  EXPECT_EQ(PortableFingerprint(), 0x678C23D85507260AULL);
}

}  // namespace
}  // namespace sluice::kernels
