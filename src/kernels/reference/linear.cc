#include "kernels/panel_layout.h"
#include "kernels/reference/reference.h"
#include "tensor/bfloat16.h"

namespace sluice::kernels::reference {
namespace {

float Value(BFloat16 value) {
  return ToFloat(value);
}
float Value(float value) {
  return value;
}

template <typename X, typename W>
void Linear(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
            int64_t panel_end) {
  constexpr int64_t kGroup = sizeof(W) == 2 ? 2 : 1;  // inputs interleaved in a panel
  const int64_t cols = args.cols;
  const int64_t panel_elements = args.panel_bytes / static_cast<int64_t>(sizeof(W));
  const auto* x = static_cast<const X*>(args.x);
  const auto* w = static_cast<const W*>(args.w);
  for (int64_t m = row_begin; m < row_end; ++m) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      float sums[kPanelRows] = {};
      const W* panel_data = w + panel * panel_elements;
      for (int64_t k = 0; k < cols; ++k) {
        const float input = Value(x[m * args.x_stride + k]);
        const W* column = panel_data + k / kGroup * kGroup * kPanelRows + k % kGroup;
        for (int64_t lane = 0; lane < kPanelRows; ++lane)
          sums[lane] += input * Value(column[lane * kGroup]);
      }
      for (int64_t lane = 0; lane < kPanelRows; ++lane) {
        const int64_t n = panel * kPanelRows + lane;
        if (n >= args.outputs) continue;
        const float scaled = args.row_scales ? sums[lane] * args.row_scales[n] : sums[lane];
        args.y[m * args.y_stride + n] = args.bias ? scaled + args.bias[n] : scaled;
      }
    }
  }
}

}  // namespace

void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  const auto* w = static_cast<const int8_t*>(args.w);
  for (int64_t m = row_begin; m < row_end; ++m) {
    const int8_t* x = static_cast<const int8_t*>(args.x) + m * args.x_stride;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      for (int64_t lane = 0; lane < kPanelRows; ++lane) {
        const int64_t n = panel * kPanelRows + lane;
        if (n >= args.outputs) break;
        const int8_t* row = w + panel * args.panel_bytes + lane * 4;
        int32_t sum = 0;
        for (int64_t k = 0; k < args.cols; ++k) sum += x[k] * row[k / 4 * 4 * kPanelRows + k % 4];
        const float scaled = static_cast<float>(sum) * args.row_scales[n] * args.x_scales[m];
        args.y[m * args.y_stride + n] = args.bias ? scaled + args.bias[n] : scaled;
      }
    }
  }
}

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  Linear<BFloat16, BFloat16>(args, row_begin, row_end, panel_begin, panel_end);
}

void LinearF32Bf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                   int64_t panel_end) {
  Linear<float, BFloat16>(args, row_begin, row_end, panel_begin, panel_end);
}

void LinearF32(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
               int64_t panel_end) {
  Linear<float, float>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::reference
