#include "kernels/linear.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

enum class Mode { kBf16, kF32Bf16, kF32 };
constexpr Mode kModes[] = {Mode::kBf16, Mode::kF32Bf16, Mode::kF32};

// A matrix product with operands in row-major order.
struct Problem {
  int64_t m, n, k;
  Mode mode;
  std::vector<float> x, w, bias;  // operands, rounded like the kernel's inputs
  std::vector<BFloat16> x_bf16;
  PackedMatrix packed;

  Problem(Random& random, Mode the_mode, int64_t rows, int64_t outputs, int64_t inputs)
      : m(rows), n(outputs), k(inputs), mode(the_mode) {
    x = random.Normal(m * k);
    w = random.Normal(n * k);
    bias = random.Normal(n);
    if (mode == Mode::kBf16) {
      x_bf16 = ToBFloat16(x);
      x = Rounded(x);
    }
    if (mode != Mode::kF32) w = Rounded(w);
    DataFormat format;
    format.type = mode == Mode::kF32 ? ElementType::kF32 : ElementType::kBF16;
    packed = *AllocatePacked(format, n, k, "test");
    ThreadPool pool(1);
    PackRows(pool, packed, 0, PlainMatrix(w.data(), ElementType::kF32, n, k), 0, n);
  }

  Activations Rows(int64_t first, int64_t count) const {
    Activations view{
        .data = nullptr, .type = ElementType::kF32, .rows = count, .cols = k, .stride = k};
    if (mode == Mode::kBf16) {
      view.type = ElementType::kBF16;
      view.data = x_bf16.data() + first * k;
    } else {
      view.data = x.data() + first * k;
    }
    return view;
  }

  std::vector<float> Run(ThreadPool& pool, int64_t first, int64_t count, bool with_bias) const {
    std::vector<float> y(static_cast<size_t>(count * n), std::numeric_limits<float>::quiet_NaN());
    Linear(pool, packed, Rows(first, count), y.data(), n, with_bias ? bias.data() : nullptr);
    return y;
  }
};

class LinearTest : public KernelTest {};

// A sum of K exact products, with rounded additions, differs from the exact sum by at most K *
// 2^-24 * sum |x w|. If products are rounded too, the bound is (K + 1) * 2^-24 * sum |x w|.
void ExpectNearExact(const Problem& p, const std::vector<float>& y, bool with_bias) {
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = with_bias ? p.bias[j] : 0.0;
      double magnitude = std::abs(sum);
      for (int64_t k = 0; k < p.k; ++k) {
        const double product = static_cast<double>(p.x[i * p.k + k]) * p.w[j * p.k + k];
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(y[i * p.n + j], sum, static_cast<double>(p.k + 2) * 0x1p-24 * magnitude + 1e-30)
          << "M " << p.m << " N " << p.n << " K " << p.k << " at " << i << ", " << j;
    }
  }
}

TEST_P(LinearTest, AgreesWithExactSumsOverRandomShapes) {
  Random random(1);
  ThreadPool pool(2);
  for (Mode mode : kModes) {
    for (int round = 0; round < 25; ++round) {
      const int64_t m = round < 8 ? round + 1 : random.Integer(1, 70);
      Problem p(random, mode, m, random.Integer(1, 150),
                random.Integer(1, round % 5 == 0 ? 1300 : 200));
      const bool with_bias = round % 2 == 0;
      ExpectNearExact(p, p.Run(pool, 0, p.m, with_bias), with_bias);
      if (HasFatalFailure()) return;
    }
  }
}

// Covers units of work of every shape, on one thread and on several.
TEST_P(LinearTest, FindsTheMaximaOfItsResults) {
  Random random(12);
  for (Mode mode : kModes) {
    for (int64_t m : {1, 3, 40, 800}) {
      for (int64_t n : {5, 64, 200, 1000}) {
        Problem p(random, mode, m, n, 36);
        ThreadPool pool(m % 2 == 0 ? 3 : 1);
        const int64_t blocks = NumMaxima(n), stride = blocks + 1;
        std::vector<float> y(static_cast<size_t>(m * n));
        std::vector<float> maxima(static_cast<size_t>(m * stride), 77);
        Linear(pool, p.packed, p.Rows(0, m), y.data(), n, p.bias.data(), {maxima.data(), stride});
        std::vector<float> expected(maxima.size(), 77);
        FindMaxima(y.data(), n, m, n, {expected.data(), stride});
        EXPECT_EQ(maxima, expected) << m << " x " << n;
        EXPECT_EQ(y, p.Run(pool, 0, m, true)) << m << " x " << n;
      }
    }
  }
}

// Results must be bit-identical for every number of rows, position of the row, thread count and
// alignment of x.
TEST_P(LinearTest, ARowsResultDoesNotDependOnTheBatch) {
  Random random(2);
  ThreadPool pool1(1), pool2(2), pool3(3);
  for (Mode mode : kModes) {
    for (auto [n, k] : {std::pair<int64_t, int64_t>{200, 544}, {37, 1055}, {513, 64}, {48, 2048}}) {
      Problem p(random, mode, 70, n, k);
      const std::vector<float> all = p.Run(pool1, 0, 70, true);
      EXPECT_EQ(0, std::memcmp(all.data(), p.Run(pool2, 0, 70, true).data(), all.size() * 4));
      EXPECT_EQ(0, std::memcmp(all.data(), p.Run(pool3, 0, 70, true).data(), all.size() * 4));
      for (int64_t count = 1; count < 70; count += count < 20 ? 1 : 9) {
        const int64_t first = random.Integer(0, 70 - count);
        const std::vector<float> part = p.Run(count % 2 ? pool1 : pool2, first, count, true);
        ASSERT_EQ(0, std::memcmp(all.data() + first * n, part.data(), part.size() * 4))
            << "mode " << static_cast<int>(mode) << " N " << n << " K " << k << " rows " << count;
      }
    }
  }
}

// Sizes for which inputs are packed, rows and inputs are divided into blocks, and results bypass
// the caches.
TEST_P(LinearTest, LongBatchesAreCutWithoutATrace) {
  Random random(3);
  ThreadPool pool(2);
  for (auto [m, n, k] :
       {std::array<int64_t, 3>{1000, 40, 96}, {130, 300, 2100}, {600, 1040, 33}, {50, 129, 4096}}) {
    if (GetParam() == Isa::kReference && m * n * k > 20'000'000) continue;
    Problem p(random, Mode::kBf16, m, n, k);
    const std::vector<float> all = p.Run(pool, 0, m, true);
    for (int64_t first : {int64_t{0}, int64_t{31}, m / 2 - 1, m / 2, m - 1}) {
      const std::vector<float> row = p.Run(pool, first, 1, true);
      ASSERT_EQ(0, std::memcmp(all.data() + first * n, row.data(), row.size() * 4))
          << m << " " << n << " " << first;
    }
  }
}

TEST_P(LinearTest, HonoursStridesAndLeavesOtherMemoryAlone) {
  Random random(4);
  ThreadPool pool(2);
  for (Mode mode : kModes) {
    Problem p(random, mode, 9, 35, 70);
    const std::vector<float> expected = p.Run(pool, 0, 9, false);
    std::vector<float> y(9 * 41, 7.0f);
    std::vector<float> wide(9 * 83, std::numeric_limits<float>::quiet_NaN());
    std::vector<BFloat16> wide_bf16(9 * 83, BFloat16{0x7FC0});
    for (int64_t i = 0; i < 9; ++i) {
      for (int64_t k = 0; k < 70; ++k) {
        wide[i * 83 + k] = p.x[i * 70 + k];
        if (mode == Mode::kBf16) wide_bf16[i * 83 + k] = p.x_bf16[i * 70 + k];
      }
    }
    Activations view = p.Rows(0, 9);
    view.data = mode == Mode::kBf16 ? static_cast<const void*>(wide_bf16.data()) : wide.data();
    view.stride = 83;
    Linear(pool, p.packed, view, y.data(), 41);
    for (int64_t i = 0; i < 9; ++i) {
      for (int64_t j = 0; j < 41; ++j)
        EXPECT_EQ(y[i * 41 + j], j < 35 ? expected[i * 35 + j] : 7.0f) << i << " " << j;
    }
  }
}

TEST_P(LinearTest, KeepsNanAndInfinityInTheirOwnRow) {
  Random random(5);
  ThreadPool pool(2);
  for (Mode mode : kModes) {
    Problem p(random, mode, 5, 20, 40);
    const std::vector<float> clean = p.Run(pool, 0, 5, false);
    p.x[2 * 40 + 11] = std::numeric_limits<float>::quiet_NaN();
    p.x[3 * 40 + 39] = std::numeric_limits<float>::infinity();
    if (mode == Mode::kBf16) p.x_bf16 = ToBFloat16(p.x);
    const std::vector<float> y = p.Run(pool, 0, 5, false);
    for (int64_t j = 0; j < 20; ++j) {
      for (int64_t i : {0, 1, 4}) EXPECT_EQ(y[i * 20 + j], clean[i * 20 + j]);
      EXPECT_TRUE(std::isnan(y[2 * 20 + j]));
      EXPECT_FALSE(std::isfinite(y[3 * 20 + j]));
    }
  }
}

INSTANTIATE_KERNEL_TEST(LinearTest);

TEST(Packing, SeveralSourcesOfAllTypesFillOneMatrix) {
  Random random(6);
  ThreadPool pool(2);
  for (ElementType target : {ElementType::kBF16, ElementType::kF32}) {
    for (int64_t cols : {1, 2, 33, 700}) {
      DataFormat format;
      format.type = target;
      PackedMatrix matrix = *AllocatePacked(format, 50, cols, "test");
      const std::vector<float> f32 = random.Normal(21 * cols);
      const std::vector<BFloat16> bf16 = ToBFloat16(random.Normal(20 * cols));
      std::vector<uint16_t> f16(static_cast<size_t>(9 * cols), 0x3555);  // 0.333251953125
      std::vector<std::byte> unaligned(f32.size() * 4 + 1);
      std::memcpy(unaligned.data() + 1, f32.data(), f32.size() * 4);
      PackRows(pool, matrix, 0, PlainMatrix(unaligned.data() + 1, ElementType::kF32, 21, cols), 0,
               21);
      PackRows(pool, matrix, 21, PlainMatrix(bf16.data(), ElementType::kBF16, 20, cols), 0, 20);
      PackRows(pool, matrix, 41, PlainMatrix(f16.data(), ElementType::kF16, 9, cols), 0, 9);
      // The product with a unit vector returns a column.
      for (int64_t k : {int64_t{0}, cols / 2, cols - 1}) {
        std::vector<float> x(static_cast<size_t>(cols), 0.0f);
        x[k] = 1.0f;
        std::vector<float> y(50);
        Linear(pool, matrix, {x.data(), ElementType::kF32, 1, cols, cols}, y.data(), 50);
        for (int64_t n = 0; n < 50; ++n) {
          float expected = n < 21   ? f32[n * cols + k]
                           : n < 41 ? ToFloat(bf16[(n - 21) * cols + k])
                                    : 0.333251953125f;
          if (target == ElementType::kBF16) expected = ToFloat(sluice::ToBFloat16(expected));
          EXPECT_EQ(y[n], expected) << n << ", " << k;
        }
      }
    }
  }
}

TEST(Packing, TransposedSourcesFillTheSameMatrix) {
  Random random(7);
  ThreadPool pool(2);
  for (ElementType target : {ElementType::kBF16, ElementType::kF32}) {
    for (int64_t cols : {1, 37, 520}) {
      DataFormat format;
      format.type = target;
      const std::vector<BFloat16> stored = ToBFloat16(random.Normal(50 * cols));  // [cols, 50]
      StoredMatrix source = PlainMatrix(stored.data(), ElementType::kBF16, 50, cols);
      source.transposed = true;
      PackedMatrix matrix = *AllocatePacked(format, 45, cols, "test");
      PackRows(pool, matrix, 0, source, 5, 20);
      PackRows(pool, matrix, 20, source, 25, 25);
      std::vector<float> row(static_cast<size_t>(cols));
      for (int64_t n = 0; n < 45; ++n) {
        DecodeRow(matrix, n, row.data());
        for (int64_t k = 0; k < cols; ++k)
          ASSERT_EQ(row[k], ToFloat(stored[k * 50 + n + 5])) << n << ", " << k;
      }
    }
  }
}

TEST(Packing, RefusesFormatsItCannotMultiply) {
  using Layout = DataFormat::ScaleLayout;
  using enum ElementType;
  for (const DataFormat& format : {DataFormat{kF8E5M2, Layout::kPerTensor, kF32, 0, 0, false},
                                   DataFormat{kF8E4M3, Layout::kNone, kF32, 0, 0, false},
                                   DataFormat{kF8E4M3, Layout::kPerBlock, kF32, 100, 128, false},
                                   DataFormat{kF4E2M1, Layout::kPerGroup, kF8E4M3, 32, 0, false},
                                   DataFormat{kF16, Layout::kNone, kF32, 0, 0, false}}) {
    const auto matrix = AllocatePacked(format, 4, 4, "model.layers.0.mlp.down_proj.weight");
    ASSERT_FALSE(matrix.has_value());
    EXPECT_EQ(matrix.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(matrix.error().message.find("down_proj"), std::string::npos);
    EXPECT_NE(matrix.error().message.find(ElementTypeName(format.type)), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::kernels
