// The layouts that `sluice quantize` writes; src/checkpoint/schemes reads them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/activation_format.h"
#include "tensor/data_format.h"
#include "tensor/encode_rows.h"

namespace sluice {

// How to write a layout, with the same rounding as the tool that defined it.
struct QuantizeTarget {
  std::string_view name;  // for example "modelopt-fp8"
  DataFormat format;      // format.scale_type is the type of the written scales
  ActivationFormat activations;
  std::string_view data = "weight";
  std::string_view scale = "weight_scale";
  std::string_view second_scale = "";
  std::string_view input_scale = "";  // "": no input scale is stored
  bool rounds_quotient = false;       // as in Encoding
  bool keeps_negative_zero = true;
  int scalar_rank = 0;         // shape of scalars: 0 for [], 1 for [1]
  bool fuses_experts = false;  // whether fused expert tensors stay fused

  Encoding encoding() const { return {format, rounds_quotient, keeps_negative_zero}; }
  bool needs_calibration() const { return !input_scale.empty(); }
};

std::span<const QuantizeTarget> QuantizeTargets();
// Returns null for an unknown name.
const QuantizeTarget* FindQuantizeTarget(std::string_view name);
// Returns "modelopt-fp8|modelopt-nvfp4|...".
std::string QuantizeTargetNames();

// The configuration for a target. `excluded`: full names of the modules that were not quantized.
// The sidecar is null if the target's tool writes none.
struct QuantizeConfig {
  json::Value config_block;  // quantization_config
  json::Value sidecar;       // hf_quant_config.json
};
QuantizeConfig WriteQuantizeConfig(const QuantizeTarget& target, bool fp8_kv_cache,
                                   const std::vector<std::string>& excluded);

// The suffixes after "model.layers.0.self_attn" that the target's tool uses for KV scales.
struct KvScaleNames {
  std::string_view key, value;
  ElementType type = ElementType::kF32;
  bool merged = false;  // whether both scales are set to the larger one
};
KvScaleNames KvScaleNamesOf(const QuantizeTarget& target);

}  // namespace sluice
