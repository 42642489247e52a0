#include "models/lora_slots.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "models/lora_packing.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

bool Changes(std::span<const kernels::LoraFactors> modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [](const kernels::LoraFactors& part) { return part.rank > 0; });
}

}  // namespace

Result<LoraSlots> LoraSlots::Allocate(LoraLayout layout,
                                      std::shared_ptr<const DecoderWeights> weights) {
  LoraSlots slots;
  slots.layout_ = std::move(layout);
  slots.weights_ = std::move(weights);
  const int64_t bytes = slots.num_slots() * slots.layout_.slot_bytes;
  ASSIGN_OR_RETURN(slots.memory_,
                   Buffer::Allocate(static_cast<size_t>(bytes), "the slots of LoRA adapters"));
  // Touches the pages at this point, so that loading an adapter does not cause page faults.
  std::memset(slots.memory_.data(), 0, slots.memory_.size_bytes());
  slots.factors_.resize(static_cast<size_t>(slots.num_slots()) * slots.layout_.modules.size());
  RETURN_IF_ERROR(slots.AllocateOwn());
  return slots;
}

Status LoraSlots::AllocateOwn() {
  for (const LoraReplaceable& replaceable : layout_.replaceables) {
    if (replaceable.kind == LoraReplaceable::Kind::kMatrix && !replaceable.held.empty())
      linears_.emplace(replaceable.linear, linears_.size());
  }
  for (size_t i = 0; i < layout_.vectors.size(); ++i) vectors_.emplace(layout_.vectors[i].base, i);
  own_.resize(static_cast<size_t>(num_slots()));
  replaces_.resize(own_.size());
  for (Own& own : own_) {
    own.matrices.resize(layout_.replaceables.size());
    for (size_t i = 0; i < own.matrices.size(); ++i) {
      const LoraReplaceable& replaceable = layout_.replaceables[i];
      if (replaceable.kind == LoraReplaceable::Kind::kVector || !replaceable.has_room ||
          replaceable.held.empty()) {
        continue;
      }
      ASSIGN_OR_RETURN(own.matrices[i], kernels::AllocatePacked(
                                            {.type = layout_.options.type}, replaceable.held_rows(),
                                            replaceable.cols, "the slots of LoRA adapters"));
      std::memset(own.matrices[i].data.data(), 0, own.matrices[i].data.size_bytes());
    }
    for (const LoraLayout::Vector& vector : layout_.vectors)
      own.vectors.emplace_back(static_cast<size_t>(vector.size));
    own.has_vector.resize(layout_.vectors.size());
    own.of_linear.resize(linears_.size());
  }
  return {};
}

std::span<const LoraSlots::OwnMatrix> LoraSlots::MatricesOf(int slot,
                                                            const LinearWeights* linear) const {
  const auto found = linears_.find(linear);
  if (found == linears_.end()) return {};
  return own_[static_cast<size_t>(slot)].of_linear[found->second];
}

const kernels::PackedMatrix* LoraSlots::TableOf(int slot) const {
  return own_[static_cast<size_t>(slot)].table;
}

const std::vector<float>* LoraSlots::VectorOf(int slot, const std::vector<float>& base) const {
  const auto found = vectors_.find(&base);
  if (found == vectors_.end()) return nullptr;
  const Own& own = own_[static_cast<size_t>(slot)];
  return own.has_vector[found->second] != 0 ? &own.vectors[found->second] : nullptr;
}

Status LoraSlots::FillReplacements(int slot, const LoraAdapter& adapter) {
  Own& own = own_[static_cast<size_t>(slot)];
  std::fill(own.has_vector.begin(), own.has_vector.end(), uint8_t{0});
  for (std::vector<OwnMatrix>& matrices : own.of_linear) matrices.clear();
  own.table = nullptr;
  replaces_[static_cast<size_t>(slot)] = 0;
  ThreadPool pool(1);
  for (const LoraAdapter::Replacement& replacement : adapter.replacements()) {
    const LoraReplaceable& replaced = *layout_.FindReplaceable(replacement.replaced->tensor);
    if (replaced.held.empty()) continue;
    replaces_[static_cast<size_t>(slot)] = 1;
    const TensorInfo& tensor = *replacement.tensor;
    const std::byte* const data = adapter.Bytes(tensor).data();
    bool is_finite = true;
    if (replaced.kind == LoraReplaceable::Kind::kVector) {
      std::vector<float>& vector = own.vectors[replaced.vector];
      if (std::exchange(own.has_vector[replaced.vector], uint8_t{1}) == 0)
        vector = *layout_.vectors[replaced.vector].base;
      int64_t to = replaced.first;
      for (const RowRange& rows : replaced.held) {
        for (int64_t i = rows.begin; i < rows.end; ++i, ++to) {
          const float number = StoredNumber(data, tensor.type, i);
          is_finite = is_finite && std::isfinite(number);
          vector[static_cast<size_t>(to)] = number * replaced.factor + replaced.add;
        }
      }
    } else {
      kernels::PackedMatrix& matrix =
          own.matrices[static_cast<size_t>(&replaced - layout_.replaceables.data())];
      const StoredMatrix stored = PlainMatrix(data, tensor.type, replaced.rows, replaced.cols);
      int64_t to = 0;
      for (const RowRange& rows : replaced.held) {
        is_finite =
            kernels::PackRows(pool, matrix, to, stored, rows.begin, rows.size()) && is_finite;
        to += rows.size();
      }
      if (replaced.kind == LoraReplaceable::Kind::kTable)
        own.table = &matrix;
      else
        own.of_linear[linears_.find(replaced.linear)->second].push_back({&matrix, replaced.first});
    }
    if (!is_finite) return NotFinite(adapter, tensor.name);
  }
  return {};
}

Status LoraSlots::Fill(int slot, const LoraAdapter& adapter) {
  const std::vector<LoraModule>& modules = layout_.modules;
  std::byte* const memory = memory_.data() + slot * layout_.slot_bytes;
  kernels::LoraFactors* const all = factors_.data() + static_cast<size_t>(slot) * modules.size();
  std::fill_n(all, modules.size(), kernels::LoraFactors{});
  RETURN_IF_ERROR(FillReplacements(slot, adapter));
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
  // While the rows of a slot are placed, its begin index advances to its end. It is reset
  // afterwards.
  for (size_t row = 0; row < adapters_.size(); ++row) {
    if (adapters_[row] < 0) continue;
    rows_[static_cast<size_t>(begin_[static_cast<size_t>(adapters_[row])]++)] =
        static_cast<int32_t>(row);
  }
  std::copy_backward(begin_.begin(), begin_.end() - 1, begin_.end());
  begin_.front() = 0;
  replaces_ = std::any_of(adapters_.begin(), adapters_.end(),
                          [&](int32_t slot) { return slot >= 0 && slots_->Replaces(slot); });
}

void LoraStep::Replace(ThreadPool& pool, const LinearWeights* linear,
                       const std::vector<float>* bias, const kernels::Activations& x,
                       int64_t first_row, float* y, int64_t y_stride) const {
  ForReplacing(first_row, x.rows, [&](int32_t slot, int64_t begin, int64_t count) {
    const std::vector<float>* const own_bias =
        bias == nullptr ? nullptr : slots_->VectorOf(slot, *bias);
    float* const results = y + begin * y_stride;
    if (own_bias != nullptr) {
      const size_t width = bias->size();
      pool.ParallelFor(count, 1, [&](int64_t from, int64_t to) {
        for (int64_t row = from; row < to; ++row) {
          float* const out = results + row * y_stride;
          for (size_t i = 0; i < width; ++i) out[i] += (*own_bias)[i] - (*bias)[i];
        }
      });
    }
    const std::vector<float>* const added = own_bias != nullptr ? own_bias : bias;
    kernels::Activations rows = x;
    rows.data =
        static_cast<const std::byte*>(x.data) + begin * x.stride * BitsPerElement(x.type) / 8;
    rows.rows = count;
    for (const LoraSlots::OwnMatrix& own : slots_->MatricesOf(slot, linear)) {
      kernels::Linear(pool, *own.matrix, rows, results + own.first_col, y_stride,
                      added == nullptr || added->empty() ? nullptr : added->data() + own.first_col);
    }
  });
}

void LoraStep::ReplaceEmbedding(ThreadPool& pool, std::span<const int32_t> tokens, float scale,
                                float* y, int64_t y_stride) const {
  ForReplacing(0, std::ssize(tokens), [&](int32_t slot, int64_t begin, int64_t count) {
    const kernels::PackedMatrix* const table = slots_->TableOf(slot);
    if (table == nullptr) return;
    float* const rows = y + begin * y_stride;
    kernels::Embedding(
        pool, *table, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), rows);
    if (scale == 1) return;
    for (int64_t i = 0; i < count * y_stride; ++i) rows[i] *= scale;
  });
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
  size_t next = 0;  // index in pair_rows_
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
