// The files that sentence-transformers keeps beside a checkpoint: how the hidden states of a text
// become its embedding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// Which hidden states make the vector of a prompt.
enum class PoolingMethod {
  kLast,  // that of the last token
  kCls,   // that of the first token
  kMean,  // the mean of all
};

// "last", "cls" or "mean" in any case. kUnsupported names what else pooling could be; `field` is
// where it stands.
Result<PoolingMethod> PoolingMethodNamed(std::string_view name, std::string_view field);

enum class DenseActivation { kIdentity, kTanh, kRelu, kGelu, kSigmoid, kSilu };

// A layer after the pooling: activation(W x + b).
struct DenseModule {
  std::string folder;  // of its config.json and model.safetensors, in the model's: "2_Dense"
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = true;
  DenseActivation activation = DenseActivation::kTanh;
};

struct SentenceTransformersConfig {
  PoolingMethod method = PoolingMethod::kMean;
  std::vector<DenseModule> dense;  // from the pooled vector on, each takes what the last one gives
  bool normalize = false;          // the embedding, after all layers, is divided by its norm
  // Longer texts are cut: max_seq_length of sentence_bert_config.json, else model_max_length of
  // tokenizer_config.json.
  std::optional<int64_t> max_tokens;
  bool lower_case = false;                     // texts are put into lower case
  std::map<std::string, std::string> prompts;  // by the purpose of a text: "query", "document"
  std::string prompt;  // put in front of every text: that of default_prompt_name
};

// Reads modules.json of `folder` and the files that it names; nullopt where there is none.
// kUnsupported names a module or a way of pooling that this program does not have.
Result<std::optional<SentenceTransformersConfig>> LoadSentenceTransformersConfig(
    const std::filesystem::path& folder);

}  // namespace sluice
