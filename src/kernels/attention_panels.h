// Panels of keys and values (attention_layout.h) for kernels that read another type than the cache
// holds, or from blocks that have no panels.
#pragma once

#include "kernels/attention.h"
#include "kernels/kernel_table.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {

// A panel of keys, or of values, of one KV head of a cache that has panels, as the kernels read it:
// `panel` has kAttentionPanelPositions * head_dim numbers.
void DecodeKeys(const Float8E4M3* codes, int head_dim, BFloat16* panel);
void DecodeKeys(const Float8E4M3* codes, int head_dim, float* panel);
void DecodeKeys(const Float16* halves, int head_dim, float* panel);
void DecodeValues(const Float8E4M3* codes, int head_dim, BFloat16* panel);
void DecodeValues(const Float8E4M3* codes, int head_dim, float* panel);
void DecodeValues(const Float16* halves, int head_dim, float* panel);

// Rows [row_begin, row_end) of a block without panels, each of layout.head_dim numbers, to their
// places in the panels of a chunk, where the first of them has the position `chunk_position`.
// T, what the cache holds, to P: BFloat16 or Float8E4M3 to BFloat16; float, Float16 or Float8E4M3
// to float.
template <typename T, typename P>
void BringIntoPanels(const KvLayout& layout, const T* k_rows, const T* v_rows, int row_begin,
                     int row_end, int chunk_position, P* k_panels, P* v_panels);

// The panels of keys and of values of one panel's positions of a latent cache, whose numbers are at
// rows[position]. Types as above.
template <typename T, typename P>
void MakeLatentPanels(const KvLayout& layout, const T* const (&rows)[kAttentionPanelPositions],
                      P* k_panel, P* v_panel);

}  // namespace sluice::kernels
