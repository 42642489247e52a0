#include "kernels/cuda/checks/attention_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cuda/checks/test_numbers.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

// Scales in the range that checkpoints have.
constexpr float kKScale = 0.25f, kVScale = 0.125f * 1.1f;

int BytesOf(ElementType type) {
  return type == ElementType::kF8E4M3 ? 1 : 2;
}

}  // namespace

AttentionStep::AttentionStep(const AttentionShape& shape, AttentionNumbers kind)
    : shape_(shape), numbers_(kind) {
  TestNumbers numbers(91);
  const int block_size = shape.block_size;
  std::vector<int32_t> blocks;
  for (const AttentionShape::Slice& slice : shape.slices) {
    first_rows_.push_back(rows_);
    rows_ += slice.num_tokens;
    num_blocks_ += (slice.context + slice.num_tokens + block_size - 1) / block_size;
  }
  // Block 0 is not used by any sequence.
  blocks.resize(static_cast<size_t>(num_blocks_++));
  std::iota(blocks.begin(), blocks.end(), 1);
  for (size_t i = blocks.size(); i > 1; --i)
    std::swap(blocks[i - 1],
              blocks[static_cast<size_t>(numbers.Integer(0, static_cast<int64_t>(i) - 1))]);
  auto next = blocks.begin();
  for (const AttentionShape::Slice& slice : shape.slices) {
    const auto end = next + (slice.context + slice.num_tokens + block_size - 1) / block_size;
    tables_.emplace_back(next, end);
    next = end;
  }

  if (shape.has_sinks) {
    sinks_ = TestNumbers(92).Normals(shape.heads.num_heads);
    for (float& sink : sinks_) sink += 2;
    if (sinks_.size() > 1) sinks_[1] = 60;
    if (sinks_.size() > 2) sinks_[2] = -1e4f;
  }
  if (kind == AttentionNumbers::kNone) return;
  const bool is_counting = kind == AttentionNumbers::kCounting;
  const AttentionHeads& heads = shape.heads;
  q_ = ToBf16Bits(numbers.Normals(rows_ * heads.num_heads * heads.head_dim));
  if (is_counting) std::fill(q_.begin(), q_.end(), uint16_t{0});
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
        const size_t one = at + static_cast<size_t>(position % heads.head_dim);
        if (shape.type == ElementType::kF8E4M3) {
          numbers.FillFrom(key_codes, k_.data() + at, heads.head_dim);
          numbers.FillFrom(value_codes, v_.data() + at, heads.head_dim);
          if (is_counting) {
            std::fill_n(v_.begin() + static_cast<ptrdiff_t>(at), heads.head_dim, uint8_t{0});
            v_[one] = ToFloat8E4M3(1).bits;
          }
        } else {
          fill_bf16(k_.data() + 2 * at);
          fill_bf16(v_.data() + 2 * at);
          if (is_counting) {
            std::fill_n(v_.begin() + static_cast<ptrdiff_t>(2 * at), 2 * heads.head_dim,
                        uint8_t{0});
            const uint16_t bits = ToBFloat16(1).bits;
            std::memcpy(v_.data() + 2 * one, &bits, 2);
          }
        }
      }
    }
  }
}

void AttentionStep::SetNanValue(size_t slice, int32_t position, int kv_head, int d) {
  const auto bytes = static_cast<size_t>(BytesOf(shape_.type));
  const size_t at = Offset(slice, position, kv_head, d) * bytes;
  std::fill_n(v_.begin() + static_cast<ptrdiff_t>(at), bytes, uint8_t{0xFF});
}

int64_t AttentionStep::CacheElements() const {
  return num_blocks_ * shape_.block_rows() * shape_.heads.head_dim;
}

size_t AttentionStep::Offset(size_t slice, int32_t position, int kv_head, int d) const {
  const int64_t block = tables_[slice][static_cast<size_t>(position / shape_.block_size)];
  const AttentionHeads& heads = shape_.heads;
  return static_cast<size_t>(
      (block * shape_.block_rows() + kv_head * shape_.block_size + position % shape_.block_size) *
          heads.head_dim +
      d);
}

void AttentionStep::Decode(const std::vector<uint8_t>& array, size_t element, double scale,
                           std::vector<double>& numbers) const {
  numbers.resize(static_cast<size_t>(shape_.heads.head_dim));
  const uint8_t* from = array.data() + element * static_cast<size_t>(BytesOf(shape_.type));
  for (size_t d = 0; d < numbers.size(); ++d) {
    uint16_t bits = 0;
    if (shape_.type == ElementType::kF8E4M3) {
      numbers[d] = scale * ToFloat(Float8E4M3{from[d]});
    } else {
      std::memcpy(&bits, from + 2 * d, 2);
      numbers[d] = scale * FromBf16Bits(bits);
    }
  }
}

void AttentionStep::Query(int64_t row, int head, std::vector<double>& numbers) const {
  numbers.resize(static_cast<size_t>(shape_.heads.head_dim));
  const uint16_t* from = q_.data() + (row * shape_.heads.num_heads + head) * shape_.heads.head_dim;
  for (size_t d = 0; d < numbers.size(); ++d) numbers[d] = FromBf16Bits(from[d]);
}
void AttentionStep::Key(size_t slice, int32_t position, int kv_head,
                        std::vector<double>& numbers) const {
  Decode(k_, Offset(slice, position, kv_head, 0), 1, numbers);
}
void AttentionStep::Value(size_t slice, int32_t position, int kv_head,
                          std::vector<double>& numbers) const {
  const bool is_latent = shape_.latent_dim > 0;
  Decode(is_latent ? k_ : v_, Offset(slice, position, kv_head, 0), v_scale(), numbers);
  numbers.resize(static_cast<size_t>(shape_.value_dim()));
}

float AttentionStep::v_scale() const {
  if (shape_.latent_dim > 0) return shape_.type == ElementType::kF8E4M3 ? kKScale : 1;
  return shape_.type == ElementType::kF8E4M3 && numbers_ == AttentionNumbers::kRandom ? kVScale : 1;
}

double AttentionStep::score_scale() const {
  const double scale = 1 / std::sqrt(static_cast<float>(shape_.heads.head_dim));
  return static_cast<float>(scale) * (shape_.type == ElementType::kF8E4M3 ? kKScale : 1.0);
}

AttentionStep::RowPlace AttentionStep::PlaceOf(int64_t row) const {
  size_t slice = 0;
  while (row >= first_rows_[slice] + shape_.slices[slice].num_tokens) ++slice;
  return {slice, shape_.slices[slice].context + static_cast<int32_t>(row - first_rows_[slice])};
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

device::AttentionArgs AttentionStep::Upload(CaseMemory& memory) const {
  const int64_t cache_bytes = CacheElements() * BytesOf(shape_.type);
  // The kernel only reads them, so the cast is safe.
  const auto cache = [&](const std::vector<uint8_t>& numbers) {
    return numbers.empty() ? memory.Out<uint8_t>(cache_bytes)
                           : const_cast<uint8_t*>(memory.In(numbers));
  };
  device::AttentionArgs args{};
  args.num_heads = shape_.heads.num_heads;
  args.cache = {cache(k_),
                cache(v_),
                shape_.type,
                shape_.type == ElementType::kF8E4M3 ? kKScale : 1,
                v_scale(),
                shape_.heads.num_kv_heads,
                shape_.heads.head_dim,
                shape_.block_size,
                shape_.spare_rows == 0 ? 0 : shape_.block_rows()};
  args.chunk = shape_.span.chunk;
  args.window = shape_.span.window;
  args.ahead = shape_.ahead;
  args.soft_cap = shape_.soft_cap;
  if (shape_.has_sinks) args.sinks = memory.In(sinks_);
  if (shape_.latent_dim > 0) {
    args.latent_dim = shape_.latent_dim;
    args.cache.v = nullptr;
  }
  std::vector<Part> parts;
  for (size_t slice = 0; slice < shape_.slices.size(); ++slice)
    parts.push_back({slice, 0, shape_.slices[slice].num_tokens});
  return UploadParts(memory, args, parts);
}

device::AttentionArgs AttentionStep::UploadParts(CaseMemory& memory,
                                                 const device::AttentionArgs& whole,
                                                 const std::vector<Part>& parts,
                                                 const PartOptions& options) const {
  const AttentionHeads& heads = shape_.heads;
  const int64_t row_elements = int64_t{heads.num_heads} * heads.head_dim;
  device::AttentionLimits limits{.max_slices = static_cast<int64_t>(parts.size()),
                                 .num_heads = heads.num_heads,
                                 .num_kv_heads = heads.num_kv_heads,
                                 .head_dim = shape_.value_dim(),
                                 .max_partial_tokens = options.max_partial_tokens};
  std::vector<device::AttentionSliceInfo> infos;
  std::vector<int32_t> tables;
  std::vector<uint16_t> queries;
  std::vector<int32_t> last_seen;
  for (const Part& part : parts) {
    const int32_t context = shape_.slices[part.slice].context + part.first;
    for (int32_t i = 0; i < part.count && !shape_.spans.empty(); ++i)
      last_seen.push_back(shape_.LastSeen(part.slice, context + i));
    infos.push_back({static_cast<int32_t>(limits.max_rows), part.count, context,
                     static_cast<int32_t>(tables.size())});
    const std::vector<int32_t>& table = tables_[part.slice];
    const int32_t unseen = shape_.span.FirstSeen(context) / shape_.block_size;
    const int32_t end = (context + part.count + shape_.block_size - 1) / shape_.block_size;
    tables.insert(tables.end(), static_cast<size_t>(unseen), std::numeric_limits<int32_t>::max());
    tables.insert(tables.end(), table.begin() + unseen, table.begin() + end);
    if (!q_.empty()) {
      const auto from = q_.begin() + (first_rows_[part.slice] + part.first) * row_elements;
      for (auto bits = from; bits != from + part.count * row_elements; ++bits)
        queries.push_back(ToBFloat16(FromBf16Bits(*bits) * options.query_factor).bits);
    }
    limits.max_rows += part.count;
    limits.max_context = std::max<int64_t>(limits.max_context, context + part.count);
  }
  device::AttentionPlan plan(limits);
  device::PlanAttention(limits, infos, shape_.span, plan, shape_.ahead, last_seen);
  if (!q_.empty()) {  // empty: padding, as in a plan of fixed size
    plan.items.push_back({-1, 0, 0, 0, 0, -1});
    plan.merges.push_back({});
  }
  device::AttentionArgs args = whole;
  args.q =
      queries.empty() ? memory.Out<uint16_t>(limits.max_rows * row_elements) : memory.In(queries);
  args.scale = 1 / std::sqrt(static_cast<float>(heads.head_dim)) / options.query_factor;
  args.items = plan.items.empty() ? nullptr : memory.In(plan.items);
  args.num_items = static_cast<int>(plan.items.size());
  args.num_wide_items = plan.num_wide_items;
  args.merges = plan.merges.empty() ? nullptr : memory.In(plan.merges);
  args.num_merges = static_cast<int>(plan.merges.size());
  if (!last_seen.empty()) args.last_seen = memory.In(last_seen);
  args.slices = memory.In(infos);
  args.tables = memory.In(tables);
  args.partials = memory.Out<float>(device::AttentionPartialsBytes(limits) / 4);
  args.out = memory.Out<uint16_t>(limits.max_rows * heads.num_heads * shape_.value_dim());
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
