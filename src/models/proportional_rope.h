// Reads RoPE settings of models that have a block per kind of layer in rope_parameters, of type
// default or proportional.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json_fields.h"
#include "base/result.h"

namespace sluice {

// Returns the angular frequencies [head_dim / 2] for the layers that layer_types calls `kind`. With
// type proportional, only the first part of a head is rotated, a fraction of
// `partial_rotary_factor`; the other frequencies are 0. The defaults apply if there are no
// rope_parameters.
Result<std::vector<float>> ReadRopeOfKind(const JsonFields& fields, const char* kind,
                                          int64_t head_dim, double default_theta,
                                          double default_part);

}  // namespace sluice
