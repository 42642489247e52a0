#include "kernels/reference/reference.h"
#include "tensor/bfloat16.h"

namespace sluice::kernels::reference {
namespace {

constexpr int64_t kPanelRows = 16;

float Value(BFloat16 value) {
  return ToFloat(value);
}
float Value(float value) {
  return value;
}

template <typename X, typename W>
void Linear(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
            int64_t panel_end) {
  constexpr int64_t kGroup = sizeof(W) == 2 ? 2 : 1;  // inputs that lie side by side in a panel
  const int64_t cols = args.cols;
  const int64_t panel_elements = (cols + kGroup - 1) / kGroup * kGroup * kPanelRows;
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
        if (n < args.outputs)
          args.y[m * args.y_stride + n] = sums[lane] + (args.bias ? args.bias[n] : 0.0f);
      }
    }
  }
}

}  // namespace

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
