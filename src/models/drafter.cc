#include "models/drafter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_fields.h"
#include "base/json_file.h"
#include "checkpoint/checkpoint.h"
#include "models/family_fields.h"
#include "models/share.h"
#include "models/weight_loader.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 3> kEagle3Architectures = {
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator"};
constexpr std::array<std::string_view, 3> kEagle1Architectures = {
    "LlamaForCausalLMEagle", "EagleLlamaForCausalLM", "EagleSpeculator"};
constexpr const char* kDflashArchitecture = "DFlashDraftModel";
constexpr int64_t kMaxDflashBlock = 65;  // limits the number of draft tokens to 64
constexpr const char* kDraftVocabulary = "draft_vocab_size";
constexpr const char* kAuxLayers = "eagle_aux_hidden_state_layer_ids";

std::string ArchitectureNames(const json::Value& config) {
  const auto names = JsonFields(config, "").Strings("architectures");
  if (!names || !*names) return "";
  return fmt::format("{}", fmt::join(**names, ", "));
}

// Returns a flat config.json in Llama's format with the fields of an EAGLE head. The speculators
// library nests some of these fields in other objects.
Result<json::Value> FlatEagleConfig(const json::Value& config) {
  json::Value flat = config;
  ASSIGN_OR_RETURN(const json::Value* nested,
                   JsonFields(config, "").Object("transformer_layer_config"));
  if (nested != nullptr && nested->is_object()) {
    for (const auto& [key, value] : nested->as_object()) {
      json::Value copy = value;
      flat.Set(key, std::move(copy));
    }
  }
  json::Value::Array names;
  names.emplace_back("LlamaForCausalLM");
  flat.Set("architectures", json::Value(std::move(names)));
  flat.Set("model_type", "llama");
  flat.Set("tie_word_embeddings", false);
  return flat;
}

tl::unexpected<Error> NamesNoLayers(const char* key) {
  return Fail(ErrorCode::kInvalidData,
              "the list names no layer of the model whose hidden rows the drafter reads; expected "
              "at least one",
              key);
}

// Returns the layers of the target whose inputs the head reads. Source: vLLM's
// get_eagle3_aux_hidden_state_layers; inside eagle_config, id i means the output of layer i, which
// is the input of layer i + 1.
Result<std::vector<int64_t>> ReadHandedLayers(const json::Value& config,
                                              const ModelConfig& target) {
  const int64_t count = std::ssize(target.spec.layers);
  const JsonFields fields(config, "");
  ASSIGN_OR_RETURN(auto layers, fields.Integers(kAuxLayers, 0, count));
  if (!layers) {
    ASSIGN_OR_RETURN(const json::Value* nested, fields.Object("eagle_config"));
    if (nested != nullptr && nested->is_object()) {
      ASSIGN_OR_RETURN(layers, JsonFields(*nested, "eagle_config.").Integers(kAuxLayers, 0, count));
      if (layers) {
        for (int64_t& layer : *layers) ++layer;
      }
    }
  }
  if (!layers) layers = std::vector<int64_t>{2, count / 2, count - 3};
  if (layers->empty()) return NamesNoLayers(kAuxLayers);
  for (const int64_t layer : *layers) {
    if (layer >= 0 && layer < count) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the head reads the inputs of layers {} of the model, which has {}; "
                            "supported are layers from 0 to {}",
                            fmt::join(*layers, ", "), count, count - 1),
                kAuxLayers);
  }
  return *std::move(layers);
}

Status CheckEagle(const json::Value& config, const ModelConfig& head, const ModelConfig& target,
                  const std::filesystem::path& target_folder) {
  const JsonFields fields(config, "");
  for (const char* name : {"norm_before_fc", "parallel_drafting"}) {
    ASSIGN_OR_RETURN(const auto flag, fields.Bool(name));
    if (flag.value_or(false))
      return Fail(ErrorCode::kUnsupported, fmt::format("{} true is not supported", name), name);
  }
  ASSIGN_OR_RETURN(const auto made_for, fields.Integer("target_hidden_size", 1, kMaxConfigWidth));
  const int64_t hidden = made_for.value_or(head.hidden_size);
  if (hidden != target.hidden_size) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "it continues hidden rows of {} numbers ({} of its config.json), but the hidden rows "
            "of the model in {} have {}; use the head that was made for this model",
            hidden, made_for ? "target_hidden_size" : "hidden_size", target_folder.string(),
            target.hidden_size),
        "speculative_config");
  }
  if (head.vocab_size == target.vocab_size) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("its vocabulary has {} tokens, but that of the model in {} has {}; use "
                          "the head that was made for this model",
                          head.vocab_size, target_folder.string(), target.vocab_size),
              "speculative_config");
}

// Returns the target's token id for each of the head's logits: logit i belongs to token i + d2t[i].
Result<std::vector<int32_t>> ReadTargetIds(const Checkpoint& checkpoint, int64_t num_outputs,
                                           int64_t vocab_size) {
  const auto bad = [&](const std::string& message) {
    return Fail(ErrorCode::kInvalidData, message, "d2t");
  };
  const StoredTensor* const map = checkpoint.Find("d2t");
  if (map == nullptr) {
    return bad(
        fmt::format("tensor 'd2t' is missing: the head has logits of {} tokens, the model has {}, "
                    "and d2t maps the head's tokens to the model's",
                    num_outputs, vocab_size));
  }
  const ElementType type = map->info->type;
  if (map->info->shape != std::vector<int64_t>{num_outputs} ||
      (type != ElementType::kI64 && type != ElementType::kI32)) {
    return bad(fmt::format(
        "tensor 'd2t' is {} of {}, expected [{}] ({} in config.json) of I64 or "
        "I32",
        ShapeText(map->info->shape), ElementTypeName(type), num_outputs, kDraftVocabulary));
  }
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(num_outputs));
  for (int64_t i = 0; i < num_outputs; ++i) {
    int64_t offset = 0;
    if (type == ElementType::kI64) {
      std::memcpy(&offset, map->bytes().data() + i * 8, 8);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, map->bytes().data() + i * 4, 4);
      offset = narrow;
    }
    const int64_t last = ids.empty() ? -1 : ids.back();
    if (offset < 0 || offset >= vocab_size || i + offset >= vocab_size || i + offset <= last) {
      return bad(fmt::format(
          "element {} of tensor 'd2t' is {}: token {} of the head would be token "
          "{} of the model; expected ascending numbers below {}",
          i, offset, i, static_cast<double>(i) + static_cast<double>(offset), vocab_size));
    }
    ids.push_back(static_cast<int32_t>(i + offset));
  }
  return ids;
}

// Returns the target token ids that are used with random weights, spread evenly over the
// vocabulary.
std::vector<int32_t> DummyTargetIds(int64_t num_outputs, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < num_outputs; ++i)
    ids.push_back(static_cast<int32_t>(i * vocab_size / num_outputs));
  return ids;
}

bool HasTensorsOf(const Checkpoint& checkpoint, std::string_view module) {
  const auto found = checkpoint.tensors().lower_bound(module);
  return found != checkpoint.tensors().end() && found->first.starts_with(module);
}

// Determines which tensors the head has, and which ones it shares with the target.
Status ReadEagle3Names(const std::filesystem::path& folder, const ModelConfig& target,
                       ModelConfig& config, DrafterSpec& drafter) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  if (HasTensorsOf(checkpoint, "midlayer.")) drafter.layers.front() = "midlayer";
  if (!HasTensorsOf(checkpoint, "model.embed_tokens.")) drafter.embedding = "";
  const int64_t vocab_size = config.vocab_size;
  if (!HasTensorsOf(checkpoint, "lm_head.")) {
    drafter.head = "";
    config.spec.tied_head = target.spec.tied_head;
  }
  if ((drafter.embedding.empty() || drafter.head.empty()) &&
      config.hidden_size != target.hidden_size) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("its rows have {} numbers (hidden_size), those of the model {}, so it "
                            "needs its own embed_tokens and lm_head; {} is missing",
                            config.hidden_size, target.hidden_size,
                            drafter.embedding.empty() ? "embed_tokens" : "lm_head"));
  }
  if (drafter.head.empty() && drafter.num_outputs != vocab_size) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("tensor 'lm_head.weight' is missing: with {} {} of {} tokens the head "
                            "cannot be the model's",
                            kDraftVocabulary, drafter.num_outputs, vocab_size),
                "lm_head.weight");
  }
  if (drafter.num_outputs < vocab_size || checkpoint.Find("d2t") != nullptr) {
    ASSIGN_OR_RETURN(drafter.target_ids,
                     ReadTargetIds(checkpoint, drafter.num_outputs, vocab_size));
  }
  return {};
}

// Returns the layers whose outputs a DFlash drafter reads if its configuration does not list them.
// Source: build_target_layer_ids of the authors' dflash.py.
std::vector<int64_t> DefaultDflashLayers(int64_t num_target_layers, int64_t num_layers) {
  if (num_layers == 1) return {num_target_layers / 2};
  std::vector<int64_t> layers;
  const auto span = static_cast<double>(num_target_layers - 4);
  for (int64_t i = 0; i < num_layers; ++i) {
    const double place = 1 + static_cast<double>(i) * span / static_cast<double>(num_layers - 1);
    layers.push_back(static_cast<int64_t>(std::nearbyint(place)));
  }
  return layers;
}

// Returns the layers of the target whose inputs the drafter reads.
Result<std::vector<int64_t>> ReadDflashLayers(const JsonFields& fields, int64_t num_layers,
                                              const ModelConfig& target) {
  constexpr const char* kLayers = "target_layer_ids";
  const int64_t count = std::ssize(target.spec.layers);
  ASSIGN_OR_RETURN(auto layers, fields.Integers(kLayers, 0, kMaxConfigWidth));
  if (!layers) layers = DefaultDflashLayers(count, num_layers);
  if (layers->empty()) return NamesNoLayers(kLayers);
  for (int64_t& layer : *layers) {
    if (layer >= 0 && layer < count - 1) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the drafter reads the outputs of layers {} of the model, which has "
                            "{}; supported are layers from 0 to {}",
                            fmt::join(*layers, ", "), count, count - 2),
                kLayers);
  }
  for (int64_t& layer : *layers) ++layer;
  return *std::move(layers);
}

// Refuses variants whose blocks are computed in another way.
Status CheckDflash(const ModelConfig& config, const JsonFields& fields) {
  for (const char* name : {"causal_head", "is_causal"}) {
    ASSIGN_OR_RETURN(const auto flag, fields.Bool(name));
    if (flag.value_or(false))
      return Fail(ErrorCode::kUnsupported, fmt::format("{} true is not supported", name), name);
  }
  for (const LayerSpec& layer : config.spec.layers) {
    if (layer.attention.span == AttentionSpan()) continue;
    return Fail(ErrorCode::kUnsupported,
                "layers of the drafter attend to a window of positions, which is not supported: "
                "expected layer_types of full_attention",
                "layer_types");
  }
  return {};
}

// Compares a sample of the tensors' pages. Most of these tensors are copies; comparing them in full
// would take as long as loading them.
bool HoldTheSame(const StoredTensor& a, const StoredTensor& b) {
  const auto x = a.bytes(), y = b.bytes();
  constexpr size_t kSamples = 16, kSampleBytes = 4096;
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t begin = x.size() / kSamples * i;
    const size_t bytes = std::min(kSampleBytes, x.size() - begin);
    if (std::memcmp(x.data() + begin, y.data() + begin, bytes) != 0) return false;
  }
  return true;
}

// Returns `module`. Returns "" if the checkpoint has no such module, or if the module's weights
// equal those of the target's module.
std::string OwnModule(const Checkpoint& checkpoint, const std::string& module,
                      const std::string& of_model) {
  const StoredTensor* const own = checkpoint.Find(module + ".weight");
  if (own == nullptr) return "";
  const StoredTensor* const shared = checkpoint.Find(of_model + ".weight");
  return shared != nullptr && HoldTheSame(*own, *shared) ? "" : module;
}

// The draft layer with DeepSeek V3's names. Source: DeepSeek V3's README_WEIGHTS.
DrafterSpec DeepseekMtp(const ModelConfig& target) {
  const std::string layer = fmt::format("model.layers.{}", target.spec.layers.size());
  return {.layers = {layer},
          .projection = layer + ".eh_proj",
          .token_norm = layer + ".enorm",
          .hidden_norm = layer + ".hnorm",
          .embedding = layer + ".embed_tokens",
          .head = layer + ".shared_head.head"};
}

// Source: vLLM's qwen3_next_mtp.py.
DrafterSpec QwenMtp() {
  return {.layers = {"mtp.layers.0"},
          .projection = "mtp.fc",
          .token_norm = "mtp.pre_fc_norm_embedding",
          .hidden_norm = "mtp.pre_fc_norm_hidden",
          .keeps_norm = true};
}

// Source: vLLM's mimo_mtp.py.
DrafterSpec MimoMtp() {
  const std::string layer = "model.mtp_layers.0";
  return {.layers = {layer},
          .projection = layer + ".input_proj",
          .token_norm = layer + ".token_layernorm",
          .hidden_norm = layer + ".hidden_layernorm",
          .hidden_first = true,
          .keeps_norm = true};
}

// Returns the last layer with attention; the draft layer has the same kind of attention.
const LayerSpec* LastAttending(const DecoderSpec& spec) {
  const auto found = std::find_if(spec.layers.rbegin(), spec.layers.rend(),
                                  [](const LayerSpec& layer) { return layer.attention.exists(); });
  return found == spec.layers.rend() ? nullptr : &*found;
}

// Loads copies of the target's embedding and output head, except the ones that `head` has itself.
Result<std::shared_ptr<const DecoderWeights>> CopyTables(ThreadPool& pool,
                                                         const ModelConfig& target,
                                                         const std::filesystem::path& folder,
                                                         const DrafterSpec& head,
                                                         const ModelOptions& options) {
  DecoderSpec spec = target.spec;
  spec.layers.clear();
  spec.num_draft_layers = 0;
  spec.layer_embeddings.width = 0;
  spec.tied_head = spec.tied_head || !head.head.empty();
  const auto weights = std::make_shared<DecoderWeights>();
  ParameterList list = ListParameters(spec, *weights, {}, nullptr);
  if (!head.embedding.empty() && !(head.head.empty() && target.spec.tied_head)) {
    std::erase_if(list.matrices, [&](const MatrixParameter& matrix) {
      return matrix.target == &weights->embedding;
    });
  }
  if (options.load_format == ModelOptions::LoadFormat::kDummy) {
    RETURN_IF_ERROR(FillDummyParameters(pool, list, options.dummy_seed, *target.scheme,
                                        options.compute_type, {}));
  } else {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
    RETURN_IF_ERROR(LoadParameters(pool, list, checkpoint, *target.scheme, options.compute_type, {},
                                   options.allow_nonfinite));
  }
  return std::shared_ptr<const DecoderWeights>(weights);
}

// Uses the embedding and the output head that are in the head's own checkpoint.
void ReadOwnTables(const Checkpoint& checkpoint, ModelConfig& config, DrafterSpec& drafter) {
  if (HasTensorsOf(checkpoint, "model.embed_tokens.")) drafter.embedding = "model.embed_tokens";
  if (!HasTensorsOf(checkpoint, "lm_head.")) return;
  drafter.head = "lm_head";
  config.spec.tied_head = false;
}

// `what`: "head" or "drafter", for the message.
Status CheckHiddenSize(const ModelConfig& config, const ModelConfig& target, const char* what) {
  if (target.spec.streams) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} has several residual streams, which no {} of this program reads",
                            target.architecture, what),
                "speculative_config");
  }
  if (config.hidden_size == target.hidden_size) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("hidden_size of its config.json is {}, that of the model {}; use the {} "
                          "that was made for this model",
                          config.hidden_size, target.hidden_size, what),
              "speculative_config");
}

// Whether this is an EAGLE-1 head. These are also published as LlamaForCausalLM; their projection
// distinguishes them from Llama models.
bool IsEagle1(const json::Value& config, const std::filesystem::path& folder, bool has_weights) {
  const std::string names = ArchitectureNames(config);
  if (std::ranges::find(kEagle1Architectures, names) != kEagle1Architectures.end()) return true;
  const auto kind = JsonFields(config, "").String("speculators_model_type");
  if (kind && *kind && **kind == "eagle") return true;
  if (names != "LlamaForCausalLM" || !has_weights) return false;
  const auto checkpoint = Checkpoint::Open(folder);
  return checkpoint && checkpoint->Find("fc.weight") != nullptr;
}

Result<DrafterSpec> ReadEagle1(const json::Value& raw, const std::filesystem::path& folder,
                               const ModelConfig& target, bool has_weights, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto has_norms, JsonFields(raw, "").Bool("layernorms"));
  if (has_norms.value_or(false))
    return Fail(ErrorCode::kUnsupported, "layernorms true is not supported", "layernorms");
  RETURN_IF_ERROR(CheckHiddenSize(config, target, "head"));
  DrafterSpec drafter;
  drafter.kind = DrafterSpec::Kind::kEagle1;
  drafter.takes.is_normed = true;
  drafter.target_hidden_size = target.hidden_size;
  for (size_t i = 0; i < config.spec.layers.size(); ++i)
    drafter.layers.push_back(fmt::format("model.layers.{}", i));
  drafter.projection = "fc";
  drafter.num_outputs = config.vocab_size;
  config.spec.layers.front().attention_norms.before = "";
  config.spec.final_norm = "";
  config.spec.tied_head = target.spec.tied_head;
  config.max_position_embeddings = target.max_position_embeddings;
  if (!has_weights) return drafter;
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  drafter.projection_bias = checkpoint.Find("fc.bias") != nullptr;
  ReadOwnTables(checkpoint, config, drafter);
  return drafter;
}

Result<DrafterConfig> WithScheme(const std::filesystem::path& folder, const json::Value& raw,
                                 const LoadQuantization& quantization, ModelConfig config,
                                 DrafterSpec drafter) {
  ASSIGN_OR_RETURN(config.scheme, LoadScheme(folder, raw));
  if (!quantization.empty()) {
    ASSIGN_OR_RETURN(config.scheme,
                     QuantizeAtLoad(std::move(config.scheme), quantization, /*tied_head=*/false));
  }
  return DrafterConfig{std::move(config), std::move(drafter)};
}

}  // namespace

bool IsEagle3Config(const json::Value& config) {
  const std::string names = ArchitectureNames(config);
  if (std::ranges::find(kEagle3Architectures, names) != kEagle3Architectures.end()) return true;
  const auto kind = JsonFields(config, "").String("speculators_model_type");
  return kind && *kind && **kind == "eagle3";
}

Result<DrafterConfig> LoadEagleConfig(const std::filesystem::path& folder,
                                      const ModelConfig& target,
                                      const std::filesystem::path& target_folder,
                                      const LoadQuantization& quantization, bool has_weights) {
  ASSIGN_OR_RETURN(const json::Value raw, ReadJsonObject(folder / "config.json"));
  const bool is_eagle3 = IsEagle3Config(raw);
  if (!is_eagle3 && !IsEagle1(raw, folder, has_weights)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} is no EAGLE head of this program, which has {}, {}, and "
                            "speculators_model_type eagle3 or eagle",
                            ArchitectureNames(raw), fmt::join(kEagle3Architectures, ", "),
                            fmt::join(kEagle1Architectures, ", ")),
                "architectures");
  }
  ASSIGN_OR_RETURN(const json::Value flat, FlatEagleConfig(raw));
  ASSIGN_OR_RETURN(ModelConfig config, ParseModelShape(flat));
  config.architecture = ArchitectureNames(raw);
  RETURN_IF_ERROR(CheckEagle(raw, config, target, target_folder));
  if (!is_eagle3) {
    ASSIGN_OR_RETURN(DrafterSpec drafter, ReadEagle1(raw, folder, target, has_weights, config));
    return WithScheme(folder, raw, quantization, std::move(config), std::move(drafter));
  }
  const JsonFields fields(raw, "");
  ASSIGN_OR_RETURN(const auto outputs, fields.Integer(kDraftVocabulary, 1, config.vocab_size));
  ASSIGN_OR_RETURN(const auto norms_residual, fields.Bool("norm_before_residual"));
  DrafterSpec drafter;
  drafter.kind = DrafterSpec::Kind::kEagle3;
  ASSIGN_OR_RETURN(drafter.takes.layers, ReadHandedLayers(raw, target));
  drafter.target_hidden_size = target.hidden_size;
  for (size_t i = 0; i < config.spec.layers.size(); ++i)
    drafter.layers.push_back(fmt::format("model.layers.{}", i));
  drafter.projection = "fc";
  drafter.norms_residual = norms_residual.value_or(false);
  drafter.embedding = "model.embed_tokens";
  drafter.head = "lm_head";
  drafter.num_outputs = outputs.value_or(config.vocab_size);
  if (has_weights) {
    RETURN_IF_ERROR(ReadEagle3Names(folder, target, config, drafter));
  } else if (drafter.num_outputs < config.vocab_size) {
    drafter.target_ids = DummyTargetIds(drafter.num_outputs, config.vocab_size);
  }
  drafter.token_norm = drafter.layers.front() + ".input_layernorm";
  drafter.hidden_norm = drafter.layers.front() + ".hidden_norm";
  // Replaced by the separate norms of embedding and hidden row.
  config.spec.layers.front().attention_norms.before = "";
  // RoPE has no maximum position, and published heads state only the length with which they were
  // trained.
  config.max_position_embeddings = target.max_position_embeddings;
  return WithScheme(folder, raw, quantization, std::move(config), std::move(drafter));
}

Result<DrafterConfig> LoadDflashConfig(const std::filesystem::path& folder,
                                       const ModelConfig& target,
                                       const std::filesystem::path& target_folder,
                                       const LoadQuantization& quantization, bool has_weights) {
  ASSIGN_OR_RETURN(const json::Value raw, ReadJsonObject(folder / "config.json"));
  const std::string architecture = ArchitectureNames(raw);
  if (architecture != kDflashArchitecture) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} is no drafter of method dflash, which is {}", architecture,
                            kDflashArchitecture),
                "architectures");
  }
  json::Value flat = raw;
  json::Value::Array names;
  names.emplace_back("Qwen3ForCausalLM");
  flat.Set("architectures", json::Value(std::move(names)));
  flat.Set("model_type", "qwen3");
  flat.Set("tie_word_embeddings", false);
  ASSIGN_OR_RETURN(ModelConfig config, ParseModelShape(flat));
  config.architecture = architecture;
  RETURN_IF_ERROR(CheckEagle(raw, config, target, target_folder));
  const JsonFields fields(raw, "");
  ASSIGN_OR_RETURN(const json::Value* nested, fields.Object("dflash_config"));
  const json::Value empty{json::Value::Object()};
  const JsonFields own(nested != nullptr && nested->is_object() ? *nested : empty,
                       "dflash_config.");
  RETURN_IF_ERROR(CheckDflash(config, own));
  ASSIGN_OR_RETURN(const auto block_size, fields.Integer("block_size", 2, kMaxDflashBlock));
  ASSIGN_OR_RETURN(const auto mask, own.Integer("mask_token_id", 0, config.vocab_size - 1));
  if (!block_size || !mask) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{} is missing in the config.json in {}",
                    block_size ? "dflash_config.mask_token_id" : "block_size", folder.string()),
        block_size ? "mask_token_id" : "block_size");
  }
  DrafterSpec drafter;
  drafter.kind = DrafterSpec::Kind::kDflash;
  ASSIGN_OR_RETURN(drafter.takes.layers,
                   ReadDflashLayers(own, std::ssize(config.spec.layers), target));
  drafter.target_hidden_size = target.hidden_size;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    drafter.layers.push_back(fmt::format("model.layers.{}", i));
    config.spec.layers[i].attention.sees_images = true;  // the tokens of a block see each other
  }
  drafter.projection = "fc";
  drafter.hidden_norm = "hidden_norm";
  drafter.block_size = *block_size;
  drafter.mask_token = static_cast<int32_t>(*mask);
  drafter.num_outputs = config.vocab_size;
  config.spec.tied_head = target.spec.tied_head;
  config.max_position_embeddings = target.max_position_embeddings;
  RETURN_IF_ERROR(CheckHiddenSize(config, target, "drafter"));
  if (has_weights) {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
    ReadOwnTables(checkpoint, config, drafter);
  }
  return WithScheme(folder, raw, quantization, std::move(config), std::move(drafter));
}

Result<DrafterConfig> LoadMtpConfig(const ModelConfig& target,
                                    const std::filesystem::path& target_folder, bool has_weights) {
  constexpr std::array<std::string_view, 4> kDeepseekTypes = {"deepseek_v3", "glm4_moe",
                                                              "glm4_moe_lite", "kimi_k25"};
  const std::string& type = target.model_type;
  const bool is_deepseek = std::ranges::find(kDeepseekTypes, type) != kDeepseekTypes.end();
  const bool is_qwen = type.starts_with("qwen3_next") || type.starts_with("qwen3_5");
  const bool is_mimo = type == "mimo";
  if (!is_deepseek && !is_qwen && !is_mimo) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} has no layers that propose tokens, or none that this program "
                            "knows; it knows those of DeepSeek V3, GLM-4.5, MiMo, Qwen3-Next and "
                            "Qwen3.5",
                            target.architecture),
                "speculative_config");
  }
  const int64_t count = is_qwen ? 1 : target.spec.num_draft_layers;
  if (count != 1) {
    return Fail(count == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported,
                fmt::format("num_nextn_predict_layers of the config.json in {} is {}, expected 1",
                            target_folder.string(), count),
                "speculative_config");
  }
  ModelConfig config = target;
  config.spec.num_draft_layers = 0;
  config.spec.layers = {*LastAttending(target.spec)};
  DrafterSpec drafter = is_deepseek ? DeepseekMtp(target) : is_qwen ? QwenMtp() : MimoMtp();
  config.spec.final_norm = is_deepseek ? drafter.layers.front() + ".shared_head.norm"
                           : is_qwen   ? "mtp.norm"
                                       : drafter.layers.front() + ".final_layernorm";
  config.spec.final_norm_offset.reset();
  drafter.kind = DrafterSpec::Kind::kMtp;
  drafter.takes.is_normed = true;
  drafter.target_hidden_size = target.hidden_size;
  drafter.num_outputs = config.vocab_size;
  if (!has_weights) {
    drafter.embedding = drafter.head = "";
    return DrafterConfig{std::move(config), std::move(drafter)};
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(target_folder));
  constexpr const char* kTable = "model.embed_tokens";
  drafter.embedding = OwnModule(checkpoint, drafter.embedding, kTable);
  drafter.head = OwnModule(checkpoint, drafter.head, target.spec.tied_head ? kTable : "lm_head");
  if (!drafter.head.empty()) config.spec.tied_head = false;
  return DrafterConfig{std::move(config), std::move(drafter)};
}

Result<std::unique_ptr<Model>> LoadDrafter(ThreadPool& pool, const std::filesystem::path& folder,
                                           const ModelConfig& config, const ModelOptions& options,
                                           const Model& target,
                                           const std::filesystem::path& target_folder) {
  std::shared_ptr<const DecoderWeights> tables;
  if (const auto* const decoder = dynamic_cast<const DecoderModel*>(&target)) {
    tables = decoder->shared_weights();
  } else {
    ASSIGN_OR_RETURN(tables,
                     CopyTables(pool, target.config(), target_folder, *options.drafter, options));
  }
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenDrafter(folder, config, options));
  ASSIGN_OR_RETURN(std::unique_ptr<DecoderModel> model,
                   LoadShare(pool, checkpoint ? &*checkpoint : nullptr, config, options, {}, {}, {},
                             std::move(tables)));
  return std::unique_ptr<Model>(std::move(model));
}

Result<std::optional<Checkpoint>> OpenDrafter(const std::filesystem::path& folder,
                                              const ModelConfig& config,
                                              const ModelOptions& options) {
  if (options.load_format == ModelOptions::LoadFormat::kDummy) return std::optional<Checkpoint>();
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(folder));
  DecoderWeights unfilled;
  RETURN_IF_ERROR(CheckParameters(ListParameters(config.spec, unfilled, {}, options.drafter.get()),
                                  checkpoint, *config.scheme, config.spec));
  return std::optional<Checkpoint>(std::move(checkpoint));
}

int64_t CopiedTableBytes(const ModelConfig& target, const DrafterSpec& head, ElementType type) {
  const int64_t bytes = target.vocab_size * target.hidden_size * BitsPerElement(type) / 8;
  const bool copies_head = head.head.empty() && !target.spec.tied_head;
  const bool copies_embedding =
      head.embedding.empty() || (head.head.empty() && target.spec.tied_head);
  return bytes * ((copies_head ? 1 : 0) + (copies_embedding ? 1 : 0));
}

}  // namespace sluice
