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
  kEmbed,     // the hidden states after the final norm
  kClassify,  // scores: a linear layer on those hidden states (classifiers, rerankers)
};

// Returns the task of a checkpoint's architecture: kClassify for "...ForSequenceClassification",
// kEmbed for "...Model" and other encoders, else kGenerate.
ModelTask NativeTask(const ModelConfig& config);

// Sets the head in `config.spec` to the head of the task. For kClassify, the head is the
// checkpoint's layer "score" with num_labels rows; without num_labels, the size of id2label. With
// classifier_from_token in config.json (or --hf-overrides), the head's weights are instead the
// language model head's rows for `classifier_tokens`, the ids of the named tokens. Method
// "no_post_processing" gives one score per token. Method "from_2_way_softmax" (also
// is_original_qwen3_reranker) gives one score, the second token's minus the first token's.
// kUnsupported if the checkpoint has no such head.
Status SetTask(ModelTask task, const std::vector<int32_t>& classifier_tokens, ModelConfig& config);

// Returns the strings in classifier_from_token; empty if it is absent.
Result<std::vector<std::string>> ClassifierTokens(const json::Value& config);

}  // namespace sluice
