// Linear layers, with their inputs rounded where the checkpoint's scheme and the options ask for
// it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/matrix.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// y[m, :] = W x[m, :] + bias. x: F32 or BF16; y: F32, row stride `y_stride`. A row's result depends
// on that row alone.
void RunLinear(const Step& step, const LinearWeights& weights, const kernels::Activations& x,
               float* y, int64_t y_stride);

// The same with a layer of experts: the rows [row_begin[e], row_begin[e + 1]) of the dense `x` go
// through expert e. y: dense.
void RunExperts(const Step& step, const ExpertWeights& weights, std::span<const int32_t> row_begin,
                const kernels::Activations& x, float* y);

}  // namespace sluice
