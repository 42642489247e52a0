// Tests narrow weights: every code and every scale is exact, and products with them satisfy the
// contract of linear.h.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/grouped_linear.h"
#include "kernels/linear.h"
#include "kernels/linear_unit.h"
#include "kernels/stored_matrix_testing.h"

namespace sluice::kernels {
namespace {

PackedMatrix Pack(const StoredSample& sample) {
  ThreadPool pool(2);
  PackedMatrix matrix = *AllocatePacked(sample.format(), sample.rows(), sample.cols(), "test");
  PackRows(pool, matrix, 0, sample.view(), 0, sample.rows());
  return matrix;
}

// Activations in one of the types that products with narrow weights accept.
struct Inputs {
  std::vector<float> values;  // as the kernel sees them
  std::vector<BFloat16> bf16;
  int64_t cols;

  Inputs(std::vector<float> x, int64_t the_cols, bool as_bf16)
      : values(std::move(x)), cols(the_cols) {
    if (!as_bf16) return;
    bf16 = ToBFloat16(values);
    values = Rounded(values);
  }
  Activations Rows(int64_t first, int64_t count) const {
    if (!bf16.empty()) return {bf16.data() + first * cols, ElementType::kBF16, count, cols, cols};
    return {values.data() + first * cols, ElementType::kF32, count, cols, cols};
  }
};

std::vector<float> Multiply(ThreadPool& pool, const PackedMatrix& w, const Activations& x,
                            const float* bias = nullptr) {
  std::vector<float> y(static_cast<size_t>(x.rows * w.rows),
                       std::numeric_limits<float>::quiet_NaN());
  Linear(pool, w, x, y.data(), w.rows, bias);
  return y;
}

// The value in F32: the exact product of a number and its group's scale, multiplied by the row's
// scale.
float Expected(const StoredSample& sample, int64_t n, int64_t k) {
  using Layout = DataFormat::ScaleLayout;
  const Layout layout = sample.format().scale_layout;
  if (layout == Layout::kPerGroup) {
    return static_cast<float>(sample.Number(n, k) * sample.Scale(n, k)) * sample.second_scale();
  }
  const float scale = static_cast<float>(sample.Scale(n, k));
  return static_cast<float>(sample.Number(n, k)) * scale * sample.second_scale();
}

void ExpectSame(float actual, float expected, const std::string& where) {
  if (std::isnan(expected))
    EXPECT_TRUE(std::isnan(actual)) << where << ": " << actual;
  else
    EXPECT_EQ(actual, expected) << where;
}

// Checks every element by DecodeRow, and by products with rows of the identity matrix.
void ExpectExact(const StoredSample& sample, bool flushes_subnormals) {
  const PackedMatrix matrix = Pack(sample);
  const int64_t rows = sample.rows(), cols = sample.cols();
  std::vector<float> row(static_cast<size_t>(cols));
  std::vector<bool> finite(static_cast<size_t>(rows), true);
  for (int64_t n = 0; n < rows; ++n) {
    DecodeRow(matrix, n, row.data());
    for (int64_t k = 0; k < cols; ++k) {
      const float expected = Expected(sample, n, k);
      ExpectSame(row[k], expected, "DecodeRow " + std::to_string(n) + ", " + std::to_string(k));
      if (!std::isfinite(expected)) finite[n] = false;
    }
    if (::testing::Test::HasFailure()) return;
  }
  std::vector<float> unit(static_cast<size_t>(cols * cols));
  for (int64_t k = 0; k < cols; ++k) unit[k * cols + k] = 1;
  ThreadPool pool(2);
  for (bool bf16 : {false, true}) {
    const Inputs inputs(unit, cols, bf16);
    // Different kernels are selected for different numbers of rows.
    for (int64_t batch : {cols, std::min<int64_t>(cols, 40), int64_t{8}, int64_t{3}, int64_t{1}}) {
      const int64_t step = batch == 1 ? std::max<int64_t>(1, cols / 16) : batch;
      for (int64_t first = 0; first + batch <= cols; first += step) {
        const std::vector<float> y = Multiply(pool, matrix, inputs.Rows(first, batch));
        for (int64_t k = first; k < first + batch; ++k) {
          for (int64_t n = 0; n < rows; ++n) {
            const std::string where = "x " + std::string(bf16 ? "BF16" : "F32") + ", row " +
                                      std::to_string(n) + ", input " + std::to_string(k);
            float expected = Expected(sample, n, k);
            // Zero times infinity or NaN is NaN. So all results of a weight row with such an
            // element are NaN; only the result for an infinite element itself may be infinite.
            if (!finite[n]) expected = std::numeric_limits<float>::quiet_NaN();
            const float actual = y[(k - first) * rows + n];
            if (!finite[n] && std::isinf(Expected(sample, n, k)) && std::isinf(actual)) continue;
            if (bf16 && flushes_subnormals && std::abs(expected) < 0x1p-126f) {
              EXPECT_TRUE(actual == 0 || actual == expected) << where;
            } else {
              ExpectSame(actual, expected, where);
            }
          }
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

class LinearFormatsTest : public KernelTest {
 protected:
  bool flushes() const {
    return GetParam() == Isa::kAvx512Bf16 || GetParam() == Isa::kAmx ||
           GetParam() == Isa::kNeonBf16;
  }
};

TEST_P(LinearFormatsTest, EveryE4M3CodeIsExact) {
  for (const NamedFormat& format : NarrowFormats()) {
    if (format.format.type != ElementType::kF8E4M3) continue;
    Random random(1);
    StoredSample sample = StoredSample::Make(random, format.format, 40, 256);
    // Rows 0 to 7 contain every code except NaN, in different places; the NaN codes are in separate
    // rows.
    for (int64_t n = 0; n < 8; ++n) {
      for (int k = 0; k < 256; ++k) {
        const int code = (k * 37 + static_cast<int>(n) * 11) % 256;
        sample.SetCode(n, k, (code & 0x7F) == 0x7F ? 0 : code);
      }
    }
    sample.SetCode(20, 3, 0x7F);
    sample.SetCode(21, 255, 0xFF);
    SCOPED_TRACE(format.name);
    ExpectExact(sample, flushes());
  }
}

TEST_P(LinearFormatsTest, EveryInt8CodeIsExact) {
  Random random(2);
  for (const NamedFormat& format : NarrowFormats()) {
    if (format.format.type != ElementType::kI8) continue;
    StoredSample sample = StoredSample::Make(random, format.format, 19, 256);
    for (int64_t n = 0; n < 19; ++n) {
      for (int k = 0; k < 256; ++k) sample.SetCode(n, k, (k * 37 + static_cast<int>(n) * 11) % 256);
    }
    ExpectExact(sample, flushes());
  }
}

// Row n has scale n; its inputs have every code, in each place of a word. A second pass has only
// usual scales: unusual ones make kernels use another path for all scales.
TEST_P(LinearFormatsTest, EveryPairOfE2M1AndScaleIsExact) {
  for (const NamedFormat& format : NarrowFormats()) {
    if (format.format.type != ElementType::kF4E2M1) continue;
    const bool is_nvfp4 = format.format.group_size == 16;
    const int first_usual = is_nvfp4 ? 0 : 2, usual = is_nvfp4 ? 0x7F : 251;
    for (const bool all : {true, false}) {
      Random random(3);
      StoredSample sample = StoredSample::Make(random, format.format, 256, 64);
      for (int n = 0; n < 256; ++n) {
        for (int k = 0; k < 64; ++k) sample.SetCode(n, k, (k * 5 + k / 16) % 16);
        for (int64_t j = 0; j < 64 / format.format.group_size; ++j)
          sample.SetScaleByte(n, j, all ? n : first_usual + n % usual);
      }
      SCOPED_TRACE(format.name);
      ExpectExact(sample, flushes());
    }
  }
}

TEST_P(LinearFormatsTest, RaggedAndTransposedMatricesAreExact) {
  Random random(4);
  for (const NamedFormat& format : NarrowFormats()) {
    for (auto [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {17, 3}, {150, 13}, {33, 9}}) {
      const int64_t groups = k % (format.col_multiple < 64 ? 5 : 3) + 1;
      const int64_t cols = format.col_multiple == 1 ? k * 21 + 1 : groups * format.col_multiple;
      for (bool transposed : {false, true}) {
        SCOPED_TRACE(format.name + " " + std::to_string(n) + " x " + std::to_string(cols));
        ExpectExact(StoredSample::Make(random, format.format, n, cols, transposed), flushes());
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// A sum of K exact products, with rounded additions, differs from the exact sum by at most K *
// 2^-24 * sum |x w|. Rounding the products, or the result of a scaling, raises the factor K by 1
// each.
TEST_P(LinearFormatsTest, AgreesWithExactSums) {
  Random random(5);
  ThreadPool pool(2);
  for (const NamedFormat& format : NarrowFormats()) {
    for (bool bf16 : {false, true}) {
      for (auto [m, n, groups] : {std::array<int64_t, 3>{1, 70, 20},
                                  {3, 33, 3},
                                  {13, 50, 11},
                                  {34, 100, 7},
                                  {65, 21, 40}}) {
        const int64_t k = format.col_multiple == 1 ? groups * 17 : groups * format.col_multiple;
        const StoredSample sample = StoredSample::Make(random, format.format, n, k);
        const PackedMatrix matrix = Pack(sample);
        const Inputs x(random.Normal(m * k), k, bf16);
        const std::vector<float> bias = random.Normal(n);
        const std::vector<float> y = Multiply(pool, matrix, x.Rows(0, m), bias.data());
        std::vector<double> weights(k);
        for (int64_t j = 0; j < n; ++j) {
          for (int64_t c = 0; c < k; ++c) weights[c] = sample.Value(j, c);
          for (int64_t i = 0; i < m; ++i) {
            double sum = bias[j], magnitude = std::abs(sum);
            for (int64_t c = 0; c < k; ++c) {
              const double product = x.values[i * k + c] * weights[c];
              sum += product;
              magnitude += std::abs(product);
            }
            ASSERT_NEAR(y[i * n + j], sum, static_cast<double>(k + 6) * 0x1p-24 * magnitude + 1e-30)
                << format.name << " M " << m << " N " << n << " K " << k << " at " << i << ", "
                << j;
          }
        }
      }
    }
  }
}

// Results must be bit-identical for every number of rows, position of the row and thread count.
TEST_P(LinearFormatsTest, ARowsResultDoesNotDependOnTheBatch) {
  Random random(6);
  ThreadPool pool1(1), pool2(2), pool3(3);
  for (const NamedFormat& format : NarrowFormats()) {
    for (bool bf16 : {false, true}) {
      for (auto [n, k] :
           {std::pair<int64_t, int64_t>{200, 544}, {37, 1088}, {40, 2144}, {530, 288}}) {
        const int64_t cols = k / format.col_multiple * format.col_multiple;
        const PackedMatrix matrix = Pack(StoredSample::Make(random, format.format, n, cols));
        const Inputs x(random.Normal(70 * cols), cols, bf16);
        const std::vector<float> bias = random.Normal(n);
        const std::vector<float> all = Multiply(pool1, matrix, x.Rows(0, 70), bias.data());
        for (int64_t count : {70, 1, 2, 5, 7, 16, 31, 32, 33, 47, 48, 60}) {
          const int64_t first = random.Integer(0, 70 - count);
          ThreadPool& pool = count % 3 == 0 ? pool1 : count % 3 == 1 ? pool2 : pool3;
          const std::vector<float> part = Multiply(pool, matrix, x.Rows(first, count), bias.data());
          ASSERT_EQ(0, std::memcmp(all.data() + first * n, part.data(), part.size() * 4))
              << format.name << " N " << n << " K " << k << " rows " << count;
        }
        if (GetParam() == Isa::kReference) break;
      }
    }
  }
}

// Repeats the comparison near the ends of the ranges of inputs, scales and sums. Some kernels
// multiply sums by powers of two, which must not change the results.
TEST_P(LinearFormatsTest, ExtremeNumbersDoNotDependOnTheBatch) {
  constexpr int64_t kRows = 96, kCols = 1088, kPart = 64, kBatch = 70;
  constexpr std::array<int, 12> kExponents = {0, 0, 0, 0, -20, -57, -59, -61, -70, 21, 25, 35};
  Random random(12);
  ThreadPool pool(2);
  for (const NamedFormat& format : NarrowFormats()) {
    if (format.format.type != ElementType::kF4E2M1) continue;
    for (const int spread : {4, 39, 45}) {  // of the scales' exponents
      StoredSample sample = StoredSample::Make(random, format.format, kRows, kCols);
      for (int64_t n = 0; n < kRows && format.format.group_size == 32; ++n) {
        for (int64_t j = 0; j < kCols / 32; ++j)
          sample.SetScaleByte(n, j, static_cast<int>(127 - random.Integer(-spread / 2, spread)));
      }
      const PackedMatrix matrix = Pack(sample);
      std::vector<float> values = random.Normal(kBatch * kCols);
      for (size_t first = 0; first < values.size(); first += kPart) {
        const int exponent = kExponents[static_cast<size_t>(random.Integer(0, 11))];
        for (size_t i = first; i < first + kPart; ++i) values[i] = std::ldexp(values[i], exponent);
      }
      const Inputs x(values, kCols, true);
      const std::vector<float> all = Multiply(pool, matrix, x.Rows(0, kBatch));
      for (int64_t count : {1, 2, 4, 8, 10}) {
        for (int64_t first = 0; first + count <= kBatch; first += 7) {
          const std::vector<float> part = Multiply(pool, matrix, x.Rows(first, count));
          ASSERT_EQ(0, std::memcmp(all.data() + first * kRows, part.data(), part.size() * 4))
              << format.name << " spread " << spread << " rows " << count << " from " << first;
        }
      }
    }
  }
}

// Integer sums are exact: every instruction set gives bit-identical results.
TEST_P(LinearFormatsTest, Int8InputsGiveExactSums) {
  Random random(7);
  ThreadPool pool(2);
  const DataFormat format = NarrowFormats()[4].format;
  ASSERT_EQ(format.type, ElementType::kI8);
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 70, 64},
                         {1, 16, 20000},
                         {5, 33, 1},
                         {7, 100, 131},
                         {18, 20, 515},
                         {33, 40, 700},
                         {70, 37, 256}}) {
    StoredSample sample = StoredSample::Make(random, format, n, k);
    const int64_t stride = k + 3;
    std::vector<int8_t> x(static_cast<size_t>(m * stride), 99);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t c = 0; c < k; ++c)
        x[i * stride + c] = static_cast<int8_t>(random.Integer(-127, 127));
    }
    if (k == 20000) {  // the largest sums
      for (int64_t c = 0; c < k; ++c) {
        x[c] = 127;
        sample.SetCode(0, c, 0x80);
        sample.SetCode(1, c, 0x7F);
      }
    }
    const PackedMatrix matrix = Pack(sample);
    const std::vector<float> x_scales = random.Normal(m);
    const std::vector<float> bias = random.Normal(n);
    for (bool with_bias : {false, true}) {
      const std::vector<float> y =
          Multiply(pool, matrix, {x.data(), ElementType::kI8, m, k, stride, x_scales.data()},
                   with_bias ? bias.data() : nullptr);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          int64_t sum = 0;
          for (int64_t c = 0; c < k; ++c)
            sum += x[i * stride + c] * static_cast<int64_t>(sample.Number(j, c));
          float expected =
              static_cast<float>(sum) * static_cast<float>(sample.Scale(j, 0)) * x_scales[i];
          if (with_bias) expected += bias[j];
          ASSERT_EQ(y[i * n + j], expected)
              << "M " << m << " N " << n << " K " << k << " at " << i << ", " << j;
        }
      }
    }
  }
}

TEST_P(LinearFormatsTest, GroupedProductsAreThoseOfTheExperts) {
  Random random(8);
  ThreadPool pool(3);
  std::vector<NamedFormat> formats = NarrowFormats();
  formats.push_back({"bf16", DataFormat{}, 1});
  for (const NamedFormat& format : formats) {
    constexpr int64_t kRows = 50, kCols = 384;
    std::vector<PackedMatrix> experts;
    for (int e = 0; e < 5; ++e) {
      if (format.name == "bf16") {
        experts.push_back(*AllocatePacked(format.format, kRows, kCols, "test"));
        const std::vector<float> w = random.Normal(kRows * kCols);
        PackRows(pool, experts.back(), 0, PlainMatrix(w.data(), ElementType::kF32, kRows, kCols), 0,
                 kRows);
      } else {
        experts.push_back(Pack(StoredSample::Make(random, format.format, kRows, kCols)));
      }
    }
    for (const std::vector<int32_t>& row_begin :
         {std::vector<int32_t>{0, 0, 1, 1, 1, 1}, {0, 3, 3, 60, 61, 70}, {0, 0, 0, 0, 0, 900}}) {
      const int64_t rows = row_begin.back();
      if (rows == 900 && GetParam() == Isa::kReference) continue;
      for (bool bf16 : {false, true}) {
        const Inputs x(random.Normal(rows * kCols), kCols, bf16);
        std::vector<float> y(static_cast<size_t>(rows * kRows), 7.0f);
        GroupedLinear(pool, experts, row_begin, x.Rows(0, rows), y.data(), kRows);
        for (size_t e = 0; e < experts.size(); ++e) {
          const int64_t count = row_begin[e + 1] - row_begin[e];
          if (count == 0) continue;
          const std::vector<float> part = Multiply(pool, experts[e], x.Rows(row_begin[e], count));
          ASSERT_EQ(0, std::memcmp(y.data() + row_begin[e] * kRows, part.data(), part.size() * 4))
              << format.name << " expert " << e;
        }
      }
    }
  }
}

TEST_P(LinearFormatsTest, ReservedScratchNeverGrows) {
  constexpr int64_t kCols = 2304, kRows = 100, kExperts = 20;
  Random random(10);
  ThreadPool pool(2);
  ReserveLinearScratch(pool, kRows, kCols);
  const std::byte* scratch = LinearScratch(0, kCols, 2);
  for (const NamedFormat& format : NarrowFormats()) {
    std::vector<PackedMatrix> experts;
    std::vector<int32_t> row_begin = {0};
    for (int64_t e = 0; e < kExperts; ++e) {
      experts.push_back(*AllocatePacked(format.format, 16, kCols, "test"));
      row_begin.push_back(row_begin.back() + static_cast<int32_t>(e % 2 == 0 ? kRows : 1));
    }
    const int64_t rows = GetParam() == Isa::kReference ? 1 : row_begin.back();
    if (rows == 1) row_begin.assign(kExperts + 1, 1), row_begin[0] = 0;
    const std::vector<BFloat16> x(static_cast<size_t>(rows * kCols));
    std::vector<float> y(static_cast<size_t>(rows * 16));
    GroupedLinear(pool, experts, row_begin, {x.data(), ElementType::kBF16, rows, kCols, kCols},
                  y.data(), 16);
    EXPECT_EQ(LinearScratch(0, kCols, 2), scratch) << format.name;
  }
}

INSTANTIATE_KERNEL_TEST(LinearFormatsTest);

// q, k and v with any numbers of rows, each with its own scales, fill one matrix part by part.
TEST(PackingNarrow, PartsKeepTheirOwnScales) {
  Random random(9);
  ThreadPool pool(2);
  for (const NamedFormat& format : NarrowFormats()) {
    const int64_t cols = 12 * (format.col_multiple == 1 ? 27 : format.col_multiple);
    const std::array<int64_t, 3> part_rows = {150, 5, 22};
    PackedMatrix matrix = *AllocatePacked(format.format, 177, cols, "test");
    int64_t first = 0;
    std::vector<StoredSample> parts;
    for (int64_t rows : part_rows) {
      DataFormat part_format = format.format;
      // A part with per-row scales may be packed into a matrix with per-tensor scales.
      if (part_format.scale_layout == DataFormat::ScaleLayout::kPerTensor && rows == 5)
        part_format.scale_layout = DataFormat::ScaleLayout::kPerRow;
      parts.push_back(StoredSample::Make(random, part_format, rows, cols));
      for (int64_t row = 0; row < rows; row += 48) {
        const int64_t count = std::min<int64_t>(48, rows - row);
        PackRows(pool, matrix, first + row, parts.back().view(), row, count);
      }
      first += rows;
    }
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t n = 0; n < 177; ++n) {
      DecodeRow(matrix, n, row.data());
      int64_t part = 0, local = n;
      while (local >= part_rows[part]) local -= part_rows[part++];
      for (int64_t k = 0; k < cols; ++k)
        ASSERT_EQ(row[k], Expected(parts[part], local, k)) << format.name << " " << n << ", " << k;
    }
  }
}

// In AWQ's order, eight rows of an input share a word.
TEST(PackingNarrow, WordsOfOutputsKeepTheirValues) {
  Random random(11);
  ThreadPool pool(2);
  constexpr int64_t kRows = 72, kCols = 256, kGroup = 64;
  std::vector<std::byte> codes(kRows * kCols / 2), zeros(kRows * (kCols / kGroup) / 2);
  for (auto* bytes : {&codes, &zeros}) {
    for (std::byte& byte : *bytes) byte = std::byte(random.Integer(0, 255));
  }
  const std::vector<float> scales = random.Normal(kRows * (kCols / kGroup));
  const DataFormat format = {.type = ElementType::kInt4,
                             .scale_layout = DataFormat::ScaleLayout::kPerGroup,
                             .group_size = kGroup,
                             .has_zero_points = true};
  const StoredMatrix source{.format = format,
                            .rows = kRows,
                            .cols = kCols,
                            .data = codes.data(),
                            .scales = reinterpret_cast<const std::byte*>(scales.data()),
                            .transposed = true,
                            .packing = Int4Packing::kOutputs,
                            .zero_points = zeros.data()};
  PackedMatrix matrix = *AllocatePacked(format, kRows, kCols, "test");
  PackRows(pool, matrix, 0, source, 0, kRows);
  std::vector<float> expected(kCols), row(kCols);
  for (int64_t n = 0; n < kRows; ++n) {
    DecodeStoredRow(source, n, expected.data());
    DecodeRow(matrix, n, row.data());
    ASSERT_EQ(row, expected) << n;
  }
}

TEST(PackingNarrow, TakesLittleMoreThanTheStoredBytes) {
  for (const NamedFormat& format : NarrowFormats()) {
    if (format.name == "fp8_small_block") continue;  // this format has many scales
    const int64_t rows = 2000, cols = 3840;  // a number of columns that is a multiple of 96 and of
                                             // 128
    const StoredMatrix stored = StoredSample(format.format, rows, cols).view();
    int64_t bytes = rows * cols * BitsPerElement(stored.format.type) / 8;
    if (format.format.type == ElementType::kInt4) {
      // Scales are stored as F32, and zero points as a byte per 32 inputs.
      if (format.format.group_size != 0) bytes += rows * (cols / format.format.group_size) * 4;
      if (format.format.has_zero_points) bytes += rows * cols / 32;
    } else if (format.format.scale_layout == DataFormat::ScaleLayout::kPerGroup) {
      const int64_t scale_bytes = format.format.type == ElementType::kI8 ? 4 : 1;  // I8 has F32
                                                                                   // scales
      bytes += rows * cols / format.format.group_size * scale_bytes;
    }
    EXPECT_LE(static_cast<double>(PackedBytes(format.format, rows, cols)),
              1.035 * static_cast<double>(bytes))
        << format.name;
  }
}

}  // namespace
}  // namespace sluice::kernels
