#include "kernels/compress.h"

#include <cmath>

#include "base/check.h"
#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

// Rows of a sequence, and entries made by plain loops in double precision.
struct Compressed {
  CompressRule rule;
  std::vector<float> bias, rows;
  int64_t count = 0;

  int64_t stride() const { return 2 * rule.width(); }
  double At(int64_t row, int64_t col) const {
    return rows[static_cast<size_t>(row * stride() + col)];
  }

  static Compressed Make(Random& random, int rate, bool overlaps, int dim, int64_t count) {
    Compressed made;
    made.rule = {.rate = rate, .overlaps = overlaps, .dim = dim};
    made.bias = random.Normal(rate * made.rule.width());
    made.rows = random.Normal(count * 2 * made.rule.width(), 2.0f);
    made.count = count;
    return made;
  }

  double Entry(int64_t entry, int i) const {
    double sum = 0, weighted = 0;
    const auto add = [&](int64_t row, int col) {
      const int64_t width = rule.width(), place = row % rule.rate;
      const double score = At(row, width + col) + bias[static_cast<size_t>(place * width + col)];
      sum += std::exp(score);
      weighted += std::exp(score) * At(row, col);
    };
    for (int64_t row = (entry - 1) * rule.rate;
         rule.overlaps && entry > 0 && row < entry * rule.rate; ++row)
      add(row, i);
    for (int64_t row = entry * rule.rate; row < (entry + 1) * rule.rate; ++row)
      add(row, rule.overlaps ? rule.dim + i : i);
    return weighted / sum;
  }

  // Computes the rows in chunks; returns the entries.
  std::vector<float> Run(int64_t chunk) const {
    CompressRule used = rule;
    used.bias = bias.data();
    std::vector<float> x = rows, state(static_cast<size_t>(rule.state_numbers()));
    for (int64_t first = 0; first < count; first += chunk) {
      const int64_t now = std::min(chunk, count - first);
      const int middle = rule.dim / 2;
      for (const auto& [begin, end] : {std::pair(0, middle), std::pair(middle, rule.dim)})
        CompressRows(used, x.data() + first * stride(), stride(), now, first, begin, end,
                     state.data(), {});
    }
    std::vector<float> entries;
    for (int64_t row = rule.rate - 1; row < count; row += rule.rate) {
      const auto first = x.begin() + row * stride();
      entries.insert(entries.end(), first, first + rule.dim);
    }
    return entries;
  }
};

TEST(CompressTest, EntriesAreSoftmaxesOfGroupsForAnyChunks) {
  Random random(1);
  for (const bool overlaps : {false, true}) {
    const Compressed rows = Compressed::Make(random, 4, overlaps, 6, 30);
    const std::vector<float> entries = rows.Run(rows.count);
    ASSERT_EQ(entries.size(), 7u * 6);
    for (int64_t entry = 0; entry < 7; ++entry) {
      for (int i = 0; i < 6; ++i)
        EXPECT_NEAR(entries[static_cast<size_t>(entry * 6 + i)], rows.Entry(entry, i), 1e-5)
            << entry << " " << i;
    }
    for (const int64_t chunk : {1, 3, 4, 7}) EXPECT_EQ(rows.Run(chunk), entries) << chunk;
  }
}

TEST(CompressTest, ASnapshotIsTheStateAfterSomeRows) {
  Random random(2);
  Compressed rows = Compressed::Make(random, 4, /*overlaps=*/true, 3, 12);
  rows.rule.bias = rows.bias.data();
  const auto size = static_cast<size_t>(rows.rule.state_numbers());
  const auto state_after = [&](int64_t count) {
    std::vector<float> x = rows.rows, state(size);
    CompressRows(rows.rule, x.data(), rows.stride(), count, 0, 0, 3, state.data(), {});
    return state;
  };
  std::vector<float> x = rows.rows, state(size), first(size), second(size);
  const CompressSnapshot snapshots[] = {{6, first.data()}, {8, second.data()}};
  CompressRows(rows.rule, x.data(), rows.stride(), 12, 0, 0, 3, state.data(), snapshots);
  EXPECT_EQ(first, state_after(6));
  EXPECT_EQ(second, state_after(8));
  EXPECT_EQ(state, state_after(12));
}

TEST(CompressTest, FinishedEntriesAreNormedAndRotated) {
  Random random(3);
  constexpr int kDim = 8;
  const std::vector<float> before = random.Normal(kDim), weight = random.Normal(kDim);
  const std::vector<float> frequencies = {0.7f, 0.1f};
  std::vector<float> entry = before;
  FinishEntry(entry.data(), kDim, weight.data(), 0.01f, 12, frequencies);
  double squares = 0;
  for (const float x : before) squares += double{x} * x / kDim;
  std::vector<double> normed;
  for (size_t i = 0; i < kDim; ++i)
    normed.push_back(before[i] * weight[i] / std::sqrt(squares + 0.01));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(entry[i], normed[i], 1e-5);
  for (size_t pair = 0; pair < 2; ++pair) {
    const double angle = 12.0 * frequencies[pair];
    const double a = normed[4 + 2 * pair], b = normed[5 + 2 * pair];
    EXPECT_NEAR(entry[4 + 2 * pair], a * std::cos(angle) - b * std::sin(angle), 1e-4);
    EXPECT_NEAR(entry[5 + 2 * pair], a * std::sin(angle) + b * std::cos(angle), 1e-4);
  }
}

}  // namespace
}  // namespace sluice::kernels
