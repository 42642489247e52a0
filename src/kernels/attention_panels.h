// Converts keys and values to panels (attention_layout.h), for kernels that read another type than
// the cache stores, and for caches without panels.
#pragma once

#include "kernels/attention.h"
#include "kernels/kernel_table.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {

// Decodes a panel of keys, or of values, of one KV head of a cache with panels, to the layout that
// the kernels read. panel: [kAttentionPanelPositions * head_dim].
void DecodeKeys(const Float8E4M3* codes, int head_dim, BFloat16* panel);
void DecodeKeys(const Float8E4M3* codes, int head_dim, float* panel);
void DecodeKeys(const Float16* halves, int head_dim, float* panel);
void DecodeValues(const Float8E4M3* codes, int head_dim, BFloat16* panel);
void DecodeValues(const Float8E4M3* codes, int head_dim, float* panel);
void DecodeValues(const Float16* halves, int head_dim, float* panel);

// Copies rows [row_begin, row_end) of a block without panels, [.., layout.head_dim], to their
// places in the panels of a chunk; row `row_begin` becomes position `chunk_position` of the chunk.
// T is the cache's type, P the panels': BFloat16 or Float8E4M3 to BFloat16; float, Float16 or
// Float8E4M3 to float.
template <typename T, typename P>
void BringIntoPanels(const KvLayout& layout, const T* k_rows, const T* v_rows, int row_begin,
                     int row_end, int chunk_position, P* k_panels, P* v_panels);

// Makes one panel of keys and one of values from a latent cache; position i is at rows[i],
// [layout.head_dim]. Types as for BringIntoPanels.
template <typename T, typename P>
void MakeLatentPanels(const KvLayout& layout, const T* const (&rows)[kAttentionPanelPositions],
                      P* k_panel, P* v_panel);

}  // namespace sluice::kernels
