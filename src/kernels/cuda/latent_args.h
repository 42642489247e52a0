// Arguments of the kernels of latent attention (LatentSpec of models/decoder_spec.h), except
// attention itself. device_kernels.h includes this file.
#pragma once

#include <stdint.h>

#include "tensor/element_type_enum.h"

namespace sluice::device {

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

// RoPE of some consecutive numbers of a head. REQUIRES: `dim` is even.
struct TailRope {
  int dim = 0;
  const float* cos_sin = nullptr;  // [rows, dim]: cosines, then sines; null: no rotation
  bool interleaved = false;        // pairs (x[2i], x[2i + 1]) instead of (x[i], x[i + dim / 2])
};

// Each row of x contains a latent vector at latent_begin, followed by the key that all heads share.
// The RMS norm of the vector, w * v * rsqrt(mean(v^2) + eps), and the rotated key are written to
// the cache as one row. If q_dim > 0, q = the RMS norm of the row's first q_dim elements. REQUIRES:
// a cache with one head of latent_dim + rope.dim numbers; even latent_begin and latent_dim.
struct LatentAppendArgs {
  const float* x;  // [rows, latent_begin + latent_dim + rope.dim]
  int64_t rows;
  int64_t latent_begin;
  int latent_dim;
  TailRope rope;
  const float* k_norm;  // [latent_dim]
  float eps;
  const int64_t* slots;  // as in RopeAppendArgs
  KvArrays cache;        // v is unused
  int q_dim = 0;
  const float* q_norm = nullptr;  // [q_dim]
  uint16_t* q = nullptr;          // BF16 [rows, q_dim]
};

// Multiplies the elements of each head by the head's own matrix:
//   y[row, head, j] = factor * sum over i < k of w[head, j, i] * bf16(x[row, head, i]), for j < n,
// and copies the rope.dim elements that follow these k elements in x, rotated and multiplied by
// factor, after the n results. factor: temperature as in RopeAppendArgs, or 1. Sums over i are
// computed in ascending steps of 16, independently of other rows. REQUIRES: even k, n, strides and
// begins; k * 2 bytes a multiple of 4.
struct HeadProductsArgs {
  const void* x;  // kF32 or kBF16; head h of row r at r * x_stride + h * x_head
  ElementType x_type;
  int64_t x_stride, x_head;
  const uint16_t* w;  // BF16 [n, k], matrices w_head elements apart
  int64_t w_head;
  int64_t rows;
  int heads, n, k;
  uint16_t* y;  // BF16; head h of row r at r * y_stride + h * y_head
  int64_t y_stride, y_head;
  TailRope rope = {};
  const int32_t* positions = nullptr;  // [rows], for the temperature
  float temperature_floor = 0, temperature_scale = 0;
  int temperature_first = 1;
};

// The queries and the key of an indexer (IndexerSpec of models/decoder_spec.h). The key is replaced
// by its layer norm, (k - mean) * rsqrt(variance + eps) * k_norm + k_bias with the population
// variance. Then the first rope.dim numbers of the key and of each head of q are rotated. REQUIRES:
// an even dim of at most kMostIndexDim.
constexpr int kMostIndexDim = 256;
struct IndexAppendArgs {
  const float* q;  // [rows, heads, dim]
  const float* k;  // [rows, dim]
  int64_t rows;
  int heads, dim;
  const float* k_norm;  // [dim]
  const float* k_bias;  // [dim]
  float eps;
  TailRope rope;
  const int64_t* slots;  // as in RopeAppendArgs
  void* keys;            // `type` [slots, dim]
  ElementType type;      // kBF16 or kF8E4M3 (code = E4M3(x / k_scale))
  float k_scale;
  uint16_t* q_out;  // BF16 [rows, heads, dim]
};

// A row for which positions are selected: its own position, and where its sequence's block table
// begins in SelectPositionsArgs::tables.
struct IndexRow {
  int32_t position;
  int32_t table;
};

// Arguments for kernels/select_positions.h, with queries rounded to BF16. chosen[row, i] is the
// place of the i-th selected position in the cache: block * block_rows + its row in the block. A
// row that sees at most top_k positions gets all of them; the rest of its list is not written.
// REQUIRES: the conditions of IndexAppendArgs, and positions below max_context.
struct SelectPositionsArgs {
  const uint16_t* q;     // BF16 [rows, heads, dim]
  const float* weights;  // [rows, heads]
  int64_t rows;
  int heads, dim;
  const void* keys;  // `type` [slots, dim]
  ElementType type;
  const IndexRow* index_rows;  // [rows]; the rows of a sequence are consecutive and ascending
  const int32_t* tables;
  int block_size, block_rows;
  int top_k;
  int64_t max_context;
  float* scores;    // scratch of SelectScoreBytes
  int32_t* chosen;  // [rows, top_k]
};

// Scores are F32 [rows of a pass, stride]. With long contexts, the memory for scores limits the
// number of rows that are computed in one pass.
constexpr int kIndexTile = 64;  // number of positions that a thread block scores together
constexpr int64_t SelectScoreStride(int64_t max_context) {
  return (max_context + kIndexTile - 1) / kIndexTile * kIndexTile;
}
constexpr int64_t SelectRowsAtOnce(int64_t max_context) {
  constexpr int64_t kScoresAtOnce = int64_t{16} << 20;
  const int64_t rows = kScoresAtOnce / SelectScoreStride(max_context);
  return rows < 1 ? 1 : rows;
}
constexpr int64_t SelectScoreBytes(int64_t max_rows, int64_t max_context) {
  const int64_t rows = SelectRowsAtOnce(max_context);
  return (rows < max_rows ? rows : max_rows) * SelectScoreStride(max_context) * 4;
}

}  // namespace sluice::device
