// Computes scores from hidden states, for the head HeadSpec::Kind::kScores.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "models/decoder_spec.h"

namespace sluice {

// Computes the score head's weights [num_scores, hidden] from the rows of HeadSpec::tokens in the
// language model's output head. kInvalidData if the checkpoint lacks these rows.
Status ReadTokenScores(const Checkpoint& checkpoint, const DecoderSpec& spec,
                       std::vector<float>& scores);

// Computes scores[m, n] = weights[n, :] . x[m, :], summed in F64. x: [rows, width], scores: [rows,
// num_scores].
void ScoreRows(ThreadPool& pool, const std::vector<float>& weights, int64_t width,
               int64_t num_scores, const float* x, int64_t rows, float* scores);

}  // namespace sluice
