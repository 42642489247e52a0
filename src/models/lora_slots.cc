#include "models/lora_slots.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "models/lora_packing.h"

namespace sluice {
namespace {

bool Changes(std::span<const kernels::LoraFactors> modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [](const kernels::LoraFactors& part) { return part.rank > 0; });
}

}  // namespace

Result<LoraSlots> LoraSlots::Allocate(LoraLayout layout) {
  LoraSlots slots;
  slots.layout_ = std::move(layout);
  const int64_t bytes = slots.num_slots() * slots.layout_.slot_bytes;
  ASSIGN_OR_RETURN(slots.memory_,
                   Buffer::Allocate(static_cast<size_t>(bytes), "the slots of LoRA adapters"));
  // The pages are taken now, not when an adapter is loaded.
  std::memset(slots.memory_.data(), 0, slots.memory_.size_bytes());
  slots.factors_.resize(static_cast<size_t>(slots.num_slots()) * slots.layout_.modules.size());
  return slots;
}

Status LoraSlots::Fill(int slot, const LoraAdapter& adapter) {
  const std::vector<LoraModule>& modules = layout_.modules;
  std::byte* const memory = memory_.data() + slot * layout_.slot_bytes;
  kernels::LoraFactors* const all = factors_.data() + static_cast<size_t>(slot) * modules.size();
  std::fill_n(all, modules.size(), kernels::LoraFactors{});
  const ElementType type = layout_.options.type;
  return CopyHeldFactors(layout_, adapter, [&](const HeldFactors& held) -> Result<FiniteFactors> {
    const LoraModule& module = held.module;
    const LoraAdapter::Factors& factors = held.factors;
    std::byte* const a = memory + module.a_offset;
    std::byte* const b = memory + module.b_offset;
    const auto pack_a = module.is_embedding ? kernels::PackLoraTable : kernels::PackLoraA;
    FiniteFactors finite;
    finite.a = pack_a(held.a, factors.a->type, factors.rank, module.cols, type, a);
    finite.b =
        kernels::PackLoraB(held.b, factors.b->type, module.held_rows(), factors.rank, type, b);
    all[&module - modules.data()] = {.a = a,
                                     .b = b,
                                     .rank = factors.rank,
                                     .scale = factors.scale,
                                     .first_col = module.first_col,
                                     .rows = module.held_rows()};
    return finite;
  });
}

std::span<const kernels::LoraFactors> LoraSlots::Factors(int slot, int layer) const {
  const LoraLayer& part = layout_.layers[static_cast<size_t>(layer)];
  const size_t first = static_cast<size_t>(slot) * layout_.modules.size() + part.first;
  return std::span(factors_).subspan(first, part.count);
}

Result<LoraStep> LoraStep::Allocate(std::shared_ptr<const LoraSlots> slots, int64_t max_rows) {
  const auto num_slots = static_cast<size_t>(slots->num_slots());
  const int64_t pairs = slots->layout().MostPairs(max_rows);
  const int64_t bytes = slots->layout().StepBytes(max_rows);
  LoraStep step(std::move(slots));
  const auto rows = static_cast<size_t>(max_rows);
  step.adapters_.reserve(rows);
  step.rows_.resize(rows);
  step.begin_.resize(num_slots + 1);
  step.groups_.reserve(std::max(num_slots, static_cast<size_t>(pairs)));
  step.scaled_.reserve(num_slots);
  step.pair_rows_.resize(static_cast<size_t>(pairs));
  ASSIGN_OR_RETURN(step.scratch_, Buffer::Allocate(static_cast<size_t>(bytes),
                                                   "the scratch memory of LoRA adapters"));
  return step;
}

void LoraStep::Begin(std::span<const kernels::AttentionSlice> slices,
                     std::span<const int32_t> adapters) {
  CHECK_EQ(slices.size(), adapters.size());
  adapters_.clear();
  for (size_t i = 0; i < slices.size(); ++i)
    adapters_.insert(adapters_.end(), static_cast<size_t>(slices[i].num_tokens), adapters[i]);
  Group();
}

void LoraStep::BeginRows(std::span<const int32_t> adapters) {
  adapters_.assign(adapters.begin(), adapters.end());
  Group();
}

void LoraStep::AppendAdaptersOf(std::span<const int32_t> rows,
                                std::vector<int32_t>& adapters) const {
  for (const int32_t row : rows) adapters.push_back(adapters_[static_cast<size_t>(row)]);
}

void LoraStep::KeepRows(std::span<const int32_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) adapters_[i] = adapters_[static_cast<size_t>(rows[i])];
  adapters_.resize(rows.size());
  Group();
}

void LoraStep::Group() {
  std::fill(begin_.begin(), begin_.end(), 0);
  for (const int32_t slot : adapters_) {
    CHECK_LT(slot, slots_->num_slots());
    if (slot >= 0) ++begin_[static_cast<size_t>(slot) + 1];
  }
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  // Each slot's begin moves to its end while its rows are placed, and back.
  for (size_t row = 0; row < adapters_.size(); ++row) {
    if (adapters_[row] < 0) continue;
    rows_[static_cast<size_t>(begin_[static_cast<size_t>(adapters_[row])]++)] =
        static_cast<int32_t>(row);
  }
  std::copy_backward(begin_.begin(), begin_.end() - 1, begin_.end());
  begin_.front() = 0;
}

std::span<const int32_t> LoraStep::RowsOf(int slot) const {
  const auto at = static_cast<size_t>(slot);
  return std::span(rows_).subspan(static_cast<size_t>(begin_[at]),
                                  static_cast<size_t>(begin_[at + 1] - begin_[at]));
}

std::span<const kernels::LoraGroup> LoraStep::GroupsOf(int layer, int64_t first, int64_t count) {
  groups_.clear();
  for (int slot = 0; slot < slots_->num_slots(); ++slot) {
    const std::span<const int32_t> rows = RowsOf(slot);
    const auto begin = std::lower_bound(rows.begin(), rows.end(), first);
    const auto end = std::lower_bound(begin, rows.end(), first + count);
    if (begin == end) continue;
    const std::span<const kernels::LoraFactors> modules = slots_->Factors(slot, layer);
    if (Changes(modules)) groups_.push_back({{begin, end}, modules});
  }
  return groups_;
}

void LoraStep::Add(ThreadPool& pool, int layer, const kernels::Activations& x, int64_t first_row,
                   float* y, int64_t y_stride) {
  if (layer < 0) return;
  const std::span<const kernels::LoraGroup> groups = GroupsOf(layer, first_row, x.rows);
  if (groups.empty()) return;
  kernels::AddLora(pool, x, groups, slots_->layout().options.type, first_row,
                   scratch_.As<float>().data(), y, y_stride);
}

void LoraStep::AddExperts(ThreadPool& pool, int layer, std::span<const int32_t> row_begin,
                          const ExpertRows& rows, const kernels::Activations& x, float* y,
                          int64_t y_stride) {
  if (layer < 0) return;
  groups_.clear();
  size_t next = 0;  // in pair_rows_
  for (size_t expert = 0; expert + 1 < row_begin.size(); ++expert) {
    const auto begin = row_begin[expert], end = row_begin[expert + 1];
    for (int slot = 0; begin < end && slot < slots_->num_slots(); ++slot) {
      const std::span<const kernels::LoraFactors> modules =
          slots_->Factors(slot, layer + static_cast<int>(expert));
      if (!Changes(modules) || RowsOf(slot).empty()) continue;
      const size_t first = next;
      for (int32_t row = begin; row < end; ++row) {
        const int64_t step_row = rows.first + rows.order[row] / rows.top_k;
        if (adapters_[static_cast<size_t>(step_row)] == slot) pair_rows_[next++] = row;
      }
      if (next > first)
        groups_.push_back({std::span(pair_rows_).subspan(first, next - first), modules});
    }
  }
  if (groups_.empty()) return;
  kernels::AddLora(pool, x, groups_, slots_->layout().options.type, /*first_row=*/0,
                   scratch_.As<float>().data(), y, y_stride);
}

void LoraStep::AddEmbedding(ThreadPool& pool, int layer, std::span<const int32_t> tokens,
                            float scale, float* y, int64_t y_stride) {
  if (layer < 0) return;
  if (GroupsOf(layer, 0, static_cast<int64_t>(tokens.size())).empty()) return;
  scaled_.clear();
  for (kernels::LoraGroup& group : groups_) {
    scaled_.push_back(group.modules.front());
    scaled_.back().scale *= scale;
    group.modules = std::span(scaled_).last(1);
  }
  kernels::AddLoraEmbedding(pool, tokens, groups_, slots_->layout().options.type,
                            scratch_.As<float>().data(), y, y_stride);
}

}  // namespace sluice
