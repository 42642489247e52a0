// Computes scores from an encoder's hidden states, on the CPU even if the layers run on a device.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "models/encoder/encoder_weights.h"
#include "models/model.h"

namespace sluice {

// Returns the number of scores per text; 0 if the model does not classify.
int64_t NumScores(const ModelConfig& config);

// Replaces row i of x [rows of the step, width] by the mean over the rows of one text: the text
// with the i-th row in logit_rows. Each text has exactly one row there. Sums in F64.
void TakeTextMeans(ThreadPool& pool, const StepInput& input, int64_t width, float* x);

// Computes scores [rows, num_scores] from x [rows, hidden], in F64. `scratch`: [rows, hidden].
void ScoreTexts(ThreadPool& pool, const ClassifierWeights& weights, float norm_eps, const float* x,
                int64_t rows, int64_t hidden, float* scratch, float* scores);

}  // namespace sluice
