// Compares the predictions and weights of two models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/scheme.h"
#include "models/model.h"

namespace sluice {

struct ComparedModel {
  std::filesystem::path folder;
  LoadQuantization quantization = {};
};

// Statistics over all predicted positions of a text. `a` is the reference.
struct PredictionDifference {
  int64_t positions = 0;
  double kl_divergence = 0;      // mean over positions of sum p_a log(p_a / p_b), in nats
  double max_kl_divergence = 0;  // the largest value of this sum at any position
  double top1_agreement = 0;     // fraction of positions with the same most likely token
  double perplexity_a = 0, perplexity_b = 0;  // perplexity of each model on the text
};

// Loads both models at the same time and runs `chunks` of token ids through both, each with an
// empty context. kInvalidArgument if their vocabularies differ.
Result<PredictionDifference> ComparePredictions(
    ThreadPool& pool, const ComparedModel& a, const ComparedModel& b,
    const std::vector<std::vector<int32_t>>& chunks, ModelOptions::ActivationRounding activations,
    const std::function<void(int64_t done, int64_t total)>& progress);

// Adds a position: the logits of both models, and the text's next token. The members of `sums` are
// sums until the caller divides them by `positions` at the end.
void AddPosition(std::span<const float> a, std::span<const float> b, int32_t next,
                 PredictionDifference& sums);

// How the weights of a linear layer differ between two checkpoints.
struct WeightDifference {
  std::string module;
  double relative_error = 0;  // RMS of the difference divided by the RMS of a
};

// Compares all linear layers. Returns them in model order.
Result<std::vector<WeightDifference>> CompareWeights(ThreadPool& pool, const ComparedModel& a,
                                                     const ComparedModel& b);

}  // namespace sluice
