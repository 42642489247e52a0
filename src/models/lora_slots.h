// The memory of a model's adapters, and their computations in a step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/lora.h"
#include "models/lora_adapter.h"
#include "models/lora_layout.h"
#include "models/lora_store.h"
#include "tensor/buffer.h"

namespace sluice {

// Memory for the adapters of one rank. Ownership: owns that memory.
class LoraSlots final : public LoraStore {
 public:
  // Allocates all slots for a base with these weights, which must outlive the slots.
  // kResourceExhausted if the system refuses to provide the memory.
  static Result<LoraSlots> Allocate(LoraLayout layout,
                                    std::shared_ptr<const DecoderWeights> weights);

  const LoraLayout& layout() const override { return layout_; }
  // As in LoraStore. The adapter may have been opened with the layout of another rank.
  Status Fill(int slot, const LoraAdapter& adapter) override;

  // Returns the factors of a layer's modules in the slot.
  std::span<const kernels::LoraFactors> Factors(int slot, int layer) const;

  // A matrix of an adapter that replaces one of the base. Its results start at column `first_col`
  // of the layer's results.
  struct OwnMatrix {
    const kernels::PackedMatrix* matrix = nullptr;
    int64_t first_col = 0;
  };
  // Returns whether the adapter in the slot replaces any tensor of the base.
  bool Replaces(int slot) const { return replaces_[static_cast<size_t>(slot)] != 0; }
  // Returns the adapter's own matrices that replace modules of the layer. `linear`: like
  // LoraReplaceable::linear.
  std::span<const OwnMatrix> MatricesOf(int slot, const LinearWeights* linear) const;
  // Returns the adapter's own embedding; null if it uses the base's.
  const kernels::PackedMatrix* TableOf(int slot) const;
  // Returns the adapter's replacement of the whole vector `base`; null if it has none.
  const std::vector<float>* VectorOf(int slot, const std::vector<float>& base) const;

 private:
  Status AllocateOwn();
  Status FillReplacements(int slot, const LoraAdapter& adapter);

  LoraLayout layout_;
  std::shared_ptr<const DecoderWeights> weights_;
  Buffer memory_;
  std::vector<kernels::LoraFactors> factors_;  // [slots, modules]
  // Tensors of a slot that replace those of the base. The slot's memory: `matrices` [replaceables],
  // with empty elements if slots have no room or this rank has no rows, and `vectors` [vectors].
  struct Own {
    std::vector<kernels::PackedMatrix> matrices;
    std::vector<std::vector<float>> vectors;
    // The parts of this memory that the slot's adapter uses:
    std::vector<uint8_t> has_vector;                // [vectors]
    std::vector<std::vector<OwnMatrix>> of_linear;  // [linears]
    const kernels::PackedMatrix* table = nullptr;
  };
  std::vector<Own> own_;                                 // [slots]
  std::vector<uint8_t> replaces_;                        // [slots]
  std::map<const LinearWeights*, size_t> linears_;       // index into Own::of_linear
  std::map<const std::vector<float>*, size_t> vectors_;  // index into Own::vectors
};

// The order of a step's rows by expert, from kernels::GroupByExpert: row i is row first + order[i]
// / top_k of the step.
struct ExpertRows {
  const int32_t* order = nullptr;
  int64_t top_k = 1;
  int64_t first = 0;
};

// Groups the rows of a step by adapter, and applies the adapters.
//
// Allocates nothing after construction. Thread safety: one thread at a time. Ownership: shares the
// slots with the model.
class LoraStep {
 public:
  static Result<LoraStep> Allocate(std::shared_ptr<const LoraSlots> slots, int64_t max_rows);

  // Begins a step. `adapters`: the slot of each slice, or -1.
  void Begin(std::span<const kernels::AttentionSlice> slices, std::span<const int32_t> adapters);
  // For the first pipeline stage: continues a step with the rows that the last stage returns.
  // `adapters`: the slot of each row, or -1.
  void BeginRows(std::span<const int32_t> adapters);
  // Appends the slot of each of these rows, or -1, to `adapters`.
  void AppendAdaptersOf(std::span<const int32_t> rows, std::vector<int32_t>& adapters) const;
  // Keeps only the rows in `rows`, which are ascending: row i is the former row rows[i].
  void KeepRows(std::span<const int32_t> rows);

  // Returns whether any adapter of the step replaces tensors of the base.
  bool replaces() const { return replaces_; }
  // Calls run(slot, begin, n) for each maximal run of consecutive rows with the same adapter, if
  // that adapter replaces tensors. The rows are [begin, begin + n) among the `count` rows that
  // begin at row `first` of the step.
  template <typename Run>
  void ForReplacing(int64_t first, int64_t count, Run&& run) const {
    if (!replaces_) return;
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
      const int32_t slot = adapters_[static_cast<size_t>(first + begin)];
      while (end < count && adapters_[static_cast<size_t>(first + end)] == slot) ++end;
      if (slot >= 0 && slots_->Replaces(slot)) run(slot, begin, end - begin);
    }
  }
  const LoraSlots& slots() const { return *slots_; }
  // Computes the layer's results `y` again with the adapter's weights, for rows of `x` whose
  // adapter replaces `linear`. The first row of `x` is row `first_row` of the step. `bias`: the
  // bias already added to `y`, may be null. `linear`: like LoraReplaceable::linear.
  void Replace(ThreadPool& pool, const LinearWeights* linear, const std::vector<float>* bias,
               const kernels::Activations& x, int64_t first_row, float* y, int64_t y_stride) const;
  // Like Replace, for the embeddings of `tokens` (all rows of the step), times `scale`.
  void ReplaceEmbedding(ThreadPool& pool, std::span<const int32_t> tokens, float scale, float* y,
                        int64_t y_stride) const;

  // Adds the contributions of the step's adapters to the layer's results `y` for rows `x`, the
  // first of which is row `first_row` of the step (kernels/lora.h). Does nothing if layer is -1.
  void Add(ThreadPool& pool, int layer, const kernels::Activations& x, int64_t first_row, float* y,
           int64_t y_stride);
  // Like Add, for experts whose weights' `lora_layer` is `layer`: rows [row_begin[e], row_begin[e +
  // 1]) of `x` and `y` belong to expert e.
  void AddExperts(ThreadPool& pool, int layer, std::span<const int32_t> row_begin,
                  const ExpertRows& rows, const kernels::Activations& x, float* y,
                  int64_t y_stride);
  // Like Add, for the embedding, times `scale`.
  void AddEmbedding(ThreadPool& pool, int layer, std::span<const int32_t> tokens, float scale,
                    float* y, int64_t y_stride);

 private:
  explicit LoraStep(std::shared_ptr<const LoraSlots> slots) : slots_(std::move(slots)) {}
  // Returns rows [first, first + count) grouped by adapter, with the adapters' factors for the
  // layer.
  std::span<const kernels::LoraGroup> GroupsOf(int layer, int64_t first, int64_t count);
  std::span<const int32_t> RowsOf(int slot) const;
  void Group();

  std::shared_ptr<const LoraSlots> slots_;
  bool replaces_ = false;
  std::vector<int32_t> adapters_;  // slot of each row, or -1
  std::vector<int32_t> rows_;      // rows grouped by slot, ascending within each
  std::vector<int32_t> begin_;     // [slots + 1]: start of each slot's rows in rows_
  std::vector<kernels::LoraGroup> groups_;
  std::vector<kernels::LoraFactors> scaled_;  // factors of the embedding, by slot
  std::vector<int32_t> pair_rows_;            // rows of experts, grouped by expert and slot
  Buffer scratch_;
};

}  // namespace sluice
