// Helpers for readers of towers (ReadTowerSpec): fields of vision_config, and names.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_fields.h"
#include "base/result.h"
#include "models/family_fields.h"
#include "models/tower/tower_spec.h"

namespace sluice {

using ProjectorKind = ProjectorStep::Kind;

// Defaults for a family's vision_config, as in transformers' configuration class.
struct TowerDefaults {
  int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, patch = 0;
  const char* hidden_field = "hidden_size";
  const char* layers_field = "num_hidden_layers";
  const char* heads_field = "num_attention_heads";
  const char* intermediate_field = "intermediate_size";
  const char* out_field = "out_hidden_size";
  const char* activation_field = "hidden_act";
  const char* activation = "gelu_pytorch_tanh";
  double theta = 10000;
  double mlp_ratio = 0;  // if not 0, intermediate_size is hidden * mlp_ratio
};

// A vision_config, the config that encloses it, and the values read from the enclosing config.
struct TowerFields {
  const JsonFields& vision;
  const JsonFields& outer;
  const ModelConfig& config;
};

// Reads an integer from 1 to `most`; returns `absent` if the field is absent.
Result<int64_t> ReadOr(const JsonFields& fields, const char* name, int64_t most, int64_t absent);
// Like ReadOr, but also accepts a pair of equal numbers.
Result<int64_t> ReadSideOr(const JsonFields& fields, const char* name, int64_t most,
                           int64_t absent);
Result<TowerActivation> ReadTowerActivation(const JsonFields& fields, const char* name,
                                            const char* absent);
Result<double> ReadTowerTheta(const JsonFields& fields, double absent);
// Reads the dimensions, and sets the names that most towers have.
Result<TowerSpec> ReadTowerDimensions(const TowerFields& fields, const TowerDefaults& defaults);
// Returns kUnsupported if the field is present with a value other than `only`.
Status ExpectField(const JsonFields& fields, const char* name, const json::Value& only);

void SetPatch(TowerSpec& spec, std::string module, bool has_bias, bool is_linear = false);
// Sets RoPE frequencies theta^(-2i / half), where half = head_dim / 2. The first set is for rows
// (`first` = 0) or columns (1). The second set, for the other axis, has the same frequencies.
Status SetAxialRope(const TowerFields& fields, double theta, int8_t first, TowerSpec& spec);
// Sets the module names of SigLIP and of towers derived from it.
void SetSiglipLayers(const std::string& prefix, TowerSpec& spec);
// Reads Pixtral's layers and RoPE, without a projector.
Result<TowerSpec> ReadPixtralLayers(const TowerFields& fields);
// Reads the patches, RoPE and names that Qwen's towers share with towers derived from them.
Result<TowerSpec> ReadQwenTower(const TowerFields& fields, const TowerDefaults& defaults,
                                bool patch_bias);

// --- Readers that ReadTowerSpec calls, by architecture
Result<TowerSpec> ReadLlavaTower(const TowerFields& fields);
Result<TowerSpec> ReadLlavaNextTower(const TowerFields& fields);
Result<TowerSpec> ReadAyaTower(const TowerFields& fields);
Result<TowerSpec> ReadInternVlTower(const TowerFields& fields);
Result<TowerSpec> ReadIdefics3Tower(const TowerFields& fields);
Result<TowerSpec> ReadLfm2VlTower(const TowerFields& fields);
Result<TowerSpec> ReadKimiTower(const TowerFields& fields);
Result<TowerSpec> ReadGlmOcrTower(const TowerFields& fields);
Result<TowerSpec> ReadGlm4vTower(const TowerFields& fields);

}  // namespace sluice
