// Finds what a model's configuration files say of a quantization; the schemes read it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// A block of settings and where it stands ("config.json quantization_config").
struct QuantizationSettings {
  json::Value block;
  std::string where;
};

// The quantization_config or compression_config inside a config.json, also inside its text_config;
// nullopt for none.
Result<std::optional<QuantizationSettings>> FindQuantizationBlock(const json::Value& config);

// The file beside config.json: hf_quant_config.json, quantize_config.json or quant_config.json;
// nullopt for none.
Result<std::optional<QuantizationSettings>> FindQuantizationSidecar(
    const std::filesystem::path& folder);

// What the files say in their own words, for people: "modelopt NVFP4 (hf_quant_config.json)"; ""
// where they say nothing. Describes schemes that cannot be loaded too.
Result<std::string> DescribeQuantization(const std::filesystem::path& folder,
                                         const json::Value& config);

}  // namespace sluice
