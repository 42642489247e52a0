// rope_table and rope_append.
#include <cmath>
#include <optional>

#include "kernels/cuda/device_kernel_testing.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace sluice::emulated {
namespace {

TEST(DeviceRopeTable, IsThatOfTheCpu) {
  ThreadPool pool(1);
  const std::vector<int32_t> positions = {0, 1, 511, 131071, 1048575};
  for (const int head_dim : {32, 64, 128, 256}) {
    const std::vector<float> frequencies =
        kernels::RopeFrequencies(head_dim, 500000.0, std::nullopt);
    std::vector<float> expected(positions.size() * static_cast<size_t>(head_dim));
    kernels::RopeTable(pool, positions, frequencies, expected.data());
    const auto table = ResultOfBothOrders<float>(
        static_cast<int64_t>(expected.size()), -2, [&](const StreamHandle& stream, float* out) {
          LaunchRopeTable(stream, {.positions = positions.data(),
                                   .frequencies = frequencies.data(),
                                   .rows = static_cast<int64_t>(positions.size()),
                                   .head_dim = head_dim,
                                   .cos_sin = out});
        });
    // The library's functions are the same here; those of a GPU are off by 2 in the last place.
    EXPECT_EQ(table, expected);
  }
}

struct Case {
  int head_dim, num_heads, num_kv_heads;
  bool norm_before, norm_after, rope, interleaved, temperature, is_bf16, cache_is_f8;
};

constexpr int kBlockSize = 4;
constexpr float kEps = 1e-5f, kFloor = 8, kTemperature = 0.1f, kKScale = 0.013f, kVScale = 0.02f;

// Everything that one step needs; rows stand at scattered positions and slots.
struct Inputs {
  Case shape;
  std::vector<int32_t> positions = {0, 5, 130, 7, 4095};
  std::vector<int64_t> slots = {9, 3, 0, 22, 11};
  std::vector<float> qkv, q_norm, k_norm, cos_sin;
  std::vector<BFloat16> qkv_bf16;

  Inputs(const Case& shape, uint32_t seed) : shape(shape) {
    kernels::Random random(seed);
    ThreadPool pool(1);
    qkv = random.Normal(rows() * width(), 2.0f);
    if (shape.is_bf16) qkv = kernels::Rounded(qkv);
    qkv_bf16 = kernels::ToBFloat16(qkv);
    q_norm = random.Normal(shape.head_dim);
    k_norm = random.Normal(shape.head_dim);
    const auto frequencies = kernels::RopeFrequencies(shape.head_dim, 10000.0, std::nullopt);
    cos_sin.resize(static_cast<size_t>(rows() * shape.head_dim));
    kernels::RopeTable(pool, positions, frequencies, cos_sin.data());
  }
  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t width() const {
    return int64_t{shape.num_heads + 2 * shape.num_kv_heads} * shape.head_dim;
  }
  int64_t q_width() const { return int64_t{shape.num_heads} * shape.head_dim; }
  int64_t kv_width() const { return int64_t{shape.num_kv_heads} * shape.head_dim; }
  int64_t cache_numbers() const { return 6 * kBlockSize * kv_width(); }
};

// q, then the caches of K and V as bytes (two a number of BF16), of rows [first, first + count).
std::vector<uint8_t> RunKernel(const Inputs& in, int64_t first, int64_t count) {
  const Case& shape = in.shape;
  const int64_t q_bytes = in.rows() * in.q_width() * 2;
  const int64_t cache_bytes = in.cache_numbers() * (shape.cache_is_f8 ? 1 : 2);
  return ResultOfBothOrders<uint8_t>(
      q_bytes + 2 * cache_bytes, 0xEE, [&](const StreamHandle& stream, uint8_t* out) {
        const void* qkv = shape.is_bf16
                              ? static_cast<const void*>(in.qkv_bf16.data() + first * in.width())
                              : in.qkv.data() + first * in.width();
        LaunchRopeAppend(
            stream,
            {.qkv = qkv,
             .qkv_type = shape.is_bf16 ? ElementType::kBF16 : ElementType::kF32,
             .rows = count,
             .num_heads = shape.num_heads,
             .q_norm = shape.norm_before ? in.q_norm.data() : nullptr,
             .k_norm = shape.norm_before ? in.k_norm.data() : nullptr,
             .norms_after_rope = shape.norm_after,
             .eps = kEps,
             .rope = shape.rope,
             .interleaved = shape.interleaved,
             .cos_sin = in.cos_sin.data() + first * shape.head_dim,
             .positions = in.positions.data() + first,
             .temperature_floor = shape.temperature ? kFloor : 0,
             .temperature_scale = kTemperature,
             .slots = in.slots.data() + first,
             .q = reinterpret_cast<uint16_t*>(out) + first * in.q_width(),
             .cache = {.k = out + q_bytes,
                       .v = out + q_bytes + cache_bytes,
                       .type = shape.cache_is_f8 ? ElementType::kF8E4M3 : ElementType::kBF16,
                       .k_scale = kKScale,
                       .v_scale = kVScale,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_dim = shape.head_dim,
                       .block_size = kBlockSize}});
      });
}

// The steps of models/layers/attention.cc, one by one, in F32.
std::vector<float> RunCpu(const Inputs& in) {
  const Case& shape = in.shape;
  ThreadPool pool(1);
  std::vector<float> qkv = in.qkv;
  const auto norm = [&](const float* q_norm, const float* k_norm) {
    kernels::HeadRmsNorm(pool, qkv.data(), in.width(), q_norm, kEps, in.rows(), shape.num_heads,
                         shape.head_dim);
    kernels::HeadRmsNorm(pool, qkv.data() + in.q_width(), in.width(), k_norm, kEps, in.rows(),
                         shape.num_kv_heads, shape.head_dim);
  };
  if (shape.norm_before) norm(in.q_norm.data(), in.k_norm.data());
  if (shape.rope) {
    kernels::ApplyRope(
        pool, qkv.data(), in.width(), in.rows(), shape.num_heads + shape.num_kv_heads,
        shape.head_dim,
        shape.interleaved ? kernels::RopeStyle::kInterleaved : kernels::RopeStyle::kHalf,
        in.cos_sin.data());
  }
  const std::vector<float> ones(static_cast<size_t>(shape.head_dim), 1.0f);
  if (shape.norm_after) norm(ones.data(), ones.data());
  for (int64_t row = 0; shape.temperature && row < in.rows(); ++row) {
    const auto position = static_cast<float>(in.positions[static_cast<size_t>(row)]);
    const float factor = std::log1p(std::floor((position + 1.0f) / kFloor)) * kTemperature + 1.0f;
    for (int64_t i = 0; i < in.q_width(); ++i) qkv[row * in.width() + i] *= factor;
  }
  return qkv;
}

// Expects a number that is between `expected` minus and plus `error`, both rounded the same way.
void ExpectNumber(const uint8_t* bytes, int64_t index, bool is_f8, float scale, float expected,
                  float error) {
  const auto round = [&](float value) {
    return is_f8 ? ToFloat(ToFloat8E4M3(value / scale)) : ToFloat(sluice::ToBFloat16(value));
  };
  uint16_t bits = 0;
  memcpy(&bits, bytes + index * (is_f8 ? 1 : 2), is_f8 ? 1 : 2);
  const float value =
      is_f8 ? ToFloat(Float8E4M3{static_cast<uint8_t>(bits)}) : ToFloat(BFloat16{bits});
  ASSERT_GE(value, round(expected - error)) << expected;
  ASSERT_LE(value, round(expected + error)) << expected;
}

void ExpectAgreement(const Inputs& in) {
  const Case& shape = in.shape;
  const std::vector<uint8_t> out = RunKernel(in, 0, in.rows());
  const std::vector<float> expected = RunCpu(in);
  const int64_t cache_bytes = in.cache_numbers() * (shape.cache_is_f8 ? 1 : 2);
  const uint8_t* k = out.data() + in.rows() * in.q_width() * 2;
  const uint8_t* v = k + cache_bytes;
  // Without a norm every operation is the CPU's. A norm adds head_dim squares in F32, 8 a lane and
  // then 5 levels, half of whose error counts, and a few roundings; rope turns the error of one
  // number of a pair into that of both.
  const bool has_norm = shape.norm_before || shape.norm_after;
  const float error = has_norm ? 12 * 0x1p-24f : 0;
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (int64_t row = 0; row < in.rows(); ++row) {
    const float* numbers = expected.data() + row * in.width();
    for (int64_t i = 0; i < in.q_width(); ++i) {
      ExpectNumber(out.data(), row * in.q_width() + i, false, 1, numbers[i], error * largest);
    }
    const int64_t slot = in.slots[static_cast<size_t>(row)];
    for (int64_t i = 0; i < in.kv_width(); ++i) {
      const int64_t head = i / shape.head_dim;
      const int64_t at =
          ((slot / kBlockSize * shape.num_kv_heads + head) * kBlockSize + slot % kBlockSize) *
              shape.head_dim +
          i % shape.head_dim;
      const float* keys = numbers + in.q_width();
      ExpectNumber(k, at, shape.cache_is_f8, kKScale, keys[i], error * largest);
      ExpectNumber(v, at, shape.cache_is_f8, kVScale, keys[in.kv_width() + i], 0);
    }
  }
  // Nothing else of the cache is touched.
  const auto untouched = std::count(k, k + 2 * cache_bytes, uint8_t{0xEE});
  EXPECT_GE(untouched, 2 * cache_bytes * 19 / 24);
  // A row alone: the same q, and nothing but its own slots.
  std::vector<uint8_t> merged = out;
  for (int64_t row = 0; row < in.rows(); ++row) {
    const std::vector<uint8_t> alone = RunKernel(in, row, 1);
    for (size_t i = 0; i < merged.size(); ++i) {
      if (alone[i] == 0xEE) continue;
      ASSERT_EQ(alone[i], out[i]) << "row " << row << " depends on the batch";
      merged[i] = 0xEE;
    }
  }
  EXPECT_EQ(std::count(merged.begin(), merged.end(), 0xEE), static_cast<int64_t>(merged.size()));
}

TEST(DeviceRopeAppend, AgreesWithTheCpu) {
  kernels::SelectIsa(kernels::Isa::kReference);
  uint32_t seed = 1;
  for (const int head_dim : {32, 64, 128, 256}) {
    for (const bool is_bf16 : {false, true}) {
      for (const bool cache_is_f8 : {false, true}) {
        Case shape{.head_dim = head_dim,
                   .num_heads = 6,
                   .num_kv_heads = 2,
                   .norm_before = false,
                   .norm_after = false,
                   .rope = true,
                   .interleaved = false,
                   .temperature = false,
                   .is_bf16 = is_bf16,
                   .cache_is_f8 = cache_is_f8};
        SCOPED_TRACE(testing::Message() << head_dim << ", " << is_bf16 << cache_is_f8);
        ExpectAgreement(Inputs(shape, ++seed));  // Llama 3
        shape.norm_before = true;
        ExpectAgreement(Inputs(shape, ++seed));  // Qwen 3
        shape.norm_before = false, shape.interleaved = true, shape.norm_after = true;
        ExpectAgreement(Inputs(shape, ++seed));  // Llama 4
        shape.norm_after = false;
        ExpectAgreement(Inputs(shape, ++seed));
        shape.rope = false, shape.temperature = true;
        ExpectAgreement(Inputs(shape, ++seed));  // Llama 4, every fourth layer
        shape.num_heads = 1, shape.num_kv_heads = 1, shape.rope = true;
        ExpectAgreement(Inputs(shape, ++seed));
      }
    }
  }
}

TEST(DeviceRopeAppend, SaturatesWhatTheCacheCannotHold) {
  Inputs in({.head_dim = 32,
             .num_heads = 1,
             .num_kv_heads = 1,
             .norm_before = false,
             .norm_after = false,
             .rope = false,
             .interleaved = false,
             .temperature = false,
             .is_bf16 = false,
             .cache_is_f8 = true},
            3);
  in.qkv[32] = 1e9f;       // k of row 0
  in.qkv[64 + 1] = -1e9f;  // v
  const std::vector<uint8_t> out = RunKernel(in, 0, 1);
  const int64_t k = in.rows() * in.q_width() * 2, v = k + in.cache_numbers();
  EXPECT_EQ(out[k + 9 * 32], 0x7E);      // 448
  EXPECT_EQ(out[v + 9 * 32 + 1], 0xFE);  // -448
}

}  // namespace
}  // namespace sluice::emulated
