// The layouts that `sluice quantize` writes: the counterpart of src/checkpoint/schemes.
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

// How a layout is written, with the rounding of the tool that defined it.
struct QuantizeTarget {
  std::string_view name;  // "modelopt-fp8"
  DataFormat format;      // scale_type: as it is written
  ActivationFormat activations;
  std::string_view data = "weight";
  std::string_view scale = "weight_scale";
  std::string_view second_scale = "";
  std::string_view input_scale = "";  // "": the inputs have no stored scale
  bool rounds_quotient = false;       // Encoding
  bool keeps_negative_zero = true;
  int scalar_rank = 0;         // single numbers have shape [] or [1]
  bool fuses_experts = false;  // experts that stand in one tensor stay in one

  Encoding encoding() const { return {format, rounds_quotient, keeps_negative_zero}; }
  bool needs_calibration() const { return !input_scale.empty(); }
};

std::span<const QuantizeTarget> QuantizeTargets();
// Null for an unknown name.
const QuantizeTarget* FindQuantizeTarget(std::string_view name);
// "modelopt-fp8|modelopt-nvfp4|...".
std::string QuantizeTargetNames();

// What stands in the configuration for this target. `excluded`: modules that stayed plain, by full
// name. The sidecar is null where the tool writes none.
struct QuantizeConfig {
  json::Value config_block;  // quantization_config
  json::Value sidecar;       // hf_quant_config.json
};
QuantizeConfig WriteQuantizeConfig(const QuantizeTarget& target, bool fp8_kv_cache,
                                   const std::vector<std::string>& excluded);

// The tensors of keys' and values' scales as the target's tool names them, after
// "model.layers.0.self_attn".
struct KvScaleNames {
  std::string_view key, value;
  ElementType type = ElementType::kF32;
  bool merged = false;  // both are the larger of the two
};
KvScaleNames KvScaleNamesOf(const QuantizeTarget& target);

}  // namespace sluice
