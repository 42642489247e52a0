#include "kernels/cuda/checks/attention_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cuda/checks/test_numbers.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

// As a checkpoint might have them.
constexpr float kKScale = 0.25f, kVScale = 0.125f * 1.1f;

int BytesOf(ElementType type) {
  return type == ElementType::kF8E4M3 ? 1 : 2;
}

}  // namespace

AttentionStep::AttentionStep(const AttentionShape& shape, bool with_numbers) : shape_(shape) {
  TestNumbers numbers(91);
  const int block_size = shape.block_size;
  for (const AttentionShape::Slice& slice : shape.slices) {
    infos_.push_back({static_cast<int32_t>(rows_), slice.num_tokens, slice.context,
                      static_cast<int32_t>(num_blocks_)});
    rows_ += slice.num_tokens;
    num_blocks_ += (slice.context + slice.num_tokens + block_size - 1) / block_size;
  }
  // One block more than needed, which nothing may read.
  ++num_blocks_;
  tables_.resize(static_cast<size_t>(num_blocks_ - 1));
  std::iota(tables_.begin(), tables_.end(), 1);
  for (size_t i = tables_.size(); i > 1; --i)
    std::swap(tables_[i - 1],
              tables_[static_cast<size_t>(numbers.Integer(0, static_cast<int64_t>(i) - 1))]);

  if (!with_numbers) return;
  const AttentionHeads& heads = shape.heads;
  q_ = ToBf16Bits(numbers.Normals(rows_ * heads.num_heads * heads.head_dim));
  const auto size = static_cast<size_t>(CacheElements() * BytesOf(shape.type));
  k_.assign(size, 0xFF);
  v_.assign(size, 0xFF);
  TestNumbers::Table<uint8_t> key_codes, value_codes;
  TestNumbers::Table<uint16_t> bf16;
  for (size_t i = 0; i < bf16.size(); ++i) {
    const float number = numbers.Normal();
    key_codes[i] = ToFloat8E4M3(number / kKScale).bits;
    value_codes[i] = ToFloat8E4M3(number / kVScale).bits;
    bf16[i] = ToBFloat16(number).bits;
  }
  std::vector<uint16_t> head_numbers(static_cast<size_t>(heads.head_dim));
  const auto fill_bf16 = [&](uint8_t* out) {
    numbers.FillFrom(bf16, head_numbers.data(), heads.head_dim);
    std::memcpy(out, head_numbers.data(), head_numbers.size() * 2);
  };
  for (size_t slice = 0; slice < shape.slices.size(); ++slice) {
    const int32_t end = shape.slices[slice].context + shape.slices[slice].num_tokens;
    for (int32_t position = 0; position < end; ++position) {
      for (int head = 0; head < heads.num_kv_heads; ++head) {
        const size_t at = Offset(slice, position, head, 0);
        if (shape.type == ElementType::kF8E4M3) {
          numbers.FillFrom(key_codes, k_.data() + at, heads.head_dim);
          numbers.FillFrom(value_codes, v_.data() + at, heads.head_dim);
        } else {
          fill_bf16(k_.data() + 2 * at);
          fill_bf16(v_.data() + 2 * at);
        }
      }
    }
  }
}

int64_t AttentionStep::CacheElements() const {
  return num_blocks_ * shape_.heads.num_kv_heads * shape_.block_size * shape_.heads.head_dim;
}

size_t AttentionStep::Offset(size_t slice, int32_t position, int kv_head, int d) const {
  const int64_t place = infos_[slice].table + position / shape_.block_size;
  const int64_t block = tables_[static_cast<size_t>(place)];
  const AttentionHeads& heads = shape_.heads;
  return static_cast<size_t>(
      ((block * heads.num_kv_heads + kv_head) * shape_.block_size + position % shape_.block_size) *
          heads.head_dim +
      d);
}

double AttentionStep::Stored(const std::vector<uint8_t>& array, size_t element) const {
  if (shape_.type == ElementType::kF8E4M3) return ToFloat(Float8E4M3{array[element]});
  uint16_t bits;
  std::memcpy(&bits, array.data() + 2 * element, 2);
  return FromBf16Bits(bits);
}

double AttentionStep::Q(int64_t row, int head, int d) const {
  return FromBf16Bits(
      q_[static_cast<size_t>((row * shape_.heads.num_heads + head) * shape_.heads.head_dim + d)]);
}
double AttentionStep::Key(size_t slice, int32_t position, int kv_head, int d) const {
  return Stored(k_, Offset(slice, position, kv_head, d));
}
double AttentionStep::Value(size_t slice, int32_t position, int kv_head, int d) const {
  const double stored = Stored(v_, Offset(slice, position, kv_head, d));
  return shape_.type == ElementType::kF8E4M3 ? stored * kVScale : stored;
}

double AttentionStep::score_scale() const {
  const double scale = 1 / std::sqrt(static_cast<float>(shape_.heads.head_dim));
  return static_cast<float>(scale) * (shape_.type == ElementType::kF8E4M3 ? kKScale : 1.0);
}

AttentionStep::RowPlace AttentionStep::PlaceOf(int64_t row) const {
  size_t slice = 0;
  while (row >= infos_[slice].first_row + infos_[slice].num_tokens) ++slice;
  return {slice, infos_[slice].context + static_cast<int32_t>(row) - infos_[slice].first_row};
}

double AttentionStep::mean_context() const {
  double sum = 0;
  for (const auto& slice : shape_.slices)
    sum += slice.num_tokens * (slice.context + slice.num_tokens / 2.0);
  return sum / static_cast<double>(std::max<int64_t>(rows_, 1));
}

double AttentionStep::kv_bytes() const {
  double positions = 0;
  for (const auto& slice : shape_.slices)
    positions += slice.context + slice.num_tokens - shape_.span.FirstSeen(slice.context);
  return positions * 2 * shape_.heads.num_kv_heads * shape_.heads.head_dim * BytesOf(shape_.type);
}

double AttentionStep::flops() const {
  double pairs = 0;
  for (const auto& slice : shape_.slices) {
    for (int32_t i = 0; i < slice.num_tokens; ++i) {
      const int32_t position = slice.context + i;
      pairs += position + 1 - shape_.span.FirstSeen(position);
    }
  }
  return pairs * 4 * shape_.heads.num_heads * shape_.heads.head_dim;
}

void AttentionStep::UploadPlan(CaseMemory& memory,
                               const std::vector<device::AttentionSliceInfo>& infos,
                               device::AttentionArgs& args) const {
  device::AttentionLimits limits;
  limits.max_slices = static_cast<int64_t>(infos.size());
  for (const device::AttentionSliceInfo& info : infos) {
    limits.max_rows += info.num_tokens;
    limits.max_context = std::max<int64_t>(limits.max_context, info.context + info.num_tokens);
  }
  limits.num_heads = shape_.heads.num_heads;
  limits.num_kv_heads = shape_.heads.num_kv_heads;
  limits.head_dim = shape_.heads.head_dim;
  device::AttentionPlan plan(limits);
  device::PlanAttention(limits, infos, shape_.span, plan);
  args.items = plan.items.empty() ? nullptr : memory.In(plan.items);
  args.num_items = static_cast<int>(plan.items.size());
  args.num_wide_items = plan.num_wide_items;
  args.merges = plan.merges.empty() ? nullptr : memory.In(plan.merges);
  args.num_merges = static_cast<int>(plan.merges.size());
  args.slices = memory.In(infos);
  args.partials = static_cast<float*>(
      static_cast<void*>(memory.Out<uint8_t>(device::AttentionPartialsBytes(limits) + 256)));
}

device::AttentionArgs AttentionStep::Upload(CaseMemory& memory) const {
  const AttentionHeads& heads = shape_.heads;
  const int64_t query_elements = rows_ * heads.num_heads * heads.head_dim;
  const int64_t cache_bytes = CacheElements() * BytesOf(shape_.type);
  device::AttentionArgs args{};
  UploadPlan(memory, infos_, args);
  args.q = q_.empty() ? memory.Out<uint16_t>(query_elements) : memory.In(q_);
  args.num_heads = heads.num_heads;
  args.scale = 1 / std::sqrt(static_cast<float>(heads.head_dim));
  // The kernel only reads them.
  const auto cache = [&](const std::vector<uint8_t>& numbers) {
    return numbers.empty() ? memory.Out<uint8_t>(cache_bytes)
                           : const_cast<uint8_t*>(memory.In(numbers));
  };
  const bool is_f8 = shape_.type == ElementType::kF8E4M3;
  args.cache = {cache(k_),           cache(v_),          shape_.type,    is_f8 ? kKScale : 1,
                is_f8 ? kVScale : 1, heads.num_kv_heads, heads.head_dim, shape_.block_size};
  args.chunk = shape_.span.chunk;
  args.window = shape_.span.window;
  args.tables = memory.In(tables_);
  args.out = memory.Out<uint16_t>(query_elements);
  return args;
}

device::AttentionArgs AttentionStep::UploadLastToken(CaseMemory& memory,
                                                     const device::AttentionArgs& whole,
                                                     size_t slice) const {
  const int64_t row_elements = int64_t{shape_.heads.num_heads} * shape_.heads.head_dim;
  device::AttentionSliceInfo info = infos_[slice];
  device::AttentionArgs args = whole;
  args.q += (info.first_row + info.num_tokens - 1) * row_elements;
  info.context += info.num_tokens - 1;
  info.first_row = 0;
  info.num_tokens = 1;
  UploadPlan(memory, {info}, args);
  args.out = memory.Out<uint16_t>(row_elements);
  return args;
}

void AttentionStep::FillOnDevice(const DeviceUnderTest& device,
                                 const device::AttentionArgs& args) const {
  const auto fill = [&](const void* out, ElementType type, int64_t elements, uint64_t seed) {
    const int64_t cols = shape_.heads.head_dim;
    device.kernels().random_codes(
        device.handle(), {const_cast<void*>(out), type, seed, 0, elements / cols, cols, 0x1p-16f});
  };
  const ElementType type =
      shape_.type == ElementType::kF8E4M3 ? ElementType::kF8E4M3 : ElementType::kBF16;
  fill(args.q, ElementType::kBF16, rows_ * shape_.heads.num_heads * shape_.heads.head_dim, 1);
  fill(args.cache.k, type, CacheElements(), 2);
  fill(args.cache.v, type, CacheElements(), 3);
}

}  // namespace sluice::checks
