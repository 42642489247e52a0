// Linear layers, with their inputs rounded where the checkpoint's scheme and the options ask for
// it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/block_maxima.h"
#include "kernels/matrix.h"
#include "models/layers/step.h"
#include "models/lora_slots.h"
#include "models/weights.h"

namespace sluice {

// y[m, :] = W x[m, :] + bias. x: of Step::InputType, or of the compute type where nothing is
// rounded; F32 rows of a model that computes in BF16 go through the product as two BF16 rows each.
// y: F32, row stride `y_stride`. A row's result depends on that row alone. Where the row's sequence
// has an adapter, what that adds to the layer is added, from `x` as it is, whose first row is row
// `first_row` of the step. Where `maxima` are wanted, as they may be of a step without adapters,
// those of the rows of y.
void RunLinear(const Step& step, const LinearWeights& weights, const kernels::Activations& x,
               float* y, int64_t y_stride, int64_t first_row = 0,
               const kernels::RowMaxima& maxima = {});

// The same with a layer of experts: the rows [row_begin[e], row_begin[e + 1]) of the dense `x` go
// through expert e; `rows` tells which of the step's rows they are. y: dense. `row_begin` is
// changed on the way and restored.
void RunExperts(const Step& step, const ExpertWeights& weights, std::span<int32_t> row_begin,
                const ExpertRows& rows, const kernels::Activations& x, float* y);

}  // namespace sluice
