// Determines layouts of the KV cache from options.
#pragma once

#include "kernels/attention.h"
#include "models/decoder_spec.h"
#include "models/model.h"

namespace sluice {

// Returns the layout of one layer.
kernels::KvLayout KvLayoutOf(const AttentionSpec& attention, const ModelOptions& options);
// Returns the layout of a decoder's cache: that of the layer with the widest keys.
kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options);
// Returns the layout for any model, including encoders, whose DecoderSpec has no layers.
kernels::KvLayout KvLayoutOf(const ModelConfig& config, const ModelOptions& options);

}  // namespace sluice
