// The launchers of all kernels. There is one implementation for GPUs and one for the emulator.
// Arguments are device addresses and plain numbers. Nothing is checked here; linear_shapes.h,
// attention.h and the model make the checks. A launch returns immediately; failures are recorded in
// the stream.
//
// Has no large includes, because the CUDA compiler reads this file with every kernel.
//
// Rows are F32, BF16 or F8_E4M3; weights are BF16, F8_E4M3, I8, INT4 or F4_E2M1. Comments at the
// fields say which of these types a kernel accepts. Two F4 codes share a byte. Rows are dense
// unless there is a stride. Sums are F32. A row's result never depends on the other rows of the
// launch.
#pragma once

#include <stdint.h>

#include "device/stream_handle.h"
#include "kernels/cuda/latent_args.h"
#include "kernels/cuda/mixer_args.h"
#include "kernels/draw_settings.h"
#include "tensor/element_type_enum.h"

namespace sluice::device {

// How a row's elements are rounded when written as kF8E4M3 (kStatic, kPerToken) or as kBF16
// (kNvF4, kMxF4).
enum class RowScale : uint8_t {
  kStatic,    // code = E4M3(x / static_scale); the scale of each row is static_scale
  kPerToken,  // the row's scale is amax / 448 (1 for a row of zeros), code = E4M3(x / scale)
  // NVFP4: for each group of 16 consecutive elements, s = E4M3(amax / 6 / static_scale). The value
  // E2M1(x / (s * static_scale)) * s is written; BF16 can represent it exactly. The row's scale is
  // static_scale. So every product can read such rows, and pack_nvf4 converts them to E2M1 codes
  // for a library that multiplies codes. REQUIRES: rows of whole groups.
  kNvF4,
  // MXFP4: for each group of 32 consecutive elements, s = 2^(PowerOfTwoScale(amax) - 127)
  // (tensor/float4.h). The value E2M1(x / s) * s is written; BF16 can represent it exactly. NaN or
  // infinity makes the whole group NaN. There are no scales of rows. So every product can read such
  // rows, and pack_mxf4 converts them to E2M1 codes for kernels that multiply codes. REQUIRES: rows
  // of whole groups.
  kMxF4,
};

// Where and how a kernel writes rows that the next matrix product reads.
struct RowsOut {
  void* data = nullptr;  // [rows, cols]
  ElementType type = ElementType::kBF16;
  float* scales = nullptr;  // [rows]; written only for kF8E4M3 and kNvF4
  RowScale row_scale = RowScale::kStatic;
  float static_scale = 1;
  // A second output of rms_norm, silu_mul and convert_rows for kNvF4: the same rows in packed form,
  // bit-identical to the output of pack_nvf4; aligned as in PackNvF4Args. Null: not written.
  // REQUIRES: null for other kernels.
  uint8_t* codes = nullptr;
  uint8_t* group_scales = nullptr;
};

// out[i, :] = table[tokens[i], :] * scale as F32. table: BF16 [vocab, cols].
struct EmbeddingArgs {
  const int32_t* tokens;
  const uint16_t* table;
  int64_t rows, cols;
  float* out;
  float scale = 1;
};

// out[i, :] += position_table[positions[i] + first_position, :] + type_table[types[i], :]; a null
// table is not added. If there are both tables, their rows are first added to each other. F32.
struct AddEmbeddingsArgs {
  float* out;  // [rows, cols]
  int64_t rows, cols;
  const float* position_table;  // [.., cols]
  const int32_t* positions;     // [rows]
  int32_t first_position;
  const float* type_table;  // [.., cols]
  const int32_t* types;     // [rows]; null: all types are 0
};

// x = residual + delta if delta is not null, else residual; then out = (x - mean) * rsqrt(variance
// + eps) * weight + bias, with the population variance of the row (kernels/layer_norm.h). residual
// becomes the result in F32 if `keeps_norm`, else x. REQUIRES: cols <= kMostLayerNormCols.
struct LayerNormArgs {
  float* residual;      // [rows, cols]
  const float* delta;   // [rows, cols], or null
  const float* weight;  // [cols]
  const float* bias;    // [cols]; null: zeros
  float eps;
  int64_t rows, cols;
  bool keeps_norm;
  uint16_t* out;             // BF16 [rows, cols], or null
  float* out_f32 = nullptr;  // a copy of the result in F32, or null
};
constexpr int64_t kMostLayerNormCols = 8192;

// residual = (residual + delta * delta_factor) * sum_factor if delta is not null (this is written
// back); then out = weight * residual * rsqrt(mean(residual^2) + eps), and a copy in F32 to out_f32
// if that is not null. `out` may be `residual` if its rows are F32; the norm then overwrites them.
// Without a weight, out = residual. REQUIRES: cols <= 32768.
struct RmsNormArgs {
  float* residual;  // [rows, cols]
  const void* delta;
  ElementType delta_type;  // kF32 or kBF16
  const float* weight;     // [cols] or null
  float eps;
  int64_t rows, cols;
  RowsOut out;
  float* out_f32;
  float sum_factor = 1;
  float delta_factor = 1;
};

// Per-layer embeddings of each row's token, computed in the memory of their projection: x[i, l, :]
// = (norm(x[i, l, :] * projection_scale) + table[tokens[i], l, :] * table_scale) * sum_scale, where
// norm(y) = weight * y * rsqrt(mean(y^2) + eps). x: F32 [rows, num_layers, width]; table: BF16 [..,
// num_layers, width]. REQUIRES: width is a multiple of 8.
struct LayerEmbeddingsArgs {
  const int32_t* tokens;
  const uint16_t* table;
  int64_t rows, num_layers, width;
  const float* weight;  // [width]
  float eps;
  float projection_scale, table_scale, sum_scale;
  float* x;
};

// cos_sin[i] = cosines, then sines, of positions[i] * frequencies, times amplitude; [rows,
// rotary_dim]. If `has_axes`, positions is [axes, rows], and frequency k uses the position on axis
// axes[k].
constexpr int kMostAxialFrequencies = 128;
struct RopeTableArgs {
  const int32_t* positions;
  const float* frequencies;  // [rotary_dim / 2]
  int64_t rows;
  int rotary_dim;
  float* cos_sin;
  float amplitude = 1;
  bool has_axes = false;
  int8_t axes[kMostAxialFrequencies] = {};
};

// x[rows[i]] = values[places[i]], or with `adds` x[rows[i]] += values[places[i]], for `count` rows
// of `cols` elements. REQUIRES: `rows` are unique; cols and value_stride are multiples of 4.
struct PlaceRowsArgs {
  const float* values;
  int64_t value_stride;
  const int32_t* places;
  const int32_t* rows;
  int64_t count;
  int64_t cols;
  float* x;
  bool adds;
  int64_t x_stride = 0;  // a multiple of 4; 0: cols
};

// x = (x - bias) * factor, elementwise. REQUIRES: cols is a multiple of 4.
struct StandardizeArgs {
  float* x;             // [rows, cols]
  const float* bias;    // [cols]; null: zeros
  const float* factor;  // [cols]
  int64_t rows, cols;
};

// Reduces each row of x [rows, group, cols] to the mean of its pieces, [rows, cols]; or, with
// `by_number`, writes its transpose, [rows, cols, group].
struct MergePatchesArgs {
  const float* x;
  int64_t rows, group, cols;
  float* out;
  bool by_number;
};

// The projections of a row in addition to the heads of q.
enum class RowKv : uint8_t {
  kBoth,
  kKeys,  // only keys; the values are the projected keys
  kNone,  // no keys or values: nothing is written to the cache; only its head_dim and type are used
};

// Turns the projections of a row, [heads of q, of k, of v], into q in BF16 and the row's entry in
// the cache: applies QK norm, rope and temperature, in the order of models/cpu/attention.cc.
// REQUIRES: head_dim is a multiple of 4, at most 512; qkv is aligned to 8 bytes; rotary_dim is
// even, and a multiple of 16 if head_dim > 496.
struct RopeAppendArgs {
  const void* qkv;       // row i is at i * head_dim * (number of its heads, see `kv`)
  ElementType qkv_type;  // kF32 or kBF16
  int64_t rows;
  int num_heads;
  // [head_dim] each, except with `q_squares`; null: no norm before rope.
  const float* q_norm;
  const float* k_norm;
  bool norms_after_rope;  // without weights
  float eps;
  bool rope;                 // false: q and k are not rotated
  bool interleaved;          // rotates pairs (x[2i], x[2i + 1]) instead of (x[i], x[i + d/2])
  const float* cos_sin;      // [rows, rotary_dim]
  const int32_t* positions;  // [rows]
  float temperature_floor;   // 0: q is not scaled by position
  float temperature_scale;   // q is multiplied by log1p(floor((p + first) / floor)) * scale + 1
  // [rows]: block * block_size + row in the block; negative: the row is not written to the cache
  const int64_t* slots;
  uint16_t* q;  // BF16 [rows, num_heads, head_dim]
  KvArrays cache;
  RowKv kv = RowKv::kBoth;
  bool norms_values = false;  // whether to normalize each head of v, without weights
  int rotary_dim = 0;         // number of elements at the start of a head that rope rotates; 0: all
  int temperature_first = 1;
  int gate_heads = 0;  // number of heads before those of q; they are skipped
  // Not null if one norm before rope covers all heads of q and another covers all heads of k.
  // Contains each head's sum of squares (head_squares), F32 [rows, square_heads] and [rows,
  // square_kv_heads]. q_norm is then [num_heads, head_dim], k_norm [num_kv_heads, head_dim].
  const float* q_squares = nullptr;
  const float* k_squares = nullptr;
  int square_heads = 0, square_kv_heads = 0;
};

// Sums of squares of each head of q, and of some heads of k, for rows of projections.
struct HeadSquaresArgs {
  const void* qkv;       // rows of `row_heads` heads, first those of q, then those of k
  ElementType qkv_type;  // kF32 or kBF16
  int64_t rows;
  int row_heads, num_heads, num_kv_heads, head_dim;
  float* q;  // [rows, num_heads]
  float* k;  // [rows, num_kv_heads]
};

// A piece of attention: a tile of query rows of one sequence, over a range of its positions. The
// query rows of a KV head are pairs (token, head of its group), token by token.
struct AttentionItem {
  int32_t slice;        // index in the step's slices; negative: there is nothing to do
  int32_t first_token;  // first token of the tile, counted within the slice
  int32_t num_tokens;
  int32_t begin, end;  // range of positions; multiples of kAttentionSplit, except at the ends
  // -1: the item covers all positions of its rows. Otherwise, the index of its partial results in
  // `partials`, counted in tokens.
  int32_t partial;
};

struct AttentionSliceInfo {
  int32_t first_row;  // index among the step's rows
  int32_t num_tokens;
  int32_t context;
  int32_t table;  // where the slice's block table begins in `tables`
};

// A tile whose ranges are combined in ascending order. The partial results of the ranges are
// consecutive. If num_partials is 0, there is nothing to do.
struct AttentionMerge {
  int32_t first_row;  // index among the step's rows
  int32_t num_tokens;
  int32_t first_partial, num_partials;
};

// out[row, h, :] = softmax(scale * q . K) V over the positions that the row sees (AttentionSpan of
// kernels/attention.h). Every item is computed for each KV head. Weights are rounded to BF16 before
// they are summed, or to F16 with a cache of kF8E4M3. A NaN or infinite value may affect rows of
// its sequence that do not see it, if they share a tile with a row that does. head_dim: a multiple
// of 8 from 16 to 256, or 512; with a soft cap, from 16 to 256.
//
// Latent attention (`latent_dim` > 0): there is a single KV head, whose values are the first
// latent_dim elements of its keys; cache.v is unused, and v_scale is k_scale. head_dim: a multiple
// of 8 up to kMostLatentKeyDim; latent_dim: even, up to kMostLatentDim. No soft cap, no sinks.
struct AttentionArgs {
  const uint16_t* q;  // BF16 [rows, num_heads, head_dim]
  int num_heads;
  float scale;
  KvArrays cache;
  int32_t chunk, window;       // of AttentionSpan; 0: none
  const AttentionItem* items;  // items of wide tiles, then of narrow ones (attention_tiles.h)
  int num_items;
  int num_wide_items;
  const AttentionMerge* merges;
  int num_merges;
  const AttentionSliceInfo* slices;
  const int32_t* tables;
  float* partials;  // scratch of AttentionPartialsBytes (attention_plan.h)
  uint16_t* out;    // BF16 [rows, num_heads, head_dim]; or [.., latent_dim]
  // Number of positions after its own, within its slice, that a row also sees; at most
  // kSeesAllBehind.
  int32_t ahead = 0;
  // [rows]: the last position that a row sees, at or after its own position and within its slice;
  // used instead of `ahead`. Null: not used.
  const int32_t* last_seen = nullptr;
  // The same as in AttentionScores of kernels/attention.h.
  float soft_cap = 0;            // for scaled scores; 0: none
  const float* sinks = nullptr;  // [num_heads]; null: none
  int latent_dim = 0;
  // If not null, rows are written here instead of to `out`, as codes E4M3(x / narrow_scale) of the
  // numbers x that `out` would receive. narrow_scale is written to narrow_scales [rows], as by
  // convert_rows. REQUIRES: no wide items.
  uint8_t* narrow = nullptr;
  float* narrow_scales = nullptr;
  float narrow_scale = 1;
};
constexpr int32_t kSeesAllBehind = 1 << 30;
constexpr int kMostLatentDim = 512, kMostLatentKeyDim = 576;

// out[m, i] = silu(x[m, i]) * x[m, width + i]; with `gelu`, GELU by tanh (kernels/gelu_mul.h)
// replaces silu, with `quick_gelu` z * sigmoid(1.702 z), with `relu2` max(z, 0)^2. x: kF32 or kBF16
// [rows, 2 * width]. With `factors`, x is [rows, width] and the factors replace its second half.
// With `plain`, there is no second half.
struct SiluMulArgs {
  const void* x;
  ElementType x_type;
  int64_t rows, width;
  RowsOut out;
  bool gelu = false;
  const float* factors = nullptr;  // F32, rows factor_stride apart; or null
  int64_t factor_stride = 0;
  bool relu2 = false, plain = false;
  float gate_factor = 1;  // multiplies the first half before the activation function
  bool quick_gelu = false;
};

// kernels/clamped_swiglu.h for experts: out[m, i] = (u + 1) * g * sigmoid(alpha * g), where g =
// min(x[m, 2 i], limit) and u = x[m, 2 i + 1] clamped to [-limit, limit], both after adding the
// bias of the row's expert, chosen[order[m]].
struct ClampedSwigluArgs {
  const float* x;  // [rows, 2 * width], in the order of GroupByExpert
  int64_t rows, width;
  float alpha, limit;
  const float* bias;      // [num_experts, 2 * width], or null
  const int32_t* order;   // [rows]; required if there is a bias
  const int32_t* chosen;  // as GroupByExpertArgs
  RowsOut out;
};

// The activations of encoders: out[m, i] = f(x[m, i]), or f(x[m, i]) * x[m, width + i] if `gated`.
// f(z): max(z, 0) if `relu`, else GELU by erf (kernels/gelu.h).
struct ActivateArgs {
  const uint16_t* x;  // BF16 [rows, width], or [rows, 2 * width]
  int64_t rows, width;
  bool gated, relu;
  uint16_t* out;  // BF16 [rows, width]
};

// Converts x (kF32 or kBF16) [rows, cols] to `out`. For kNvF4 both may be the same BF16 rows.
struct ConvertRowsArgs {
  const void* x;
  ElementType x_type;
  int64_t rows, cols;
  RowsOut out;
};

// Packs rows that were written as RowScale::kNvF4, without changing their values: codes, two per
// byte, the even column in the low half, and group scales in the order of nvf4_scales.h.
struct PackNvF4Args {
  const uint16_t* x;  // BF16 [rows, cols], aligned to 16 bytes
  int64_t rows, cols;
  uint8_t* codes;   // [rows, cols / 2], aligned to 8 bytes
  uint8_t* scales;  // NvF4ScaleBytes(rows, cols / 16), written completely
};

// Packs rows that were written as RowScale::kMxF4, without changing their values: codes, two per
// byte, the even column in the low half, and an E8M0 scale for each group of 32 columns.
struct PackMxF4Args {
  const uint16_t* x;   // BF16 [rows, cols], aligned to 16 bytes
  int64_t rows, cols;  // cols: a multiple of 32
  uint8_t* codes;      // [rows, cols / 2], aligned to 16 bytes
  uint8_t* scales;     // [rows, cols / 32]
};

// out[:, i] = in[:, indices[i]]. REQUIRES: `in` and `out` do not overlap.
struct TakeColumnsArgs {
  const uint16_t* in;      // BF16 [rows, cols], aligned to 16 bytes
  const int32_t* indices;  // [cols], aligned to 16 bytes
  int64_t rows, cols;      // cols: a multiple of 8
  uint16_t* out;           // as `in`
};

// out[i, :] = in[indices[i], :], rows of `row_bytes` bytes, a multiple of 16. REQUIRES: `in` and
// `out` do not overlap.
struct TakeRowsArgs {
  const void* in;
  const int32_t* indices;
  int64_t rows, row_bytes;
  void* out;
  int64_t in_stride = 0;  // bytes from one row of `in` to the next, a multiple of 16; 0: row_bytes
};

// Maximum number of ranks that share a layer on devices.
constexpr int kMostJoinedPieces = 32;

// Joins rows that are cut by columns: out[row, :] = row `row` of every piece, concatenated. The
// pieces are dense, [rows, width], and consecutive in `in`.
struct JoinColumnsArgs {
  const void* in;
  int64_t rows;
  int num_pieces;
  int64_t ends[kMostJoinedPieces];  // where each piece's columns end in a row, in bytes
  void* out;                        // must not overlap `in`
};

enum class GroupScales : uint8_t {
  kNone,
  kE4M3,   // [n, k / group] in the order of nvf4_scales.h
  kE8M0,   // [n, k / group]
  kBlock,  // F32 [ceil(n / block_rows), ceil(k / group)]
  // INT4: U32 [n, ceil(k / group)]. Each word is an F32 scale whose lowest 4 bits contain the zero
  // point of the group's codes; in the scale, these bits count as zeros (Int4ScaleWord of
  // linear_shapes.h).
  kWithZeros,
};
constexpr uint32_t kInt4ZeroMask = 15;

// Consecutive rows of a matrix that have the same scale, which is known on the host.
struct ScaledPart {
  int64_t rows;
  float scale;
};
constexpr int kMostScaledParts = 3;  // q, k and v

// A weight matrix [n, k], row-major as in checkpoints; two 4-bit codes per byte, the even k in the
// low half. The value of an element is code (INT4: code - its group's zero point) * its group's
// scale * row_scales[n]. All addresses are aligned to 256 bytes; k * bits is a multiple of 128
// bits.
struct Weights {
  const void* codes;
  ElementType type;
  const void* group_scales;
  GroupScales group_type;
  int group;                // elements of k per scale: 16, 32, or a multiple of 32
  int block_rows;           // kBlock; kWithZeros: 1
  const float* row_scales;  // [n]; null: 1
  int64_t n, k;
  // The value of all row_scales, if they are equal and the value is known on the host; otherwise 0.
  // Kernels read row_scales.
  float same_row_scale = 0;
  // The scales of a few parts of the rows, if each part has a single scale; otherwise none.
  int num_parts = 0;
  ScaledPart parts[kMostScaledParts] = {};
  // Number of rows of the larger matrix to which these rows belong; 0: n. It determines how sums
  // over k are split, so that the results are bit-identical to those of the whole matrix.
  int64_t whole_n = 0;
};

// y = x W^T (+ bias). x: kBF16, or kF8E4M3 with row scales for weights of kF8E4M3 without group
// scales. kBF16 rows with scales are rounded by RowScale::kNvF4, for weights of kF4E2M1 with kE4M3
// scales.
//
// With `x_codes`, kernels for GPUs that multiply MXFP4 codes multiply these; all others read x,
// which has the same values. A row's order of sums depends on which of both is multiplied.
struct LinearArgs {
  Weights w;
  const void* x;  // [m, k]
  ElementType x_type;
  const float* x_scales;  // [m]; null: 1
  int64_t m;
  void* y;             // [m, n], row stride y_stride
  ElementType y_type;  // kF32 or kBF16
  int64_t y_stride;
  const float* bias;  // [n] or null
  // Scratch of LinearScratchBytes (linear_shapes.h) for partial sums.
  void* scratch;
  float same_x_scale = 0;  // the value of all x_scales, like same_row_scale
  // [kMostSplitTiles] zeros (linear_plan.h), which count the finished parts of a split sum and are
  // zeros again after the product. Products that run concurrently need different counters. Null:
  // uses the module's own counters, which all such products share.
  uint32_t* counters = nullptr;
  // Whether x was rounded as RowScale::kMxF4. Only for weights of kF4E2M1 with kE8M0 scales.
  bool x_is_mxf4 = false;
  // The rows of x as pack_mxf4 packs them (PackMxF4Args); null: not packed. REQUIRES: x_is_mxf4.
  const uint8_t* x_codes = nullptr;
  const uint8_t* x_group_scales = nullptr;
};

// LinearArgs for experts of equal shape, consecutive in memory: rows [row_begin[e], row_begin[e +
// 1]) of x are multiplied by expert e.
struct GroupedLinearArgs {
  LinearArgs linear;  // the product of expert 0; m: number of rows of all experts
  int64_t num_experts;
  int64_t codes_stride, group_scales_stride;  // bytes from one expert to the next
  int64_t row_scales_stride;                  // elements
  const int32_t* row_begin;                   // [num_experts + 1], on the device
};

// Expands rows [first_row, first_row + rows) of a matrix to BF16 [rows, k]. Without row_scales the
// values are exact, except with block scales.
struct ExpandWeightsArgs {
  Weights w;
  int64_t first_row, rows;
  uint16_t* out;
};

// Computes y[m, n] *= row_scales[n] * x_scales[m]; y[m, n] += bias[n]. Null arrays are skipped.
struct ScaleResultsArgs {
  void* y;
  ElementType y_type;
  int64_t m, n, y_stride;
  const float* row_scales;
  const float* x_scales;
  const float* bias;
};

// Routing of experts as in kernels/experts.h, with logits from F32 rows and BF16 weights. REQUIRES:
// num_groups <= kMostRouterGroups.
struct RouterArgs {
  const float* x;          // [rows, k]
  const uint16_t* weight;  // [num_experts, k]; null: `logits` already contains the logits
  int64_t rows, k, num_experts;
  int top_k;              // 0: no expert is chosen, and the logits are the result
  bool sigmoid;           // false: softmax over all experts
  bool normalize;         // whether a row's weights are divided by their sum
  float* logits;          // [rows, num_experts]
  int32_t* chosen;        // [rows, top_k]
  float* expert_weights;  // [rows, top_k]
  // [num_experts], multiplied into the weights at the end; or null.
  const float* expert_factors = nullptr;
  const float* bias = nullptr;         // [num_experts], added to the logits; or null
  const float* choice_bias = nullptr;  // [num_experts], RouterRule::choice_bias
  float scale = 1;                     // multiplies the weights after normalization
  // As in RouterRule.
  int num_groups = 1, kept_groups = 1, group_best = 2;
  bool chooses_by_logits = false;
};
constexpr int kMostRouterGroups = 32;

// kernels/experts.h, GroupByExpert. REQUIRES: num_experts <= 512.
struct GroupByExpertArgs {
  const int32_t* chosen;
  int64_t rows;
  int top_k;
  int64_t num_experts;
  int32_t* order;      // [rows * top_k]
  int32_t* place;      // [rows * top_k]
  int32_t* row_begin;  // [num_experts + 1]
};

// out[i, :] = x[order[i] / top_k, :] (* weights[order[i]]). x: F32 [.., cols].
struct GatherRowsArgs {
  const float* x;
  const int32_t* order;
  int64_t pairs, cols;
  int top_k;
  const float* weights;  // or null
  RowsOut out;
};

// sum[row, :] (+)= the results of the row's slots, in slot order (* weights), after adding the bias
// of the slot's expert. sum: F32 [rows, cols]. With `sum_gates`, the previous sum is first
// multiplied by the sigmoid of the row's gate.
struct CombineExpertsArgs {
  const void* y;       // [rows * top_k, cols] in the order of GroupByExpert
  ElementType y_type;  // kF32 or kBF16
  const int32_t* place;
  const float* weights;  // or null
  int64_t rows, cols;
  int top_k;
  bool add;
  float* sum;
  const float* sum_gates = nullptr;  // [rows], or null
  const float* bias = nullptr;       // [num_experts, cols], or null
  const int32_t* chosen = nullptr;   // [rows, top_k]; required if there is a bias
};

// Maximum number of rows of a step that share one read of an adapter's factors.
constexpr int kLoraRows = 4;

// At most kLoraRows rows with the adapter of a slot: AddLoraArgs::rows [first, first + count).
struct LoraTile {
  int32_t slot, first, count;
};

// An adapter's factors for one module. rank: number of rows of A and of B; 0: no factors.
struct LoraFactor {
  int32_t rank;
  float scale;
};

// Maximum number of modules whose results are columns of one product: q, k and v.
constexpr int kMostLoraModules = 3;

// Addresses of the factors of the adapter in slot 0 and of expert 0. AddLoraArgs contains the
// strides to the others.
struct LoraModulePlace {
  const uint16_t* a;         // BF16 [rank, cols]; for an embedding [cols, rank], indexed by token
  const uint16_t* b;         // BF16 [rank, rows]: transposed
  const LoraFactor* factor;  // a single element
  int64_t first_col, rows;   // the results are columns [first_col, first_col + rows) of y
};

// Adds what adapters contribute to a linear layer or an embedding (kernels/lora.h): for each row i
// that has an adapter, and each module, y[i, first_col + n] += scale * (sum over j of b[j, n] *
// (sum over k of a[j, k] * x[i, k] * x_scales[i])). Other rows are not changed. `tiles` lists the
// rows; with experts, `slots` does.
struct AddLoraArgs {
  const void* x;  // [.., cols], kF32, kBF16 or kF8E4M3; not read for an embedding
  ElementType x_type;
  const float* x_scales;  // per row; null: 1
  int64_t cols;
  const int32_t* tokens;  // embedding: per row, the column of A; else null
  void* y;                // kF32 or kBF16, row stride y_stride
  ElementType y_type;
  int64_t y_stride;
  float scale;  // scale of all contributions, multiplied by the scales of the factors
  int num_modules;
  LoraModulePlace modules[kMostLoraModules];
  // Strides between slots: bytes of a and b, elements of `factors`.
  int64_t slot_bytes, slot_factors;
  int max_rank;       // over all slots; at most 2048
  float* h;           // scratch: [rows of x, num_modules, max_rank]
  int64_t num_tiles;  // only with experts: number of (row, expert) pairs, which are the rows of x
  const LoraTile* tiles;
  // Row numbers, ascending in each tile. Only rows in [first_row, first_row + num_rows) are
  // computed; row r is row r - first_row of x and y.
  const int32_t* rows;
  int64_t first_row, num_rows;
  // Only with experts; otherwise null. Row i of x is row order[i] / top_k of the step and belongs
  // to expert chosen[order[i]] (GroupByExpertArgs).
  const int32_t* slots;  // per row of the step; -1: no adapter
  const int32_t* order;
  const int32_t* chosen;
  int top_k;
  int64_t expert_bytes, expert_factors;  // like slot_bytes and slot_factors, but between experts
};

// tokens[i] = the token that DrawToken (sampler/draw.h) draws from logits[i, :], the same on every
// device. If none can be drawn, tokens[i] = -1 and errors[i] contains the reason. With `extras`,
// each row's element specifies how its logits are changed first and which logprobs to return;
// logits and lists are unspecified afterwards. REQUIRES: cols <= kernels::kMostDrawnTokens.
struct SampleRowsArgs {
  float* logits;  // [rows, cols]; not modified without `extras`
  int64_t rows, cols;
  const kernels::DrawSettings* settings;  // [rows], on the device
  int32_t* tokens;
  kernels::DrawError* errors;
  const kernels::DrawExtras* extras = nullptr;  // [rows]; null: no row has extras
  uint32_t* words = nullptr;                    // the lists and masks of all rows
  kernels::DrawnLogprobs* logprobs = nullptr;   // [rows]; written for rows that request logprobs
  kernels::TopLogit* tops = nullptr;  // [rows, most_top]: the num_top largest logits, descending
  int64_t most_top = 0;
};

// x[i] = cap * tanh(x[i] * scale / cap).
struct CapLogitsArgs {
  float* x;  // [count]
  int64_t count;
  float cap;  // 0: x[i] * scale
  float scale = 1;
};

// Random codes for dummy weights (dummy_weights.cc): rows from `first_row` on of the tensor whose
// name hashes to `tensor_seed`.
struct RandomCodesArgs {
  void* out;  // [rows, cols]
  ElementType type;
  uint64_t tensor_seed;
  int64_t first_row, rows, cols;
  float scale;  // kBF16: uniform in [-32768, 32767] * scale
};
// Random group scales: kE4M3 from 0.5 to 1.875 (as in dummy_weights.cc); kE8M0 and F32 are
// constant. kE4M3: `out` holds a matrix's scales in device order (nvf4_scales.h); writes count /
// groups rows from row `first_row` on, and no other bytes.
struct RandomScalesArgs {
  void* out;
  GroupScales type;
  uint64_t tensor_seed;
  int64_t count;
  float value;  // kBlock, kWithZeros: the scale or the word; kE8M0: the code of the scale
  int64_t first_row = 0, groups = 1;  // kE4M3
  int64_t first_tensor_row = 0;  // kE4M3: the row of the tensor that is written to the first row
};

// Runs a single instruction of device_code.h. instructions.cu describes what each instruction reads
// and writes.
enum class Instruction : uint8_t {
  kMmaBf16,
  kMmaF16,
  kMmaE4m3,
  kLoadMatrix,
  kAsyncCopy,
  kDecode,
  kEncode,
  kHalves,
  kWarp,
  kMath,
};
struct InstructionArgs {
  Instruction instruction;
  const void* a;
  const void* b;
  int64_t count;
  void* out;
};

struct DeviceKernels {
  void (*embedding)(const StreamHandle&, const EmbeddingArgs&);
  void (*add_embeddings)(const StreamHandle&, const AddEmbeddingsArgs&);
  void (*layer_norm)(const StreamHandle&, const LayerNormArgs&);
  void (*activate)(const StreamHandle&, const ActivateArgs&);
  void (*rms_norm)(const StreamHandle&, const RmsNormArgs&);
  void (*rope_table)(const StreamHandle&, const RopeTableArgs&);
  void (*rope_append)(const StreamHandle&, const RopeAppendArgs&);
  void (*attention)(const StreamHandle&, const AttentionArgs&);
  void (*silu_mul)(const StreamHandle&, const SiluMulArgs&);
  void (*convert_rows)(const StreamHandle&, const ConvertRowsArgs&);
  void (*pack_nvf4)(const StreamHandle&, const PackNvF4Args&);
  void (*pack_mxf4)(const StreamHandle&, const PackMxF4Args&);
  void (*take_rows)(const StreamHandle&, const TakeRowsArgs&);
  void (*take_columns)(const StreamHandle&, const TakeColumnsArgs&);
  void (*join_columns)(const StreamHandle&, const JoinColumnsArgs&);
  void (*linear)(const StreamHandle&, const LinearArgs&);
  void (*grouped_linear)(const StreamHandle&, const GroupedLinearArgs&);
  // `linear` by warpgroups' products, for what CanMultiplyByGroups (linear_shapes.h) allows.
  void (*linear_groups)(const StreamHandle&, const LinearArgs&);
  void (*expand_weights)(const StreamHandle&, const ExpandWeightsArgs&);
  void (*scale_results)(const StreamHandle&, const ScaleResultsArgs&);
  void (*router)(const StreamHandle&, const RouterArgs&);
  void (*group_by_expert)(const StreamHandle&, const GroupByExpertArgs&);
  void (*gather_rows)(const StreamHandle&, const GatherRowsArgs&);
  void (*combine_experts)(const StreamHandle&, const CombineExpertsArgs&);
  void (*add_lora)(const StreamHandle&, const AddLoraArgs&);
  void (*sample_rows)(const StreamHandle&, const SampleRowsArgs&);
  void (*random_codes)(const StreamHandle&, const RandomCodesArgs&);
  void (*random_scales)(const StreamHandle&, const RandomScalesArgs&);
  void (*instruction)(const StreamHandle&, const InstructionArgs&);
  void (*layer_embeddings)(const StreamHandle&, const LayerEmbeddingsArgs&);
  void (*cap_logits)(const StreamHandle&, const CapLogitsArgs&);
  void (*head_squares)(const StreamHandle&, const HeadSquaresArgs&);
  void (*clamped_swiglu)(const StreamHandle&, const ClampedSwigluArgs&);
  void (*latent_append)(const StreamHandle&, const LatentAppendArgs&);
  void (*head_products)(const StreamHandle&, const HeadProductsArgs&);
  void (*convolve)(const StreamHandle&, const ConvolveArgs&);
  void (*update_state)(const StreamHandle&, const UpdateStateArgs&);
  void (*gate_states)(const StreamHandle&, const GateStatesArgs&);
  void (*gate_rows)(const StreamHandle&, const GateRowsArgs&);
  void (*place_rows)(const StreamHandle&, const PlaceRowsArgs&);
  void (*standardize)(const StreamHandle&, const StandardizeArgs&);
  void (*merge_patches)(const StreamHandle&, const MergePatchesArgs&);
  void (*index_append)(const StreamHandle&, const IndexAppendArgs&);
  void (*select_positions)(const StreamHandle&, const SelectPositionsArgs&);
};

}  // namespace sluice::device

// One file of kernels defines each launcher: once for NVIDIA's GPUs (namespace cuda), once for
// AMD's (hip) and once for the emulator.
#define SLUICE_DECLARE_LAUNCHERS                                                       \
  void LaunchEmbedding(const StreamHandle&, const device::EmbeddingArgs&);             \
  void LaunchAddEmbeddings(const StreamHandle&, const device::AddEmbeddingsArgs&);     \
  void LaunchLayerNorm(const StreamHandle&, const device::LayerNormArgs&);             \
  void LaunchActivate(const StreamHandle&, const device::ActivateArgs&);               \
  void LaunchRmsNorm(const StreamHandle&, const device::RmsNormArgs&);                 \
  void LaunchRopeTable(const StreamHandle&, const device::RopeTableArgs&);             \
  void LaunchRopeAppend(const StreamHandle&, const device::RopeAppendArgs&);           \
  void LaunchAttention(const StreamHandle&, const device::AttentionArgs&);             \
  void LaunchSiluMul(const StreamHandle&, const device::SiluMulArgs&);                 \
  void LaunchConvertRows(const StreamHandle&, const device::ConvertRowsArgs&);         \
  void LaunchPackNvF4(const StreamHandle&, const device::PackNvF4Args&);               \
  void LaunchPackMxF4(const StreamHandle&, const device::PackMxF4Args&);               \
  void LaunchTakeRows(const StreamHandle&, const device::TakeRowsArgs&);               \
  void LaunchTakeColumns(const StreamHandle&, const device::TakeColumnsArgs&);         \
  void LaunchJoinColumns(const StreamHandle&, const device::JoinColumnsArgs&);         \
  void LaunchLinear(const StreamHandle&, const device::LinearArgs&);                   \
  void LaunchGroupedLinear(const StreamHandle&, const device::GroupedLinearArgs&);     \
  void LaunchLinearGroups(const StreamHandle&, const device::LinearArgs&);             \
  void LaunchExpandWeights(const StreamHandle&, const device::ExpandWeightsArgs&);     \
  void LaunchScaleResults(const StreamHandle&, const device::ScaleResultsArgs&);       \
  void LaunchRouter(const StreamHandle&, const device::RouterArgs&);                   \
  void LaunchGroupByExpert(const StreamHandle&, const device::GroupByExpertArgs&);     \
  void LaunchGatherRows(const StreamHandle&, const device::GatherRowsArgs&);           \
  void LaunchCombineExperts(const StreamHandle&, const device::CombineExpertsArgs&);   \
  void LaunchAddLora(const StreamHandle&, const device::AddLoraArgs&);                 \
  void LaunchSampleRows(const StreamHandle&, const device::SampleRowsArgs&);           \
  void LaunchRandomCodes(const StreamHandle&, const device::RandomCodesArgs&);         \
  void LaunchRandomScales(const StreamHandle&, const device::RandomScalesArgs&);       \
  void LaunchInstruction(const StreamHandle&, const device::InstructionArgs&);         \
  void LaunchLayerEmbeddings(const StreamHandle&, const device::LayerEmbeddingsArgs&); \
  void LaunchCapLogits(const StreamHandle&, const device::CapLogitsArgs&);             \
  void LaunchHeadSquares(const StreamHandle&, const device::HeadSquaresArgs&);         \
  void LaunchClampedSwiglu(const StreamHandle&, const device::ClampedSwigluArgs&);     \
  void LaunchLatentAppend(const StreamHandle&, const device::LatentAppendArgs&);       \
  void LaunchHeadProducts(const StreamHandle&, const device::HeadProductsArgs&);       \
  void LaunchConvolve(const StreamHandle&, const device::ConvolveArgs&);               \
  void LaunchUpdateState(const StreamHandle&, const device::UpdateStateArgs&);         \
  void LaunchGateStates(const StreamHandle&, const device::GateStatesArgs&);           \
  void LaunchGateRows(const StreamHandle&, const device::GateRowsArgs&);               \
  void LaunchPlaceRows(const StreamHandle&, const device::PlaceRowsArgs&);             \
  void LaunchStandardize(const StreamHandle&, const device::StandardizeArgs&);         \
  void LaunchMergePatches(const StreamHandle&, const device::MergePatchesArgs&);       \
  void LaunchIndexAppend(const StreamHandle&, const device::IndexAppendArgs&);         \
  void LaunchSelectPositions(const StreamHandle&, const device::SelectPositionsArgs&);

namespace sluice::emulated {
SLUICE_DECLARE_LAUNCHERS
}
namespace sluice::cuda {
SLUICE_DECLARE_LAUNCHERS
}
namespace sluice::hip {
SLUICE_DECLARE_LAUNCHERS
}
