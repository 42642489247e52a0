#include "kernels/linear_unit.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/panel_layout.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kStepBytes = 1024;    // bytes of BF16 lines per step
constexpr int64_t kMaxBlockSteps = 16;  // see KernelTable::has_block_scales

int64_t Steps(int64_t cols) {
  return (cols + kPanelStepInputs - 1) / kPanelStepInputs;
}

ExpandFunction* ExpandFunctionOf(PanelKind kind) {
  const KernelTable& kernels = Kernels();
  switch (kind) {
    case PanelKind::kI8:
    case PanelKind::kGroupI8: return kernels.expand_i8;
    case PanelKind::kF8:
    case PanelKind::kBlockF8: return kernels.expand_f8;
    case PanelKind::kNvfp4: return kernels.expand_nvfp4;
    case PanelKind::kMxfp4: return kernels.expand_mxfp4;
    case PanelKind::kInt4:
    case PanelKind::kGroupInt4: return kernels.expand_int4;
    default: return nullptr;
  }
}

// Expands `steps` steps of some panels, from `first_step` on, and changes `args` to describe them
// as a separate matrix.
void ExpandPanels(LinearArgs& args, int64_t panel_begin, int64_t panel_end, int64_t first_step,
                  int64_t steps, std::byte* lines) {
  const auto* codes = static_cast<const uint8_t*>(args.w) + first_step * args.code_step_bytes;
  const uint8_t* scales =
      args.scales == nullptr ? nullptr : args.scales + first_step * args.scale_step_bytes;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    args.expand(codes + panel * args.panel_bytes,
                scales == nullptr ? nullptr : scales + panel * args.panel_scale_bytes, steps,
                reinterpret_cast<uint8_t*>(lines + (panel - panel_begin) * steps * kStepBytes));
  }
  args.w = lines;
  args.panel_bytes = steps * kStepBytes;
  args.expand = nullptr;
}

// Skips the outputs before panel `panel`.
void SkipOutputs(LinearArgs& args, int64_t panel) {
  const int64_t outputs = panel * kPanelRows;
  args.outputs -= outputs;
  args.y += outputs;
  if (args.row_scales != nullptr) args.row_scales += outputs;
  if (args.bias != nullptr) args.bias += outputs;
}

// Computes a product with block scales. The sums of each block are written to `partial`, multiplied
// by the block's scales and added to `total`.
void ComputeBlocks(const LinearPlan& plan, const LinearArgs& args, int64_t row_begin,
                   int64_t row_end, int64_t panel_begin, int64_t panel_end, std::byte* scratch) {
  const int64_t panels = panel_end - panel_begin;
  const int64_t rows = row_end - row_begin;
  const int64_t width = panels * kPanelRows;
  auto* total = reinterpret_cast<float*>(scratch);
  auto* partial = total + kRowsPerUnit * kMaxPanelsPerUnit * kPanelRows;
  auto* lines =
      reinterpret_cast<std::byte*>(partial + kRowsPerUnit * kMaxPanelsPerUnit * kPanelRows);
  std::fill(total, total + rows * width, 0.0f);
  const int64_t block_steps = plan.block_inputs / kPanelStepInputs;
  for (int64_t k = 0; k < args.cols; k += plan.block_inputs) {
    LinearArgs block = args;
    block.x =
        static_cast<const std::byte*>(args.x) + (row_begin * args.x_stride + k) * args.x_bytes;
    block.cols = std::min(plan.block_inputs, args.cols - k);
    block.outputs = width;
    block.y = partial;
    block.y_stride = width;
    block.row_scales = nullptr;
    block.block_scales = nullptr;
    block.bias = nullptr;
    ExpandPanels(block, panel_begin, panel_end, k / plan.block_inputs * block_steps,
                 Steps(block.cols), lines);
    plan.function(block, 0, rows, 0, panels);
    for (int64_t panel = 0; panel < panels; ++panel) {
      const float* scales = args.block_scales + (panel_begin + panel) * args.panel_block_scales +
                            k / plan.block_inputs * kPanelRows;
      for (int64_t row = 0; row < rows; ++row) {
        float* to = total + row * width + panel * kPanelRows;
        const float* sums = partial + row * width + panel * kPanelRows;
        for (int64_t lane = 0; lane < kPanelRows; ++lane) to[lane] += sums[lane] * scales[lane];
      }
    }
  }
  const int64_t first = panel_begin * kPanelRows;
  const int64_t outputs = std::min(width, args.outputs - first);
  for (int64_t row = 0; row < rows; ++row) {
    float* y = args.y + (row_begin + row) * args.y_stride + first;
    for (int64_t n = 0; n < outputs; ++n) {
      const float scaled = total[row * width + n] * args.row_scales[first + n];
      y[n] = args.bias == nullptr ? scaled : scaled + args.bias[first + n];
    }
  }
}

}  // namespace

LinearPlan PlanLinear(const PackedMatrix& w, const Activations& x) {
  const KernelTable& kernels = Kernels();
  const PanelLayout layout = LayoutOf(w.format, w.cols);
  if (x.type == ElementType::kI8) {
    CHECK(layout.kind == PanelKind::kI8, "I8 activations need I8 weights, not {}",
          ElementTypeName(w.format.type));
    CHECK(x.scales != nullptr, "I8 activations without scales");
    CHECK_LE(w.cols, kMaxInt8Cols);
    return {kernels.linear_i8, nullptr, 0, false};
  }
  CHECK(x.type == ElementType::kF32 || x.type == ElementType::kBF16,
        "activations are F32, BF16 or I8, not {}", ElementTypeName(x.type));
  const bool bf16 = x.type == ElementType::kBF16;
  if (layout.kind == PanelKind::kF32) {
    CHECK(!bf16, "BF16 activations need BF16 or narrower weights");
    return {kernels.linear_f32, nullptr, 0, false};
  }
  LinearPlan plan{bf16 ? kernels.linear_bf16 : kernels.linear_f32_bf16,
                  ExpandFunctionOf(layout.kind), 0, false};
  if (layout.has_blocks()) {
    plan.block_inputs = layout.group_size;
    plan.folds_blocks = bf16 && kernels.has_block_scales &&
                        kMaxBlockSteps % (plan.block_inputs / kPanelStepInputs) == 0;
  }
  return plan;
}

LinearArgs LinearArgsOf(const LinearPlan& plan, const PackedMatrix& w, const Activations& x,
                        float* y, int64_t y_stride, const float* bias) {
  const PanelLayout layout = LayoutOf(w.format, w.cols);
  LinearArgs args{};
  args.x = x.data;
  args.x_stride = x.stride;
  args.x_bytes = BitsPerElement(x.type) / 8;
  args.x_scales = x.scales;
  args.w = w.data.data();
  args.panel_bytes = layout.panel_bytes;
  args.cols = w.cols;
  args.outputs = w.rows;
  args.y = y;
  args.y_stride = y_stride;
  if (layout.is_narrow()) args.row_scales = w.row_scales.As<float>().data();
  args.bias = bias;
  args.expand = plan.expand;
  if (layout.is_narrow())
    args.code_step_bytes = kPanelStepInputs / layout.inputs_per_word * kPanelRows * 4;
  if (layout.has_blocks()) {
    args.block_scales = w.group_scales.As<float>().data();
    args.panel_block_scales = layout.groups * kPanelRows;
    args.block_steps = plan.block_inputs / kPanelStepInputs;
  } else if (layout.group_size != 0) {
    args.scales = reinterpret_cast<const uint8_t*>(w.group_scales.data());
    args.panel_scale_bytes = layout.panel_scale_bytes;
    args.scale_step_bytes = kPanelStepInputs / layout.group_size * kPanelRows;
  }
  if (layout.panel_zero_bytes != 0) {
    args.scales = reinterpret_cast<const uint8_t*>(w.zero_points.data());
    args.panel_scale_bytes = layout.panel_zero_bytes;
    args.scale_step_bytes = kPanelRows;
  }
  return args;
}

int64_t UnitScratchBytes(int64_t cols) {
  constexpr int64_t kSums = 2 * kRowsPerUnit * kMaxPanelsPerUnit * kPanelRows * 4;
  return std::max(kSums + kMaxPanelsPerUnit * Steps(cols) * kStepBytes,
                  Kernels().packed_lines_bytes);
}

bool ExpandsItself(const LinearPlan& plan, int64_t rows) {
  const bool blocks_apart = plan.block_inputs != 0 && !plan.folds_blocks;
  return plan.expand != nullptr && plan.function == Kernels().linear_bf16 && !blocks_apart &&
         rows <= Kernels().expand_rows;
}

void ComputeUnit(const LinearPlan& plan, const LinearArgs& args, int64_t row_begin, int64_t row_end,
                 int64_t panel_begin, int64_t panel_end, std::byte* scratch) {
  if (plan.expand == nullptr || ExpandsItself(plan, row_end - row_begin))
    return plan.function(args, row_begin, row_end, panel_begin, panel_end);
  if (plan.block_inputs != 0 && !plan.folds_blocks)
    return ComputeBlocks(plan, args, row_begin, row_end, panel_begin, panel_end, scratch);
  LinearArgs lines = args;
  ExpandPanels(lines, panel_begin, panel_end, 0, Steps(args.cols), scratch);
  if (args.block_scales != nullptr) lines.block_scales += panel_begin * args.panel_block_scales;
  SkipOutputs(lines, panel_begin);
  plan.function(lines, row_begin, row_end, 0, panel_end - panel_begin);
}

std::byte* LinearScratch(int64_t shared_bytes, int64_t cols, int num_threads) {
  thread_local Buffer scratch;
  const auto bytes = static_cast<size_t>(shared_bytes + num_threads * UnitScratchBytes(cols));
  if (scratch.size_bytes() < bytes) {
    scratch = Buffer();
    Result<Buffer> buffer = Buffer::Allocate(bytes, "scratch of matrix products");
    CHECK(buffer.has_value(), "{}", buffer.error().message);
    scratch = std::move(*buffer);
  }
  return scratch.data();
}

}  // namespace sluice::kernels
