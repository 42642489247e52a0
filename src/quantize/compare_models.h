// How far one model's predictions and weights are from another's.
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

// Over all predicted positions of a text; a is the reference.
struct PredictionDifference {
  int64_t positions = 0;
  double kl_divergence = 0;      // mean of sum p_a log(p_a / p_b), in nats
  double max_kl_divergence = 0;  // at the worst position
  double top1_agreement = 0;     // share of positions where both predict the same token
  double perplexity_a = 0, perplexity_b = 0;  // of the text
};

// Loads both models (at the same time) and runs `chunks` of token ids through both, each from an
// empty context. kInvalidArgument where their vocabularies differ.
Result<PredictionDifference> ComparePredictions(
    ThreadPool& pool, const ComparedModel& a, const ComparedModel& b,
    const std::vector<std::vector<int32_t>>& chunks, ModelOptions::ActivationRounding activations,
    const std::function<void(int64_t done, int64_t total)>& progress);

// Adds one position: the logits of both and the token that follows in the text. `worst` and the
// sums are kept as sums until they are divided by `positions` at the end.
void AddPosition(std::span<const float> a, std::span<const float> b, int32_t next,
                 PredictionDifference& sums);

// One linear layer's weights in both checkpoints.
struct WeightDifference {
  std::string module;
  double relative_error = 0;  // rms of the difference over the rms of a
};

// All linear layers, in the order of the model.
Result<std::vector<WeightDifference>> CompareWeights(ThreadPool& pool, const ComparedModel& a,
                                                     const ComparedModel& b);

}  // namespace sluice
