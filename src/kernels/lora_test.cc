#include "kernels/lora.h"

#include <cmath>
#include <numeric>

#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

// The factors of an adapter for one module, as stored and packed.
struct Module {
  int64_t rank, cols, rows, first_col;
  float scale;
  std::vector<float> a, b;  // [rank, cols], [rows, rank]
  std::vector<std::byte> packed_a, packed_b;

  LoraFactors factors() const {
    return {packed_a.data(), packed_b.data(), rank, scale, first_col, rows};
  }
};

const std::byte* Bytes(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

Module MakeModule(Random& random, int64_t rank, int64_t cols, int64_t rows, int64_t first_col,
                  ElementType type, bool is_table = false) {
  Module module{rank, cols, rows, first_col, 0.5f, {}, {}, {}, {}};
  module.a = random.Normal(rank * cols, 1.0f / std::sqrt(static_cast<float>(is_table ? 1 : cols)));
  module.b = random.Normal(rows * rank);
  if (type == ElementType::kBF16) {
    module.a = Rounded(module.a);
    module.b = Rounded(module.b);
  }
  module.packed_a.resize(static_cast<size_t>(is_table ? LoraTableBytes(rank, cols, type)
                                                      : LoraABytes(rank, cols, type)));
  module.packed_b.resize(static_cast<size_t>(LoraBBytes(rank, rows, type)));
  const auto pack = is_table ? PackLoraTable : PackLoraA;
  EXPECT_TRUE(pack(Bytes(module.a), ElementType::kF32, rank, cols, type, module.packed_a.data()));
  EXPECT_TRUE(
      PackLoraB(Bytes(module.b), ElementType::kF32, rows, rank, type, module.packed_b.data()));
  return module;
}

// Returns the module's contribution to column n of a row, in F64.
double Added(const Module& module, const std::vector<double>& h, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < module.rank; ++j)
    sum += h[static_cast<size_t>(j)] * module.b[static_cast<size_t>(n * module.rank + j)];
  return module.scale * sum;
}

std::vector<double> Shrunk(const Module& module, const float* x) {
  std::vector<double> h;
  for (int64_t j = 0; j < module.rank; ++j)
    h.push_back(std::inner_product(x, x + module.cols, module.a.data() + j * module.cols, 0.0));
  return h;
}

struct Shape {
  int64_t rank, cols, rows;
};

class LoraTest : public KernelTest {};
INSTANTIATE_KERNEL_TEST(LoraTest);

// Odd sizes; three adapters, the second of which does not change the layer's first module; and rows
// without an adapter.
TEST_P(LoraTest, AddsWhatEachAdapterAddsToItsRows) {
  ThreadPool pool(3);
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    for (const Shape& shape : {Shape{16, 64, 48}, Shape{1, 7, 5}, Shape{9, 601, 300},
                               Shape{33, 256, 257}, Shape{512, 32, 16}}) {
      Random random(static_cast<uint32_t>(shape.cols));
      const int64_t cols = shape.cols, width = shape.rows + 3, stride = width + 2, num_rows = 23;
      std::vector<std::vector<Module>> adapters;
      for (int64_t i = 0; i < 3; ++i) {
        auto& modules = adapters.emplace_back();
        modules.push_back(MakeModule(random, shape.rank, cols, shape.rows, 0, type));
        modules.push_back(MakeModule(random, 3, cols, 3, shape.rows, type));
      }
      std::vector<float> x = random.Normal(num_rows * cols);
      const std::vector<BFloat16> rounded = ToBFloat16(x);
      if (type == ElementType::kBF16) x = Rounded(x);
      const Activations inputs{
          .data = type == ElementType::kBF16 ? static_cast<const void*>(rounded.data()) : x.data(),
          .type = type,
          .rows = num_rows,
          .cols = cols,
          .stride = cols};
      std::vector<std::vector<int32_t>> rows(3);
      for (int32_t row = 0; row < num_rows; ++row) {
        if (row % 4 < 3) rows[static_cast<size_t>(row % 4)].push_back(row + 100);
      }
      std::vector<std::vector<LoraFactors>> factors(3);
      std::vector<LoraGroup> groups;
      for (size_t i = 0; i < 3; ++i) {
        for (const Module& module : adapters[i]) factors[i].push_back(module.factors());
        if (i == 1) factors[i][0] = {};
        groups.push_back({rows[i], factors[i]});
      }
      const std::vector<float> before = random.Normal(num_rows * stride);
      std::vector<float> y = before;
      std::vector<float> scratch(static_cast<size_t>(LoraScratchSize(num_rows, 512 + 16 + 16)));
      AddLora(pool, inputs, groups, type, /*first_row=*/100, scratch.data(), y.data(), stride);
      for (int64_t row = 0; row < num_rows; ++row) {
        const auto adapter = static_cast<size_t>(row % 4);
        for (int64_t n = 0; n < stride; ++n) {
          const size_t at = static_cast<size_t>(row * stride + n);
          const bool is_first = n < shape.rows;
          if (adapter == 3 || n >= width || (adapter == 1 && is_first)) {
            ASSERT_EQ(y[at], before[at]);
            continue;
          }
          const Module& module = adapters[adapter][is_first ? 0 : 1];
          const double expected = before[at] + Added(module, Shrunk(module, x.data() + row * cols),
                                                     is_first ? n : n - shape.rows);
          ASSERT_NEAR(y[at], expected, 2e-5 * static_cast<double>(shape.rank + 8))
              << "row " << row << " column " << n;
        }
      }
    }
  }
}

TEST_P(LoraTest, ARowDoesNotDependOnTheOthers) {
  Random random(5);
  const int64_t cols = 300, width = 270, num_rows = 70;
  const Module module = MakeModule(random, 20, cols, width, 0, ElementType::kBF16);
  const std::vector<LoraFactors> factors = {module.factors()};
  const std::vector<float> x = random.Normal(num_rows * cols);
  std::vector<float> scratch(static_cast<size_t>(num_rows * 32));
  const auto run = [&](const std::vector<int32_t>& rows, int threads) {
    ThreadPool pool(threads);
    std::vector<float> y(static_cast<size_t>(num_rows * width), 1.0f);
    AddLora(pool, {.data = x.data(), .rows = num_rows, .cols = cols, .stride = cols},
            std::vector<LoraGroup>{{rows, factors}}, ElementType::kBF16, 0, scratch.data(),
            y.data(), width);
    return y;
  };
  std::vector<int32_t> all(static_cast<size_t>(num_rows));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<float> together = run(all, 3);
  for (const int32_t row : {0, 3, 65, 69}) {
    const std::vector<float> alone = run({row}, 1);
    for (int64_t n = row * width; n < (row + 1) * width; ++n)
      ASSERT_EQ(together[static_cast<size_t>(n)], alone[static_cast<size_t>(n)]);
  }
}

TEST_P(LoraTest, AnEmbeddingSelectsColumns) {
  ThreadPool pool(2);
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    Random random(6);
    const int64_t vocab_size = 50, hidden = 33;
    const Module module = MakeModule(random, 5, vocab_size, hidden, 0, type, /*is_table=*/true);
    const std::vector<LoraFactors> factors = {module.factors()};
    const std::vector<int32_t> tokens = {7, 49, 0, 7}, rows = {1, 3};
    std::vector<float> y(static_cast<size_t>(4 * hidden), 2.0f), scratch(4 * 16);
    AddLoraEmbedding(pool, tokens, std::vector<LoraGroup>{{rows, factors}}, type, scratch.data(),
                     y.data(), hidden);
    for (size_t row = 0; row < tokens.size(); ++row) {
      std::vector<double> h;
      for (int64_t j = 0; j < module.rank; ++j)
        h.push_back(module.a[static_cast<size_t>(j * vocab_size + tokens[row])]);
      for (int64_t n = 0; n < hidden; ++n) {
        const double added = row % 2 == 1 ? Added(module, h, n) : 0;
        ASSERT_NEAR(y[row * static_cast<size_t>(hidden) + static_cast<size_t>(n)], 2 + added, 1e-5);
      }
    }
  }
}

TEST(PackLoraTest, TellsOfNumbersThatAreNotFinite) {
  std::vector<float> values(12, 1.0f);
  std::vector<float> out(16 * 4);
  EXPECT_TRUE(PackLoraA(Bytes(values), ElementType::kF32, 3, 4, ElementType::kF32, out.data()));
  values[11] = INFINITY;
  EXPECT_FALSE(PackLoraA(Bytes(values), ElementType::kF32, 3, 4, ElementType::kF32, out.data()));
  EXPECT_FALSE(PackLoraB(Bytes(values), ElementType::kF32, 3, 4, ElementType::kF32, out.data()));
  EXPECT_FALSE(
      PackLoraTable(Bytes(values), ElementType::kF32, 3, 4, ElementType::kF32, out.data()));
}

}  // namespace
}  // namespace sluice::kernels
