// Compares every operator that computes numbers with a plain loop, for every instruction set of the
// CPU; and lists the operators that only tests of whole models run.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numbers>
#include <numeric>
#include <set>

#include "kernels/kernel_testing.h"
#include "models/cpu/executor.h"

namespace sluice {
namespace {

using kernels::AvailableIsas;
using kernels::IsaTestName;
using kernels::Random;
using program::BufferId;
using program::Extent;
using program::Op;
using program::Program;

constexpr int64_t kRows = 5;

// A program of one or a few operators, and its inputs.
class OpBench {
 public:
  explicit OpBench(uint32_t seed) : random_(seed) {
    program_.limits = {
        .rows = kRows, .wanted = kRows, .part = kRows, .rounded = kRows, .pairs = 64};
    program_.norm_eps = 1e-5F;
    options_.compute_type = ElementType::kF32;
    positions_.resize(kRows);
    std::iota(positions_.begin(), positions_.end(), 0);
    tokens_.assign(kRows, 0);
    for (int32_t& token : tokens_) token = static_cast<int32_t>(random_.Integer(0, 15));
  }

  Program& program() { return program_; }
  Random& random() { return random_; }
  std::vector<int32_t>& tokens() { return tokens_; }
  std::vector<int32_t>& wanted() { return wanted_; }

  // Returns a buffer of rows of `width` random F32 numbers.
  BufferId Numbers(const char* name, int64_t width) {
    const BufferId buffer = Room(name, width);
    before_[static_cast<size_t>(buffer)] = random_.Normal(kRows * width);
    return buffer;
  }
  BufferId Room(const char* name, int64_t width, Extent extent = Extent::kStep) {
    program_.buffers.push_back({.name = name, .extent = extent, .row_bytes = width * 4});
    program_.buffers.back().is_kept = true;
    before_.emplace_back();
    return static_cast<BufferId>(before_.size()) - 1;
  }
  const std::vector<float>& Before(BufferId buffer) const {
    return before_[static_cast<size_t>(buffer)];
  }
  program::VectorId Vector(int64_t size) {
    vectors_.push_back(std::make_unique<std::vector<float>>(random_.Normal(size)));
    program_.vectors.push_back(vectors_.back().get());
    return static_cast<program::VectorId>(vectors_.size()) - 1;
  }
  const std::vector<float>& VectorOf(program::VectorId id) const {
    return *vectors_[static_cast<size_t>(id)];
  }

  // Adds a mixer and two sequences, one with the first three rows and one with the other two. Their
  // states are random.
  program::MixerId Mixer(const MixerSpec& spec) {
    program_.mixers = {spec};
    DecoderSpec decoder;
    decoder.layers.resize(1);
    decoder.layers[0].mixer = spec;
    const StateLayout layout = StateLayout::For(decoder);
    EXPECT_TRUE(cache_.AllocateStates(layout, 4));
    states_before_ = random_.Normal(4 * layout.slot_bytes() / 4);
    std::copy(states_before_.begin(), states_before_.end(), cache_.states().tail(0, 0));
    slices_ = {{0, 3, 7, nullptr}, {3, 2, 0, nullptr}};
    slots_ = {{.slot = 2}, {.slot = 0}};
    return 0;
  }
  // Takes a snapshot after the second row of the first sequence.
  void Snapshot() { snapshots_ = {{.slice = 0, .rows = 2, .slot = 3}}; }
  const StateCache& states() const { return cache_.states(); }
  // Returns the initial content at an address in a slot's tail or matrix.
  const float* Before(const float* now) const {
    return states_before_.data() + (now - cache_.states().tail(0, 0));
  }
  int32_t SlotOf(int64_t row) const { return row < 3 ? 2 : 0; }
  int64_t FirstOf(int64_t row) const { return row < 3 ? 0 : 3; }

  void Run(int num_threads = 1) {
    program_.results_begin = static_cast<int32_t>(program_.ops.size());
    auto executor = CpuExecutor::Create(program_, options_, {});
    ASSERT_TRUE(executor);
    for (size_t i = 0; i < before_.size(); ++i) {
      auto* const to = reinterpret_cast<float*>(executor->BufferAt(static_cast<BufferId>(i)));
      std::copy(before_[i].begin(), before_[i].end(), to);
    }
    ThreadPool pool(num_threads);
    StepInput input;
    input.tokens = tokens_;
    input.positions = positions_;
    input.logit_rows = wanted_;
    input.slices = slices_;
    input.states = slots_;
    input.state_snapshots = snapshots_;
    rows_left_ = executor->RunBody({.pool = pool, .input = input, .cache = &cache_});
    after_.clear();
    for (size_t i = 0; i < before_.size(); ++i) {
      const program::Buffer& buffer = program_.buffers[i];
      const auto* const from =
          reinterpret_cast<const float*>(executor->BufferAt(static_cast<BufferId>(i)));
      const int64_t count = program_.limits.Of(buffer.extent) * buffer.row_bytes / 4;
      after_.emplace_back(from, from + count);
    }
  }
  int64_t rows_left() const { return rows_left_; }
  float After(BufferId buffer, int64_t index) const {
    return after_[static_cast<size_t>(buffer)][static_cast<size_t>(index)];
  }
  // Checks every row and column.
  void Expect(BufferId buffer, int64_t width,
              const std::function<double(int64_t row, int64_t col)>& expected,
              double tolerance = 1e-5) const {
    for (int64_t row = 0; row < rows_left_; ++row) {
      for (int64_t col = 0; col < width; ++col) {
        const double number = expected(row, col);
        ASSERT_NEAR(After(buffer, row * width + col), number, tolerance * (1 + std::abs(number)))
            << program_.buffers[static_cast<size_t>(buffer)].name << " row " << row << " column "
            << col;
      }
    }
  }

 private:
  Random random_;
  Program program_;
  ModelOptions options_;
  std::vector<int32_t> tokens_, positions_, wanted_;
  std::vector<std::vector<float>> before_, after_;  // indexed by buffer
  std::vector<std::unique_ptr<std::vector<float>>> vectors_;
  KvCache cache_ = *KvCache::Allocate(
      {.num_kv_heads = 1, .head_dim = 2, .block_size = 1, .type = ElementType::kF32}, 1, 1);
  std::vector<float> states_before_;
  std::vector<kernels::AttentionSlice> slices_;
  std::vector<StateSlot> slots_;
  std::vector<StateSnapshot> snapshots_;
  int64_t rows_left_ = 0;
};

double MeanSquare(const std::vector<float>& x, int64_t first, int64_t count) {
  double sum = 0;
  for (int64_t i = first; i < first + count; ++i)
    sum += double{x[static_cast<size_t>(i)]} * x[static_cast<size_t>(i)];
  return sum / static_cast<double>(count);
}

void CheckNorm(OpBench& bench) {
  constexpr int64_t kWidth = 24;
  const BufferId residual = bench.Numbers("residual", kWidth);
  const BufferId delta = bench.Numbers("delta", kWidth);
  const BufferId out = bench.Room("out", kWidth);
  const auto weight = bench.Vector(kWidth);
  bench.program().ops.emplace_back(program::Norm{
      .residual = residual, .delta = delta, .weight = weight, .out = out, .width = kWidth});
  bench.Run();
  std::vector<float> sum = bench.Before(residual);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += bench.Before(delta)[i];
  bench.Expect(residual, kWidth, [&](int64_t row, int64_t col) {
    return sum[static_cast<size_t>(row * kWidth + col)];
  });
  bench.Expect(out, kWidth, [&](int64_t row, int64_t col) {
    return bench.VectorOf(weight)[static_cast<size_t>(col)] *
           sum[static_cast<size_t>(row * kWidth + col)] /
           std::sqrt(MeanSquare(sum, row * kWidth, kWidth) + 1e-5);
  });
}

void CheckLayerNorm(OpBench& bench) {
  constexpr int64_t kWidth = 24;
  const BufferId residual = bench.Numbers("residual", kWidth);
  const BufferId delta = bench.Numbers("delta", kWidth);
  const BufferId out = bench.Room("out", kWidth);
  const auto weight = bench.Vector(kWidth), bias = bench.Vector(kWidth);
  bench.program().ops.emplace_back(program::LayerNorm{.residual = residual,
                                                      .delta = delta,
                                                      .weight = weight,
                                                      .bias = bias,
                                                      .out = out,
                                                      .scratch = bench.Room("scratch", kWidth),
                                                      .width = kWidth});
  bench.Run();
  std::vector<float> sum = bench.Before(residual);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += bench.Before(delta)[i];
  bench.Expect(out, kWidth, [&](int64_t row, int64_t col) {
    const float* const x = sum.data() + row * kWidth;
    const double mean = std::accumulate(x, x + kWidth, 0.0) / kWidth;
    double variance = 0;
    for (int64_t i = 0; i < kWidth; ++i) variance += (x[i] - mean) * (x[i] - mean) / kWidth;
    return (x[col] - mean) / std::sqrt(variance + 1e-5) *
               bench.VectorOf(weight)[static_cast<size_t>(col)] +
           bench.VectorOf(bias)[static_cast<size_t>(col)];
  });
}

void CheckNormRows(OpBench& bench) {
  constexpr int64_t kHeads = 3, kWidth = 16;
  const BufferId x = bench.Numbers("x", kHeads * kWidth);
  const auto weight = bench.Vector(kWidth);
  bench.program().ops.emplace_back(
      program::NormRows{.x = x, .weight = weight, .heads = kHeads, .width = kWidth, .eps = 0.5F});
  bench.Run();
  bench.Expect(x, kHeads * kWidth, [&](int64_t row, int64_t col) {
    const int64_t first = row * kHeads * kWidth + col / kWidth * kWidth;
    return bench.VectorOf(weight)[static_cast<size_t>(col % kWidth)] *
           bench.Before(x)[static_cast<size_t>(row * kHeads * kWidth + col)] /
           std::sqrt(MeanSquare(bench.Before(x), first, kWidth) + 0.5);
  });
}

// Checks Scale, Add and Mix, one after the other.
void CheckSums(OpBench& bench) {
  constexpr int64_t kWidth = 7;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId y = bench.Numbers("y", kWidth);
  const auto factor = bench.Vector(1);
  bench.program().ops = {
      program::Scale{.x = x, .width = kWidth, .factor = 3},
      program::Scale{.x = y, .width = kWidth, .vector = factor},
      program::Add{.x = x, .y = y, .width = kWidth},
      program::Mix{.x = x, .y = y, .width = kWidth, .x_factor = 0.5F, .sum_factor = 2}};
  bench.Run();
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    const auto i = static_cast<size_t>(row * kWidth + col);
    const double scaled = double{bench.Before(y)[i]} * bench.VectorOf(factor).front();
    return ((3.0 * bench.Before(x)[i] + scaled) * 0.5 + scaled) * 2;
  });
}

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

void CheckGates(OpBench& bench) {
  constexpr int64_t kWidth = 19;
  using program::Gate;
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto tanh_gelu = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  };
  const auto gelu = [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); };
  const auto relu2 = [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); };
  struct Case {
    Gate gate;
    bool is_gated;
    std::function<double(double)> function;
  };
  const Case cases[] = {
      {Gate::kSilu, true, silu},
      {Gate::kGeluTanh, true, tanh_gelu},
      {Gate::kGeluErf, true, gelu},
      {Gate::kPlainGelu, false, gelu},
      {Gate::kPlainRelu, false, [](double x) { return std::max(x, 0.0); }},
      {Gate::kRule, true, relu2},
      {Gate::kRule, false, relu2},
  };
  for (const Case& one : cases) {
    const int64_t x_width = one.is_gated ? 2 * kWidth : kWidth;
    const BufferId x = bench.Numbers("x", x_width);
    const BufferId y = bench.Room("y", kWidth);
    bench.program().ops = {program::GateMul{.gate = one.gate,
                                            .x = x,
                                            .y = y,
                                            .width = kWidth,
                                            .rule = {.kind = kernels::ActivationKind::kRelu2},
                                            .is_gated = one.is_gated}};
    bench.Run();
    bench.Expect(y, kWidth, [&](int64_t row, int64_t col) {
      const float* const numbers = bench.Before(x).data() + row * x_width;
      return one.function(numbers[col]) * (one.is_gated ? numbers[kWidth + col] : 1);
    });
  }
}

// xIELU's parameters as stored; a softplus of the first two gives the alphas.
void CheckXielu(OpBench& bench) {
  constexpr int64_t kWidth = 19;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId y = bench.Room("y", kWidth);
  const auto numbers = bench.Vector(4);
  bench.program().ops = {program::GateMul{.gate = program::Gate::kRule,
                                          .x = x,
                                          .y = y,
                                          .width = kWidth,
                                          .rule = {.kind = kernels::ActivationKind::kXielu},
                                          .is_gated = false,
                                          .numbers = numbers}};
  bench.Run();
  bench.Expect(y, kWidth, [&](int64_t row, int64_t col) {
    const std::vector<float>& stored = bench.VectorOf(numbers);
    const double z = bench.Before(x)[static_cast<size_t>(row * kWidth + col)];
    const double beta = stored[2], alpha_p = std::log1p(std::exp(double{stored[0]}));
    const double alpha_n = beta + std::log1p(std::exp(double{stored[1]}));
    return beta * z +
           (z > 0 ? alpha_p * z * z : alpha_n * (std::expm1(std::min(z, double{stored[3]})) - z));
  });
}

// Checks a gate per element, and a gate per three elements.
void CheckGateAttended(OpBench& bench) {
  constexpr int64_t kWidth = 12;
  for (const int64_t num_gates : {kWidth, kWidth / 3}) {
    const BufferId x = bench.Numbers("x", kWidth);
    const BufferId gates = bench.Numbers("gates", num_gates);
    bench.program().ops = {
        program::GateAttended{.x = x, .gates = gates, .width = kWidth, .num_gates = num_gates}};
    bench.Run();
    bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
      const auto gate = static_cast<size_t>(row * num_gates + col * num_gates / kWidth);
      return bench.Before(x)[static_cast<size_t>(row * kWidth + col)] /
             (1 + std::exp(-double{bench.Before(gates)[gate]}));
    });
  }
}

// Checks softplus gates, with a bias per two gates.
void CheckSoftplusGates(OpBench& bench) {
  constexpr int64_t kWidth = 12, kGates = 6;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId gates = bench.Numbers("gates", kGates);
  const auto bias = bench.Vector(kGates / 2);
  bench.program().ops = {program::GateAttended{.x = x,
                                               .gates = gates,
                                               .width = kWidth,
                                               .num_gates = kGates,
                                               .is_softplus = true,
                                               .bias = bias}};
  bench.Run();
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    const int64_t gate = col * kGates / kWidth;
    const double sum = double{bench.Before(gates)[static_cast<size_t>(row * kGates + gate)]} +
                       bench.VectorOf(bias)[static_cast<size_t>(gate / 2)];
    return bench.Before(x)[static_cast<size_t>(row * kWidth + col)] * std::log1p(std::exp(sum));
  });
}

// Checks limits, then layer norms of heads, with weights per head and with shared weights.
void CheckHeads(OpBench& bench) {
  constexpr int64_t kHeads = 3, kWidth = 8, kStride = kHeads * kWidth + 2;
  for (const bool has_each : {false, true}) {
    const BufferId x = bench.Numbers("x", kStride);
    const auto weight = bench.Vector(has_each ? kHeads * kWidth : kWidth);
    const auto bias = has_each ? program::kNone : bench.Vector(kWidth);
    const program::Columns columns{.buffer = x, .begin = 1, .stride = kStride};
    bench.program().ops = {
        program::LimitRows{.x = columns, .width = kHeads * kWidth, .limit = 0.75F},
        program::NormHeads{.x = columns,
                           .heads = kHeads,
                           .width = kWidth,
                           .weight = weight,
                           .bias = bias,
                           .has_each = has_each}};
    bench.Run();
    bench.Expect(x, kStride, [&](int64_t row, int64_t col) {
      const float* const numbers = bench.Before(x).data() + row * kStride;
      if (col == 0 || col == kStride - 1) return double{numbers[col]};
      const int64_t first = (col - 1) / kWidth * kWidth + 1;
      const auto limited = [&](int64_t i) { return std::clamp(double{numbers[i]}, -0.75, 0.75); };
      double mean = 0, variance = 0;
      for (int64_t i = first; i < first + kWidth; ++i) mean += limited(i) / kWidth;
      for (int64_t i = first; i < first + kWidth; ++i)
        variance += (limited(i) - mean) * (limited(i) - mean) / kWidth;
      const auto place = static_cast<size_t>(has_each ? col - 1 : (col - 1) % kWidth);
      return (limited(col) - mean) / std::sqrt(variance + 1e-5) * bench.VectorOf(weight)[place] +
             (has_each ? 0 : bench.VectorOf(bias)[place]);
    });
  }
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

void CheckNormTo(OpBench& bench) {
  constexpr int64_t kWidth = 24;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId out = bench.Room("out", kWidth);
  const auto weight = bench.Vector(kWidth);
  bench.program().ops = {program::NormTo{.x = x, .weight = weight, .out = out, .width = kWidth}};
  bench.Run();
  bench.Expect(out, kWidth, [&](int64_t row, int64_t col) {
    return bench.VectorOf(weight)[static_cast<size_t>(col)] *
           bench.Before(x)[static_cast<size_t>(row * kWidth + col)] /
           std::sqrt(MeanSquare(bench.Before(x), row * kWidth, kWidth) + 1e-5);
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

MixerSpec SomeMixer(MixerSpec::Kind kind) {
  MixerSpec spec{.kind = kind, .conv_width = 4, .num_heads = 4, .num_key_heads = 2};
  spec.head_dim = 37;
  spec.key_dim = 9;
  if (kind == MixerSpec::Kind::kShortConvolution) {
    spec.num_heads = 131;  // more channels than a thread processes at once
    spec.num_key_heads = 0;
    spec.head_dim = 1;
    spec.key_dim = 0;
  }
  return spec;
}

double Silu(double x) {
  return x / (1 + std::exp(-x));
}

void CheckConvolve(OpBench& bench) {
  for (const MixerSpec::Kind kind :
       {MixerSpec::Kind::kShortConvolution, MixerSpec::Kind::kDeltaRule}) {
    const MixerSpec spec = SomeMixer(kind);
    const bool is_short = kind == MixerSpec::Kind::kShortConvolution;
    const int64_t channels = spec.conv_channels(), stride = spec.InputRows();
    const int64_t width = spec.conv_width;
    const BufferId x = bench.Numbers("x", stride);
    const BufferId out = is_short ? bench.Room("out", channels) : program::kNone;
    const auto weight = bench.Vector(width * channels), bias = bench.Vector(channels);
    const program::MixerId mixer = bench.Mixer(spec);
    bench.Snapshot();
    bench.program().ops = {program::Convolve{
        .mixer = mixer, .x = x, .stride = stride, .weight = weight, .bias = bias, .out = out}};
    bench.Run(/*num_threads=*/3);
    // Input of a row, counted from the sequence's first row; negative rows are in the tail.
    const auto input = [&](int64_t first, int64_t row, int64_t channel) -> double {
      if (row < first) {
        const float* const tail = bench.states().tail(0, bench.SlotOf(first));
        return bench.Before(tail)[(row - first + width - 1) * channels + channel];
      }
      const float* const numbers = bench.Before(x).data() + row * stride;
      return double{numbers[channel]} * (is_short ? numbers[channels + channel] : 1);
    };
    const auto expected = [&](int64_t row, int64_t channel) {
      double sum = bench.VectorOf(bias)[static_cast<size_t>(channel)];
      for (int64_t j = 0; j < width; ++j) {
        sum += bench.VectorOf(weight)[static_cast<size_t>(j * channels + channel)] *
               input(bench.FirstOf(row), row - width + 1 + j, channel);
      }
      return is_short
                 ? sum * bench.Before(x)[static_cast<size_t>(row * stride + 2 * channels + channel)]
                 : Silu(sum);
    };
    if (is_short) {
      bench.Expect(out, channels, expected);
    } else {
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t channel = 0; channel < channels; ++channel)
          ASSERT_NEAR(bench.After(x, row * stride + channel), expected(row, channel), 2e-5);
      }
    }
    for (int64_t j = 0; j < width - 1; ++j) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        const auto at = [&](int32_t slot) {
          return bench.states().tail(0, slot)[j * channels + channel];
        };
        ASSERT_NEAR(at(2), input(0, 3 - width + 1 + j, channel), 1e-6);
        ASSERT_NEAR(at(0), input(3, 5 - width + 1 + j, channel), 1e-6);
        ASSERT_NEAR(at(3), input(0, 2 - width + 1 + j, channel), 1e-6) << "a snapshot";
      }
    }
  }
}

void CheckUpdateState(OpBench& bench) {
  using Kind = MixerSpec::Kind;
  const struct {
    Kind kind;
    bool decays_keys;
    float bound;
  } cases[] = {{Kind::kDeltaRule, false, 0},
               {Kind::kStateSpace, false, 0},
               {Kind::kDeltaRule, true, 0},
               {Kind::kDeltaRule, true, -2}};
  for (const auto& one_case : cases) {
    MixerSpec spec = SomeMixer(one_case.kind);
    const bool is_delta = one_case.kind == Kind::kDeltaRule;
    spec.decays_keys = one_case.decays_keys;
    spec.decay_bound = one_case.bound;
    spec.rate_scale = 2;
    spec.least_step = 0.1F;
    spec.most_step = 1.5F;
    if (!is_delta) spec.input_factors[4] = 0.8F;
    const int64_t heads = spec.num_heads, keys = spec.keys_width(), stride = spec.InputRows();
    const int64_t key_dim = spec.key_dim, head_dim = spec.head_dim;
    const BufferId x = bench.Numbers("x", stride);
    const int64_t num_decays = spec.decays_keys ? spec.decays_width() : heads;
    const BufferId steps = is_delta ? bench.Numbers("steps", heads + num_decays) : x;
    const BufferId gates = bench.Room("gates", heads + num_decays);
    const auto a_log = bench.Vector(heads), step_bias = bench.Vector(num_decays);
    const auto skip = is_delta ? program::kNone : bench.Vector(heads);
    const program::MixerId mixer = bench.Mixer(spec);
    bench.Snapshot();
    const int64_t first_step = is_delta ? 0 : stride - heads;
    const int64_t step_stride = is_delta ? heads + num_decays : stride;
    bench.program().ops = {
        program::UpdateState{.mixer = mixer,
                             .x = x,
                             .stride = stride,
                             .steps = {.buffer = steps, .begin = first_step, .stride = step_stride},
                             .decays = {.buffer = spec.decays_keys ? steps : program::kNone,
                                        .begin = heads,
                                        .stride = step_stride},
                             .gates = gates,
                             .a_log = a_log,
                             .step_bias = step_bias,
                             .skip = skip}};
    bench.Run(/*num_threads=*/3);
    const auto number = [](const std::vector<float>& vector, int64_t i) {
      return double{vector[static_cast<size_t>(i)]};
    };
    for (int64_t head = 0; head < heads; ++head) {
      std::vector<double> state;
      for (int64_t row = 0; row < kRows; ++row) {
        const int32_t slot = bench.SlotOf(row);
        if (row == bench.FirstOf(row)) {
          const float* const before =
              bench.Before(bench.states().matrix(0, slot)) + head * key_dim * head_dim;
          state.assign(before, before + key_dim * head_dim);
        }
        const float* const numbers = bench.Before(x).data() + row * stride;
        const float* const own_steps = bench.Before(steps).data() + row * step_stride + first_step;
        const float* q = numbers + head / 2 * key_dim;
        const float* k = q + keys;
        double step = 0;  // softplus that the last decay was made from
        const auto decay_of = [&](int64_t key) {
          const int64_t at = spec.decays_keys ? head * key_dim + key : head;
          const double factor = std::exp(number(bench.VectorOf(a_log), head));
          step = is_delta ? own_steps[heads + at] : 0.8 * own_steps[head];
          step += number(bench.VectorOf(step_bias), at);
          if (spec.decay_bound != 0)
            return std::exp(spec.decay_bound / (1 + std::exp(-factor * step)));
          step = std::log1p(std::exp(step));
          if (!is_delta) step = std::clamp(step, 0.1, 1.5);
          return std::exp(-factor * step);
        };
        std::vector<double> decays;
        for (int64_t key = 0; key < key_dim; ++key) decays.push_back(decay_of(key));
        const double rate = is_delta ? 2 / (1 + std::exp(-double{own_steps[head]})) : step;
        const auto length = [&](const float* vector) {
          double sum = 1e-6;
          for (int64_t i = 0; i < key_dim; ++i) sum += double{vector[i]} * vector[i];
          return is_delta ? std::sqrt(sum) : 1;
        };
        const double q_length = length(q) * (is_delta ? std::sqrt(double(key_dim)) : 1);
        const double k_length = length(k);
        for (int64_t i = 0; i < head_dim; ++i) {
          const double v = numbers[2 * keys + head * head_dim + i];
          double known = 0, sum = is_delta ? 0 : number(bench.VectorOf(skip), head) * v;
          for (int64_t key = 0; is_delta && key < key_dim; ++key)
            known += decays[static_cast<size_t>(key)] *
                     state[static_cast<size_t>(key * head_dim + i)] * k[key] / k_length;
          for (int64_t key = 0; key < key_dim; ++key) {
            double& one = state[static_cast<size_t>(key * head_dim + i)];
            one = decays[static_cast<size_t>(key)] * one + k[key] / k_length * rate * (v - known);
            sum += one * q[key] / q_length;
          }
          ASSERT_NEAR(bench.After(x, row * stride + 2 * keys + head * head_dim + i), sum,
                      1e-4 * (1 + std::abs(sum)))
              << "row " << row << " head " << head << " column " << i;
        }
        if (row == 0 || row == 3) continue;
        const float* const after =
            bench.states().matrix(0, row == 1 ? 3 : slot) + head * key_dim * head_dim;
        for (size_t i = 0; i < state.size(); ++i)
          ASSERT_NEAR(after[i], state[i], 1e-4 * (1 + std::abs(state[i]))) << "row " << row;
      }
    }
  }
}

void CheckGateStates(OpBench& bench) {
  using Norm = MixerSpec::Norm;
  const struct {
    Norm norm;
    bool before_gate;
  } cases[] = {{Norm::kNone, true},
               {Norm::kOfHeads, true},
               {Norm::kOfGroups, true},
               {Norm::kOfGroups, false}};
  for (const auto& one : cases) {
    MixerSpec spec = SomeMixer(MixerSpec::Kind::kStateSpace);
    spec.norm = one.norm;
    spec.norms_before_gate = one.before_gate;
    spec.norm_eps = 1e-5F;
    spec.input_factors[0] = 0.5F;
    const int64_t width = spec.values_width(), stride = spec.InputRows();
    const int64_t first = 2 * spec.keys_width();
    const int64_t of_norm = one.norm == Norm::kOfHeads ? spec.head_dim : width / 2;
    const BufferId x = bench.Numbers("x", stride);
    const BufferId out = bench.Room("out", width);
    const auto norm = one.norm == Norm::kNone
                          ? program::kNone
                          : bench.Vector(one.norm == Norm::kOfHeads ? of_norm : width);
    const program::MixerId mixer = bench.Mixer(spec);
    bench.program().ops = {
        program::GateStates{.mixer = mixer,
                            .x = x,
                            .stride = stride,
                            .z = {.buffer = x, .begin = first + width, .stride = stride},
                            .norm = norm,
                            .out = out}};
    bench.Run(/*num_threads=*/2);
    bench.Expect(out, width, [&](int64_t row, int64_t col) {
      const float* const values = bench.Before(x).data() + row * stride + first;
      const auto gate = [&](int64_t i) { return Silu(0.5 * values[width + i]); };
      if (one.norm == Norm::kNone) return values[col] * gate(col);
      const auto normed = [&](int64_t i) { return values[i] * (one.before_gate ? 1 : gate(i)); };
      double squares = 0;
      const int64_t begin = col / of_norm * of_norm;
      for (int64_t i = begin; i < begin + of_norm; ++i) squares += normed(i) * normed(i);
      const std::vector<float>& weights = bench.VectorOf(norm);
      const double weight =
          weights[static_cast<size_t>(one.norm == Norm::kOfHeads ? col % of_norm : col)];
      return weight * normed(col) / std::sqrt(squares / static_cast<double>(of_norm) + 1e-5) *
             (one.before_gate ? gate(col) : 1);
    });
  }
}

struct OpCheck {
  std::vector<const char*> operators;
  void (*run)(OpBench& bench);
};
const OpCheck kOpChecks[] = {
    {{program::Norm::kName}, CheckNorm},
    {{program::LayerNorm::kName}, CheckLayerNorm},
    {{program::NormRows::kName}, CheckNormRows},
    {{program::Scale::kName, program::Add::kName, program::Mix::kName}, CheckSums},
    {{program::CopyColumns::kName, program::KeepRows::kName}, CheckCopies},
    {{program::GateMul::kName}, CheckGates},
    {{program::GateMul::kName}, CheckXielu},
    {{program::GateAttended::kName}, CheckGateAttended},
    {{program::GateAttended::kName}, CheckSoftplusGates},
    {{program::LimitRows::kName, program::NormHeads::kName}, CheckHeads},
    {{program::CopyHeads::kName}, CheckCopyHeads},
    {{program::NormTo::kName}, CheckNormTo},
    {{program::FinishLogits::kName}, CheckResults},
    {{program::RopeTable::kName}, CheckRopeTable},
    {{program::Parts::kName}, CheckParts},
    {{program::Regroup::kName, program::MergePatches::kName, program::Standardize::kName,
      program::Clamp::kName},
     CheckPatches},
    {{program::Convolve::kName}, CheckConvolve},
    {{program::UpdateState::kName}, CheckUpdateState},
    {{program::GateStates::kName}, CheckGateStates},
};
// Operators that only tests of whole models run (golden, promise, ranks, adapters): they pass their
// operands to a single kernel, which has its own check, or they need ranks.
const char* const kCheckedByModels[] = {
    "SkipUnless", "Embed", "AddEmbeddings", "Receive", "Send", "Progress", "Gather", "Project",
    "RopeAppend", "AppendReceived", "Attend", "LatentAppend", "ChoosePositions", "AbsorbQueries",
    "ExpandValues", "RotateHeads", "CompressKeys", "ListPositions", "ProjectGroups",
    "CollapseStreams", "ExpandStreams", "Route", "GateShared", "GroupExperts", "ProjectExperts",
    "CombineExperts", "CopyResults", "Score", "MeanTexts", "Classify", "TakeHidden", "JoinNorms",
    "HandRows",
    // Checked by tower_golden_test.cc.
    "PlaceImages", "AddImages", "TakePatches", "AddPositions", "StoreImage",
    // Operators of devices, checked by kernels/cuda/checks and device_golden_test.cc.
    "MixTable", "Convert"};

class OpCheckTest : public kernels::KernelTest {};
INSTANTIATE_KERNEL_TEST(OpCheckTest);

TEST_P(OpCheckTest, OperatorsComputeWhatALoopComputes) {
  uint32_t seed = 1;
  for (const OpCheck& check : kOpChecks) {
    SCOPED_TRACE(check.operators.front());
    OpBench bench(seed++);
    check.run(bench);
  }
}

template <size_t... kIndices>
std::set<std::string> AllNames(std::index_sequence<kIndices...>) {
  return {std::variant_alternative_t<kIndices, Op>::kName...};
}

TEST(OpTableTest, EveryOperatorIsChecked) {
  std::set<std::string> checked(std::begin(kCheckedByModels), std::end(kCheckedByModels));
  for (const OpCheck& check : kOpChecks)
    checked.insert(check.operators.begin(), check.operators.end());
  EXPECT_EQ(checked, AllNames(std::make_index_sequence<std::variant_size_v<Op>>()));
}

}  // namespace
}  // namespace sluice
