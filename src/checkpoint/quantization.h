// Finds out whether and how a checkpoint is quantized, from its configuration files alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// What the configuration says of a quantization. Empty strings where it says nothing.
struct QuantizationInfo {
  std::string source;     // "config.json quantization_config", "hf_quant_config.json", ...
  std::string method;     // "modelopt", "quark", "fp8", "compressed-tensors", ...
  std::string algorithm;  // "FP8", "NVFP4", "float-quantized", ... in the words of the method
  std::string kv_cache;   // "FP8", ... where the KV cache has a format of its own

  // "modelopt NVFP4 (hf_quant_config.json)".
  std::string Text() const;
};

// The quantization_config or compression_config inside a config.json; nullopt for a plain
// checkpoint.
Result<std::optional<QuantizationInfo>> FindQuantization(const json::Value& config);

// The same, or else what the files beside config.json say (hf_quant_config.json,
// quantize_config.json, quant_config.json).
Result<std::optional<QuantizationInfo>> FindQuantization(const std::filesystem::path& folder,
                                                         const json::Value& config);

}  // namespace sluice
