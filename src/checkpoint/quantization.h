// Finds the quantization settings in a model's configuration files. The classes in
// checkpoint/schemes parse them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// A JSON object of settings, and where it was found ("config.json quantization_config").
struct QuantizationSettings {
  json::Value block;
  std::string where;
};

// Returns the quantization_config or compression_config of a config.json or of its text_config;
// nullopt if there is none.
Result<std::optional<QuantizationSettings>> FindQuantizationBlock(const json::Value& config);

// Returns the settings in a file next to config.json: hf_quant_config.json, quantize_config.json or
// quant_config.json; nullopt if there is none.
Result<std::optional<QuantizationSettings>> FindQuantizationSidecar(
    const std::filesystem::path& folder);

// Returns a readable summary of the settings, such as "modelopt NVFP4 (hf_quant_config.json)"; ""
// if there are none. Also describes unsupported schemes.
Result<std::string> DescribeQuantization(const std::filesystem::path& folder,
                                         const json::Value& config);

}  // namespace sluice
