// The launchers of all kernels, which each implementation (for GPUs, emulated) provides. Arguments
// are device addresses and plain numbers; nothing is checked here (linear.h, attention.h and
// the model do). A launch returns at once; failures are noted in the stream.
//
// Free of large includes: the CUDA compiler reads them in every kernel's file.
//
// Arrays of rows are F32, BF16 or F8_E4M3, those of weights BF16, F8_E4M3, I8 or F4_E2M1; what a
// kernel takes of these stands beside the field. F4 codes lie two in a byte. Rows are dense unless
// a stride is named. Sums are F32. A row's result never depends on the other rows of the launch.
#pragma once

#include <stdint.h>

#include "device/stream_handle.h"
#include "kernels/draw_settings.h"
#include "tensor/element_type_enum.h"

namespace sluice::device {

// How a row's numbers are rounded when they are written as kF8E4M3; kNvF4, when as kBF16.
enum class RowScale : uint8_t {
  kStatic,    // code = E4M3(x / static_scale); the row's scale is static_scale
  kPerToken,  // scale = amax / 448 of the row (1 for a row of zeros), code = E4M3(x / scale)
  // NVFP4: of each 16 neighbours s = E4M3(amax / 6 / static_scale), and what is written is the
  // number E2M1(x / (s * static_scale)) * s, which BF16 holds exactly; the row's scale is
  // static_scale. So every product may read such rows, and pack_nvf4 makes codes of them for a
  // library that multiplies those. Rows are of whole groups.
  kNvF4,
};

// Where a kernel writes rows that the next matrix product reads.
struct RowsOut {
  void* data = nullptr;  // [rows, cols]
  ElementType type = ElementType::kBF16;
  float* scales = nullptr;  // [rows], of kF8E4M3 and kNvF4; else not written
  RowScale row_scale = RowScale::kStatic;
  float static_scale = 1;
};

// out[i, :] = table[tokens[i], :] * scale as F32. table: BF16 [vocab, cols].
struct EmbeddingArgs {
  const int32_t* tokens;
  const uint16_t* table;
  int64_t rows, cols;
  float* out;
  float scale = 1;
};

// out[i, :] += position_table[positions[i] + first_position, :] + type_table[types[i], :], of the
// tables that are not null; where both are, their rows are added up first. F32.
struct AddEmbeddingsArgs {
  float* out;  // [rows, cols]
  int64_t rows, cols;
  const float* position_table;  // [.., cols]
  const int32_t* positions;     // [rows]
  int32_t first_position;
  const float* type_table;  // [.., cols]
  const int32_t* types;     // [rows]; null: all are of type 0
};

// x = residual + delta where delta is not null, else residual; then out = (x - mean) *
// rsqrt(variance + eps) * weight + bias, with the variance of the row itself
// (kernels/layer_norm.h). residual becomes the result in F32 where `keeps_norm`, else x.
// REQUIRES: cols <= kMostLayerNormCols.
struct LayerNormArgs {
  float* residual;      // [rows, cols]
  const float* delta;   // [rows, cols], or null
  const float* weight;  // [cols]
  const float* bias;    // [cols]; null: zeros
  float eps;
  int64_t rows, cols;
  bool keeps_norm;
  uint16_t* out;  // BF16 [rows, cols]
};
constexpr int64_t kMostLayerNormCols = 8192;

// residual = (residual + delta * delta_factor) * sum_factor where delta is not null (that is
// written back); then out = weight * residual * rsqrt(mean(residual^2) + eps), and the same as F32
// into out_f32 where that is not null. F32 rows of `out` may be those of `residual`, which then
// hold the norm alone. Without a weight, out = residual. REQUIRES: cols <= 32768.
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

// What each layer reads of each row's token, in place of its projection: x[i, l, :] = (norm(x[i, l,
// :] * projection_scale) + table[tokens[i], l, :] * table_scale) * sum_scale, whose norm is weight
// * y * rsqrt(mean(y^2) + eps). x: F32 [rows, num_layers, width]; table: BF16 [.., num_layers,
// width]. REQUIRES: width is a multiple of 8.
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
// rotary_dim].
struct RopeTableArgs {
  const int32_t* positions;
  const float* frequencies;  // [rotary_dim / 2]
  int64_t rows;
  int rotary_dim;
  float* cos_sin;
  float amplitude = 1;
};

// How keys and values are stored: [blocks, num_kv_heads, block_size, head_dim] each, kBF16 or
// kF8E4M3 (code = E4M3(x / scale)); fewer than 2^31 rows of head_dim.
struct KvArrays {
  void* k;
  void* v;
  ElementType type;
  float k_scale, v_scale;
  int num_kv_heads, head_dim, block_size;
  int block_rows = 0;  // rows of head_dim from one block to the next; 0: num_kv_heads * block_size
};

// What a row of projections has beside the heads of q.
enum class RowKv : uint8_t {
  kBoth,
  kKeys,  // the values are the keys as projected
  kNone,  // neither: nothing is put into the cache, of which head_dim and the type are read
};

// From the projections of a row, [heads of q, of k, of v], to its q in BF16 and its slot in the
// cache: QK norm, rope, temperature, in the order of models/cpu/attention.cc. REQUIRES: head_dim
// is a multiple of 4, at most 512; qkv is aligned to 8 bytes; rotary_dim is even, in heads of more
// than 496 numbers a multiple of 16.
struct RopeAppendArgs {
  const void* qkv;       // row i at i * head_dim * the heads that it has (`kv`)
  ElementType qkv_type;  // kF32 or kBF16
  int64_t rows;
  int num_heads;
  // [head_dim] each, but where there are `q_squares`; null where there is no norm before rope.
  const float* q_norm;
  const float* k_norm;
  bool norms_after_rope;  // unweighted
  float eps;
  bool rope;                 // false: positions are not coded into q and k
  bool interleaved;          // pairs (x[2i], x[2i + 1]) instead of (x[i], x[i + d/2])
  const float* cos_sin;      // [rows, rotary_dim]
  const int32_t* positions;  // [rows]
  float temperature_floor;   // 0: q is not scaled by its position
  float temperature_scale;   // else by log1p(floor((p + first) / floor)) * scale + 1
  // [rows]: block * block_size + row in the block; negative: the row is not put into the cache
  const int64_t* slots;
  uint16_t* q;  // BF16 [rows, num_heads, head_dim]
  KvArrays cache;
  RowKv kv = RowKv::kBoth;
  bool norms_values = false;  // of each head of v, without weights
  int rotary_dim = 0;         // the first numbers of a head, which rope turns; 0: all
  int temperature_first = 1;
  // Where the norms before rope are of all heads of q, and of all of k, together: the sums of the
  // squares of each head that those norms are over (head_squares), F32 [rows, square_heads] and
  // [rows, square_kv_heads]. q_norm is then [num_heads, head_dim], k_norm [num_kv_heads, head_dim].
  // Else null.
  const float* q_squares = nullptr;
  const float* k_squares = nullptr;
  int square_heads = 0, square_kv_heads = 0;
};

// The sum of the squares of each head of q, and of some of k, of rows of projections.
struct HeadSquaresArgs {
  const void* qkv;       // rows of `row_heads` heads, those of q and then those of k first
  ElementType qkv_type;  // kF32 or kBF16
  int64_t rows;
  int row_heads, num_heads, num_kv_heads, head_dim;
  float* q;  // [rows, num_heads]
  float* k;  // [rows, num_kv_heads]
};

// One piece of attention: a tile of query rows of one sequence, over a range of its positions.
// Query rows of a KV head are pairs (token, head of its group), token by token.
struct AttentionItem {
  int32_t slice;        // of the step; negative: nothing to do
  int32_t first_token;  // of the tile, inside the slice
  int32_t num_tokens;
  int32_t begin, end;  // positions; multiples of the split but at the ends
  // -1: it takes all positions of its rows, else the place of its partial results: so many tokens'
  // results lie before them.
  int32_t partial;
};

struct AttentionSliceInfo {
  int32_t first_row;  // of the step
  int32_t num_tokens;
  int32_t context;
  int32_t table;  // where its block table begins in `tables`
};

// A tile whose ranges are combined, in order: their partial results lie one after the other. No
// partials: nothing to do.
struct AttentionMerge {
  int32_t first_row;  // of the step
  int32_t num_tokens;
  int32_t first_partial, num_partials;
};

// out[row, h, :] = softmax(scale * q . K) V over what the row sees (AttentionSpan of
// kernels/attention.h). Every item runs for each KV head. Weights are rounded to BF16 before they
// are summed, with a cache of kF8E4M3 to F16. A value that is no number reaches, of its own
// sequence, even rows that do not see it: those that share a tile with one that does. head_dim: a
// multiple of 8 from 32 to 256, or 512; with a soft cap, from 32 to 256.
struct AttentionArgs {
  const uint16_t* q;  // BF16 [rows, num_heads, head_dim]
  int num_heads;
  float scale;
  KvArrays cache;
  int32_t chunk, window;       // of the span; 0: none
  const AttentionItem* items;  // of wide tiles first, then of narrow ones (attention_tiles.h)
  int num_items;
  int num_wide_items;
  const AttentionMerge* merges;
  int num_merges;
  const AttentionSliceInfo* slices;
  const int32_t* tables;
  float* partials;  // scratch; attention_plan.h says how much
  uint16_t* out;    // BF16 [rows, num_heads, head_dim]
  // Positions after a row's own, of its slice, that it sees on top; at most kSeesAllBehind.
  int32_t ahead = 0;
  // AttentionScores of kernels/attention.h.
  float soft_cap = 0;            // of scaled scores; 0: none
  const float* sinks = nullptr;  // [num_heads]; null: none
};
constexpr int32_t kSeesAllBehind = 1 << 30;

// out[m, i] = silu(x[m, i]) * x[m, width + i], with gelu by tanh (kernels/gelu_mul.h) in place of
// silu where `gelu`. x: kF32 or kBF16 [rows, 2 * width]; where there are `factors`, [rows, width],
// and those stand in place of its second half.
struct SiluMulArgs {
  const void* x;
  ElementType x_type;
  int64_t rows, width;
  RowsOut out;
  bool gelu = false;
  const float* factors = nullptr;  // F32, rows factor_stride apart; or null
  int64_t factor_stride = 0;
};

// kernels/clamped_swiglu.h, of experts: out[m, i] = (u + 1) * g * sigmoid(alpha * g), where g =
// x[m, 2 i], at most `limit`, and u = x[m, 2 i + 1], cut to [-limit, limit]; both after the bias
// of the row's expert, chosen[order[m]].
struct ClampedSwigluArgs {
  const float* x;  // [rows, 2 * width], in the order of GroupByExpert
  int64_t rows, width;
  float alpha, limit;
  const float* bias;      // [num_experts, 2 * width], or null
  const int32_t* order;   // [rows], where there is a bias
  const int32_t* chosen;  // as GroupByExpertArgs
  RowsOut out;
};

// The activations of encoders: out[m, i] = f(x[m, i]), or where `gated` f(x[m, i]) * x[m, width +
// i]. f(z): GELU by erf (kernels/gelu.h), or where `relu` max(z, 0).
struct ActivateArgs {
  const uint16_t* x;  // BF16 [rows, width], or [rows, 2 * width]
  int64_t rows, width;
  bool gated, relu;
  uint16_t* out;  // BF16 [rows, width]
};

// x (kF32 or kBF16) [rows, cols] to `out`. For kNvF4 both may be the same rows of BF16.
struct ConvertRowsArgs {
  const void* x;
  ElementType x_type;
  int64_t rows, cols;
  RowsOut out;
};

// Rows written as RowScale::kNvF4 as codes, two in a byte, the even column in the low half, and
// scales of their groups in the order of nvf4_scales.h: the same numbers.
struct PackNvF4Args {
  const uint16_t* x;  // BF16 [rows, cols], aligned to 16 bytes
  int64_t rows, cols;
  uint8_t* codes;   // [rows, cols / 2], aligned to 8 bytes
  uint8_t* scales;  // NvF4ScaleBytes(rows, cols / 16), all of which are written
};

// out[:, i] = in[:, indices[i]]. `in` and `out` apart.
struct TakeColumnsArgs {
  const uint16_t* in;      // BF16 [rows, cols], aligned to 16 bytes
  const int32_t* indices;  // [cols], aligned to 16 bytes
  int64_t rows, cols;      // cols: a multiple of 8
  uint16_t* out;           // as `in`
};

// out[i, :] = in[indices[i], :], rows of `row_bytes` bytes, a multiple of 16. `in` and `out` apart.
struct TakeRowsArgs {
  const void* in;
  const int32_t* indices;
  int64_t rows, row_bytes;
  void* out;
  int64_t in_stride = 0;  // bytes from one row of `in` to the next, a multiple of 16; 0: row_bytes
};

// Ranks that may share a layer on devices.
constexpr int kMostJoinedPieces = 32;

// Puts rows together that are cut by columns: out[row, :] = the rows `row` of all pieces, one
// after the other. The pieces are dense, [rows, width], and lie one after the other in `in`.
struct JoinColumnsArgs {
  const void* in;
  int64_t rows;
  int num_pieces;
  int64_t ends[kMostJoinedPieces];  // bytes: where each piece's columns end in a row
  void* out;                        // apart from `in`
};

enum class GroupScales : uint8_t {
  kNone,
  kE4M3,   // [n, k / group] in the order of nvf4_scales.h
  kE8M0,   // [n, k / group]
  kBlock,  // F32 [ceil(n / block_rows), ceil(k / group)]
  // U32 [n, ceil(k / group)], of INT4: an F32 whose lowest 4 bits are the zero point of the group's
  // codes, and count as zeros in the scale (Int4ScaleWord of linear_shapes.h).
  kWithZeros,
};
constexpr uint32_t kInt4ZeroMask = 15;

// Rows of a matrix, one after the other, whose scales are one number that the host knows.
struct ScaledPart {
  int64_t rows;
  float scale;
};
constexpr int kMostScaledParts = 3;  // q, k and v

// A weight matrix [n, k], row-major as checkpoints store it; two codes of 4 bits in a byte, the
// even k in the low half. Its value is code (of INT4: less the zero point of its group) * the scale
// of its group * row_scales[n]. All addresses are aligned to 256 bytes, k * bits is a multiple of
// 128 bits.
struct Weights {
  const void* codes;
  ElementType type;
  const void* group_scales;
  GroupScales group_type;
  int group;                // elements of k that a scale covers: 16, 32, or a multiple of 32
  int block_rows;           // kBlock; kWithZeros: 1
  const float* row_scales;  // [n]; null: 1
  int64_t n, k;
  // All of row_scales, where they are one number that the host knows; else 0. Kernels read
  // row_scales.
  float same_row_scale = 0;
  // Where they are several numbers, but one for each of a few parts of the rows: these; else none.
  int num_parts = 0;
  ScaledPart parts[kMostScaledParts] = {};
  // If these are rows of a larger matrix: the number of its rows, which decides how sums over k are
  // cut; 0: n. So the part's results have the bits of the whole.
  int64_t whole_n = 0;
};

// y = x W^T (+ bias). x: kBF16, or kF8E4M3 with a scale a row for weights of kF8E4M3 without group
// scales. kBF16 rows with a scale are those of RowScale::kNvF4, for weights of kF4E2M1 with kE4M3
// scales.
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
  // Scratch for partial sums, LinearScratchBytes (linear_shapes.h).
  void* scratch;
  float same_x_scale = 0;  // of x_scales, as same_row_scale of row_scales
  // [kMostSplitTiles] zeros (linear_plan.h), which count the parts of a split sum and are zeros
  // again when the product is done: products that run at the same time need others. Null: those of
  // the device's module, which all products without counters share.
  uint32_t* counters = nullptr;
};

// The same for experts of equal shape, one after the other in memory: rows [row_begin[e],
// row_begin[e + 1]) of x meet expert e.
struct GroupedLinearArgs {
  LinearArgs linear;  // of expert 0; m is that of all experts
  int64_t num_experts;
  int64_t codes_stride, group_scales_stride;  // bytes from one expert to the next
  int64_t row_scales_stride;                  // elements
  const int32_t* row_begin;                   // [num_experts + 1], on the device
};

// BF16 values of rows [first_row, first_row + rows) of a matrix: [rows, k]. Without scales of rows
// (a null row_scales) they are exact but for the scales of blocks.
struct ExpandWeightsArgs {
  Weights w;
  int64_t first_row, rows;
  uint16_t* out;
};

// y[m, n] *= row_scales[n] * x_scales[m] where they are not null, + bias[n] where it is not null.
struct ScaleResultsArgs {
  void* y;
  ElementType y_type;
  int64_t m, n, y_stride;
  const float* row_scales;
  const float* x_scales;
  const float* bias;
};

// Routing of experts, as kernels/experts.h: logits from F32 rows and BF16 weights. REQUIRES:
// `sigmoid` where there is a choice_bias.
struct RouterArgs {
  const float* x;          // [rows, k]
  const uint16_t* weight;  // [num_experts, k]; null: the logits stand there already
  int64_t rows, k, num_experts;
  int top_k;              // 0: no expert is chosen, and logits are the result
  bool sigmoid;           // else softmax over all experts
  bool normalize;         // a row's weights add up to 1
  float* logits;          // [rows, num_experts]
  int32_t* chosen;        // [rows, top_k]
  float* expert_weights;  // [rows, top_k]
  // [num_experts], of the weights, after all else; or null.
  const float* expert_factors = nullptr;
  const float* bias = nullptr;         // [num_experts], of the logits; or null
  const float* choice_bias = nullptr;  // [num_experts], RouterRule::choice_bias
  float scale = 1;                     // of the weights, after their normalization
};

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

// sum[row, :] (+)= results of the row's slots in their order (* weights), to which the bias of the
// slot's expert is added first. sum: F32 [rows, cols]. What stood there is multiplied by the
// sigmoid of the row's gate first, where there are `sum_gates`.
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
  const int32_t* chosen = nullptr;   // [rows, top_k], where there is a bias
};

// Rows of a step that share a read of an adapter's factors.
constexpr int kLoraRows = 4;

// Up to kLoraRows rows that have the adapter of a slot: AddLoraArgs::rows [first, first + count).
struct LoraTile {
  int32_t slot, first, count;
};

// An adapter's factors for one module: how many rows of A and of B there are; 0: none.
struct LoraFactor {
  int32_t rank;
  float scale;
};

// Modules whose results are columns of one product: q, k and v.
constexpr int kMostLoraModules = 3;

// Addresses for the adapter in slot 0 and expert 0; AddLoraArgs has the strides of the others.
struct LoraModulePlace {
  const uint16_t* a;         // BF16 [rank, cols]; of an embedding [cols, rank], cols by token
  const uint16_t* b;         // BF16 [rank, rows]: transposed
  const LoraFactor* factor;  // one
  int64_t first_col, rows;   // its results are columns [first_col, first_col + rows) of y
};

// What adapters add to the results of a linear layer or an embedding (kernels/lora.h): for each row
// i that has an adapter, and each module, y[i, first_col + n] += scale * (sum over j of b[j, n] *
// (sum over k of a[j, k] * x[i, k] * x_scales[i])). Other rows are not touched. Which rows there
// are is told in tiles, or, for experts, by the slots of all rows.
struct AddLoraArgs {
  const void* x;  // [.., cols], kF32, kBF16 or kF8E4M3; not read of an embedding
  ElementType x_type;
  const float* x_scales;  // by row; null: 1
  int64_t cols;
  const int32_t* tokens;  // of an embedding, by row: the column of A; else null
  void* y;                // kF32 or kBF16, row stride y_stride
  ElementType y_type;
  int64_t y_stride;
  float scale;  // besides those of the factors
  int num_modules;
  LoraModulePlace modules[kMostLoraModules];
  int64_t slot_bytes, slot_factors;  // from one slot to the next: bytes of a and b, elements
  int max_rank;                      // of all slots; at most 2048
  float* h;                          // scratch: [rows of x, num_modules, max_rank]
  int64_t num_tiles;                 // of experts: the pairs of a row and an expert, rows of x
  const LoraTile* tiles;
  // Numbers of rows, ascending in each tile. What of them is in [first_row, first_row + num_rows)
  // is computed, and is row number - first_row of x and y.
  const int32_t* rows;
  int64_t first_row, num_rows;
  // With experts, else null: row i of x is row order[i] / top_k of the step, and is multiplied by
  // expert chosen[order[i]] (GroupByExpertArgs).
  const int32_t* slots;  // by row of the step; -1: no adapter
  const int32_t* order;
  const int32_t* chosen;
  int top_k;
  int64_t expert_bytes, expert_factors;  // as slot_bytes, from one expert to the next
};

// tokens[i] = the token that DrawToken (sampler/draw.h) draws from logits[i, :], the same on every
// device. Where there is none to draw, tokens[i] = -1 and errors[i] says why. With `extras` the row
// is changed before, and tells of its logits, as its element says. What then stands in logits, and
// in the lists, is unspecified. REQUIRES: cols <= kernels::kMostDrawnTokens.
struct SampleRowsArgs {
  float* logits;  // [rows, cols]; only read without `extras`
  int64_t rows, cols;
  const kernels::DrawSettings* settings;  // [rows], on the device
  int32_t* tokens;
  kernels::DrawError* errors;
  const kernels::DrawExtras* extras = nullptr;  // [rows], or null: none has any
  uint32_t* words = nullptr;                    // the lists and masks of all rows
  kernels::DrawnLogprobs* logprobs = nullptr;   // [rows], of rows that want some
  kernels::TopLogit* tops = nullptr;            // [rows, most_top]: the num_top largest, descending
  int64_t most_top = 0;
};

// x[i] = cap * tanh(x[i] * scale / cap).
struct CapLogitsArgs {
  float* x;  // [count]
  int64_t count;
  float cap;  // 0: x[i] * scale
  float scale = 1;
};

// The random codes of dummy_weights.cc: row i of the tensor whose hashed name is `tensor_seed`,
// from `first_row` of that tensor on.
struct RandomCodesArgs {
  void* out;  // [rows, cols]
  ElementType type;
  uint64_t tensor_seed;
  int64_t first_row, rows, cols;
  float scale;  // kBF16: uniform in [-32768, 32767] * scale
};
// Scales of random groups: kE4M3 from 0.5 to 1.875 (as dummy_weights.cc), kE8M0 and F32 constant.
// Those of kE4M3 are rows of `groups` scales, from row `first_row` of the matrix at `out` on
// (nvf4_scales.h); what stands between them is not touched.
struct RandomScalesArgs {
  void* out;
  GroupScales type;
  uint64_t tensor_seed;
  int64_t count;
  float value;                        // kBlock, kWithZeros: the scale or word; kE8M0: its code
  int64_t first_row = 0, groups = 1;  // kE4M3
  int64_t first_tensor_row = 0;       // kE4M3: the row of the tensor that stands there
};

// One instruction of device_code.h by itself; instructions.cu says what each reads and writes.
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
  void (*take_rows)(const StreamHandle&, const TakeRowsArgs&);
  void (*take_columns)(const StreamHandle&, const TakeColumnsArgs&);
  void (*join_columns)(const StreamHandle&, const JoinColumnsArgs&);
  void (*linear)(const StreamHandle&, const LinearArgs&);
  void (*grouped_linear)(const StreamHandle&, const GroupedLinearArgs&);
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
};

}  // namespace sluice::device

// Each is defined by one file of kernels, once for GPUs (namespace cuda) and once emulated.
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
  void LaunchTakeRows(const StreamHandle&, const device::TakeRowsArgs&);               \
  void LaunchTakeColumns(const StreamHandle&, const device::TakeColumnsArgs&);         \
  void LaunchJoinColumns(const StreamHandle&, const device::JoinColumnsArgs&);         \
  void LaunchLinear(const StreamHandle&, const device::LinearArgs&);                   \
  void LaunchGroupedLinear(const StreamHandle&, const device::GroupedLinearArgs&);     \
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
  void LaunchClampedSwiglu(const StreamHandle&, const device::ClampedSwigluArgs&);

namespace sluice::emulated {
SLUICE_DECLARE_LAUNCHERS
}
namespace sluice::cuda {
SLUICE_DECLARE_LAUNCHERS
}
