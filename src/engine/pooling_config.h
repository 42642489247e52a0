// How the engine of a pooling model makes a vector of each prompt, decided at start.
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

// What becomes of a pooled vector before it is sent, unless a request asks for it as it is.
enum class PoolingActivation { kNone, kNormalize, kSigmoid, kSoftmax };

struct PoolingConfig {
  ModelTask task = ModelTask::kEmbed;  // or kClassify
  PoolingMethod method = PoolingMethod::kLast;
  std::vector<DenseModule> dense;  // layers between the pooled vector and the activation
  PoolingActivation activation = PoolingActivation::kNormalize;
  std::optional<int64_t> max_tokens;  // that the files of sentence-transformers allow
  // Texts that are too long are cut, not refused, unless a request says otherwise: as by
  // sentence-transformers, whose files the folder holds.
  bool truncates = false;
  bool lower_case = false;
  std::string prompt;                          // in front of every text
  std::map<std::string, std::string> prompts;  // by the purpose of a text
  // Embeddings keep their meaning when they are cut short: to these lengths, or to any where none
  // is named.
  bool is_matryoshka = false;
  std::vector<int64_t> dimensions;
  std::vector<std::string> labels;  // of the classes; may be empty
  // Two texts are compared with the special tokens between them that the tokenizer puts there.
  bool separates_texts = false;
  int64_t num_token_types = 1;  // that the model tells apart; 0: it has none
};

enum class RunnerChoice { kAuto, kGenerate, kPooling };
enum class ConvertChoice { kAuto, kNone, kEmbed, kClassify };

// What is asked for.
struct PoolingOptions {
  RunnerChoice runner = RunnerChoice::kAuto;
  ConvertChoice convert = ConvertChoice::kAuto;
  json::Value pooler;                      // --pooler-config; null: none
  std::vector<int32_t> classifier_tokens;  // SetTask

  bool operator==(const PoolingOptions&) const = default;
};

// The pooling of the model in `folder`; nullopt where it generates. Gives `model` the head of the
// task. By default a model pools that has no head to generate with, or files of
// sentence-transformers, or that `convert` names a task for. kInvalidArgument for options that
// contradict each other; kUnsupported names a setting of the pooler that is not implemented.
Result<std::optional<PoolingConfig>> ResolvePooling(const PoolingOptions& options,
                                                    const std::filesystem::path& folder,
                                                    ModelConfig& model);

}  // namespace sluice
