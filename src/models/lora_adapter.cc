#include "models/lora_adapter.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/generation_config.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

// What a tensor's name says.
struct TensorName {
  std::string module;  // canonical
  bool is_a = false;
  bool is_embedding = false;
};

enum class NameKind { kFactor, kBaseCopy, kOther };

NameKind ReadName(std::string_view name, TensorName& read) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  // With targets among the embeddings peft stores the base's own weights, too.
  for (const std::string_view copy :
       {"embed_tokens.base_layer.weight", "lm_head.base_layer.weight"}) {
    if (name.ends_with(copy)) return NameKind::kBaseCopy;
  }
  struct Ending {
    std::string_view text;
    bool is_a, is_embedding;
  };
  constexpr Ending kEndings[] = {
      {".lora_A.weight", true, false},
      {".lora_B.weight", false, false},
      {".lora_embedding_A", true, true},
      {".lora_embedding_B", false, true},
  };
  for (const Ending& ending : kEndings) {
    if (!name.ends_with(ending.text)) continue;
    name.remove_suffix(ending.text.size());
    read = {CanonicalName(name), ending.is_a, ending.is_embedding};
    return NameKind::kFactor;
  }
  return NameKind::kOther;
}

bool IsExpert(std::string_view module) {
  return module.find("experts.") != std::string_view::npos || module.ends_with(".experts");
}

tl::unexpected<Error> Refuse(const TensorInfo& tensor, ErrorCode code, std::string message) {
  return Fail(code, fmt::format("tensor '{}': {}", tensor.name.substr(0, 300), message),
              tensor.name.substr(0, 300));
}

tl::unexpected<Error> UnknownModule(const TensorInfo& tensor, const std::string& module,
                                    const LoraLayout& layout) {
  if (IsExpert(module) && module.find("shared_expert") == std::string::npos) {
    return Refuse(tensor, ErrorCode::kUnsupported,
                  "adapters of experts are not served; merge the adapter into its base with peft's "
                  "merge_and_unload() and serve the result");
  }
  const std::vector<std::string> names = layout.TargetNames();
  return Refuse(
      tensor, ErrorCode::kInvalidData,
      fmt::format("the model has no module '{}' that adapters may change; it has layers 0 "
                  "and up with {}: is the adapter of another base?",
                  module.substr(0, 300), fmt::join(names, ", ")));
}

// A copy of the base's embedding or head, which is not read, must be of its size: one with more
// tokens was trained.
Status CheckCopy(const TensorInfo& tensor, const LoraLayout& layout) {
  for (const LoraModule& module : layout.modules) {
    const bool is_head = module.name == kHeadModule;
    if (!module.is_embedding && !is_head) continue;
    const std::vector<int64_t> shape =
        is_head ? std::vector{module.rows, module.cols} : std::vector{module.cols, module.rows};
    if (tensor.shape == shape) return {};
    return Refuse(
        tensor, ErrorCode::kUnsupported,
        fmt::format("expected a copy of the base's own, {}, found {}; adapters with tokens "
                    "of their own are not served",
                    ShapeText(shape), ShapeText(tensor.shape)));
  }
  return {};
}

}  // namespace

Status LoraAdapter::AddTensor(const TensorInfo& tensor, const LoraLayout& layout) {
  TensorName name;
  switch (ReadName(tensor.name, name)) {
    case NameKind::kFactor: break;
    case NameKind::kBaseCopy: return CheckCopy(tensor, layout);
    case NameKind::kOther:
      return Refuse(tensor, ErrorCode::kUnsupported,
                    "is not a factor of LoRA (...lora_A.weight, ...lora_B.weight, "
                    "...lora_embedding_A or ...lora_embedding_B); merge the adapter into its base "
                    "with peft's merge_and_unload() and serve the result");
  }
  const LoraModule* const module = layout.Find(name.module);
  if (module == nullptr || module->is_embedding != name.is_embedding)
    return UnknownModule(tensor, name.module, layout);
  if (tensor.type != ElementType::kF32 && tensor.type != ElementType::kF16 &&
      tensor.type != ElementType::kBF16) {
    return Refuse(tensor, ErrorCode::kUnsupported,
                  fmt::format("expected numbers in F32, F16 or BF16, found {}",
                              ElementTypeName(tensor.type)));
  }
  auto found = std::find_if(factors_.begin(), factors_.end(),
                            [&](const Factors& factors) { return factors.module == module; });
  if (found == factors_.end()) found = factors_.insert(factors_.end(), {.module = module});
  const TensorInfo*& place = name.is_a ? found->a : found->b;
  if (place != nullptr) {
    return Refuse(tensor, ErrorCode::kInvalidData,
                  fmt::format("is the same factor as '{}'", place->name));
  }
  place = &tensor;
  return {};
}

Status LoraAdapter::CheckFactors(Factors& factors, const LoraLayout& layout) {
  const LoraModule& module = *factors.module;
  if (factors.a == nullptr || factors.b == nullptr) {
    return Refuse(
        factors.a != nullptr ? *factors.a : *factors.b, ErrorCode::kInvalidData,
        fmt::format("its other factor, lora_{}, is missing", factors.a == nullptr ? "A" : "B"));
  }
  const std::vector<int64_t>& a = factors.a->shape;
  const std::vector<int64_t>& b = factors.b->shape;
  if (a.size() != 2 || a[0] < 1 || a[1] != module.cols) {
    return Refuse(*factors.a, ErrorCode::kInvalidData,
                  fmt::format("expected the shape [rank, {}], found {}: the adapter is of another "
                              "base",
                              module.cols, ShapeText(a)));
  }
  factors.rank = a[0];
  if (b != std::vector<int64_t>{module.rows, factors.rank}) {
    return Refuse(*factors.b, ErrorCode::kInvalidData,
                  fmt::format("expected the shape [{}, {}], found {}: the adapter is of another "
                              "base",
                              module.rows, factors.rank, ShapeText(b)));
  }
  if (factors.rank > layout.options.max_rank) {
    return Refuse(
        *factors.a, ErrorCode::kInvalidArgument,
        fmt::format("LoRA rank {} is greater than max_lora_rank {}: start the server with "
                    "a larger --max-lora-rank",
                    factors.rank, layout.options.max_rank));
  }
  if (const int64_t told = config_.RankOf(module.name); told != factors.rank) {
    return Refuse(*factors.a, ErrorCode::kInvalidData,
                  fmt::format("has rank {}, but adapter_config.json says {} (r, rank_pattern)",
                              factors.rank, told));
  }
  factors.scale = config_.ScaleOf(module.name, factors.rank);
  rank_ = std::max(rank_, factors.rank);
  return {};
}

Result<LoraAdapter> LoraAdapter::Open(const std::filesystem::path& folder,
                                      const LoraLayout& layout) {
  const std::filesystem::path config_path = folder / "adapter_config.json";
  ASSIGN_OR_RETURN(const json::Value value, ReadJsonObject(config_path));
  auto config = ParseLoraConfig(value);
  if (!config) return tl::unexpected(std::move(config).error().In(config_path.string()));
  if (config->rank > layout.options.max_rank && config->rank_pattern.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: LoRA rank {} is greater than max_lora_rank {}: start the server "
                            "with a larger --max-lora-rank",
                            config_path.string(), config->rank, layout.options.max_rank),
                "r");
  }
  const std::filesystem::path path = folder / "adapter_model.safetensors";
  if (!std::filesystem::exists(path) && std::filesystem::exists(folder / "adapter_model.bin")) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: adapters are read from adapter_model.safetensors, and the folder "
                            "has adapter_model.bin, a pickle; save it with safe_serialization=True",
                            folder.string()),
                "adapter_model.bin");
  }
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  LoraAdapter adapter(std::move(file), *std::move(config));
  const auto in_file = [&](const Status& status) -> Status {
    if (status) return {};
    return tl::unexpected(Error(status.error()).In(path.string()));
  };
  for (const TensorInfo& tensor : adapter.file_.tensors())
    RETURN_IF_ERROR(in_file(adapter.AddTensor(tensor, layout)));
  for (Factors& factors : adapter.factors_)
    RETURN_IF_ERROR(in_file(adapter.CheckFactors(factors, layout)));
  if (adapter.factors_.empty()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: holds no factors of any module", path.string()));
  }
  return adapter;
}

}  // namespace sluice
