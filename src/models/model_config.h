// Reads a model's config.json, strictly.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/rope_config.h"
#include "checkpoint/scheme.h"
#include "models/decoder_spec.h"
#include "tensor/element_type.h"

namespace sluice {

// The fields common to all families, and the decoder that the family's own fields describe. Names
// are those of config.json; absent fields have transformers' defaults for the architecture.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", "Llama4ForConditionalGeneration"
  std::string model_type;    // "llama", "llama4"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // width of the MLP in layers without experts
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // number of leading elements of a head that RoPE rotates
  Activation activation = Activation::kSilu;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  // Maximum number of positions, including the extension by RoPE scaling.
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  // Whether text_config and the enclosing config disagree on tied embeddings; LoadModelConfig then
  // searches the files for a head.
  bool tie_is_contradicted = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  DecoderSpec spec;                        // the computation, layer by layer
  ElementType dtype = ElementType::kBF16;  // type of the published weights: F32, F16 or BF16
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  json::Value raw;  // the whole config.json
  // The storage format of the weights; never null.
  std::shared_ptr<const QuantizationScheme> scheme;
};

// Reads `folder`/config.json and its quantization files. An architecture, activation, RoPE type or
// quantization that this program does not implement, or a missing dimension, is refused by name.
// Keys that do not affect the computation are ignored. `overrides`: see OverrideConfig(); null for
// none. `quantization`: see QuantizeAtLoad().
Result<ModelConfig> LoadModelConfig(const std::filesystem::path& folder,
                                    const json::Value& overrides = {},
                                    const LoadQuantization& quantization = {});
Result<ModelConfig> ParseModelConfig(const json::Value& config);
// Reads only the dimensions, with the scheme of unquantized weights, so that checkpoints with
// unsupported quantization can be described.
Result<ModelConfig> ParseModelShape(const json::Value& config);

// Describes the origin of max_position_embeddings, for messages: "max_position_embeddings (2048) in
// the model's config.json", "yarn factor 4 x original_max_position_embeddings 128 (512) ...".
std::string PositionsText(const ModelConfig& config);

// Returns the decoder spec that the common fields describe. Every family's reader starts from this
// spec. It has no chunks, windows, experts or QK norm.
DecoderSpec DescribePlainDecoder(const ModelConfig& config);

}  // namespace sluice
