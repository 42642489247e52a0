// Settings with which a pooling model turns a prompt into a vector.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/sentence_transformers.h"
#include "models/model_task.h"

namespace sluice {

// Applied to a pooled vector before it is returned, unless the request turns it off.
enum class PoolingActivation { kNone, kNormalize, kSigmoid, kSoftmax };

struct PoolingConfig {
  ModelTask task = ModelTask::kEmbed;  // or kClassify
  PoolingMethod method = PoolingMethod::kLast;
  std::vector<DenseModule> dense;  // layers between pooling and activation
  PoolingActivation activation = PoolingActivation::kNormalize;
  std::optional<int64_t> max_tokens;  // limit from the sentence-transformers files
  // Whether texts that are too long are truncated instead of rejected; a request may override it.
  // Set if the folder has sentence-transformers files, because that library truncates.
  bool truncates = false;
  bool lower_case = false;
  std::string prompt;                          // prepended to every text
  std::map<std::string, std::string> prompts;  // keyed by the purpose of a text
  // Whether embeddings may be shortened: to a length in `dimensions`, or to any length if
  // `dimensions` is empty.
  bool is_matryoshka = false;
  std::vector<int64_t> dimensions;
  std::vector<std::string> labels;  // names of the classes; may be empty
  // Whether the tokenizer's special tokens are inserted between two texts to compare.
  bool separates_texts = false;
  int64_t num_token_types = 1;  // token types that the model distinguishes; 0: it has none
};

enum class RunnerChoice { kAuto, kGenerate, kPooling };
enum class ConvertChoice { kAuto, kNone, kEmbed, kClassify };

// The pooling options as the user gave them.
struct PoolingOptions {
  RunnerChoice runner = RunnerChoice::kAuto;
  ConvertChoice convert = ConvertChoice::kAuto;
  json::Value pooler;                      // --pooler-config; null: not given
  std::vector<int32_t> classifier_tokens;  // see SetTask

  bool operator==(const PoolingOptions&) const = default;
};

// Returns the pooling of the model in `folder`; nullopt if it generates text. Also sets the task's
// head in `model`. By default, a model pools if it has no language-model head, if it has
// sentence-transformers files, or if `convert` names a pooling task. kInvalidArgument if options
// contradict each other; kUnsupported names a pooler setting that is not implemented.
Result<std::optional<PoolingConfig>> ResolvePooling(const PoolingOptions& options,
                                                    const std::filesystem::path& folder,
                                                    ModelConfig& model);

}  // namespace sluice
