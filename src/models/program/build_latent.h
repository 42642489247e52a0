// The operators of latent attention (LatentSpec), for the CPU.
//
// All steps use the absorbed matrices. Measured on one core with AVX-512 BF16, attention only,
// compared with heads that have their own keys and values: a prompt of 512 tokens takes 2.9 times
// as long (128 heads as in DeepSeek V3: 1124 instead of 388 ms; 20 heads as in GLM-4.7 Flash: 74
// instead of 24 ms). 64 tokens after 4096 others take 2.5 times as long. A decoded token after 4096
// others takes a sixth of the time (23 instead of 138 ms; 2.4 instead of 12.5 ms). If keys were
// expanded only in prompts, prefill and decoding would produce different bits, so results would
// depend on how a prompt is divided into chunks.
#pragma once

#include <cstdint>

#include "models/decoder_spec.h"
#include "models/program/builder.h"
#include "models/weights.h"

namespace sluice::program {

// A layer, with the heads of this rank.
struct LatentLayer {
  const AttentionSpec& spec;
  const AttentionWeights& weights;
  int64_t index = 0;  // index in this rank's program
  int64_t cache_layer = 0;
  RowsIn normed;      // the layer's normalized input, [rows, hidden]
  RowsIn plain = {};  // only on a device, for an indexer: the same rows, unrounded
  int64_t hidden = 0;
  BufferId cos_sin = kNone;  // kNone: no RoPE
  int num_threads = 1;
};

// Emits operators that compute the queries, and append the layer's keys to the cache.
void EmitLatentKeys(Builder& to, const LatentLayer& layer);
// Emits attention. Returns the buffer with each head's weighted sum of latent vectors, [rows,
// heads, kv_rank] in F32, or BF16 on a device. `type`: element type of the output projection's
// input.
BufferId EmitLatentAttention(Builder& to, const LatentLayer& layer, ElementType type);
// Emits operators that compute the values from `latent` and write them to `out`: [rows, heads,
// value_dim], elements of `type`.
void EmitLatentValues(Builder& to, const LatentLayer& layer, BufferId latent, BufferId out,
                      ElementType type);

}  // namespace sluice::program
