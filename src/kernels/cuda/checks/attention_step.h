// A generated step of attention for checks and measurements: slices of sequences, their queries,
// and a cache with shuffled blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/checks/checked_device.h"

namespace sluice::checks {

struct AttentionHeads {
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
};

struct AttentionShape {
  struct Slice {
    int32_t num_tokens = 0;
    int32_t context = 0;  // tokens before the slice
  };
  AttentionHeads heads = {};
  ElementType type = ElementType::kBF16;  // of the cache's elements
  AttentionSpan span = {};
  std::vector<Slice> slices = {};
  int block_size = 16;
  int32_t ahead = 0;  // AttentionArgs::ahead
  // Positions of the first slice whose tokens see each other (AttentionArgs::last_seen).
  std::vector<kernels::SeenSpan> spans = {};

  // Returns the last position that a token of a slice sees.
  int32_t LastSeen(size_t slice, int32_t position) const {
    for (const kernels::SeenSpan& span : spans) {
      if (slice == 0 && position >= span.begin && position < span.end) return span.end - 1;
    }
    const int32_t end = slices[slice].context + slices[slice].num_tokens;
    return std::min(position + ahead, end - 1);
  }
  int spare_rows = 0;  // number of additional rows of head_dim elements after a block's tokens
  float soft_cap = 0;  // this and has_sinks: as in AttentionArgs
  bool has_sinks = false;
  int latent_dim = 0;  // as in AttentionArgs

  int value_dim() const { return latent_dim > 0 ? latent_dim : heads.head_dim; }
  int block_rows() const { return heads.num_kv_heads * block_size + spare_rows; }
};

// How queries, keys and values are generated.
enum class AttentionNumbers : uint8_t {
  kRandom,
  // Zero queries, so that all positions that a row sees have the same weight. The value of position
  // p is 1 in column p % head_dim and 0 in other columns. So an exact result shows which positions
  // were counted.
  kCounting,
  kNone,  // only allocated, for measurements
};

class AttentionStep {
 public:
  explicit AttentionStep(const AttentionShape& shape,
                         AttentionNumbers numbers = AttentionNumbers::kRandom);

  // Makes one element of a value NaN in later uploads.
  void SetNanValue(size_t slice, int32_t position, int kv_head, int d);

  // Copies the cache to the device, with NaN wherever nothing was written, and then the whole step.
  device::AttentionArgs Upload(CaseMemory& memory) const;
  // Tokens [first, first + count) of a slice.
  struct Part {
    size_t slice = 0;
    int32_t first = 0, count = 1;
  };
  struct PartOptions {
    int64_t max_partial_tokens = 2048;  // AttentionLimits::max_partial_tokens
    // A power of two. Queries are multiplied by it, and the scale is divided by it.
    float query_factor = 1;
  };
  // Plans a step of these parts over the cache of `whole` and copies it to the device. Block table
  // entries that kernels must not read are invalid. Results are [tokens, num_heads, head_dim].
  device::AttentionArgs UploadParts(CaseMemory& memory, const device::AttentionArgs& whole,
                                    const std::vector<Part>& parts,
                                    const PartOptions& options) const;
  device::AttentionArgs UploadParts(CaseMemory& memory, const device::AttentionArgs& whole,
                                    const std::vector<Part>& parts) const {
    return UploadParts(memory, whole, parts, PartOptions());
  }
  // Generates random numbers on the device, for a step with kNone.
  void FillOnDevice(const DeviceUnderTest& device, const device::AttentionArgs& args) const;

  const AttentionShape& shape() const { return shape_; }
  int64_t rows() const { return rows_; }
  double mean_context() const;
  // Lower bound of the bytes of keys and values that the step reads.
  double kv_bytes() const;
  // Lower bound of the number of operations of its products, counting only positions that a row
  // sees.
  double flops() const;
  // Factor from a product of stored elements to a score, before the soft cap.
  double score_scale() const;
  // The sink of a head. One sink is far above all scores, and one is far below.
  double Sink(int head) const { return sinks_[static_cast<size_t>(head)]; }

  struct RowPlace {
    size_t slice = 0;
    int32_t position = 0;
  };
  RowPlace PlaceOf(int64_t row) const;
  // These return head_dim elements each: a query, a key as stored, a value (value_dim elements)
  // multiplied by its scale.
  void Query(int64_t row, int head, std::vector<double>& numbers) const;
  void Key(size_t slice, int32_t position, int kv_head, std::vector<double>& numbers) const;
  void Value(size_t slice, int32_t position, int kv_head, std::vector<double>& numbers) const;

 private:
  size_t Offset(size_t slice, int32_t position, int kv_head, int d) const;
  void Decode(const std::vector<uint8_t>& array, size_t element, double scale,
              std::vector<double>& numbers) const;

  int64_t CacheElements() const;
  float v_scale() const;

  AttentionShape shape_;
  AttentionNumbers numbers_;
  int64_t rows_ = 0, num_blocks_ = 0;
  std::vector<uint16_t> q_;
  std::vector<uint8_t> k_, v_;
  std::vector<float> sinks_;
  std::vector<int64_t> first_rows_;           // per slice
  std::vector<std::vector<int32_t>> tables_;  // per slice
};

}  // namespace sluice::checks
