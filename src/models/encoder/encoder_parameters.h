// Adds groups of an encoder's parameters to a list.
#pragma once

#include <string>
#include <vector>

#include "models/encoder/encoder_weights.h"

namespace sluice {

// Adds a linear layer whose matrix consists of one or several modules, stacked by rows.
void AddEncoderLinear(ParameterList& list, const std::vector<ParameterPart>& modules, int64_t cols,
                      LinearWeights& weights, bool has_bias = true);

// Adds a LayerNorm. Without `has_bias`, its bias stays empty until FillEncoderBiases.
void AddEncoderNorm(ParameterList& list, const std::string& module, int64_t size,
                    LayerNormWeights& weights, bool has_bias = true);

// Adds a small F32 linear layer, which is computed without a matrix kernel.
void AddEncoderDense(ParameterList& list, const std::string& module, int64_t rows, int64_t cols,
                     std::vector<float>& weight, std::vector<float>& bias, bool has_bias = true);

}  // namespace sluice
