// The use of a model: generating text, or computing one vector per prompt.
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
  kClassify,  // scores that a linear layer computes from it: classifiers, cross-encoders, rerankers
};

// Returns the task of a checkpoint's architecture: kClassify for "...ForSequenceClassification",
// kEmbed for "...Model" and other encoders, else kGenerate.
ModelTask NativeTask(const ModelConfig& config);

// Sets the head in `config.spec` to that of the task. For kClassify this is the checkpoint's layer
// "score" with num_labels (else size of id2label) rows. With classifier_from_token in config.json
// (or --hf-overrides), its weights are the rows of the language model's head for
// `classifier_tokens`, the ids of those tokens: method "no_post_processing" gives one score per
// token; "from_2_way_softmax" (and is_original_qwen3_reranker) one score, the second less the
// first. kUnsupported if the checkpoint has no such head.
Status SetTask(ModelTask task, const std::vector<int32_t>& classifier_tokens, ModelConfig& config);

// Returns the strings in classifier_from_token; empty if it is absent.
Result<std::vector<std::string>> ClassifierTokens(const json::Value& config);

}  // namespace sluice
