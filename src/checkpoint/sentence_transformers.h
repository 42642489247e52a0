// Reads the files of sentence-transformers beside a checkpoint: how the hidden states of a text
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

// Which hidden states form the vector of a prompt.
enum class PoolingMethod {
  kLast,  // the last token's
  kCls,   // the first token's
  kMean,  // the mean over all tokens
};

// "last", "cls" or "mean" in any case. kUnsupported lists the supported names; `field`: the name of
// the setting.
Result<PoolingMethod> PoolingMethodNamed(std::string_view name, std::string_view field);

enum class DenseActivation { kIdentity, kTanh, kRelu, kGelu, kSigmoid, kSilu };

// A layer after the pooling: activation(W x + b).
struct DenseModule {
  // Holds its config.json and model.safetensors, inside the model's folder: "2_Dense".
  std::string folder;
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = true;
  DenseActivation activation = DenseActivation::kTanh;
};

struct SentenceTransformersConfig {
  PoolingMethod method = PoolingMethod::kMean;
  std::vector<DenseModule> dense;  // applied in order to the pooled vector
  bool normalize = false;          // divide the result of the last layer by its norm
  // Longer texts are truncated. max_seq_length of sentence_bert_config.json, else model_max_length
  // of tokenizer_config.json.
  std::optional<int64_t> max_tokens;
  bool lower_case = false;                     // convert texts to lower case
  std::map<std::string, std::string> prompts;  // by a text's purpose: "query", "document"
  std::string prompt;  // prefix of every text: the prompt default_prompt_name
};

// Reads modules.json of `folder` and the files that it names; nullopt if there is none.
// kUnsupported names an unknown module or pooling method.
Result<std::optional<SentenceTransformersConfig>> LoadSentenceTransformersConfig(
    const std::filesystem::path& folder);

}  // namespace sluice
