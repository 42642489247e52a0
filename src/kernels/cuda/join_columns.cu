#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

using device::JoinColumnsArgs;

constexpr unsigned kJoinThreads = 256;

// A thread moves one unit of a row. `ends` is in units.
template <typename Unit>
__global__ void JoinColumnsKernel(JoinColumnsArgs args) {
  const int64_t width = args.ends[args.num_pieces - 1];
  const int64_t column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= width) return;
  const int64_t row = blockIdx.x;
  int piece = 0;
  while (column >= args.ends[piece]) ++piece;
  const int64_t begin = piece == 0 ? 0 : args.ends[piece - 1];
  const int64_t from = begin * args.rows + row * (args.ends[piece] - begin) + column - begin;
  static_cast<Unit*>(args.out)[row * width + column] = static_cast<const Unit*>(args.in)[from];
}

// Returns the largest unit of 16, 8, 4, 2 or 1 bytes that divides all pieces and addresses.
int64_t UnitOf(const JoinColumnsArgs& args) {
  uint64_t bits = 16 | reinterpret_cast<uintptr_t>(args.in) | reinterpret_cast<uintptr_t>(args.out);
  for (int i = 0; i < args.num_pieces; ++i) bits |= static_cast<uint64_t>(args.ends[i]);
  return static_cast<int64_t>(bits & (~bits + 1));
}

template <typename Unit>
void LaunchOf(const StreamHandle& stream, JoinColumnsArgs args) {
  for (int i = 0; i < args.num_pieces; ++i) args.ends[i] /= static_cast<int64_t>(sizeof(Unit));
  const int64_t width = args.ends[args.num_pieces - 1];
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((width + kJoinThreads - 1) / kJoinThreads);
  shape.threads = kJoinThreads;
  Launch<JoinColumnsKernel<Unit>>(stream, "join_columns", shape, args);
}

}  // namespace

void LaunchJoinColumns(const StreamHandle& stream, const JoinColumnsArgs& args) {
  if (args.num_pieces == 0 || args.ends[args.num_pieces - 1] == 0) return;
  switch (UnitOf(args)) {
    case 16: return LaunchOf<uint4>(stream, args);
    case 8: return LaunchOf<uint2>(stream, args);
    case 4: return LaunchOf<uint32_t>(stream, args);
    case 2: return LaunchOf<uint16_t>(stream, args);
    default: return LaunchOf<uint8_t>(stream, args);
  }
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
