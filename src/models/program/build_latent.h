// The operators of latent attention (LatentSpec), for the CPU.
//
// One form for all steps, that of absorbed matrices. What it costs against heads with keys and
// values of their own, attention alone on one core with AVX-512 BF16: a prompt of 512 tokens takes
// 2.9 times as long (128 heads as in DeepSeek V3: 1124 against 388 ms; 20 heads as in GLM-4.7
// Flash: 74 against 24 ms), 64 tokens after 4096 others 2.5 times; a decoding token after 4096
// takes a sixth (23 against 138 ms, 2.4 against 12.5 ms). Expanded keys in prompts alone would give
// other bits than decoding does, and the promise is that the cut of a prompt gives none.
#pragma once

#include <cstdint>

#include "models/decoder_spec.h"
#include "models/program/builder.h"
#include "models/weights.h"

namespace sluice::program {

// A layer, with the heads that this rank has.
struct LatentLayer {
  const AttentionSpec& spec;
  const AttentionWeights& weights;
  int64_t index = 0;  // in this rank's program
  int64_t cache_layer = 0;
  RowsIn normed;  // what it reads, [rows, hidden]
  int64_t hidden = 0;
  BufferId cos_sin = kNone;  // kNone: no rope
  int num_threads = 1;
};

// From the layer's input to its keys in the cache, and the queries.
void EmitLatentKeys(Builder& to, const LatentLayer& layer);
// From the queries and the cache to what each head attends to, F32 [rows, heads, kv_rank], which is
// returned; `type`: of what the output projection reads.
BufferId EmitLatentAttention(Builder& to, const LatentLayer& layer, ElementType type);
// From there to rows of `type` [rows, heads, value_dim] in `out`.
void EmitLatentValues(Builder& to, const LatentLayer& layer, BufferId latent, BufferId out,
                      ElementType type);

}  // namespace sluice::program
