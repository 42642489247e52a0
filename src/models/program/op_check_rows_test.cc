// Checks of operators that move rows or make them.
#include <algorithm>
#include <cmath>

#include "models/program/op_check_testing.h"

namespace sluice::op_checks {

void CheckCopies(OpBench& bench) {
  const BufferId x = bench.Numbers("x", 6);
  const BufferId y = bench.Numbers("y", 4);
  bench.wanted() = {1, 4};
  program::KeepRows keep;
  keep.kept[0] = {{.buffer = y, .stride = 16}, 16};
  bench.program().ops = {program::CopyColumns{.from = {.buffer = x, .begin = 2, .stride = 6},
                                              .to = {.buffer = y, .begin = 1, .stride = 4},
                                              .width = 3},
                         keep};
  bench.Run();
  ASSERT_EQ(bench.rows_left(), 2);
  bench.Expect(y, 4, [&](int64_t row, int64_t col) {
    const int64_t from = row == 0 ? 1 : 4;
    return col == 0 ? bench.Before(y)[static_cast<size_t>(from * 4)]
                    : bench.Before(x)[static_cast<size_t>(from * 6 + 1 + col)];
  });
}

// Checks that heads become wider in place, and narrower in another buffer.
void CheckCopyHeads(OpBench& bench) {
  constexpr int64_t kHeads = 3, kNarrow = 4, kWide = 6, kStride = 1 + kHeads * kWide;
  const BufferId x = bench.Numbers("x", kStride);
  const BufferId y = bench.Room("y", kHeads * (kNarrow - 1));
  const program::Columns columns{.buffer = x, .begin = 1, .stride = kStride};
  bench.program().ops = {program::CopyHeads{.from = columns,
                                            .to = columns,
                                            .heads = kHeads,
                                            .from_width = kNarrow,
                                            .to_width = kWide},
                         program::CopyHeads{.from = columns,
                                            .to = {.buffer = y, .stride = kHeads * (kNarrow - 1)},
                                            .heads = kHeads,
                                            .from_width = kWide,
                                            .to_width = kNarrow - 1}};
  bench.Run();
  const auto given = [&](int64_t row, int64_t head, int64_t i) {
    return double{bench.Before(x)[static_cast<size_t>(row * kStride + 1 + head * kNarrow + i)]};
  };
  bench.Expect(x, kStride, [&](int64_t row, int64_t col) {
    if (col == 0) return double{bench.Before(x)[static_cast<size_t>(row * kStride)]};
    const int64_t i = (col - 1) % kWide;
    return i < kNarrow ? given(row, (col - 1) / kWide, i) : 0.0;
  });
  bench.Expect(y, kHeads * (kNarrow - 1), [&](int64_t row, int64_t col) {
    return given(row, col / (kNarrow - 1), col % (kNarrow - 1));
  });
}

void CheckResults(OpBench& bench) {
  constexpr int64_t kWidth = 33;
  const BufferId x = bench.Numbers("x", kWidth);
  bench.program().ops = {program::FinishLogits{.x = x, .width = kWidth, .scale = 2, .cap = 3}};
  bench.Run();
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    return 3 * std::tanh(2.0 * bench.Before(x)[static_cast<size_t>(row * kWidth + col)] / 3);
  });
}

void CheckRopeTable(OpBench& bench) {
  bench.program().rope_tables = {{1.0F, 0.1F, 0.01F}};
  const BufferId out = bench.Room("out", 6);
  bench.program().ops = {program::RopeTable{.table = 0, .amplitude = 2, .out = out}};
  bench.Run();
  bench.Expect(out, 6, [&](int64_t row, int64_t col) {
    const double angle =
        static_cast<double>(row) * bench.program().rope_tables[0][static_cast<size_t>(col % 3)];
    return 2 * (col < 3 ? std::cos(angle) : std::sin(angle));
  });
}

// Checks dropping the last of five rows, and merging pairs of rows.
void CheckPatches(OpBench& bench) {
  constexpr int64_t kWidth = 6;
  using Kind = program::MergePatches::Kind;
  const BufferId x = bench.Numbers("x", kWidth);
  const auto before = [&](int64_t row, int64_t col) {
    return double{bench.Before(x)[static_cast<size_t>(row * kWidth + col)]};
  };
  const BufferId mean = bench.Room("mean", kWidth), mixed = bench.Room("mixed", 2 * kWidth);
  bench.program().ops = {
      program::Regroup{.group = 2, .drops = 1},
      program::MergePatches{.kind = Kind::kMean, .x = x, .out = mean, .width = kWidth, .group = 2},
      program::MergePatches{
          .kind = Kind::kByNumber, .x = x, .out = mixed, .width = kWidth, .group = 2}};
  bench.Run(/*num_threads=*/2);
  EXPECT_EQ(bench.rows_left(), 2);
  bench.Expect(mean, kWidth, [&](int64_t row, int64_t col) {
    return (before(2 * row, col) + before(2 * row + 1, col)) / 2;
  });
  bench.Expect(mixed, 2 * kWidth,
               [&](int64_t row, int64_t col) { return before(2 * row + col % 2, col / 2); });
  const auto bias = bench.Vector(kWidth), factor = bench.Vector(kWidth);
  bench.program().ops = {
      program::Standardize{.x = x, .bias = bias, .factor = factor, .width = kWidth}};
  bench.Run();
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    const auto index = static_cast<size_t>(col);
    return (before(row, col) - bench.VectorOf(bias)[index]) * bench.VectorOf(factor)[index];
  });
  const auto bounds = bench.Vector(4);
  bench.program().ops = {program::Clamp{.x = x, .width = kWidth, .bounds = bounds, .first = 2}};
  bench.Run();
  const double low = bench.VectorOf(bounds)[2], high = bench.VectorOf(bounds)[3];
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    return std::min(std::max(before(row, col), low), high);
  });
}

// Checks that results do not depend on the number of parts.
void CheckParts(OpBench& bench) {
  constexpr int64_t kWidth = 8;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId part = bench.Room("part", kWidth, Extent::kPart);
  bench.program().limits.part = 2;
  bench.program().ops = {program::Parts{.count = 2, .rows = 2},
                         program::Norm{.residual = x, .out = part, .width = kWidth},
                         program::Add{.x = x, .y = part, .width = kWidth}};
  bench.Run(/*num_threads=*/2);
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    return 2 * bench.Before(x)[static_cast<size_t>(row * kWidth + col)];
  });
}

}  // namespace sluice::op_checks
