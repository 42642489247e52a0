// The files that sentence-transformers keeps beside a checkpoint: how the hidden states of a text
// become its embedding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

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

struct SentenceTransformersConfig {
  PoolingMethod method = PoolingMethod::kMean;
  bool normalize = false;  // the embedding is divided by its norm
  // Of sentence_bert_config.json: longer texts are too long; texts are put into lower case.
  std::optional<int64_t> max_tokens;
  bool lower_case = false;
  std::map<std::string, std::string> prompts;  // by the purpose of a text: "query", "document"
  std::string prompt;  // put in front of every text: that of default_prompt_name
};

// Reads modules.json of `folder` and the files that it names; nullopt where there is none.
// kUnsupported names a module or a way of pooling that this program does not have.
Result<std::optional<SentenceTransformersConfig>> LoadSentenceTransformersConfig(
    const std::filesystem::path& folder);

}  // namespace sluice
