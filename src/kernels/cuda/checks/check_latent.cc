// Checks the rows of latent attention: the rows written to the cache, and the products of heads
// with the heads' own matrices. check_attention.cc checks attention over latent vectors.
#include <cmath>

#include <fmt/format.h>

#include "kernels/cuda/checks/check_indexer.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/tail_numbers.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct AppendShape {
  int64_t rows;
  int q_dim;
  int64_t latent_begin;
  int latent_dim;
  TailShape rope;
  ElementType type = ElementType::kBF16;
};

void CheckLatentAppend(CaseMemory& memory, Comparison& comparison, const AppendShape& shape) {
  constexpr int kBlockSize = 4, kBlockRows = 5;
  constexpr float kEps = 1e-5f, kScale = 0.125f;
  TestNumbers numbers(42);
  const int dim = shape.latent_dim + shape.rope.dim;
  const int64_t width = shape.latent_begin + dim;
  const std::vector<float> x = numbers.Normals(shape.rows * width);
  const std::vector<float> k_norm = numbers.Normals(shape.latent_dim);
  const std::vector<float> q_norm = numbers.Normals(shape.q_dim);
  const std::vector<float> cos_sin = TailCosSin(shape.rope, shape.rows);
  const bool is_f8 = shape.type == ElementType::kF8E4M3;
  // The last row must not be written to the cache.
  std::vector<int64_t> slots;
  for (int64_t row = 0; row < shape.rows; ++row) slots.push_back(3 * row + 1);
  slots.back() = -1;
  const int64_t blocks = 3 * shape.rows / kBlockSize + 1;
  const int64_t cache_bytes = blocks * kBlockRows * dim * (is_f8 ? 1 : 2);
  device::LatentAppendArgs args{};
  args.x = memory.In(x);
  args.rows = shape.rows;
  args.latent_begin = shape.latent_begin;
  args.latent_dim = shape.latent_dim;
  args.rope = {.dim = shape.rope.dim,
               .cos_sin = shape.rope.rotates ? memory.In(cos_sin) : nullptr,
               .interleaved = shape.rope.interleaved};
  args.k_norm = memory.In(k_norm);
  args.eps = kEps;
  args.slots = memory.In(slots);
  auto* const cache = memory.Out<uint8_t>(cache_bytes);
  args.cache = {.k = cache,
                .v = nullptr,
                .type = shape.type,
                .k_scale = is_f8 ? kScale : 1,
                .v_scale = 1,
                .num_kv_heads = 1,
                .head_dim = dim,
                .block_size = kBlockSize,
                .block_rows = kBlockRows};
  if (shape.q_dim > 0) {
    args.q_dim = shape.q_dim;
    args.q_norm = memory.In(q_norm);
    args.q = memory.Out<uint16_t>(shape.rows * shape.q_dim);
  }
  memory.Launch(&DeviceKernels::latent_append, args);
  std::vector<uint8_t> got = memory.Read(cache, cache_bytes);
  const std::vector<uint16_t> q =
      shape.q_dim > 0 ? memory.Read(args.q, shape.rows * shape.q_dim) : std::vector<uint16_t>();
  // Returns the factor of an RMS norm.
  const auto factor = [](const float* from, int count) {
    double squares = 0;
    for (int i = 0; i < count; ++i) squares += double{from[i]} * from[i];
    return 1 / std::sqrt(squares / count + kEps);
  };
  // The error bound includes half of the roundings of the sum of squares (in a thread, then over
  // ten levels), of the mean, of eps and of the root. It also includes the roundings of the factor
  // and of two products.
  const auto roundings = [](int count) { return (count / 128.0 + 8 + 10 + 3) / 2 + 4; };
  std::vector<bool> is_written(static_cast<size_t>(blocks * kBlockRows));
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* const from = x.data() + row * width;
    comparison.SetSubject("q");
    const double q_factor = shape.q_dim > 0 ? factor(from, shape.q_dim) : 0;
    for (int i = 0; i < shape.q_dim; ++i) {
      const double value = q_norm[static_cast<size_t>(i)] * from[i] * q_factor;
      comparison.AddBf16(q[static_cast<size_t>(row * shape.q_dim + i)], value,
                         std::abs(value) * Gamma(roundings(shape.q_dim)));
    }
    const int64_t slot = slots[static_cast<size_t>(row)];
    if (slot < 0) continue;
    const int64_t place = slot / kBlockSize * kBlockRows + slot % kBlockSize;
    is_written[static_cast<size_t>(place)] = true;
    comparison.SetSubject("the cache");
    const float* const latent = from + shape.latent_begin;
    const double k_factor = factor(latent, shape.latent_dim);
    for (int i = 0; i < dim; ++i) {
      RotatedNumber number;
      if (i < shape.latent_dim) {
        number.value = k_norm[static_cast<size_t>(i)] * latent[i] * k_factor;
        number.error = std::abs(number.value) * Gamma(roundings(shape.latent_dim));
      } else {
        number =
            RotateTail(shape.rope, cos_sin, row, latent + shape.latent_dim, i - shape.latent_dim);
      }
      const auto at = static_cast<size_t>(place * dim + i);
      if (is_f8) {
        comparison.AddE4m3(got[at], number.value / kScale, number.error / kScale);
      } else {
        comparison.AddBf16(static_cast<uint16_t>(got[2 * at] | got[2 * at + 1] << 8), number.value,
                           number.error);
      }
    }
  }
  comparison.SetSubject("other rows of the cache");
  const auto row_bytes = static_cast<size_t>(int64_t{dim} * (is_f8 ? 1 : 2));
  for (size_t place = 0; place < is_written.size(); ++place) {
    for (size_t i = 0; !is_written[place] && i < row_bytes; ++i)
      comparison.AddEqual(got[place * row_bytes + i], 0xFF);
  }
}

struct ProductsShape {
  int64_t rows;
  int heads, n, k;
  TailShape rope;
  ElementType x_type = ElementType::kF32;
  bool has_temperature = false;
};

void CheckHeadProducts(CaseMemory& memory, Comparison& comparison, const ProductsShape& shape,
                       bool is_exact) {
  TestNumbers numbers(43);
  const int x_head = shape.k + shape.rope.dim, y_head = shape.n + shape.rope.dim;
  const int64_t x_stride = int64_t{shape.heads} * x_head + 2, y_stride = shape.heads * y_head;
  const int64_t x_count = shape.rows * x_stride;
  const int64_t w_head = int64_t{shape.n} * shape.k + 8;
  std::vector<float> x = is_exact ? numbers.Integers(x_count, 3) : numbers.Normals(x_count);
  std::vector<float> w =
      is_exact ? numbers.Integers(shape.heads * w_head, 2) : numbers.Normals(shape.heads * w_head);
  for (float& value : w) value = FromBf16Bits(ToBFloat16(value).bits);
  const bool is_bf16 = shape.x_type == ElementType::kBF16;
  if (is_bf16) {
    for (float& value : x) value = FromBf16Bits(ToBFloat16(value).bits);
  }
  const std::vector<float> cos_sin = TailCosSin(shape.rope, shape.rows);
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < shape.rows; ++row) positions.push_back(static_cast<int32_t>(7 * row));
  const uint16_t* const device_w = memory.In(ToBf16Bits(w));
  const auto run = [&](int64_t first, int64_t rows) {
    const auto cut = [&](const auto& values, int64_t width) {
      return std::vector(values.begin() + first * width, values.begin() + (first + rows) * width);
    };
    device::HeadProductsArgs args{};
    args.x = is_bf16 ? static_cast<const void*>(memory.In(ToBf16Bits(cut(x, x_stride))))
                     : memory.In(cut(x, x_stride));
    args.x_type = shape.x_type;
    args.x_stride = x_stride;
    args.x_head = x_head;
    args.w = device_w;
    args.w_head = w_head;
    args.rows = rows;
    args.heads = shape.heads;
    args.n = shape.n;
    args.k = shape.k;
    args.y = memory.Out<uint16_t>(rows * y_stride);
    args.y_stride = y_stride;
    args.y_head = y_head;
    args.rope = {.dim = shape.rope.dim,
                 .cos_sin = cos_sin.empty() ? nullptr : memory.In(cut(cos_sin, shape.rope.dim)),
                 .interleaved = shape.rope.interleaved};
    if (shape.has_temperature) {
      args.positions = memory.In(cut(positions, 1));
      args.temperature_floor = 8;
      args.temperature_scale = 0.25f;
    }
    memory.Launch(&DeviceKernels::head_products, args);
    return memory.Read(args.y, rows * y_stride);
  };
  const std::vector<uint16_t> got = run(0, shape.rows);
  for (int64_t row = 0; row < shape.rows; ++row) {
    double factor = 1, factor_error = 0;
    if (shape.has_temperature) {
      const double log = std::log1p(std::floor((positions[static_cast<size_t>(row)] + 1) / 8.0));
      factor = log * 0.25 + 1;
      factor_error = factor * Gamma(kMathUnits + 3);
    }
    for (int head = 0; head < shape.heads; ++head) {
      const float* const from = x.data() + row * x_stride + head * x_head;
      const uint16_t* const results = got.data() + row * y_stride + head * y_head;
      comparison.SetSubject("products");
      for (int j = 0; j < shape.n; ++j) {
        double sum = 0, size = 0;
        for (int i = 0; i < shape.k; ++i) {
          const double product = double{FromBf16Bits(ToBFloat16(from[i]).bits)} *
                                 w[static_cast<size_t>(head * w_head + j * shape.k + i)];
          sum += product;
          size += std::abs(product);
        }
        const double error = is_exact ? 0 : size * ProductError(memory.device(), shape.k, false);
        comparison.AddBf16(results[j], sum * factor, error * factor + std::abs(sum) * factor_error);
      }
      comparison.SetSubject("rotated numbers");
      for (int i = 0; i < shape.rope.dim; ++i) {
        const RotatedNumber number = RotateTail(shape.rope, cos_sin, row, from + shape.k, i);
        comparison.AddBf16(results[shape.n + i], number.value * factor,
                           number.error * factor + std::abs(number.value) * factor_error);
      }
    }
  }
  comparison.SetSubject("a row alone");
  for (const int64_t row : {int64_t{0}, shape.rows - 1}) {
    const std::vector<uint16_t> alone = run(row, 1);
    for (size_t i = 0; i < alone.size(); ++i)
      comparison.AddEqual(alone[i], got[static_cast<size_t>(row * y_stride) + i]);
  }
}

}  // namespace

void CheckLatent(CheckRun& run) {
  std::vector<AppendShape> appends = {
      {5, 24, 24, 32, {16}},
      {3, 0, 48, 64, {8, true, true}, ElementType::kF8E4M3},
      {4, 20, 20, 18, {8, true, true}},
      {3, 1536, 1536, 512, {64, true, true}},
      {3, 0, 96, 40, {16, false}},
      {2, 1030, 1030, 1034, {2}},
  };
  std::vector<ProductsShape> products = {
      {5, 3, 32, 16, {8}},
      {17, 2, 40, 48, {}, ElementType::kBF16},
      {19, 2, 160, 24, {16, true, true}, ElementType::kF32, true},
      {1, 4, 18, 8, {8, false}},
      {33, 1, 12, 18, {}, ElementType::kBF16},
  };
  if (!run.with_all_shapes()) {
    appends.resize(3);
    products.resize(3);
  }
  if (run.with_large_shapes()) {
    appends.push_back({257, 1536, 1536, 512, {64, true, true}, ElementType::kF8E4M3});
    products.push_back({70, 128, 512, 128, {64, true, true}});
    products.push_back({70, 128, 128, 512, {}, ElementType::kBF16});
  }
  for (const AppendShape& shape : appends) {
    run.Case("latent_append",
             fmt::format("{} rows, q {}, latent {} at {}{}{}", shape.rows, shape.q_dim,
                         shape.latent_dim, shape.latent_begin, TailText(shape.rope),
                         shape.type == ElementType::kF8E4M3 ? ", fp8" : ""),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckLatentAppend(memory, comparison, shape);
             });
  }
  for (const ProductsShape& shape : products) {
    for (const bool is_exact : {true, false}) {
      if (is_exact && shape.has_temperature) continue;
      run.Case(shape.has_temperature ? "tempered_products" : "head_products",
               fmt::format("{} x {} heads, {} to {}{}, {}", shape.rows, shape.heads, shape.k,
                           shape.n, TailText(shape.rope), is_exact ? "integers" : "normal"),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckHeadProducts(memory, comparison, shape, is_exact);
               });
    }
  }
  CheckIndexer(run);
}

}  // namespace sluice::checks
