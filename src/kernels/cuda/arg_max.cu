#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/ordered_key.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kMaxThreads = 1024;

struct ArgMaxLaunch {
  device::ArgMaxArgs args;
  bool wide;
};

__global__ void __launch_bounds__(kMaxThreads) ArgMaxKernel(ArgMaxLaunch launch) {
  const device::ArgMaxArgs& args = launch.args;
  const int64_t row = blockIdx.x, row_begin = row * args.cols;
  uint64_t best = 0;
  uint32_t has_nan = 0;
  for (int64_t col = int64_t{threadIdx.x} * kVector; col < args.cols;
       col += int64_t{blockDim.x} * kVector) {
    const int count = VectorCount(col, args.cols);
    float values[kVector];
    LoadVector(args.logits, device::Number::kF32, row_begin + col, count, launch.wide, values);
    for (int i = 0; i < kVector; ++i) {
      if (i >= count) continue;
      const uint64_t key = OrderedKey(values[i], col + i);
      best = key > best ? key : best;
      has_nan |= values[i] != values[i];
    }
  }
  auto* shared = reinterpret_cast<uint64_t*>(SharedMemory());
  best = BlockMax(best, shared);
  has_nan = BlockMax(has_nan, reinterpret_cast<uint32_t*>(shared + 32));
  if (threadIdx.x != 0) return;
  args.tokens[row] = IndexOfKey(best);
  args.has_nan[row] = static_cast<int32_t>(has_nan);
}

}  // namespace

void LaunchArgMax(const StreamHandle& stream, const device::ArgMaxArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.threads = RowThreads(args.cols, kMaxThreads);
  shape.shared_bytes = 32 * (sizeof(uint64_t) + sizeof(uint32_t));
  Launch<ArgMaxKernel>(stream, "arg_max", shape,
                       ArgMaxLaunch{args, IsWide(args.logits, args.cols)});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
