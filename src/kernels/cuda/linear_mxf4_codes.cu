// Products of MXFP4 weights and MXFP4 inputs as codes, by matrix instructions that apply the scales
// of both (AMD's CDNA 4). Other GPUs multiply the inputs in BF16, which have the same values.
#include "kernels/cuda/linear_launch.h"
#include "kernels/cuda/mxf4_layout.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

#if defined(__HIP__) || defined(SLUICE_EMULATED_HIP)

namespace {

// The same tiles as those of linear_tile.h, divided among waves of 64 lanes. A wave computes tiles
// of 16 rows of W and 16 rows of x, and an instruction multiplies a whole stage.
template <int kTokens>
struct CodeTile {
  static constexpr int kRows = device::kLinearTileRows;
  static constexpr int kRowWaves = 2, kTokenWaves = kTokens == 128 ? 2 : 1;
  static constexpr int kThreads = kRowWaves * kTokenWaves * 64;
  static constexpr int kRowTiles = kRows / 16 / kRowWaves;
  static constexpr int kTokenTiles = kTokens / 16 / kTokenWaves;
  static constexpr int kStageK = device::LinearStageK(ElementType::kF4E2M1);
  static constexpr int kRowBytes = kStageK / 2, kGroups = kStageK / device::kMxF4Group;
  // At least one row for each thread that copies.
  static constexpr int kCopiedRows = kThreads / (kRowBytes / 16);
  static constexpr int kInputRows = kTokens < kCopiedRows ? kCopiedRows : kTokens;
  static constexpr int kWeightBytes = kRows * kRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kInputRows * kRowBytes;
  static constexpr int kStages = 2;  // copies are synchronous
  static constexpr unsigned kSharedBytes = kStages * kStageBytes;
  static_assert(kStageK == 128 && kSharedBytes <= kMostSharedBytes);
};

// The E8M0 scales of a lane's group in each of its tiles of rows, loaded one stage ahead.
template <int kTiles>
struct LaneScales {
  // `scales`: of the matrix, `groups` for each row. The lane's rows are row, row + 16..., of which
  // those from `rows` on do not exist.
  __device__ __forceinline__ void Begin(const uint8_t* scales, int64_t groups, int64_t row,
                                        int64_t rows) {
    num_groups = groups;
    SLUICE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile)
      of_rows[tile] = scales + min(row + tile * 16, rows - 1) * groups;
  }
  __device__ __forceinline__ void Load(int64_t group) {
    SLUICE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile)
      next[tile] = group < num_groups ? __ldg(of_rows[tile] + group) : 0;
  }
  __device__ __forceinline__ void Advance() {
    SLUICE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) now[tile] = next[tile];
  }

  const uint8_t* of_rows[kTiles];
  int64_t num_groups;
  uint32_t now[kTiles] = {}, next[kTiles] = {};
};

// Loads the 32 codes of a lane: those of a row, from column 32 * quarter on.
__device__ __forceinline__ void LoadCodes(const unsigned char* shared, int row, int quarter,
                                          uint32_t (&words)[4]) {
  const uint4 loaded = *reinterpret_cast<const uint4*>(shared + ChunkOffset<4, 128>(row, quarter));
  words[0] = loaded.x;
  words[1] = loaded.y;
  words[2] = loaded.z;
  words[3] = loaded.w;
}

// Called by all threads of a block. The sums of a stage are added in F32, in ascending order, and
// those of ranges as in linear_tile.h.
template <int kTokens>
__device__ __forceinline__ void RunCodeTile(const LinearTileArgs& args) {
  using Shape = CodeTile<kTokens>;
  const device::LinearArgs& linear = args.product.linear;
  const device::Weights& w = linear.w;
  const TokenRange tokens = FindTokens<kTokens>(args.product, blockIdx.x);
  if (tokens.count <= 0) return;

  const int64_t first_n = static_cast<int64_t>(blockIdx.y) * Shape::kRows;
  const int64_t row_bytes = w.k / 2, groups = w.k / device::kMxF4Group;
  const auto* weight_rows = static_cast<const unsigned char*>(w.codes) +
                            tokens.expert * args.product.codes_stride + first_n * row_bytes;
  const auto* weight_scales = static_cast<const uint8_t*>(w.group_scales) +
                              tokens.expert * args.product.group_scales_stride;

  const auto [range, begin, end] = StagesOf(args);

  const int wave = static_cast<int>(threadIdx.x) / 64;
  const int i = static_cast<int>(threadIdx.x) % 16;
  const int quarter = static_cast<int>(threadIdx.x) % 64 / 16;
  // The wave's first row in W and in x, within the tile.
  const int row = wave / Shape::kTokenWaves * Shape::kRowTiles * 16;
  const int token = wave % Shape::kTokenWaves * Shape::kTokenTiles * 16;

  LaneScales<Shape::kRowTiles> row_scales;
  row_scales.Begin(weight_scales, groups, first_n + row + i, w.n);
  LaneScales<Shape::kTokenTiles> token_scales;
  token_scales.Begin(linear.x_group_scales + tokens.first * groups, groups, token + i,
                     tokens.count);
  const auto load_scales = [&](int64_t stage) {
    row_scales.Load(stage * Shape::kGroups + quarter);
    token_scales.Load(stage * Shape::kGroups + quarter);
  };
  load_scales(begin);

  unsigned char* shared = SharedMemory();
  StageCopier<4, Shape::kStageK, Shape::kRows, Shape::kThreads> weight_copier(
      weight_rows, row_bytes, w.n - first_n, begin);
  StageCopier<4, Shape::kStageK, Shape::kInputRows, Shape::kThreads> input_copier(
      linear.x_codes + tokens.first * row_bytes, row_bytes, tokens.count, begin);
  const auto copy_next = [&](int64_t stage) {
    unsigned char* to = shared + (stage - begin) % Shape::kStages * Shape::kStageBytes;
    weight_copier.Copy(to);
    input_copier.Copy(to + Shape::kWeightBytes);
  };
  if (begin < end) copy_next(begin);

  float total[Shape::kRowTiles][Shape::kTokenTiles][4] = {};
  float sums[Shape::kRowTiles][Shape::kTokenTiles][4] = {};
  const float ones[Shape::kRowTiles][2] = {{1, 1}, {1, 1}};
  int64_t left_in_range = args.split.stages_per_range;
  for (int64_t stage = begin; stage < end; ++stage) {
    __syncthreads();
    // Now no wave uses the slot of the previous stage.
    if (stage + 1 < end) copy_next(stage + 1);
    row_scales.Advance();
    token_scales.Advance();
    if (stage + 1 < end) load_scales(stage + 1);

    const unsigned char* weights = shared + (stage - begin) % Shape::kStages * Shape::kStageBytes;
    const unsigned char* inputs = weights + Shape::kWeightBytes;
    uint32_t a[Shape::kRowTiles][4];
    SLUICE_UNROLL
    for (int r = 0; r < Shape::kRowTiles; ++r) LoadCodes(weights, row + r * 16 + i, quarter, a[r]);
    SLUICE_UNROLL
    for (int j = 0; j < Shape::kTokenTiles; ++j) {
      uint32_t b[4];
      LoadCodes(inputs, token + j * 16 + i, quarter, b);
      SLUICE_UNROLL
      for (int r = 0; r < Shape::kRowTiles; ++r) {
        float products[4];
        machine::MfmaScaled128E2m1(products, a[r], b, row_scales.now[r], token_scales.now[j]);
        SLUICE_UNROLL
        for (int at = 0; at < 4; ++at) sums[r][j][at] += products[at];
      }
    }
    if (--left_in_range == 0 || stage + 1 == end) {
      MoveSums(total, sums, ones);
      left_in_range = args.split.stages_per_range;
    }
  }

  ResultScales result;
  result.Begin(linear, 1.0f, args.product.row_scales_stride * tokens.expert);
  SLUICE_UNROLL
  for (int j = 0; j < Shape::kTokenTiles; ++j) {
    const int64_t in_tile = token + j * 16 + i;
    if (in_tile >= tokens.count) continue;
    const int64_t m = tokens.first + in_tile;
    SLUICE_UNROLL
    for (int r = 0; r < Shape::kRowTiles; ++r) {
      SLUICE_UNROLL
      for (int at = 0; at < 4; ++at) {
        const int64_t n = first_n + row + r * 16 + quarter * 4 + at;
        if (n >= w.n) continue;
        if (args.partials != nullptr)
          args.partials[(range * linear.m + m) * w.n + n] = total[r][j][at];
        else
          result.Write(linear, m, n, total[r][j][at]);
      }
    }
  }
  if (args.partials != nullptr && IsLastOfTile(linear))
    CombineRanges<Shape::kThreads>(args, tokens, first_n, result);
}

// REQUIRES: machine::HasMfmaScaled().
template <int kTokens>
__global__ void __launch_bounds__(CodeTile<kTokens>::kThreads)
    LinearCodesKernel(LinearTileArgs args) {
  RunCodeTile<kTokens>(args);
}

template <int kTokens>
void LaunchCodeTile(const StreamHandle& stream, const LinearTileArgs& args) {
  using Shape = CodeTile<kTokens>;
  const device::LinearArgs& linear = args.product.linear;
  const int64_t tiles = device::LinearTokenTiles(linear.m, args.product.num_experts, kTokens);
  const int64_t ranges = args.partials != nullptr ? args.split.ranges : 1;
  Launch<LinearCodesKernel<kTokens>>(
      stream, "linear_codes",
      {.grid_x = static_cast<unsigned>(tiles),
       .grid_y = static_cast<unsigned>(device::LinearRowTiles(linear.w.n)),
       .threads = static_cast<unsigned>(Shape::kThreads),
       .grid_z = static_cast<unsigned>(ranges),
       .shared_bytes = Shape::kSharedBytes},
      args);
}

}  // namespace

void LaunchMxF4CodeTiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  switch (tokens) {
    case 16: return LaunchCodeTile<16>(stream, args);
    case 32: return LaunchCodeTile<32>(stream, args);
    case 64: return LaunchCodeTile<64>(stream, args);
    default: return LaunchCodeTile<128>(stream, args);
  }
}

#else

void LaunchMxF4CodeTiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  LaunchMxF4Tiles(stream, tokens, args);
}

#endif

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
