// Test helper: a program of one or a few operators, and the checks of all operators, each of which
// compares it with a plain loop.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_testing.h"
#include "models/cpu/executor.h"

namespace sluice::op_checks {

using kernels::Random;
using program::BufferId;
using program::Extent;
using program::Op;
using program::Program;

inline constexpr int64_t kRows = 5;

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

// op_check_norms_test.cc, op_check_rows_test.cc, op_check_gates_test.cc, op_check_mixers_test.cc.
void CheckNorm(OpBench& bench);
void CheckLayerNorm(OpBench& bench);
void CheckNormRows(OpBench& bench);
void CheckSums(OpBench& bench);
void CheckCopies(OpBench& bench);
void CheckGates(OpBench& bench);
void CheckXielu(OpBench& bench);
void CheckGateAttended(OpBench& bench);
void CheckSoftplusGates(OpBench& bench);
void CheckHeads(OpBench& bench);
void CheckCopyHeads(OpBench& bench);
void CheckNormTo(OpBench& bench);
void CheckResults(OpBench& bench);
void CheckRopeTable(OpBench& bench);
void CheckPatches(OpBench& bench);
void CheckParts(OpBench& bench);
void CheckConvolve(OpBench& bench);
void CheckUpdateState(OpBench& bench);
void CheckGateStates(OpBench& bench);

}  // namespace sluice::op_checks
