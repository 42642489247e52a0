// Rope of models that give each kind of their layers a block in rope_parameters, of type default or
// proportional.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json_fields.h"
#include "base/result.h"

namespace sluice {

// Angular frequencies [head_dim / 2] of the layers that layer_types calls `kind`. Of type
// proportional those of the first `partial_rotary_factor` of a head; the others are 0, so that
// nothing is rotated there. The defaults are what counts without rope_parameters.
Result<std::vector<float>> ReadRopeOfKind(const JsonFields& fields, const char* kind,
                                          int64_t head_dim, double default_theta,
                                          double default_part);

}  // namespace sluice
