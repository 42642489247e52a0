// Ropes of models whose layers with a window turn otherwise than those that see everything.
#pragma once

#include <vector>

#include "base/json_fields.h"
#include "models/model_config.h"

namespace sluice {

// What counts where rope_parameters has no block for a kind of layers.
struct KindRope {
  double theta = 10000;
  double part = 1;  // of a head that is rotated
};
struct KindRopes {
  KindRope full = {}, sliding = {};
  // Whether a block may be null: such layers have no position embedding.
  bool may_be_null = false;
};

// Reads rope_parameters, with a block for each kind of layer; config.rope and the first of
// DecoderSpec::rope_tables are those of layers that see everything, the second those of layers with
// a window, which `slides` tells. Sets their rotary_dim, too. Scalings are read of the former
// alone. REQUIRES: config.head_dim is that of all layers.
Status ReadKindRopes(const JsonFields& fields, const KindRopes& defaults,
                     const std::vector<bool>& slides, ModelConfig& config);

}  // namespace sluice
