// What the lists of encoders' parameters are made of.
#pragma once

#include <string>
#include <vector>

#include "models/encoder/encoder_weights.h"

namespace sluice {

// A linear layer of one module or of several, one below the other.
void AddEncoderLinear(ParameterList& list, const std::vector<ParameterPart>& modules, int64_t cols,
                      LinearWeights& weights, bool has_bias = true);

// A LayerNorm. Without a bias its target stays empty: FillEncoderBiases.
void AddEncoderNorm(ParameterList& list, const std::string& module, int64_t size,
                    LayerNormWeights& weights, bool has_bias = true);

// A small linear layer in F32 that no kernel multiplies.
void AddEncoderDense(ParameterList& list, const std::string& module, int64_t rows, int64_t cols,
                     std::vector<float>& weight, std::vector<float>& bias, bool has_bias = true);

}  // namespace sluice
