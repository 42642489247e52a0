#include "hub/model_files.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/list_folder.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr size_t kMaxPathBytes = 1024;

constexpr std::array<std::string_view, 4> kConfigNames = {
    "config.json", "hf_quant_config.json", "preprocessor_config.json", "processor_config.json"};
constexpr std::array<std::string_view, 5> kTokenizerNames = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json"};
// Files of sentence-transformers; each module also has a configuration in its own folder.
constexpr std::array<std::string_view, 3> kSentenceNames = {
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"};
// Mistral's own files. tekken.json is read if there is no tokenizer.json.
constexpr std::string_view kParamsName = "params.json";
constexpr std::string_view kTekkenName = "tekken.json";
constexpr std::string_view kGenerationName = "generation_config.json";
constexpr std::string_view kTemplatesFolder = "additional_chat_templates/";

template <size_t N>
bool IsOneOf(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool Has(const std::vector<std::string>& files, std::string_view name) {
  return std::find(files.begin(), files.end(), name) != files.end();
}

// Returns the prefix of the names of weights files.
std::string_view Stem(const std::vector<std::string>& files) {
  return IsInMistralFormat(files) ? "consolidated" : "model";
}

std::string SingleWeightsName(const std::vector<std::string>& files) {
  return fmt::format("{}.safetensors", Stem(files));
}

bool IsTokenizerFile(std::string_view name, const std::vector<std::string>& files) {
  if (name == kTekkenName) return !Has(files, "tokenizer.json");
  if (IsOneOf(name, kTokenizerNames)) return true;
  return name.starts_with(kTemplatesFolder) && name.ends_with(".jinja") &&
         name.find('/', kTemplatesFolder.size()) == std::string_view::npos;
}

// Whether the name is like "1_Pooling/config.json".
bool IsModuleConfig(std::string_view name) {
  return (name.ends_with("_Pooling/config.json") || name.ends_with("_Dense/config.json")) &&
         name.find('/') == name.rfind('/');
}

// Whether the name is like "2_Dense/model.safetensors".
bool IsModuleWeights(std::string_view name) {
  return name.ends_with("_Dense/model.safetensors") && name.find('/') == name.rfind('/');
}

bool IsReadFor(std::string_view name, const std::vector<std::string>& files, ModelPart part) {
  if (part == ModelPart::kGenerationConfig) return name == kGenerationName;
  if (IsTokenizerFile(name, files)) return true;
  if (part == ModelPart::kTokenizer) return false;
  if (IsOneOf(name, kConfigNames) || name == kGenerationName) return true;
  if (name == kParamsName) return IsInMistralFormat(files);
  if (IsOneOf(name, kSentenceNames) || IsModuleConfig(name)) return true;
  return part == ModelPart::kAll && (name == IndexName(files) || IsModuleWeights(name));
}

bool IsPresent(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::vector<std::string> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    if (IsPresent(path)) names.push_back(path.filename().string());
  }
  return names;
}

// The number of shards in a name like "model-00001-of-00004.safetensors"; 0 for other names.
int ShardCount(std::string_view name, std::string_view stem) {
  constexpr std::string_view kForm = "-00000-of-00000.safetensors";
  if (!name.starts_with(stem)) return 0;
  name.remove_prefix(stem.size());
  if (name.size() != kForm.size()) return 0;
  int count = 0;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] != '0') {
      if (name[i] != kForm[i]) return 0;
    } else if (name[i] < '0' || name[i] > '9') {
      return 0;
    } else {
      count = count * 10 + (name[i] - '0');
      if (i < 6) count = 0;  // drops the digits of the shard's own number
    }
  }
  return count;
}

}  // namespace

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes || path.front() == '/' || path.back() == '/')
    return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return std::none_of(path.begin(), path.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\';
  });
}

std::vector<std::string> ChooseFiles(const std::vector<std::string>& files, ModelPart part) {
  std::vector<std::string> chosen;
  std::copy_if(files.begin(), files.end(), std::back_inserter(chosen),
               [&](const std::string& name) { return IsReadFor(name, files, part); });
  // Configuration first, so that a repository without a model is recognized early.
  std::stable_partition(chosen.begin(), chosen.end(), [](const std::string& name) {
    return IsOneOf(name, kConfigNames) || name == kParamsName;
  });
  return chosen;
}

bool IsInMistralFormat(const std::vector<std::string>& files) {
  bool has_weights = false;
  for (const std::string& name : files) {
    if (!name.ends_with(".safetensors") && !name.ends_with(".safetensors.index.json")) continue;
    if (name.starts_with("model")) return false;
    has_weights |= name.starts_with("consolidated");
  }
  return Has(files, kParamsName) && (has_weights || !Has(files, "config.json"));
}

std::string IndexName(const std::vector<std::string>& files) {
  return SingleWeightsName(files) + ".index.json";
}

Result<std::vector<std::string>> ShardsOfIndex(std::string_view text) {
  const auto bad = [](std::string_view what) {
    return Fail(ErrorCode::kInvalidData, fmt::format("the index of safetensors: {}", what),
                "weight_map");
  };
  const auto index = json::Parse(text, {.max_bytes = kMaxIndexBytes});
  if (!index) return bad(index.error().message);
  const json::Value* map = index->Find("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty())
    return bad("expected an object weight_map with the file of each tensor");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string() || !IsSafePath(file.as_string()) ||
        file.as_string().find('/') != std::string::npos)
      return bad("expected the name of a file in the same folder for each tensor");
    names.insert(file.as_string());
  }
  return std::vector<std::string>(names.begin(), names.end());
}

std::vector<std::string> UnindexedWeights(const std::vector<std::string>& files) {
  std::vector<std::string> shards;
  const std::string single = SingleWeightsName(files);
  for (const std::string& name : files) {
    if (name == single) return {name};
    if (ShardCount(name, Stem(files)) > 0) shards.push_back(name);
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

std::vector<std::string> MissingFiles(const std::filesystem::path& folder, ModelPart part) {
  std::vector<std::string> missing;
  const auto need = [&](std::string_view name) {
    if (!IsPresent(folder / name)) missing.emplace_back(name);
  };
  if (part == ModelPart::kGenerationConfig) {
    need(kGenerationName);
    return missing;
  }
  const std::vector<std::string> files = NamesIn(folder);
  const bool is_mistral = IsInMistralFormat(files);
  if (part != ModelPart::kTokenizer) need(is_mistral ? kParamsName : "config.json");
  need(Has(files, kTekkenName) ? kTekkenName : "tokenizer.json");
  if (part != ModelPart::kAll) return missing;
  if (const auto text = ReadFile(folder / IndexName(files), kMaxIndexBytes)) {
    // The code that loads the model reports a damaged index.
    if (const auto shards = ShardsOfIndex(*text))
      std::for_each(shards->begin(), shards->end(), need);
    return missing;
  }
  const std::vector<std::string> weights = UnindexedWeights(files);
  const int count = weights.empty() ? 1 : ShardCount(weights.front(), Stem(files));
  if (weights.empty()) {
    missing.push_back(SingleWeightsName(files));
  } else if (count > static_cast<int>(weights.size())) {
    for (int number = 1; number <= count; ++number)
      need(fmt::format("{}-{:05}-of-{:05}.safetensors", Stem(files), number, count));
  }
  return missing;
}

}  // namespace sluice
