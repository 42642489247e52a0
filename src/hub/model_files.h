// Which files of a model this program reads.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// What of a model is needed.
enum class ModelPart {
  kAll,
  kAllButWeights,     // configuration, tokenizer, template
  kTokenizer,         // tokenizer and template
  kGenerationConfig,  // generation_config.json alone
};

// Whether `path` may be the name of a file below a folder: relative, without "..", of plain bytes.
bool IsSafePath(std::string_view path);

// The files of a repository to read; shards are left to the index that names them.
std::vector<std::string> ChooseFiles(const std::vector<std::string>& files, ModelPart part);

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";
inline constexpr std::string_view kSingleWeightsName = "model.safetensors";

// The names of the shards in the text of an index. kInvalidData if it has none or unsafe ones.
Result<std::vector<std::string>> ShardsOfIndex(std::string_view text);

// The safetensors files that hold the weights of `files`, a repository without an index: one file,
// or a set of shards; none where there are no such files.
std::vector<std::string> UnindexedWeights(const std::vector<std::string>& files);

// The files without which a folder cannot be used for `part`: the missing ones of it. Files that a
// model need not have are not asked for.
std::vector<std::string> MissingFiles(const std::filesystem::path& folder, ModelPart part);

}  // namespace sluice
