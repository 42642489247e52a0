// Reads RoPE settings of models in which layers with a window have other settings than layers that
// attend to all positions.
#pragma once

#include <vector>

#include "base/json_fields.h"
#include "models/model_config.h"

namespace sluice {

// Defaults for a kind of layer that has no block in rope_parameters.
struct KindRope {
  double theta = 10000;
  double part = 1;  // fraction of a head that is rotated
};
struct KindRopes {
  KindRope full = {}, sliding = {};
  // Whether a block may be null, which means that such layers have no position embedding.
  bool may_be_null = false;
};

// Reads rope_parameters, which has a block for each kind of layer. config.rope and the first of
// DecoderSpec::rope_tables are for layers that attend to all positions; the second table is for
// layers with a window (where `slides` is true). Also sets the layers' rotary_dim. Only the first
// table may be scaled. REQUIRES: all layers have config.head_dim.
Status ReadKindRopes(const JsonFields& fields, const KindRopes& defaults,
                     const std::vector<bool>& slides, ModelConfig& config);

}  // namespace sluice
