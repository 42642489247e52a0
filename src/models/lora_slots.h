// The memory of the adapters that a model serves, and what they add in a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/lora.h"
#include "models/lora_adapter.h"
#include "models/lora_layout.h"
#include "tensor/buffer.h"

namespace sluice {

// Thread safety: a slot may be filled by any thread while a step uses others, not by two threads.
// Ownership: owns the adapters' memory.
class LoraSlots {
 public:
  // Allocates the memory of all slots. kResourceExhausted where the system refuses it.
  static Result<LoraSlots> Allocate(LoraLayout layout);

  const LoraLayout& layout() const { return layout_; }
  int num_slots() const { return layout_.options.num_slots; }
  // Copies the adapter's factors into the slot, whose content is undefined if that fails:
  // kInvalidData for numbers that are not finite. REQUIRES: opened with this layout; no step uses
  // the slot.
  Status Fill(int slot, const LoraAdapter& adapter);

  // Of a layer's modules.
  std::span<const kernels::LoraFactors> Factors(int slot, int layer) const;

 private:
  LoraLayout layout_;
  Buffer memory_;
  std::vector<kernels::LoraFactors> factors_;  // [slots, modules]
};

// The rows of one step by adapter.
//
// Allocates nothing after construction. Thread safety: one thread at a time. Ownership: `slots`
// outlives it.
class LoraStep {
 public:
  static Result<LoraStep> Allocate(const LoraSlots& slots, int64_t max_rows);

  // A step begins: `adapters` has the slot of each slice, or -1.
  void Begin(std::span<const kernels::AttentionSlice> slices, std::span<const int32_t> adapters);
  // From now on row i is what was row rows[i]. Ascending.
  void KeepRows(std::span<const int32_t> rows);

  // What the step's adapters add to the results of the layer: of the rows of `x`, the first of
  // which is row `first_row` of the step, to `y` (kernels/lora.h). Nothing where layer is -1.
  void Add(ThreadPool& pool, int layer, const kernels::Activations& x, int64_t first_row, float* y,
           int64_t y_stride);
  // The same of the embedding, times `scale`.
  void AddEmbedding(ThreadPool& pool, int layer, std::span<const int32_t> tokens, float scale,
                    float* y, int64_t y_stride);

 private:
  explicit LoraStep(const LoraSlots& slots) : slots_(&slots) {}
  // The rows [first, first + count) by adapter, with the adapters' factors of the layer.
  std::span<const kernels::LoraGroup> GroupsOf(int layer, int64_t first, int64_t count);
  std::span<const int32_t> RowsOf(int slot) const;
  void Group();

  const LoraSlots* slots_;
  std::vector<int32_t> adapters_;  // by row: slot or -1
  std::vector<int32_t> rows_;      // by slot, ascending within each
  std::vector<int32_t> begin_;     // [slots + 1], into rows_
  std::vector<kernels::LoraGroup> groups_;
  std::vector<kernels::LoraFactors> scaled_;  // of the embedding, by slot
  Buffer scratch_;
};

}  // namespace sluice
