// A step of attention made up for checks and measurements: slices of sequences, their queries, and
// a cache whose blocks lie in no order.
#pragma once

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
    int32_t context = 0;  // tokens before them
  };
  AttentionHeads heads = {};
  ElementType type = ElementType::kBF16;  // of the cache
  kernels::AttentionSpan span = {};
  std::vector<Slice> slices = {};
  int block_size = 16;
};

class AttentionStep {
 public:
  // Random queries, keys and values; or only their places, for measurements.
  explicit AttentionStep(const AttentionShape& shape, bool with_numbers = true);

  // Plans the step and copies everything to the device. Unused parts of the cache are NaN.
  device::AttentionArgs Upload(CaseMemory& memory) const;
  // The last token of a slice alone, in a step of its own over the same cache: its bits must be
  // those that it has in `whole`. Results are [1, num_heads, head_dim].
  device::AttentionArgs UploadLastToken(CaseMemory& memory, const device::AttentionArgs& whole,
                                        size_t slice) const;
  // Makes random numbers on the device, for a step that has only their places.
  void FillOnDevice(const DeviceUnderTest& device, const device::AttentionArgs& args) const;

  const AttentionShape& shape() const { return shape_; }
  int64_t rows() const { return rows_; }
  double mean_context() const;
  // Bytes of keys and values that the step reads at least.
  double kv_bytes() const;
  // Operations of its products at least: those of positions that a row sees.
  double flops() const;
  // What a product of stored numbers becomes in a score.
  double score_scale() const;

  struct RowPlace {
    size_t slice = 0;
    int32_t position = 0;
  };
  RowPlace PlaceOf(int64_t row) const;
  double Q(int64_t row, int head, int d) const;
  double Key(size_t slice, int32_t position, int kv_head, int d) const;    // the stored number
  double Value(size_t slice, int32_t position, int kv_head, int d) const;  // with its scale

 private:
  size_t Offset(size_t slice, int32_t position, int kv_head, int d) const;
  double Stored(const std::vector<uint8_t>& array, size_t element) const;

  int64_t CacheElements() const;
  // Plans attention of `infos` and copies the plan to the device.
  void UploadPlan(CaseMemory& memory, const std::vector<device::AttentionSliceInfo>& infos,
                  device::AttentionArgs& args) const;

  AttentionShape shape_;
  int64_t rows_ = 0, num_blocks_ = 0;
  std::vector<uint16_t> q_;
  std::vector<uint8_t> k_, v_;
  std::vector<int32_t> tables_;
  std::vector<device::AttentionSliceInfo> infos_;
};

}  // namespace sluice::checks
