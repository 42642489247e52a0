// What makes scores of an encoder's hidden states, on the CPU wherever the layers are computed.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "models/encoder/encoder_weights.h"
#include "models/model.h"

namespace sluice {

// How many scores a text has; 0 where nothing is classified.
int64_t NumScores(const ModelConfig& config);

// Row i of x [rows of the step, width] becomes the mean of the text of the i-th wanted row; a text
// has one. In F64.
void TakeTextMeans(ThreadPool& pool, const StepInput& input, int64_t width, float* x);

// The scores [rows, num_scores] of x [rows, hidden], in F64. `scratch`: [rows, hidden].
void ScoreTexts(ThreadPool& pool, const ClassifierWeights& weights, float norm_eps, const float* x,
                int64_t rows, int64_t hidden, float* scratch, float* scores);

}  // namespace sluice
