// What the readers of towers (ReadTowerSpec) share: fields of vision_config, and names.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_fields.h"
#include "base/result.h"
#include "models/family_fields.h"
#include "models/tower/tower_spec.h"

namespace sluice {

using ProjectorKind = ProjectorStep::Kind;

// What a family's vision_config leaves out, as transformers' class of configurations has it.
struct TowerDefaults {
  int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, patch = 0;
  const char* hidden_field = "hidden_size";
  const char* layers_field = "num_hidden_layers";
  const char* heads_field = "num_attention_heads";
  const char* out_field = "out_hidden_size";
  const char* activation_field = "hidden_act";
  const char* activation = "gelu_pytorch_tanh";
  double theta = 10000;
  double mlp_ratio = 0;  // not 0: hidden * mlp_ratio in place of intermediate_size
};

// A vision_config, and what is around it.
struct TowerFields {
  const JsonFields& vision;
  const JsonFields& outer;
  const ModelConfig& config;
};

// An integer from 1 to `most`.
Result<int64_t> ReadOr(const JsonFields& fields, const char* name, int64_t most, int64_t absent);
// Likewise, of a field that may be a pair of equal numbers, too.
Result<int64_t> ReadSideOr(const JsonFields& fields, const char* name, int64_t most,
                           int64_t absent);
Result<TowerActivation> ReadTowerActivation(const JsonFields& fields, const char* name,
                                            const char* absent);
Result<double> ReadTowerTheta(const JsonFields& fields, double absent);
// The dimensions, and names that most towers have.
Result<TowerSpec> ReadTowerDimensions(const TowerFields& fields, const TowerDefaults& defaults);
// kUnsupported where a field is there and has another value than `only`.
Status ExpectField(const JsonFields& fields, const char* name, const json::Value& only);

void SetPatch(TowerSpec& spec, std::string module, bool has_bias, bool is_linear = false);
// A quarter of a head's numbers has the frequencies of rows (`first` 0) or of columns, another one
// those of the other: theta^(-2i / half) of half a head.
Status SetAxialRope(const TowerFields& fields, double theta, int8_t first, TowerSpec& spec);
// SigLIP's names, and those that were made of it.
void SetSiglipLayers(const std::string& prefix, TowerSpec& spec);
// Pixtral's layers and rope; what is behind them is left.
Result<TowerSpec> ReadPixtralLayers(const TowerFields& fields);
// Patches, rope and names that Qwen's towers and those made of them share.
Result<TowerSpec> ReadQwenTower(const TowerFields& fields, const TowerDefaults& defaults,
                                bool patch_bias);

// --- Readers, of which ReadTowerSpec has a table
Result<TowerSpec> ReadLlavaTower(const TowerFields& fields);
Result<TowerSpec> ReadLlavaNextTower(const TowerFields& fields);
Result<TowerSpec> ReadInternVlTower(const TowerFields& fields);
Result<TowerSpec> ReadIdefics3Tower(const TowerFields& fields);
Result<TowerSpec> ReadLfm2VlTower(const TowerFields& fields);
Result<TowerSpec> ReadGlmOcrTower(const TowerFields& fields);
Result<TowerSpec> ReadGlm4vTower(const TowerFields& fields);

}  // namespace sluice
