#include "models/lora_adapter.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_file.h"
#include "checkpoint/checkpoint.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

// The parts of a tensor's name.
struct TensorName {
  std::string module;  // canonical name
  bool is_a = false;
  bool is_embedding = false;
};

enum class NameKind {
  kFactor,
  kBaseCopy,  // a copy of the base model's embedding or head
  kUnused,    // belongs to a module that is replaced by another
  kOther,
};

NameKind ReadName(std::string_view name, TensorName& read) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  // If embeddings are targets, peft also stores the base's weights for them.
  for (const std::string_view copy :
       {"embed_tokens.base_layer.weight", "lm_head.base_layer.weight"}) {
    if (name.ends_with(copy)) return NameKind::kBaseCopy;
  }
  if (name.find(".original_module.") != std::string_view::npos) return NameKind::kUnused;
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

// Returns the canonical name of the base tensor that a tensor replaces: its name without the parts
// that peft's wrappers add. REQUIRES: the tensor is not a factor.
std::string ReplacedName(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::string plain(name);
  // A name is, for example, "lm_head.modules_to_save.default.weight"; it may lack the adapter's
  // name ("default").
  constexpr std::string_view kSaved = ".modules_to_save.";
  if (const size_t at = plain.find(kSaved); at != std::string::npos) {
    const size_t dot = plain.find('.', at + kSaved.size());
    plain.erase(at, (dot == std::string::npos ? at + kSaved.size() - 1 : dot) - at);
  }
  constexpr std::string_view kBase = ".base_layer.";
  for (size_t at = plain.find(kBase); at != std::string::npos; at = plain.find(kBase))
    plain.erase(at, kBase.size() - 1);
  return CanonicalName(plain);
}

// Returns whether `module` equals one of the dot-separated parts of the name, except the last part.
bool HasPart(std::string_view name, std::string_view module) {
  for (size_t at = name.find(module); at != std::string_view::npos;
       at = name.find(module, at + 1)) {
    const size_t end = at + module.size();
    if ((at == 0 || name[at - 1] == '.') && end < name.size() && name[end] == '.') return true;
  }
  return false;
}

double Mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

bool IsExpert(std::string_view module) {
  return module.find(".experts.") != std::string_view::npos || module.ends_with(".experts");
}

// Returns the prefix that names the layer, such as "model.layers.0." for
// "model.layers.0.mlp.experts". Names inside a layer differ between published checkpoints and
// transformers.
std::string_view LayerOf(std::string_view module) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!module.starts_with(kLayers)) return "";
  return module.substr(0, module.find('.', kLayers.size()) + 1);
}

tl::unexpected<Error> Refuse(const TensorInfo& tensor, ErrorCode code, std::string message) {
  return Fail(code, fmt::format("tensor '{}': {}", tensor.name.substr(0, 300), message),
              tensor.name.substr(0, 300));
}

tl::unexpected<Error> UnknownModule(const TensorInfo& tensor, const std::string& module,
                                    const LoraLayout& layout) {
  if (IsExpert(module) && layout.experts.empty()) {
    return Refuse(
        tensor, ErrorCode::kInvalidArgument,
        "the server has no memory for factors of experts, or the model has none: start it "
        "with an adapter of experts in --lora-modules, or with \"experts\" in "
        "--lora-target-modules");
  }
  const std::vector<std::string> names = layout.TargetNames();
  return Refuse(
      tensor, ErrorCode::kInvalidData,
      fmt::format("the model has no module '{}' that adapters may change; it has layers 0 "
                  "and up with {}: is the adapter for a different base model?",
                  module.substr(0, 300), fmt::join(names, ", ")));
}

// A stored copy of the base's embedding or head is not read, but must have the base's shape. A copy
// with more tokens would contain trained rows.
Status CheckCopy(const TensorInfo& tensor, const LoraLayout& layout) {
  for (const LoraModule& module : layout.modules) {
    const bool is_head = module.name == kHeadModule;
    if (!module.is_embedding && !is_head) continue;
    const std::vector<int64_t> shape =
        is_head ? std::vector{module.rows, module.cols} : std::vector{module.cols, module.rows};
    if (tensor.shape == shape) return {};
    return Refuse(tensor, ErrorCode::kUnsupported,
                  fmt::format("expected the base model's shape {}, found {}; adapters with "
                              "additional tokens are not served",
                              ShapeText(shape), ShapeText(tensor.shape)));
  }
  return {};
}

Status CheckType(const TensorInfo& tensor) {
  if (tensor.type == ElementType::kF32 || tensor.type == ElementType::kF16 ||
      tensor.type == ElementType::kBF16) {
    return {};
  }
  return Refuse(
      tensor, ErrorCode::kUnsupported,
      fmt::format("expected numbers in F32, F16 or BF16, found {}", ElementTypeName(tensor.type)));
}

}  // namespace

Status LoraAdapter::AddReplacement(const TensorInfo& tensor, const std::string& name,
                                   const LoraLayout& layout) {
  const LoraReplaceable* const replaced = layout.FindReplaceable(name);
  if (replaced == nullptr) {
    const bool is_plain = name.ends_with(".weight") || name.ends_with(".bias");
    if (is_plain && !layout.options.vectors) {
      return Refuse(tensor, ErrorCode::kUnsupported,
                    "an adapter's own weights, norms and biases are served only on a CPU; "
                    "merge the adapter into its base with peft's merge_and_unload() and serve the "
                    "result");
    }
    return Refuse(tensor, ErrorCode::kUnsupported,
                  "is neither a factor of LoRA (...lora_A.weight, ...lora_B.weight, "
                  "...lora_embedding_A or ...lora_embedding_B) nor the weight or bias of a linear "
                  "layer, the embedding, the head or a norm of the model; merge the adapter into "
                  "its base with peft's merge_and_unload() and serve the result");
  }
  RETURN_IF_ERROR(CheckType(tensor));
  if (tensor.shape != replaced->shape()) {
    return Refuse(
        tensor, ErrorCode::kInvalidData,
        fmt::format("expected the shape of the base model's {}, {}, found {}: the adapter is for a "
                    "different base model{}",
                    name.substr(0, 300), ShapeText(replaced->shape()), ShapeText(tensor.shape),
                    replaced->rows != layout.vocab_size
                        ? ""
                        : ", or has additional tokens, which are not served"));
  }
  for (const Replacement& other : replacements_) {
    if (other.replaced != replaced) continue;
    // peft stores the biases of saved modules twice, under two names.
    const std::span<const std::byte> a = Bytes(*other.tensor), b = Bytes(tensor);
    if (!std::ranges::equal(a, b)) {
      return Refuse(tensor, ErrorCode::kInvalidData,
                    fmt::format("replaces the same tensor as '{}', with other numbers",
                                other.tensor->name.substr(0, 300)));
    }
    return {};
  }
  replacements_.push_back({replaced, &tensor});
  return {};
}

Status LoraAdapter::CheckRoom(const LoraLayout& layout) const {
  int64_t bytes = 0;
  std::vector<std::string> names;
  const TensorInfo* first = nullptr;
  for (const Replacement& replacement : replacements_) {
    if (replacement.replaced->has_room) continue;
    if (first == nullptr) first = replacement.tensor;
    bytes += replacement.replaced->bytes;
    const std::string_view tensor = replacement.replaced->tensor;
    const std::string_view module = tensor.substr(0, tensor.rfind('.'));
    std::string name(module.substr(module.rfind('.') + 1));
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  if (first == nullptr) return {};
  return Refuse(
      *first, ErrorCode::kInvalidArgument,
      fmt::format("replaces a weight of the base, for which adapter slots have no room: {} would "
                  "take {:.1f} MiB more in each of the {} slots; start the server with "
                  "this adapter in --lora-modules, or with --lora-modules-to-save {}",
                  fmt::join(names, ", "), Mebibytes(bytes), layout.options.num_slots,
                  fmt::join(names, " ")));
}

Status LoraAdapter::CheckSavedModules(const LoraLayout& layout) const {
  for (const std::string& module : config_.saved_modules) {
    const auto is_of = [&](const LoraReplaceable& replaceable) {
      return HasPart(replaceable.tensor, module);
    };
    const bool is_there = std::any_of(replacements_.begin(), replacements_.end(),
                                      [&](const Replacement& own) { return is_of(*own.replaced); });
    if (!is_there && std::any_of(layout.replaceables.begin(), layout.replaceables.end(), is_of)) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("modules_to_save names '{}', but the file has no tensor of it",
                              module.substr(0, 300)),
                  "modules_to_save");
    }
  }
  return {};
}

Status LoraAdapter::AddTensor(const TensorInfo& tensor, const LoraLayout& layout) {
  TensorName name;
  switch (ReadName(tensor.name, name)) {
    case NameKind::kFactor: break;
    case NameKind::kBaseCopy: return CheckCopy(tensor, layout);
    case NameKind::kUnused: return {};
    case NameKind::kOther: return AddReplacement(tensor, ReplacedName(tensor.name), layout);
  }
  RETURN_IF_ERROR(CheckType(tensor));
  const auto set = [&](const TensorInfo*& place) -> Status {
    if (place != nullptr) {
      return Refuse(tensor, ErrorCode::kInvalidData,
                    fmt::format("is the same factor as '{}'", place->name));
    }
    place = &tensor;
    return {};
  };
  constexpr std::string_view kWrapped = ".base_layer";
  std::string_view unwrapped = name.module;
  while (unwrapped.ends_with(kWrapped)) unwrapped.remove_suffix(kWrapped.size());
  if (unwrapped.ends_with(".experts") && !layout.experts.empty()) {
    OfAllExperts& tensors = experts_[name.module];
    return set(name.is_a ? tensors.a : tensors.b);
  }
  const LoraModule* const module = layout.Find(name.module);
  if (module == nullptr || module->is_embedding != name.is_embedding)
    return UnknownModule(tensor, name.module, layout);
  const auto [number, is_new] = numbers_.emplace(module, factors_.size());
  if (is_new) factors_.push_back({.module = module});
  Factors& factors = factors_[number->second];
  return set(name.is_a ? factors.a : factors.b);
}

Status LoraAdapter::AddExperts(const std::string& module, const OfAllExperts& tensors,
                               const LoraLayout& layout) {
  if (tensors.a == nullptr || tensors.b == nullptr) {
    return Refuse(
        tensors.a != nullptr ? *tensors.a : *tensors.b, ErrorCode::kInvalidData,
        fmt::format("its other factor, lora_{}, is missing", tensors.a == nullptr ? "A" : "B"));
  }
  const std::vector<int64_t>& a = tensors.a->shape;
  const std::vector<int64_t>& b = tensors.b->shape;
  std::vector<std::string> expected;
  for (const LoraExperts& experts : layout.experts) {
    if (LayerOf(experts.name) != LayerOf(module)) continue;
    expected.push_back(fmt::format("[{} * rank, {}] and [{}, rank * {}] for {}",
                                   experts.num_experts, experts.cols, experts.rows,
                                   experts.num_experts, experts.tensor));
    if (a.size() != 2 || a[0] < 1 || a[0] % experts.num_experts != 0 || a[1] != experts.cols ||
        b != std::vector{experts.rows, a[0]})
      continue;
    const int64_t rank = a[0] / experts.num_experts;
    const std::string name = fmt::format("{}.{}", experts.name, experts.tensor);
    const LoraModule* part = &layout.modules[experts.first_module];
    for (int64_t expert = 0; expert < experts.num_experts; ++expert) {
      int64_t first_row = 0;
      for (size_t i = 0; i < experts.modules_each; ++i, ++part) {
        if (!numbers_.emplace(part, factors_.size()).second) {
          return Refuse(*tensors.a, ErrorCode::kInvalidData,
                        fmt::format("'{}' also has its own factors", part->name));
        }
        factors_.push_back({.module = part,
                            .a = tensors.a,
                            .b = tensors.b,
                            .expert = expert,
                            .num_experts = experts.num_experts,
                            .first_row = first_row});
        RETURN_IF_ERROR(CheckRank(factors_.back(), name, rank, layout));
        first_row += part->rows;
      }
    }
    return {};
  }
  return Refuse(
      *tensors.a, ErrorCode::kInvalidData,
      fmt::format(
          "expected with lora_B {}; found {} and {}: the adapter is for a different base model",
          expected.empty() ? "no factors of experts in this layer"
                           : fmt::format("{}", fmt::join(expected, ", or ")),
          ShapeText(a), ShapeText(b)));
}

const std::byte* LoraAdapter::ABytes(const Factors& factors) const {
  const int64_t row_bytes = factors.module->cols * BitsPerElement(factors.a->type) / 8;
  return Bytes(*factors.a).data() + factors.expert * factors.rank * row_bytes;
}

const std::byte* LoraAdapter::BBytes(const Factors& factors,
                                     std::vector<std::byte>& scratch) const {
  const std::byte* const all = Bytes(*factors.b).data();
  if (factors.num_experts == 1) return all;
  const auto size = static_cast<size_t>(BitsPerElement(factors.b->type) / 8);
  const int64_t rows = factors.module->rows, rank = factors.rank;
  scratch.resize(static_cast<size_t>(rows * rank) * size);
  std::byte* to = scratch.data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < rank; ++j, to += size) {
      const int64_t from =
          ((factors.first_row + row) * rank + j) * factors.num_experts + factors.expert;
      std::memcpy(to, all + static_cast<size_t>(from) * size, size);
    }
  }
  return scratch.data();
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
    return Refuse(
        *factors.a, ErrorCode::kInvalidData,
        fmt::format(
            "expected the shape [rank, {}], found {}: the adapter is for a different base model",
            module.cols, ShapeText(a)));
  }
  if (b != std::vector<int64_t>{module.rows, a[0]}) {
    return Refuse(
        *factors.b, ErrorCode::kInvalidData,
        fmt::format(
            "expected the shape [{}, {}], found {}: the adapter is for a different base model",
            module.rows, a[0], ShapeText(b)));
  }
  return CheckRank(factors, module.name, a[0], layout);
}

Status LoraAdapter::CheckRank(Factors& factors, const std::string& name, int64_t rank,
                              const LoraLayout& layout) {
  factors.rank = rank;
  if (factors.rank > layout.options.max_rank) {
    return Refuse(
        *factors.a, ErrorCode::kInvalidArgument,
        fmt::format("LoRA rank {} is greater than max_lora_rank {}: start the server with "
                    "a larger --max-lora-rank",
                    factors.rank, layout.options.max_rank));
  }
  if (const int64_t told = config_.RankOf(name); told != factors.rank) {
    return Refuse(*factors.a, ErrorCode::kInvalidData,
                  fmt::format("has rank {}, but adapter_config.json specifies {} (r, rank_pattern)",
                              factors.rank, told));
  }
  factors.scale = config_.ScaleOf(name, factors.rank);
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
  std::error_code ignored;  // an unreadable path is reported when the file is opened
  if (!std::filesystem::exists(path, ignored) &&
      std::filesystem::exists(folder / "adapter_model.bin", ignored)) {
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
  for (const auto& [module, tensors] : adapter.experts_)
    RETURN_IF_ERROR(in_file(adapter.AddExperts(module, tensors, layout)));
  RETURN_IF_ERROR(in_file(adapter.CheckRoom(layout)));
  RETURN_IF_ERROR(in_file(adapter.CheckSavedModules(layout)));
  if (adapter.factors_.empty() && adapter.replacements_.empty()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: has no factors of any module", path.string()));
  }
  return adapter;
}

bool ChangesExperts(const std::filesystem::path& folder) {
  const auto file = SafetensorsFile::Open(folder / "adapter_model.safetensors");
  if (!file) return false;
  return std::any_of(file->tensors().begin(), file->tensors().end(), [](const TensorInfo& tensor) {
    TensorName name;
    return ReadName(tensor.name, name) == NameKind::kFactor && IsExpert(name.module);
  });
}

std::set<std::string> ReplacedModules(const std::filesystem::path& folder) {
  std::set<std::string> names;
  const auto file = SafetensorsFile::Open(folder / "adapter_model.safetensors");
  if (!file) return names;
  for (const TensorInfo& tensor : file->tensors()) {
    TensorName factor;
    if (tensor.shape.size() != 2 || ReadName(tensor.name, factor) != NameKind::kOther) continue;
    std::string name = ReplacedName(tensor.name);
    constexpr std::string_view kWeight = ".weight";
    if (!name.ends_with(kWeight)) continue;
    name.resize(name.size() - kWeight.size());
    name.erase(0, name.rfind('.') + 1);  // npos + 1 is 0, which erases nothing
    names.insert(std::move(name));
  }
  return names;
}

}  // namespace sluice
