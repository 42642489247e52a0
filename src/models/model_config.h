// A model's config.json, read strictly.
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

// The fields that all families have, and what the family's own fields make of the decoder. Names
// are those of config.json; absent fields have the defaults that transformers gives them for the
// architecture.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", "Llama4ForConditionalGeneration"
  std::string model_type;    // "llama", "llama4"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of the MLP of layers without experts
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // the first elements of a head, which rope rotates
  Activation activation = Activation::kSilu;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  int64_t max_position_embeddings = 0;  // with what the scaling of rope adds
  bool tie_word_embeddings = false;
  // text_config says otherwise than what is around it: LoadModelConfig looks for a head.
  bool tie_is_contradicted = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  DecoderSpec spec;                        // what is computed, layer by layer
  ElementType dtype = ElementType::kBF16;  // of the published weights: F32, F16 or BF16
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  json::Value raw;  // the whole of config.json
  // How the weights are stored; never null.
  std::shared_ptr<const QuantizationScheme> scheme;
};

// Reads `folder`/config.json and the quantization files beside it. An architecture,
// activation, rope type or quantization that this program does not implement, or a missing
// dimension, is refused by name. Keys that do not change what the model computes are passed over.
// `overrides`: see OverrideConfig(); null for none. `quantization`: see QuantizeAtLoad().
Result<ModelConfig> LoadModelConfig(const std::filesystem::path& folder,
                                    const json::Value& overrides = {},
                                    const LoadQuantization& quantization = {});
Result<ModelConfig> ParseModelConfig(const json::Value& config);
// The dimensions alone, with the scheme of plain weights: a checkpoint whose quantization is not
// supported is described like any other.
Result<ModelConfig> ParseModelShape(const json::Value& config);

// Where max_position_embeddings comes from, for messages: "max_position_embeddings (2048) in the
// model's config.json", "yarn factor 4 x original_max_position_embeddings 128 (512) ...".
std::string PositionsText(const ModelConfig& config);

// The decoder that the common fields describe: the start of every family's description. It has no
// chunks, windows, experts or QK norm.
DecoderSpec DescribePlainDecoder(const ModelConfig& config);

}  // namespace sluice
