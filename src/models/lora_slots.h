// The memory of the adapters that a model serves, and what they add in a step.
#pragma once

#include <cstdint>
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

// Of one rank. Ownership: owns the adapters' memory.
class LoraSlots final : public LoraStore {
 public:
  // Allocates the memory of all slots. kResourceExhausted where the system refuses it.
  static Result<LoraSlots> Allocate(LoraLayout layout);

  const LoraLayout& layout() const override { return layout_; }
  // The adapter may have been opened with the layout of another rank.
  Status Fill(int slot, const LoraAdapter& adapter) override;

  // Of a layer's modules.
  std::span<const kernels::LoraFactors> Factors(int slot, int layer) const;

 private:
  LoraLayout layout_;
  Buffer memory_;
  std::vector<kernels::LoraFactors> factors_;  // [slots, modules]
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
  std::vector<int32_t> adapters_;  // by row: slot or -1
  std::vector<int32_t> rows_;      // by slot, ascending within each
  std::vector<int32_t> begin_;     // [slots + 1], into rows_
  std::vector<kernels::LoraGroup> groups_;
  std::vector<kernels::LoraFactors> scaled_;  // of the embedding, by slot
  std::vector<int32_t> pair_rows_;            // of experts, by expert and slot
  Buffer scratch_;
};

}  // namespace sluice
