// Lists the files of a model that this program reads.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// The files of a model that are required.
enum class ModelPart {
  kAll,
  kAllButWeights,     // configuration, tokenizer and template
  kTokenizer,         // tokenizer and template
  kGenerationConfig,  // only generation_config.json
};

// Whether `path` is safe as a file name below a folder: relative, without "..", control characters
// and backslashes.
bool IsSafePath(std::string_view path);

// Returns the files of a repository to read, except weights that an index names.
std::vector<std::string> ChooseFiles(const std::vector<std::string>& files, ModelPart part);

// Whether `files` belong to a model that has only Mistral's own format: params.json and
// consolidated*.safetensors, without model*.safetensors.
bool IsInMistralFormat(const std::vector<std::string>& files);

// model.safetensors.index.json, or its counterpart in Mistral's own format.
std::string IndexName(const std::vector<std::string>& files);

// Returns the shards that an index names. kInvalidData if there are none, or if a name is unsafe.
Result<std::vector<std::string>> ShardsOfIndex(std::string_view text);

// Returns the safetensors files with the weights of a repository without an index: a single file or
// a set of shards; empty if there are none.
std::vector<std::string> UnindexedWeights(const std::vector<std::string>& files);

// Returns the missing files without which a folder cannot be used for `part`. Does not report
// optional files.
std::vector<std::string> MissingFiles(const std::filesystem::path& folder, ModelPart part);

}  // namespace sluice
