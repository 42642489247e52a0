// Models in Mistral's own format: params.json, consolidated*.safetensors and tekken.json, instead
// of Hugging Face's config.json, model*.safetensors and tokenizer.json.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

inline constexpr std::string_view kMistralParams = "params.json";
// Prefix of the names of weight files: consolidated.safetensors, its index, and its shards.
inline constexpr std::string_view kMistralWeights = "consolidated";

// Returns whether a folder is read in this format: it has params.json but lacks files that Hugging
// Face's format needs. Many repositories have both formats; in that case Mistral's format is
// ignored.
bool IsMistralFormat(const std::filesystem::path& folder);

// Returns the configuration of the same decoder with the keys of config.json: MistralForCausalLM,
// Ministral3ForCausalLM, MixtralForCausalLM or, for latent attention, Mistral4ForCausalLM. The
// weights of q and k are not permuted as in Hugging Face's format, so rope_interleave is true.
// kUnsupported names a key for an unsupported feature (an audio tower, Mamba). An image tower is
// omitted.
Result<json::Value> ConfigOfMistralParams(const json::Value& params);

// Returns the canonical name (checkpoint.h) of a tensor in this format; for
// "layers.0.attention.wq.weight" it is "model.layers.0.self_attn.q_proj.weight". Unknown names stay
// as they are.
std::string NameOfMistralTensor(std::string_view name);

// Returns the canonical name of a tensor in `file`, whose name identifies the format.
std::string CanonicalNameIn(const std::filesystem::path& file, std::string_view name);

// Returns a model's configuration with the keys of config.json, read from config.json or from
// params.json. kNotFound, with a message about config.json, if neither file exists.
Result<json::Value> ReadModelConfig(const std::filesystem::path& folder);

}  // namespace sluice
