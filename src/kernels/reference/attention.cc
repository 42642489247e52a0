#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_layout.h"
#include "kernels/float_result.h"
#include "kernels/reference/reference.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::kernels::reference {
namespace {

float Load(const void* panel, bool bf16, int64_t offset) {
  return bf16 ? ToFloat(static_cast<const BFloat16*>(panel)[offset])
              : static_cast<const float*>(panel)[offset];
}

}  // namespace

void AttentionChunk(const AttentionChunkArgs& args) {
  const int dim = args.head_dim, values = args.value_dim;
  for (int row = 0; row < args.rows; ++row) {
    const int start = args.starts[row];
    const int limit = args.limits[row];
    if (limit == 0) continue;
    const float* q = args.q + int64_t{row} * dim;
    float* scores = args.scores + int64_t{row} * kAttentionChunk;
    float largest = -std::numeric_limits<float>::infinity();
    for (int position = start; position < limit; ++position) {
      const void* panel = args.k_panels[position / kAttentionPanelPositions];
      float score = 0;
      for (int d = 0; d < dim; ++d) {
        score += q[d] * Load(panel, args.bf16,
                             KeyOffset(args.bf16, dim, position % kAttentionPanelPositions, d));
      }
      if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
      scores[position] = score;
      largest = std::max(largest, score);
    }
    float sum = 0;
    for (int position = start; position < limit; ++position) {
      scores[position] = std::exp(scores[position] - largest);
      sum += scores[position];
    }
    float* out = args.out + int64_t{row} * values;
    std::fill(out, out + values, 0.0f);
    for (int position = start; position < limit; ++position) {
      const void* panel = args.v_panels[position / kAttentionPanelPositions];
      for (int d = 0; d < values; ++d) {
        out[d] += scores[position] *
                  Load(panel, args.bf16,
                       ValueOffset(args.bf16, values, position % kAttentionPanelPositions, d));
      }
    }
    args.largest[row] = largest;
    args.sum[row] = sum;
  }
}

void DivideRow(const float* x, float divisor, int64_t count, void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i) StoreResult(y, i, x[i] / divisor, y_bf16);
}

void AddScaled(const float* x, float x_factor, float y_factor, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = y[i] * y_factor + x[i] * x_factor;
}

void DecodeE4M3(const uint8_t* codes, int64_t count, uint16_t* bf16) {
  for (int64_t i = 0; i < count; ++i) bf16[i] = ToBFloat16(ToFloat(Float8E4M3{codes[i]})).bits;
}

}  // namespace sluice::kernels::reference
