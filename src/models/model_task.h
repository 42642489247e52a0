// What a model is used for: to generate, or to give one vector for each prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

enum class ModelTask {
  kGenerate,
  kEmbed,     // the hidden state after the final norm
  kClassify,  // the scores of a linear layer over it: classifiers, cross-encoders, rerankers
};

// The task that a checkpoint's architecture is made for: kClassify for
// "...ForSequenceClassification", kEmbed for "...Model" and other encoders, else kGenerate.
ModelTask NativeTask(const ModelConfig& config);

// Gives `config.spec` the head of the task. For kClassify it is the checkpoint's layer "score" of
// num_labels (else id2label) rows; with classifier_from_token in config.json (or --hf-overrides) it
// is made of the rows of the language model's head that belong to `classifier_tokens`, the ids of
// those tokens: of method "no_post_processing" a score each, of "from_2_way_softmax" (and with
// is_original_qwen3_reranker) one, the second less the first. kUnsupported where the checkpoint has
// no such head.
Status SetTask(ModelTask task, const std::vector<int32_t>& classifier_tokens, ModelConfig& config);

// The texts of classifier_from_token; empty where it is not given.
Result<std::vector<std::string>> ClassifierTokens(const json::Value& config);

}  // namespace sluice
