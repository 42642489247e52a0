// The memory of the adapters that a model serves, and what they add in a step.
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

// The adapters of one rank. Ownership: owns the adapters' memory.
class LoraSlots final : public LoraStore {
 public:
  // Allocates the memory of all slots of a base with these weights, which the layout refers to.
  // kResourceExhausted where the system refuses it.
  static Result<LoraSlots> Allocate(LoraLayout layout,
                                    std::shared_ptr<const DecoderWeights> weights);

  const LoraLayout& layout() const override { return layout_; }
  // The adapter may have been opened with the layout of another rank.
  Status Fill(int slot, const LoraAdapter& adapter) override;

  // The factors of a layer's modules.
  std::span<const kernels::LoraFactors> Factors(int slot, int layer) const;

  // A weight of the adapter's own: its results are the columns from `first_col` on.
  struct OwnMatrix {
    const kernels::PackedMatrix* matrix = nullptr;
    int64_t first_col = 0;
  };
  // Whether the adapter in the slot replaces anything.
  bool Replaces(int slot) const { return replaces_[static_cast<size_t>(slot)] != 0; }
  // What the adapter in the slot computes in place of the layer's modules; `linear` as
  // LoraReplaceable::linear.
  std::span<const OwnMatrix> MatricesOf(int slot, const LinearWeights* linear) const;
  // Null where the adapter keeps the base's embedding.
  const kernels::PackedMatrix* TableOf(int slot) const;
  // What the adapter has in place of the whole vector `base`; null where it keeps it.
  const std::vector<float>* VectorOf(int slot, const std::vector<float>& base) const;

 private:
  Status AllocateOwn();
  Status FillReplacements(int slot, const LoraAdapter& adapter);

  LoraLayout layout_;
  std::shared_ptr<const DecoderWeights> weights_;
  Buffer memory_;
  std::vector<kernels::LoraFactors> factors_;  // [slots, modules]
  // What replaces tensors of the base. Memory for each slot: [replaceables], empty where a slot has
  // no room or the rank no rows; and [vectors].
  struct Own {
    std::vector<kernels::PackedMatrix> matrices;
    std::vector<std::vector<float>> vectors;
    // What the adapter in the slot has.
    std::vector<uint8_t> has_vector;                // [vectors]
    std::vector<std::vector<OwnMatrix>> of_linear;  // [linears]
    const kernels::PackedMatrix* table = nullptr;
  };
  std::vector<Own> own_;                                 // [slots]
  std::vector<uint8_t> replaces_;                        // [slots]
  std::map<const LinearWeights*, size_t> linears_;       // index into Own::of_linear
  std::map<const std::vector<float>*, size_t> vectors_;  // index into Own::vectors
};

// Which rows of a step go through experts, as kernels::GroupByExpert orders them: row i is of the
// step's row first + order[i] / top_k.
struct ExpertRows {
  const int32_t* order = nullptr;
  int64_t top_k = 1;
  int64_t first = 0;
};

// The rows of one step by adapter.
//
// Allocates nothing after construction. Thread safety: one thread at a time. Ownership: of the
// slots together with others.
class LoraStep {
 public:
  static Result<LoraStep> Allocate(std::shared_ptr<const LoraSlots> slots, int64_t max_rows);

  // A step begins: `adapters` has the slot of each slice, or -1.
  void Begin(std::span<const kernels::AttentionSlice> slices, std::span<const int32_t> adapters);
  // The rest of a step: `adapters` has the slot of each row, or -1.
  void BeginRows(std::span<const int32_t> adapters);
  // Appends the slots of these rows of the step, or -1, to `adapters`.
  void AppendAdaptersOf(std::span<const int32_t> rows, std::vector<int32_t>& adapters) const;
  // From now on row i is what was row rows[i]. Ascending.
  void KeepRows(std::span<const int32_t> rows);

  // Whether an adapter of the step replaces tensors of the base.
  bool replaces() const { return replaces_; }
  // Calls run(slot, begin, count) for rows [begin, begin + count) of the `count` rows from row
  // `first` of the step on, counted from `first`, which are consecutive and of one adapter that
  // replaces something.
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
  // Puts what adapters compute of the rows of `x`, the first of which is row `first_row` of the
  // step, in place of the layer's results `y`, to which `bias`, if there is one, was added.
  // `linear`: as LoraReplaceable::linear.
  void Replace(ThreadPool& pool, const LinearWeights* linear, const std::vector<float>* bias,
               const kernels::Activations& x, int64_t first_row, float* y, int64_t y_stride) const;
  // The same of the embeddings of `tokens`, all rows of the step, times `scale`.
  void ReplaceEmbedding(ThreadPool& pool, std::span<const int32_t> tokens, float scale, float* y,
                        int64_t y_stride) const;

  // What the step's adapters add to the results of the layer: of the rows of `x`, the first of
  // which is row `first_row` of the step, to `y` (kernels/lora.h). Nothing where layer is -1.
  void Add(ThreadPool& pool, int layer, const kernels::Activations& x, int64_t first_row, float* y,
           int64_t y_stride);
  // The same of experts, whose weights' `lora_layer` is `layer`: rows [row_begin[e], row_begin[e +
  // 1]) of `x` and `y` are expert e's.
  void AddExperts(ThreadPool& pool, int layer, std::span<const int32_t> row_begin,
                  const ExpertRows& rows, const kernels::Activations& x, float* y,
                  int64_t y_stride);
  // The same of the embedding, times `scale`.
  void AddEmbedding(ThreadPool& pool, int layer, std::span<const int32_t> tokens, float scale,
                    float* y, int64_t y_stride);

 private:
  explicit LoraStep(std::shared_ptr<const LoraSlots> slots) : slots_(std::move(slots)) {}
  // The rows [first, first + count) by adapter, with the adapters' factors of the layer.
  std::span<const kernels::LoraGroup> GroupsOf(int layer, int64_t first, int64_t count);
  std::span<const int32_t> RowsOf(int slot) const;
  void Group();

  std::shared_ptr<const LoraSlots> slots_;
  bool replaces_ = false;
  std::vector<int32_t> adapters_;  // by row: slot or -1
  std::vector<int32_t> rows_;      // by slot, ascending within each
  std::vector<int32_t> begin_;     // [slots + 1], into rows_
  std::vector<kernels::LoraGroup> groups_;
  std::vector<kernels::LoraFactors> scaled_;  // of the embedding, by slot
  std::vector<int32_t> pair_rows_;            // of experts, by expert and slot
  Buffer scratch_;
};

}  // namespace sluice
