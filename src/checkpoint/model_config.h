// What config.json and generation_config.json say of a model, read strictly.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/layer_config.h"
#include "tensor/element_type.h"

namespace sluice {

class QuantizationScheme;

// The "llama3" scaling of rotary frequencies, as named in config.json.
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

// The numbers that define a decoder. Field names are those of config.json; absent fields have the
// defaults that transformers gives them for the architecture.
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
  double rms_norm_eps = 1e-6;
  double rope_theta = 0;
  std::optional<RopeScaling> rope_scaling;
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::vector<LayerAttention> layer_attention;          // [num_hidden_layers]
  std::optional<ExpertsConfig> experts;                 // nullopt: every layer has an MLP
  std::optional<TemperatureTuning> temperature_tuning;  // Llama 4, of layers without rope
  bool use_qk_norm = false;                             // Llama 4, of layers with rope
  ElementType dtype = ElementType::kBF16;  // of the published weights: F32, F16 or BF16
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  json::Value raw;  // the whole of config.json
  // How the weights are stored; never null.
  std::shared_ptr<const QuantizationScheme> scheme;
};

// Sampling defaults that the model's authors published; a request's own values win.
struct GenerationConfig {
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_new_tokens;
};

// Reads `folder`/config.json and what stands beside it on a quantization. An architecture,
// activation, rope type or quantization that this program does not implement, or a missing
// dimension, is refused by name. Keys that do not change what the model computes are passed over.
Result<ModelConfig> LoadModelConfig(const std::filesystem::path& folder);
Result<ModelConfig> ParseModelConfig(const json::Value& config);
// The dimensions alone, with the scheme of plain weights: a checkpoint whose quantization is not
// supported is described like any other.
Result<ModelConfig> ParseModelShape(const json::Value& config);
// Reads a JSON file of the folder that must hold an object. kNotFound if it does not exist.
Result<json::Value> ReadJsonObject(const std::filesystem::path& path);

// The architectures whose config.json is understood, sorted.
std::vector<std::string> KnownArchitectures();

// Reads `folder`/generation_config.json; an absent file gives the defaults.
Result<GenerationConfig> LoadGenerationConfig(const std::filesystem::path& folder);
Result<GenerationConfig> ParseGenerationConfig(const json::Value& config);

}  // namespace sluice
