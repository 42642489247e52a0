// One run of a program: holds the step and the current rows, and has a function for each operator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "models/cpu/executor.h"
#include "models/input_rounding.h"
#include "models/program/walk.h"

namespace sluice {

class CpuWalk : private program::Walk<CpuWalk> {
 public:
  CpuWalk(const CpuExecutor& executor, const CpuStep& step, int64_t rows)
      : Walk(executor.program_, rows, !step.input.logit_rows.empty(), step.input.takes_target),
        executor_(executor),
        options_(executor.options_),
        place_(executor.surroundings_.place),
        ranks_(executor.surroundings_.ranks),
        step_(step),
        pool_(step.pool),
        step_rows_(rows) {}

  // Returns the number of remaining rows.
  int64_t Run(int32_t begin, int32_t end) {
    RunOps(begin, end);
    return rows_;
  }

 private:
  friend class program::Walk<CpuWalk>;

  using Op = program::Op;
  using BufferId = program::BufferId;

  // Returns the memory of the buffer's current rows; a row of the step has `row_bytes` bytes. Null
  // for kNone.
  std::byte* At(BufferId buffer, int64_t row_bytes) const;
  float* F32At(BufferId buffer, int64_t width) const {
    return reinterpret_cast<float*>(At(buffer, width * int64_t{sizeof(float)}));
  }
  int32_t* I32At(BufferId buffer, int64_t width) const {
    return reinterpret_cast<int32_t*>(At(buffer, width * int64_t{sizeof(int32_t)}));
  }
  std::byte* At(const program::Columns& columns, int64_t number_bytes) const;
  float* F32At(const program::Columns& columns) const {
    return reinterpret_cast<float*>(At(columns, sizeof(float)));
  }
  kernels::Activations Rows(BufferId buffer, ElementType type, int64_t width) const;
  // Returns the elements of a vector; null for kNone.
  const float* Vector(program::VectorId id) const {
    return id == program::kNone ? nullptr : program_.vectors[static_cast<size_t>(id)]->data();
  }
  const std::vector<float>& VectorOf(program::VectorId id) const {
    return *program_.vectors[static_cast<size_t>(id)];
  }
  const AttentionSpec& Attention(program::AttentionId id) const {
    return program_.attentions[static_cast<size_t>(id)];
  }
  const MoeSpec& Moe(program::MoeId id) const { return program_.moes[static_cast<size_t>(id)]; }
  int32_t RankOf(int stage) const { return stage * place_.tensor_size + place_.tensor_rank; }

  void RunOne(const Op& op) {
    std::visit([this](const auto& one) { (*this)(one); }, op);
  }
  // Runs the operator with this index. Measures its time if requested.
  void RunAt(int32_t index);

  // Never called. The operators are those that only devices have, and those that RunOps
  // executes itself.
  template <typename Other>
  void operator()(const Other& /*op*/) {
    CHECK(false, "{} is no operator of the CPU", Other::kName);
  }
  void operator()(const program::Embed& op);
  void operator()(const program::AddEmbeddings& op);
  void operator()(const program::RopeTable& op);
  void operator()(const program::Receive& op);
  void operator()(const program::Send& op);
  void operator()(const program::Progress& op);
  void operator()(const program::Norm& op);
  void operator()(const program::LayerNorm& op);
  void operator()(const program::NormRows& op);
  void operator()(const program::Scale& op);
  void operator()(const program::Add& op);
  void operator()(const program::Mix& op);
  void operator()(const program::CopyColumns& op);
  void operator()(const program::TakeHidden& op);
  void operator()(const program::JoinNorms& op);
  void operator()(const program::HandRows& op);
  void operator()(const program::KeepRows& op);
  void operator()(const program::Gather& op);
  void operator()(const program::Project& op);
  void operator()(const program::GateMul& op);
  void operator()(const program::RopeAppend& op);
  void operator()(const program::AppendReceived& op);
  void operator()(const program::Attend& op);
  void operator()(const program::LatentAppend& op);
  void operator()(const program::ChoosePositions& op);
  void operator()(const program::ChooseBlocks& op);
  void operator()(const program::AbsorbQueries& op);
  void operator()(const program::ExpandValues& op);
  void operator()(const program::RotateHeads& op);
  void operator()(const program::CompressKeys& op);
  void operator()(const program::ListPositions& op);
  void operator()(const program::ProjectGroups& op);
  void operator()(const program::CollapseStreams& op);
  void operator()(const program::ExpandStreams& op);
  void operator()(const program::Convolve& op);
  void operator()(const program::UpdateState& op);
  void operator()(const program::GateStates& op);
  void operator()(const program::GateAttended& op);
  void operator()(const program::LimitRows& op);
  void operator()(const program::NormHeads& op);
  void operator()(const program::CopyHeads& op);
  void operator()(const program::NormTo& op);
  void operator()(const program::Route& op);
  void operator()(const program::GateShared& op);
  void operator()(const program::GroupExperts& op);
  void operator()(const program::ProjectExperts& op);
  void operator()(const program::CombineExperts& op);
  void operator()(const program::FinishLogits& op);
  void operator()(const program::CopyResults& op);
  void operator()(const program::Score& op);
  void operator()(const program::MeanTexts& op);
  void operator()(const program::Classify& op);

  // Defined in images.cc.
  void operator()(const program::PlaceImages& op);
  void operator()(const program::AddImages& op);
  void operator()(const program::TakePatches& op);
  void operator()(const program::AddPositions& op);
  void operator()(const program::Regroup& op);
  void operator()(const program::MergePatches& op);
  void operator()(const program::Clamp& op);
  void operator()(const program::Standardize& op);
  void operator()(const program::StoreImage& op);

  // Defined in products.cc.
  kernels::Activations RoundToInt8(const program::RoundingBuffers& buffers,
                                   const kernels::Activations& x) const;
  kernels::Activations Split(const program::RoundingBuffers& buffers,
                             const kernels::Activations& x) const;
  // Returns whether rows are split into two BF16 rows each. F32 rows are split if products compute
  // in BF16.
  bool IsSplit(const kernels::Activations& x) const {
    return x.type == ElementType::kF32 && options_.compute_type == ElementType::kBF16;
  }
  void MultiplyRounded(const program::Project& op, const LinearWeights& weights,
                       const kernels::Activations& x, float* y) const;
  void MultiplyExperts(const program::ProjectExperts& op, const ExpertWeights& weights,
                       std::span<int32_t> row_begin, const kernels::Activations& x, float* y) const;
  kernels::Activations RoundOfExperts(const program::ProjectExperts& op,
                                      const ExpertWeights& weights,
                                      std::span<const int32_t> row_begin,
                                      const kernels::Activations& x) const;
  // Computes y for F32 rows that are not rounded, including the adapters' contribution.
  void MultiplyPlain(program::LinearId linear, int32_t lora, const kernels::Activations& x,
                     float* y) const;
  // Replaces the results of `weights` in rows whose adapter has its own matrix, and adds the
  // contributions of the other adapters. `weights` is null for a head that uses the embedding
  // table.
  void ApplyLora(int32_t layer, const LinearWeights* weights, const kernels::Activations& x,
                 float* y, int64_t y_stride) const;
  // Divides `rows` rows into ranges [begin, begin + count) with the same adapter, and calls
  // norm(weight, begin, count) for each range. `weight` is the vector `id`, or the adapter's
  // replacement for it. REQUIRES: the rows are rows of the step.
  template <typename Norm>
  void ForEachWeight(program::VectorId id, int64_t rows, Norm&& norm) const {
    const std::vector<float>& base = VectorOf(id);
    int64_t next = 0;
    if (step_.lora != nullptr) {
      step_.lora->ForReplacing(first_, rows, [&](int32_t slot, int64_t begin, int64_t count) {
        const std::vector<float>* const own = step_.lora->slots().VectorOf(slot, base);
        if (own == nullptr) return;
        if (begin > next) norm(base, next, begin - next);
        norm(*own, begin, count);
        next = begin + count;
      });
    }
    if (next < rows) norm(base, next, rows - next);
  }

  // Defined in latent.cc.
  void MultiplyHeads(const ExpertWeights& weights, const float* x, int64_t x_width,
                     int64_t x_stride, float* y, int64_t y_width, int64_t y_stride) const;

  // Defined in compressed.cc.
  void StoreEntries(const program::CompressKeys& op, const AttentionSpec& spec, float* x,
                    int64_t stride) const;

  // Defined in attention.cc.
  kernels::KvCacheView CacheOf(int64_t layer, float k_scale, float v_scale) const;
  std::span<const kernels::AttentionSlice> SlicesOf(int64_t layer) const;
  void NormQk(const program::RopeAppend& op, const AttentionSpec& spec, float* q) const;
  void NormWholeRows(const program::RopeAppend& op, const AttentionSpec& spec, float* q) const;
  void MakeValues(const program::RopeAppend& op, const AttentionSpec& spec, float* k) const;
  // Returns the lists of blocks that rows attend to, or none if all rows attend to all positions.
  kernels::ChosenPositions ChosenBlocksOf(const program::Attend& op,
                                          const BlockIndexerSpec& indexer,
                                          std::span<const kernels::AttentionSlice> slices) const;
  // `stride`: number of elements from one row of q to the next.
  void TuneTemperature(const AttentionSpec& spec, float* q, int64_t stride) const;
  // Adds position embeddings only, without type embeddings.
  void AddPositionsOf(const program::AddEmbeddings& op, float* x) const;
  void CopyColumnsOf(const float* from, int64_t from_stride, int64_t width, int64_t rows, float* to,
                     int64_t to_stride) const;

  // Defined in mixers.cc.
  const MixerSpec& Mixer(program::MixerId id) const {
    return program_.mixers[static_cast<size_t>(id)];
  }
  void MakeGates(const program::UpdateState& op, const MixerSpec& spec) const;
  void MakeKeyDecays(const program::UpdateState& op, const MixerSpec& spec) const;
  // Writes x times sigmoid(z), both F32, to out [rows, width].
  void GateBySigmoids(const float* z, int64_t z_stride, const float* x, int64_t stride,
                      int64_t width, std::byte* out, ElementType type) const;

  const CpuExecutor& executor_;
  const ModelOptions& options_;
  const RankPlace& place_;
  TensorRanks* const ranks_;
  const CpuStep& step_;
  ThreadPool& pool_;
  const int64_t step_rows_;  // number of rows at the beginning of the step
};

}  // namespace sluice
