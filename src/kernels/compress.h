// compress: makes entries that stand for groups of consecutive tokens (DeepSeek V4). Source of the
// formulas: transformers' DeepseekV4HCACompressor and DeepseekV4CSACompressor.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

// The entry of tokens [i * rate, (i + 1) * rate) is, for each element, the sum of c over its tokens
// with the softmax of z + bias as weights. If groups overlap, a token has two projections c and z:
// the first contributes to the next entry, the second to the token's own entry. The first entry has
// no preceding tokens.
struct CompressRule {
  int rate = 1;
  bool overlaps = false;
  int dim = 0;                  // elements of an entry
  const float* bias = nullptr;  // F32 [rate, projections() * dim]

  int projections() const { return overlaps ? 2 : 1; }
  int64_t width() const { return int64_t{projections()} * dim; }
  // F32 elements of a state.
  int64_t state_numbers() const { return 3 * width(); }
};

// Where to store a copy of the state after some rows.
struct CompressSnapshot {
  int64_t rows = 0;
  float* state = nullptr;
};

// Reads rows of consecutive tokens of a sequence; the first token has position `first`. A row
// consists of c [projections, dim], then z [projections, dim]; rows are `stride` elements apart. In
// the last row of each group, the entry replaces the first `dim` elements of c.
//
// `state` [projections, 3, dim] holds the running softmaxes of the sequence, of the entry of the
// current group and, if groups overlap, of the next: the largest score, the sum of weights, and the
// weighted sum, all zero for a new sequence. It is updated token by token, so that results do not
// depend on where calls begin. `snapshots`: rows are ascending. Only the elements [begin, end) of
// an entry are computed; calls for distinct elements are independent.
void CompressRows(const CompressRule& rule, float* x, int64_t stride, int64_t rows, int64_t first,
                  int begin, int end, float* state, std::span<const CompressSnapshot> snapshots);

// Applies an RMS norm to an entry [dim], then RoPE of adjacent pairs to its last 2 *
// frequencies.size() elements, with angles position * frequency, all in F32.
void FinishEntry(float* entry, int dim, const float* weight, float eps, int64_t position,
                 std::span<const float> frequencies);

}  // namespace sluice::kernels
