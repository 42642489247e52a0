// Layouts of the KV cache under given options.
#pragma once

#include "kernels/attention.h"
#include "models/decoder_spec.h"
#include "models/model.h"

namespace sluice {

// The layout of one layer.
kernels::KvLayout KvLayoutOf(const AttentionSpec& attention, const ModelOptions& options);
// The layout of a decoder's cache: that of the layer with the widest keys.
kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options);
// The layout for any model; an encoder has no layers in its DecoderSpec.
kernels::KvLayout KvLayoutOf(const ModelConfig& config, const ModelOptions& options);

}  // namespace sluice
