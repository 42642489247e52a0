// The functions that each instruction set implements for matrix products and attention:
// single-threaded, over raw pointers and sizes. linear.cc and attention.cc check arguments, divide
// the work among threads and call them. Operators whose sources are the same for every instruction
// set are in vector_kernel.h.
//
// Files under cpu/<isa>/ are compiled with instructions that this machine may lack. So this header
// must not contain or include inline code.
#pragma once

#include <stdint.h>

namespace sluice::kernels {

// Expands `steps` steps of 32 inputs of a panel's codes to lines of BF16 pairs, 1024 bytes per step
// ([16 pairs of inputs][16 rows][2]). Exact. codes and scales: layout of panel_layout.h. `scales`:
// for formats with groups of 16 or 32 inputs, the scales of the steps' groups, which are multiplied
// into the values; for INT4, the zero points of the steps, which are subtracted, or null if they
// are all 8. lines: 64-byte aligned.
using ExpandFunction = void(const uint8_t* codes, const uint8_t* scales, int64_t steps,
                            uint8_t* lines);

// y[m, n] = (sum over k of x[m, k] * w[n, k]) * row_scales[n] (+ bias[n]); see linear.h and, for
// the layout of w, PackedMatrix.
struct LinearArgs {
  const void* x;          // [rows, cols], F32, BF16 bits or I8, as in the function's name
  int64_t x_stride;       // elements
  int64_t x_bytes;        // bytes of an element
  const float* x_scales;  // [rows]; I8 only
  const void* w;          // panels of 16 output rows
  int64_t panel_bytes;    // bytes from one panel to the next
  int64_t cols;
  int64_t outputs;  // valid output rows; the last panel may have fewer than 16
  float* y;
  int64_t y_stride;
  const float* row_scales;  // [outputs padded to a whole panel] or null
  const float* bias;        // [outputs] or null

  // If not null: scales for the partial sums over blocks of `block_steps` steps of 32 inputs. The
  // scales of panel p start at block_scales + p * panel_block_scales, with 16 scales per block.
  const float* block_scales;
  int64_t panel_block_scales;
  int64_t block_steps;

  // For weights stored as codes: the function that expands them (otherwise null), and the scales of
  // their groups or, for INT4, the zero points.
  ExpandFunction* expand;
  int64_t code_step_bytes;  // bytes of codes per step of 32 inputs
  const uint8_t* scales;
  int64_t scale_step_bytes;
  int64_t panel_scale_bytes;

  // Only for functions on packed activations.
  uint8_t* packed_x;  // scratch of packed_x_bytes()
  int64_t rows;       // number of rows in packed_x
  uint8_t* lines;     // scratch memory of the calling thread, packed_lines_bytes bytes
};

// Maximum number of products whose sum fits in 32 bits; one factor is in [-128, 127], the other in
// [-127, 127].
constexpr int64_t kMaxInt8Cols = 131072;

// Maximum rows of a unit of work; a multiple of every kernel's tile height. With larger units, a
// matrix with few panels would have too few units for many threads.
constexpr int64_t kRowsPerUnit = 768;
constexpr int64_t kMaxPanelsPerUnit = 4;  // the largest panels_per_unit

// Computes rows [row_begin, row_end), at most kRowsPerUnit rows, of the outputs of panels
// [panel_begin, panel_end). The arithmetic of an element must not depend on these ranges.
using LinearFunction = void(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                            int64_t panel_begin, int64_t panel_end);

// Maximum size of a chunk of a KV cache: kAttentionPanels panels of kAttentionPanelPositions
// positions.
constexpr int kAttentionPanelPositions = 16;
constexpr int kAttentionPanels = 16;
constexpr int kAttentionChunk = kAttentionPanelPositions * kAttentionPanels;

// One chunk of positions of one KV head for a tile of query rows that read it.
struct AttentionChunkArgs {
  const float* q;  // [rows, head_dim], already scaled
  int rows;
  int head_dim;
  int value_dim;
  bool bf16;    // true: K and V are BF16; false: F32
  bool rounds;  // whether queries and weights may be rounded to BF16; only with BF16 panels
  // Whether K and V are E4M3 codes (attention_layout.h); only for at most attention_code_rows rows.
  bool codes;
  float soft_cap;  // c: a score s becomes c * tanh(s / c); 0: none
  // The entries of panels to which no row attends may have any value.
  const void* k_panels[kAttentionPanels];  // BF16: [head_dim / 2][16][2]; F32: [head_dim][16]
  const void* v_panels[kAttentionPanels];  // BF16: [8][value_dim][2]; F32: [16][value_dim]
  // Panels that are read next, for prefetching. This is only a hint: any address is allowed.
  const void* next_k_panels[kAttentionPanels];
  const void* next_v_panels[kAttentionPanels];
  // [rows]: the row attends to positions [starts, limits) of the chunk, 0 <= starts < limits <=
  // kAttentionChunk; if limits is 0, the row attends to none. Both are non-decreasing over the rows
  // that attend to any position.
  const int* starts;
  const int* limits;
  float* scores;   // scratch [rows, kAttentionChunk], 64-byte aligned
  float* largest;  // result [rows]: largest score of the row; not written for a row with limit 0
  float* sum;      // result [rows]: sum of exp(score - largest)
  float* out;      // result [rows, value_dim]: sum of exp(score - largest) * v
};

using AttentionFunction = void(const AttentionChunkArgs& args);

// Number of consecutive panels of one head that are read before the panels of the next head.
constexpr int kAttentionHeadsPanels = 4;

// One chunk of positions for all KV heads, where all rows attend to the same positions of the
// chunk. Keys and values are BF16 or E4M3 codes; queries and softmax weights may be rounded to
// BF16.
struct AttentionHeadsArgs {
  const float* q;  // [heads, rows, head_dim], already scaled
  int heads;
  int rows;  // per head
  int head_dim;
  bool codes;
  float soft_cap;    // as in AttentionChunkArgs
  int start, limit;  // all rows attend to positions [start, limit) of the chunk, start < limit
  // Blocks of the chunk: [heads][block_panels] panels as in AttentionChunkArgs; block_panels
  // divides kAttentionHeadsPanels. The entries of blocks to which no row attends may have any
  // value.
  int block_panels;
  const void* k_blocks[kAttentionPanels];
  const void* v_blocks[kAttentionPanels];
  // Blocks of keys that are read next, for prefetching. This is only a hint: any address is
  // allowed.
  const void* next_k_blocks[kAttentionHeadsPanels];
  float* scores;   // scratch [heads, rows, kAttentionChunk], 64-byte aligned
  float* largest;  // results [heads, rows], as in AttentionChunkArgs
  float* sum;
  float* out;  // result [heads, rows, head_dim]
};

using AttentionHeadsFunction = void(const AttentionHeadsArgs& args);

struct KernelTable {
  LinearFunction* linear_bf16;      // x is BF16; w is BF16, or codes for at most expand_rows rows
  LinearFunction* linear_f32_bf16;  // x F32, w BF16
  LinearFunction* linear_f32;       // x F32, w F32
  LinearFunction* linear_i8;        // x and w are I8; cols <= kMaxInt8Cols
  // Number of consecutive panels per unit of work with which the linear functions are fastest.
  int panels_per_unit;
  int64_t expand_rows = 0;
  // Whether linear_bf16 and linear_bf16_packed support block scales, if block_steps divides 16.
  bool has_block_scales = false;
  ExpandFunction* expand_i8;
  ExpandFunction* expand_f8;
  ExpandFunction* expand_nvfp4;
  ExpandFunction* expand_mxfp4;
  ExpandFunction* expand_int4;

  // If not null: for packed_min_rows rows or more, activations are first packed into scratch memory
  // (each call packs some of the pack_units() units), then multiplied. Results equal those of
  // linear_bf16 (whose weights may be codes) and linear_i8.
  int64_t packed_min_rows = 0;
  int packed_panels_per_unit = 0;  // maximum; even
  int64_t packed_lines_bytes = 0;
  int64_t (*packed_x_bytes)(int64_t rows, int64_t row_bytes) = nullptr;
  int64_t (*pack_units)(int64_t rows, int64_t row_bytes) = nullptr;
  void (*pack_x)(const LinearArgs& args, int64_t unit_begin, int64_t unit_end) = nullptr;
  void (*linear_bf16_packed)(const LinearArgs& args, int64_t panel_begin,
                             int64_t panel_end) = nullptr;
  void (*linear_i8_packed)(const LinearArgs& args, int64_t panel_begin,
                           int64_t panel_end) = nullptr;

  AttentionFunction* attention_chunk;
  // Maximum number of rows for which attention_chunk reads E4M3 codes directly.
  int attention_code_rows = 0;
  // Same arithmetic as attention_chunk. Null: only chunks of single heads are supported.
  AttentionHeadsFunction* attention_heads = nullptr;

  // If not 0: replaces panels_per_unit for up to few_rows rows with weights stored as codes.
  // linear_bf16 then multiplies such weights in units of up to few_rows_panels panels.
  int64_t few_rows = 0;
  int few_rows_panels = 0;
};

// The table in use (dispatch.cc).
const KernelTable& Kernels();

extern const KernelTable kReferenceKernels;

}  // namespace sluice::kernels
