// The operators of latent attention (LatentSpec), for the CPU.
//
// All steps use the absorbed matrices. The cost of attention alone, compared to heads with their
// own keys and values, on one core with AVX-512 BF16: a prompt of 512 tokens takes 2.9 times as
// long (128 heads as in DeepSeek V3: 1124 against 388 ms; 20 heads as in GLM-4.7 Flash: 74 against
// 24 ms), 64 tokens after 4096 others take 2.5 times as long; a decoded token after 4096 others
// takes a sixth (23 against 138 ms, 2.4 against 12.5 ms). Expanding keys only in prompts would give
// other bits than decoding, so results would depend on how a prompt is divided into chunks.
#pragma once

#include <cstdint>

#include "models/decoder_spec.h"
#include "models/program/builder.h"
#include "models/weights.h"

namespace sluice::program {

// A layer with this rank's heads.
struct LatentLayer {
  const AttentionSpec& spec;
  const AttentionWeights& weights;
  int64_t index = 0;  // index in this rank's program
  int64_t cache_layer = 0;
  RowsIn normed;      // its input, [rows, hidden]
  RowsIn plain = {};  // only on a device, for an indexer: the same rows, never rounded
  int64_t hidden = 0;
  BufferId cos_sin = kNone;  // kNone: no RoPE
  int num_threads = 1;
};

// Emits operators that compute the queries, and append the layer's keys to the cache.
void EmitLatentKeys(Builder& to, const LatentLayer& layer);
// Emits attention. Returns the buffer with each head's weighted sum of latent vectors, [rows,
// heads, kv_rank] in F32, or BF16 on a device. `type`: of the output projection's input.
BufferId EmitLatentAttention(Builder& to, const LatentLayer& layer, ElementType type);
// Emits the expansion of `latent` to values, which are written to `out` as `type`: [rows, heads,
// value_dim].
void EmitLatentValues(Builder& to, const LatentLayer& layer, BufferId latent, BufferId out,
                      ElementType type);

}  // namespace sluice::program
