// Reads the files of sentence-transformers next to a checkpoint. They specify how the hidden states
// of a text become its embedding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// The hidden state or states from which a prompt's vector is computed.
enum class PoolingMethod {
  kLast,  // the hidden state of the last token
  kCls,   // the hidden state of the first token
  kMean,  // the mean over the hidden states of all tokens
};

// Parses "last", "cls" or "mean" in any case. kUnsupported lists the supported names. `field`: the
// name of the setting.
Result<PoolingMethod> PoolingMethodNamed(std::string_view name, std::string_view field);

enum class DenseActivation { kIdentity, kTanh, kRelu, kGelu, kSigmoid, kSilu };

// A layer after the pooling: activation(W x + b).
struct DenseModule {
  // Subfolder of the model, for example "2_Dense", with its config.json and model.safetensors.
  std::string folder;
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = true;
  DenseActivation activation = DenseActivation::kTanh;
};

struct SentenceTransformersConfig {
  PoolingMethod method = PoolingMethod::kMean;
  std::vector<DenseModule> dense;  // layers that are applied to the pooled vector, in this order
  bool normalize = false;          // whether to divide the result of the last layer by its norm
  // Longer texts are truncated. From max_seq_length in sentence_bert_config.json, else
  // model_max_length in tokenizer_config.json.
  std::optional<int64_t> max_tokens;
  bool lower_case = false;                     // whether texts are converted to lower case
  std::map<std::string, std::string> prompts;  // keyed by a text's purpose: "query", "document"
  std::string prompt;  // prefix of every text: the prompt that default_prompt_name names
};

// Reads modules.json in `folder` and the files that it names; nullopt if it does not exist.
// kUnsupported names an unknown module or pooling method.
Result<std::optional<SentenceTransformersConfig>> LoadSentenceTransformersConfig(
    const std::filesystem::path& folder);

}  // namespace sluice
