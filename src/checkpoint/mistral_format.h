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
// Prefixes of the names of weights: consolidated.safetensors, its index, and shards.
inline constexpr std::string_view kMistralWeights = "consolidated";

// Returns whether a folder is read in this format: it has params.json but lacks files that Hugging
// Face's format needs. Many repositories have both formats; then this one is ignored.
bool IsMistralFormat(const std::filesystem::path& folder);

// The configuration of the same decoder in the keys of config.json: MistralForCausalLM,
// Ministral3ForCausalLM, MixtralForCausalLM, or Mistral4ForCausalLM for latent attention. The
// weights of q and k are not permuted as Hugging Face's are, so rope_interleave is true. A key that
// describes something else (an audio tower, Mamba) is kUnsupported, and the error names it; an
// image tower is left out.
Result<json::Value> ConfigOfMistralParams(const json::Value& params);

// The canonical name (checkpoint.h) of a tensor of this format; "layers.0.attention.wq.weight" is
// "model.layers.0.self_attn.q_proj.weight". Unknown names stay as they are.
std::string NameOfMistralTensor(std::string_view name);

// Returns the canonical name of a tensor in `file`, whose name identifies the format.
std::string CanonicalNameIn(const std::filesystem::path& file, std::string_view name);

// Returns a model's configuration with the keys of config.json. It is read from that file or from
// params.json. kNotFound, with a message about config.json, if there is neither.
Result<json::Value> ReadModelConfig(const std::filesystem::path& folder);

}  // namespace sluice
