// Finds the quantization settings in a model's configuration files; the schemes parse them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// A block of settings and its location ("config.json quantization_config").
struct QuantizationSettings {
  json::Value block;
  std::string where;
};

// The quantization_config or compression_config of a config.json or of its text_config; nullopt if
// there is none.
Result<std::optional<QuantizationSettings>> FindQuantizationBlock(const json::Value& config);

// Settings from a file beside config.json: hf_quant_config.json, quantize_config.json or
// quant_config.json; nullopt if there is none.
Result<std::optional<QuantizationSettings>> FindQuantizationSidecar(
    const std::filesystem::path& folder);

// Human-readable summary of the settings: "modelopt NVFP4 (hf_quant_config.json)"; "" if there are
// none. Also describes unsupported schemes.
Result<std::string> DescribeQuantization(const std::filesystem::path& folder,
                                         const json::Value& config);

}  // namespace sluice
