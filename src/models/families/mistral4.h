// Mistral 4, which is also the text part of a model for text and images.
#pragma once

#include "models/registry.h"

namespace sluice {

Status ReadMistral4(const JsonFields& fields, ModelConfig& config);

// Reads llama_4_scaling_beta into the layers: q is multiplied by a factor that grows with its
// position beyond original_max_position_embeddings. Source: transformers' get_llama_4_attn_scale.
Status ReadTemperature(const JsonFields& fields, ModelConfig& config);

// Source: transformers' Mistral4Config.
inline constexpr ConfigDefaults kMistral4Defaults = {
    .vocab_size = 131072,
    .hidden_size = 4096,
    .intermediate_size = 12288,
    .num_hidden_layers = 36,
    .num_attention_heads = 32,
    .kv_heads = 32,
    .max_position_embeddings = 1048576,
    .rope_parameters =
        R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 128.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 8192, "llama_4_scaling_beta": 0.1})",
    .bos_token_id = 1,
    .eos_token_id = 2,
    .rope_head_dim = 64};

}  // namespace sluice
