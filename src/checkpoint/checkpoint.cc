#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/json_count.h"
#include "base/json_fields.h"
#include "base/list_folder.h"
#include "base/log.h"
#include "checkpoint/foreign_format.h"
#include "checkpoint/mistral_format.h"

namespace sluice {
namespace {

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 100'000'000;
// Maximum number of JSON values in the index. During parsing, each value takes up to about 100
// bytes.
constexpr size_t kMaxIndexValues = 2 * kMaxTensors;
constexpr size_t kMaxShards = 10'000;
constexpr size_t kMaxFileNameBytes = 255;

tl::unexpected<Error> Invalid(std::string message, std::string param = {}) {
  return Fail(ErrorCode::kInvalidData, std::move(message), std::move(param));
}

bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.size() > kMaxFileNameBytes) return false;
  return std::none_of(name.begin(), name.end(),
                      [](char c) { return c == '/' || c == '\\' || c == '\0'; });
}

// Prefixes that the names of weight files may have.
std::string_view StemOf(const std::filesystem::path& folder) {
  return IsMistralFormat(folder) ? kMistralWeights : "model";
}

// Joins names as in "a, b, c and 4 more".
std::string NamesText(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// The names STEM-00001-of-0000N.safetensors, and for each whether the file exists in the folder. An
// error if there are two sets.
Result<std::vector<std::pair<std::string, bool>>> FindNumberedShards(
    const std::filesystem::path& folder, const std::string& stem) {
  std::set<std::string> found;
  int count = 0;
  std::error_code error;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    const std::string name = path.filename().string();
    int number = 0, of = 0, length = 0;
    if (!name.starts_with(stem + "-")) continue;
    const std::string rest = name.substr(stem.size());
    if (std::sscanf(rest.c_str(), "-%5d-of-%5d.safetensors%n", &number, &of, &length) != 2 ||
        static_cast<size_t>(length) != rest.size()) {
      continue;
    }
    if (count != 0 && of != count) {
      return Invalid(
          fmt::format("{}: found sets of {} and of {} shards, but no {} that selects one",
                      folder.string(), count, of, stem + ".safetensors.index.json"));
    }
    count = of;
    found.insert(name);
  }
  std::vector<std::pair<std::string, bool>> names;
  for (int number = 1; number <= count; ++number) {
    std::string name = fmt::format("{}-{:05}-of-{:05}.safetensors", stem, number, count);
    const bool is_there = found.contains(name);
    names.emplace_back(std::move(name), is_there);
  }
  return names;
}

}  // namespace

namespace {

// Module names of some families, and the canonical names that replace them.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"backbone.embeddings.", "model.embed_tokens."},  // Nemotron-H
    {"backbone.norm_f.", "model.norm."},
    {"backbone.", "model."},
    {"attention_layer_norm.", "input_layernorm."},  // OLMo Hybrid
    {"feedforward_layer_norm.", "post_attention_layernorm."},
    // Kimi Linear's dense MLPs, as transformers names them.
    {"block_sparse_moe.gate_proj.", "mlp.gate_proj."},
    {"block_sparse_moe.up_proj.", "mlp.up_proj."},
    {"block_sparse_moe.down_proj.", "mlp.down_proj."},
};

}  // namespace

std::string CanonicalName(std::string_view name) {
  for (const auto& [other, known] : kOtherNames) {
    const bool is_of_model = other.starts_with("backbone");
    const size_t at = is_of_model ? 0 : name.rfind(other);
    if (at == std::string_view::npos || !name.substr(at).starts_with(other)) continue;
    if (!is_of_model && (at == 0 || name[at - 1] != '.')) continue;
    return fmt::format("{}{}{}", name.substr(0, at), known, name.substr(at + other.size()));
  }
  constexpr std::string_view kInner = "language_model.";
  constexpr std::string_view kModel = "model.";
  constexpr std::string_view kInnerModel = "model.language_model.";
  if (name.starts_with(kInnerModel))
    return std::string(kModel) + std::string(name.substr(kInnerModel.size()));
  constexpr std::string_view kText = "model.text_model.";  // Idefics 3
  if (name.starts_with(kText)) return std::string(kModel) + std::string(name.substr(kText.size()));
  if (name.starts_with(kInner)) {
    const std::string_view rest = name.substr(kInner.size());
    if (rest.starts_with(kModel) || rest == "model" || rest.starts_with("lm_head"))
      return std::string(rest);
  }
  // Image towers. The names depend on the version of the library that wrote them.
  constexpr std::pair<std::string_view, std::string_view> kTowers[] = {
      {"model.vision_tower.vision_model.", "vision_tower."},
      {"vision_tower.vision_model.", "vision_tower."},
      {"model.vision_tower.", "vision_tower."},
      {"model.multi_modal_projector.", "multi_modal_projector."},
      {"model.connector.", "connector."},
      {"model.image_newline", "image_newline"},
      {"model.embed_vision.", "embed_vision."},
      {"model.vision_model.", "vision_model."},
      {"model.visual.", "visual."},
      {"model.projector.", "mlp_AR."}};
  for (const auto& [other, own] : kTowers)
    if (name.starts_with(other)) return std::string(own) + std::string(name.substr(other.size()));
  // Decoders of older families.
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"gpt_neox.layers.", "model.layers."},
      {"gpt_neox.embed_in.", "model.embed_tokens."},
      {"gpt_neox.final_layer_norm.", "model.norm."},
      {"embed_out.", "lm_head."},
      {"transformer.h.", "model.layers."},
      {"transformer.wte.", "model.embed_tokens."},
      {"transformer.word_embeddings.", "model.embed_tokens."},
      {"transformer.wpe.", "model.embed_positions."},
      {"transformer.blocks.", "model.layers."},
      {"transformer.ln_f.", "model.norm."},
      {"transformer.norm_f.", "model.norm."},
      {"h.", "model.layers."},
      {"wte.", "model.embed_tokens."},
      {"wpe.", "model.embed_positions."},
      {"ln_f.", "model.norm."},
      {"model.decoder.layers.", "model.layers."},
      {"model.decoder.embed_tokens.", "model.embed_tokens."},
      {"model.decoder.embed_positions.", "model.embed_positions."},
      {"model.decoder.final_layer_norm.", "model.norm."},
      {"biogpt.layers.", "model.layers."},
      {"biogpt.embed_tokens.", "model.embed_tokens."},
      {"biogpt.embed_positions.", "model.embed_positions."},
      {"biogpt.layer_norm.", "model.norm."},
      {"output_projection.", "lm_head."},
      {"model.word_embeddings.", "model.embed_tokens."},
      {"model.final_layernorm.", "model.norm."}};
  for (const auto& [other, own] : kOthers)
    if (name.starts_with(other)) return std::string(own) + std::string(name.substr(other.size()));
  // DeepSeek V4, as published and as transformers writes it.
  constexpr std::pair<std::string_view, std::string_view> kWhole[] = {
      {"embed.weight", "model.embed_tokens.weight"},
      {"head.weight", "lm_head.weight"},
      {"hc_head_fn", "model.hc_head.hc_fn"},
      {"hc_head_base", "model.hc_head.hc_base"},
      {"hc_head_scale", "model.hc_head.hc_scale"}};
  for (const auto& [other, own] : kWhole)
    if (name == other) return std::string(own);
  constexpr std::string_view kInsideModel[] = {"layers.", "embed_tokens.", "norm."};
  for (const std::string_view inside : kInsideModel)
    if (name.starts_with(inside)) return std::string(kModel) + std::string(name);
  return std::string(name);
}

Result<ShardIndex> ParseShardIndex(std::string_view text) {
  constexpr int kMaxDepth = 16;
  if (json::Measure(text).values > kMaxIndexValues)
    return Invalid(fmt::format("holds more than {} values", kMaxIndexValues));
  const auto root = json::Parse(
      text, {.max_bytes = kMaxIndexBytes, .max_depth = kMaxDepth, .allow_duplicates = false});
  if (!root) return Invalid(root.error().message);
  if (!root->is_object())
    return Invalid(fmt::format("must be an object, found {}", ShortText(*root)));
  const JsonFields fields(*root, "");
  ASSIGN_OR_RETURN(const json::Value* map, fields.Object("weight_map"));
  if (map == nullptr) return Invalid("has no weight_map");
  ShardIndex index;
  if (const json::Value* metadata = root->Find("metadata"); metadata != nullptr) {
    // Some writers store total_size as a float; such a value is ignored.
    const json::Value* size = metadata->Find("total_size");
    if (size != nullptr && size->is_integer() && size->as_integer() > 0)
      index.total_size = static_cast<uint64_t>(size->as_integer());
  }
  std::set<std::string_view> files;
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string()) {
      return Invalid(fmt::format("weight_map of tensor '{}' must be a file name, found {}",
                                 ShortName(tensor), ShortText(file)));
    }
    if (tensor.size() > kMaxTensorNameBytes)
      return Invalid(
          fmt::format("a name of more than {} bytes in weight_map", kMaxTensorNameBytes));
    if (!IsPlainFileName(file.as_string())) {
      return Invalid(fmt::format("weight_map of tensor '{}' names '{}': a shard must be a plain "
                                 "file name in the model's folder",
                                 ShortName(tensor), ShortName(file.as_string())),
                     tensor);
    }
    files.insert(file.as_string());
    if (files.size() > kMaxShards)
      return Invalid(fmt::format("weight_map names more than {} files", kMaxShards));
    if (index.weight_map.size() == kMaxTensors)
      return Invalid(fmt::format("more than {} tensors", kMaxTensors));
    index.weight_map.emplace(tensor, file.as_string());
  }
  return index;
}

Status Checkpoint::AddFile(const std::string& name) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(folder_ / name));
  files_.push_back(std::move(file));
  return {};
}

Status Checkpoint::AddTensor(const TensorInfo& info, const SafetensorsFile& file) {
  const auto [other, is_new] =
      tensors_.try_emplace(CanonicalNameIn(file.path(), info.name), StoredTensor{&info, &file});
  if (!is_new) {
    const std::string& name = other->second.info->name;
    return Invalid(
        name == info.name
            ? fmt::format(
                  "tensor '{}' is in both {} and {}, and there is no {} that selects one of them",
                  info.name, other->second.file->path().string(), file.path().string(), kIndexFile)
            : fmt::format("tensors '{}' and '{}' are two names of the same tensor; remove one",
                          name, info.name),
        info.name);
  }
  total_bytes_ += static_cast<int64_t>(info.size_bytes);
  return {};
}

Status Checkpoint::OpenIndexed(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  auto index = ParseShardIndex(text);
  if (!index) {
    Error error = std::move(index).error().In(path.string());
    return tl::unexpected<Error>(std::move(error));
  }
  std::map<std::string, std::vector<std::string>> tensors_of_file;
  for (const auto& [tensor, file] : index->weight_map) tensors_of_file[file].push_back(tensor);
  for (const auto& [name, tensors] : tensors_of_file) {
    // A file that exists but cannot be opened, such as a link to itself, gets its error when it is
    // opened.
    std::error_code error;
    if (std::filesystem::status(folder_ / name, error).type() ==
        std::filesystem::file_type::not_found) {
      RETURN_IF_ERROR(MissShard(
          name, fmt::format("{}: shard {} is missing; it holds {} tensors ({}); download it again",
                            folder_.string(), name, tensors.size(), NamesText(tensors))));
    }
  }
  for (const std::string& name : missing_files_) tensors_of_file.erase(name);
  files_.reserve(tensors_of_file.size());  // Tensors point to files, so the files must not move.
  for (const auto& [name, tensors] : tensors_of_file) {
    RETURN_IF_ERROR(AddFile(name));
    const SafetensorsFile& file = files_.back();
    std::map<std::string_view, const TensorInfo*> in_file;
    for (const TensorInfo& info : file.tensors()) in_file.emplace(info.name, &info);
    std::vector<std::string> absent;
    for (const std::string& tensor : tensors) {
      const auto found = in_file.find(tensor);
      if (found == in_file.end()) {
        absent.push_back(tensor);
        continue;
      }
      RETURN_IF_ERROR(AddTensor(*found->second, file));
    }
    if (!absent.empty()) {
      return Invalid(fmt::format("{}: the index lists {} tensors that are not in this file: {}",
                                 file.path().string(), absent.size(), NamesText(absent)),
                     absent.front());
    }
  }
  if (missing_files_.empty() && index->total_size != 0 &&
      index->total_size != static_cast<uint64_t>(total_bytes_)) {
    LOG_WARNING("checkpoint", "{}: total_size is {} bytes, but the tensors have {}", path.string(),
                index->total_size, total_bytes_);
  }
  return {};
}

Status Checkpoint::OpenAll(const std::vector<std::string>& names) {
  files_.reserve(names.size());  // Tensors point to files, so the files must not move.
  for (const std::string& name : names) {
    RETURN_IF_ERROR(AddFile(name));
    const SafetensorsFile& file = files_.back();
    for (const TensorInfo& info : file.tensors()) {
      RETURN_IF_ERROR(AddTensor(info, file));
    }
  }
  return {};
}

Status Checkpoint::MissShard(const std::string& name, std::string message) {
  if (!may_be_incomplete_) return Invalid(std::move(message), name);
  if (missing_files_.empty()) missing_shard_ = std::move(message);
  missing_files_.push_back(name);
  return {};
}

Status Checkpoint::OpenNumbered() {
  const std::string stem(StemOf(folder_));
  ASSIGN_OR_RETURN(const auto shards, FindNumberedShards(folder_, stem));
  if (shards.empty()) {
    RETURN_IF_ERROR(RefuseForeignFormat(folder_));
    return Fail(ErrorCode::kNotFound,
                fmt::format("{0} holds neither {1}.safetensors nor {1}.safetensors.index.json nor "
                            "a set {1}-00001-of-0000N.safetensors; only checkpoints in the "
                            "safetensors format are read",
                            folder_.string(), stem),
                folder_.string());
  }
  std::vector<std::string> names;
  for (const auto& [name, is_there] : shards) {
    if (is_there) {
      names.push_back(name);
      continue;
    }
    RETURN_IF_ERROR(MissShard(
        name, fmt::format("{}: shard {} is missing; download it again", folder_.string(), name)));
  }
  return OpenAll(names);
}

Status Checkpoint::OpenFolder() {
  std::error_code error;
  if (!std::filesystem::is_directory(folder_, error)) {
    return Fail(ErrorCode::kNotFound, fmt::format("{} is not a folder", folder_.string()),
                folder_.string());
  }
  const std::string single = fmt::format("{}.safetensors", StemOf(folder_));
  const std::filesystem::path index = folder_ / (single + ".index.json");
  if (std::filesystem::exists(index, error)) return OpenIndexed(index);
  if (std::filesystem::exists(folder_ / single, error)) return OpenAll({single});
  return OpenNumbered();
}

Result<Checkpoint> Checkpoint::Open(const std::filesystem::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  RETURN_IF_ERROR(checkpoint.OpenFolder());
  return checkpoint;
}

Result<Checkpoint> Checkpoint::OpenIncomplete(const std::filesystem::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.may_be_incomplete_ = true;
  RETURN_IF_ERROR(checkpoint.OpenFolder());
  return checkpoint;
}

const StoredTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace sluice
