#include "models/inspect.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mistral_format.h"
#include "checkpoint/quantization.h"
#include "checkpoint/scheme.h"
#include "models/parallel_model.h"
#include "models/unknown_operators.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

bool Exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string StringOf(const json::Value& config, std::string_view key) {
  const json::Value* value = config.Find(key);
  if (value != nullptr && value->is_array() && !value->as_array().empty())
    value = &value->as_array().front();
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

// Number of weights in a tensor: none for scales, two per byte of packed FP4, eight per word of
// INT4.
int64_t ParametersOf(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  if (name.find("_scale") != std::string_view::npos) return 0;
  for (const char* suffix : {"_zero_point", ".qzeros", ".scales", "g_idx", "weight_shape"}) {
    if (name.ends_with(suffix)) return 0;
  }
  if (tensor.type == ElementType::kI32 && tensor.shape.size() == 2)
    return tensor.num_elements() * 8;
  const bool packed = tensor.type == ElementType::kU8 && tensor.shape.size() >= 2;
  return tensor.num_elements() * (packed ? 2 : 1);
}

void DescribeTensors(const Checkpoint& checkpoint, InspectReport& report) {
  std::map<ElementType, TensorGroup> groups;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    TensorGroup& group = groups[tensor.info->type];
    group.type = ElementTypeName(tensor.info->type);
    ++group.count;
    group.elements += tensor.info->num_elements();
    group.bytes += static_cast<int64_t>(tensor.info->size_bytes);
    report.parameters += ParametersOf(*tensor.info);
  }
  for (const auto& [type, group] : groups) report.groups.push_back(group);
  std::sort(report.groups.begin(), report.groups.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const SafetensorsFile& file : checkpoint.files())
    report.files.push_back(file.path().filename().string());
  report.missing_files = checkpoint.missing_files();
  report.tensor_bytes = checkpoint.total_bytes();
}

// Returns the name of the tokenizer file that is read; "" if there is none.
std::string TokenizerFile(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer.json", "tekken.json"})
    if (Exists(folder / name)) return name;
  return "";
}

bool HasChatTemplate(const std::filesystem::path& folder) {
  if (Exists(folder / "chat_template.jinja") || Exists(folder / "chat_template.json")) return true;
  // The chat template follows from the version of tekken.json.
  if (TokenizerFile(folder) == "tekken.json") return true;
  const auto config = ReadJsonObject(folder / "tokenizer_config.json");
  return config && config->Find("chat_template") != nullptr &&
         !config->Find("chat_template")->is_null();
}

// Plans the memory that the model will take, if it can be loaded; otherwise returns the reason why
// it cannot.
Status PlanMemory(const Checkpoint* checkpoint, InspectReport& report) {
  // Uses the types that --kv-cache-dtype auto would select.
  if (report.config->scheme->WantsFp8KvCache())
    report.options.kv_type = ElementType::kF8E4M3;
  else if (report.config->spec.FirstMoeLayer() != nullptr)
    report.options.kv_type = ElementType::kF16;
  report.options.max_context =
      std::min(report.options.max_context, report.config->max_position_embeddings);
  ASSIGN_OR_RETURN(report.memory, PlanModel(*report.config, report.options, /*num_threads=*/1));
  report.kv_bytes_per_token = report.memory->kv_bytes_per_block / report.options.block_size;
  if (checkpoint == nullptr) return {};
  if (!checkpoint->missing_shard().empty())
    return Fail(ErrorCode::kInvalidData, checkpoint->missing_shard());
  return CheckTensors(*report.config, *checkpoint);
}

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string CountText(int64_t count) {
  if (count >= 1'000'000'000)
    return fmt::format("{:.2f} billion", static_cast<double>(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} million", static_cast<double>(count) / 1e6);
  return fmt::format("{}", count);
}

void Line(std::string& text, std::string_view label, std::string_view value) {
  text += fmt::format("{:<18}{}\n", label, value);
}

std::string RopeText(const ModelConfig& config) {
  std::string text = fmt::format("theta {}", config.rope.theta);
  if (config.rope.scaling) {
    text += fmt::format(", {} scaling by {} from {} positions",
                        RopeKindName(config.rope.scaling->kind), config.rope.scaling->factor,
                        config.rope.scaling->original_max_position_embeddings);
  }
  return text;
}

// Returns the latent attention of the first layer; null if the model does not use latent attention.
const LatentSpec* LatentOf(const ModelConfig& config) {
  if (config.spec.layers.empty() || !config.spec.layers.front().attention.latent) return nullptr;
  return &*config.spec.layers.front().attention.latent;
}

// Null if no layer attends to chosen blocks. All layers that do have equal indexers.
const BlockIndexerSpec* BlockIndexerOf(const ModelConfig& config) {
  for (const LayerSpec& layer : config.spec.layers) {
    if (layer.attention.block_indexer) return &*layer.attention.block_indexer;
  }
  return nullptr;
}

void AppendConfig(const ModelConfig& config, std::string& text) {
  Line(text, "layers", fmt::format("{}", config.num_hidden_layers));
  Line(text, "hidden size",
       fmt::format("{}, MLP {}", config.hidden_size, config.intermediate_size));
  if (const LayerSpec* layer = config.spec.FirstMoeLayer()) {
    Line(text, "experts",
         fmt::format("{} of {} in {} layers, {} a token{}", layer->moe->num_experts,
                     layer->moe->intermediate_size, config.spec.NumMoeLayers(), layer->moe->top_k,
                     layer->mlp.intermediate_size > 0 ? " and a shared one" : ""));
  }
  const LatentSpec* const latent = LatentOf(config);
  if (latent != nullptr && latent->compressed) {
    Line(text, "heads",
         fmt::format("{} of {}, of which {} with rope, a vector of {} for all, a window of {}",
                     config.num_attention_heads, latent->qk_dim(), latent->rope_dim,
                     latent->qk_dim(), latent->compressed->window));
  } else if (latent != nullptr) {
    Line(text, "heads",
         fmt::format("{} of {} and {} with rope, a latent vector of {} and a key of {} for all",
                     config.num_attention_heads, latent->nope_dim, latent->rope_dim,
                     latent->kv_rank, latent->rope_dim));
  } else {
    Line(text, "heads",
         fmt::format("{} of {}, {} for keys and values", config.num_attention_heads,
                     config.head_dim, config.num_key_value_heads));
  }
  if (const BlockIndexerSpec* indexer = BlockIndexerOf(config)) {
    const auto layers = std::count_if(
        config.spec.layers.begin(), config.spec.layers.end(),
        [](const LayerSpec& layer) { return layer.attention.block_indexer.has_value(); });
    Line(
        text, "indexer",
        fmt::format("{} heads of {} choose {} blocks of {} positions in {} layers",
                    indexer->num_heads, indexer->head_dim, indexer->top_k, indexer->block, layers));
  }
  Line(text, "vocabulary",
       fmt::format("{}, head {}", config.vocab_size,
                   config.tie_word_embeddings ? "tied to the embedding" : "of its own"));
  Line(text, "context", fmt::format("{} tokens", config.max_position_embeddings));
  Line(text, "rope", RopeText(config));
  Line(text, "dtype", ElementTypeName(config.dtype));
}

json::Value ConfigJson(const ModelConfig& config) {
  json::Value value{json::Value::Object{}};
  value.Set("num_hidden_layers", config.num_hidden_layers);
  value.Set("hidden_size", config.hidden_size);
  value.Set("intermediate_size", config.intermediate_size);
  if (const LayerSpec* layer = config.spec.FirstMoeLayer()) {
    value.Set("num_experts", layer->moe->num_experts);
    value.Set("num_experts_per_tok", layer->moe->top_k);
    value.Set("expert_intermediate_size", layer->moe->intermediate_size);
  }
  value.Set("num_attention_heads", config.num_attention_heads);
  value.Set("num_key_value_heads", config.num_key_value_heads);
  value.Set("head_dim", config.head_dim);
  if (const LatentSpec* latent = LatentOf(config); latent != nullptr && !latent->compressed)
    value.Set("kv_lora_rank", int64_t{latent->kv_rank});
  if (const BlockIndexerSpec* indexer = BlockIndexerOf(config)) {
    value.Set("index_topk_blocks", int64_t{indexer->top_k});
    value.Set("index_block_size", int64_t{indexer->block});
  }
  value.Set("vocab_size", config.vocab_size);
  value.Set("max_position_embeddings", config.max_position_embeddings);
  value.Set("tie_word_embeddings", config.tie_word_embeddings);
  value.Set("rms_norm_eps", config.rms_norm_eps);
  value.Set("rope_theta", config.rope.theta);
  value.Set("rope_type", config.rope.scaling ? RopeKindName(config.rope.scaling->kind) : "default");
  value.Set("dtype", ElementTypeName(config.dtype));
  return value;
}

Status DescribeRanks(int tensor_size, int num_stages, InspectReport& report) {
  const DecoderSpec& spec = report.config->spec;
  RETURN_IF_ERROR(CheckRanks(spec, tensor_size, num_stages));
  const LayerSpec& layer = spec.layers.front();
  const int64_t mlp_rows = layer.moe ? layer.moe->intermediate_size : layer.mlp.intermediate_size;
  for (int rank = 0; rank < tensor_size * num_stages; ++rank) {
    RankReport& entry = report.ranks.emplace_back();
    entry.place = RankPlace::Of(rank, tensor_size, num_stages);
    const int part = entry.place.tensor_rank;
    entry.layers = LayersOf(spec, entry.place);
    entry.heads = CutHeads(layer.attention, part, tensor_size);
    entry.hidden_rows = CutRows(spec.hidden_size, part, tensor_size);
    entry.mlp_rows = CutRows(mlp_rows, part, tensor_size);
    if (entry.place.is_first_stage()) entry.words = CutRows(spec.vocab_size, part, tensor_size);
    ASSIGN_OR_RETURN(entry.memory,
                     PlanShare(*report.config, report.options, /*num_threads=*/1, entry.place));
  }
  return {};
}

// Formats a range, such as "0-7"; "-" if it is empty.
std::string RangeText(const RowRange& range) {
  return range.size() == 0 ? "-" : fmt::format("{}-{}", range.begin, range.end - 1);
}

void AppendRanks(const InspectReport& report, std::string& text) {
  const RankPlace& last = report.ranks.back().place;
  text += fmt::format("\nRanks: {} share each layer, {} divide the layers\n", last.tensor_size,
                      last.num_stages);
  text += fmt::format("  {:>4} {:>9} {:>9} {:>9} {:>12} {:>12} {:>14} {:>10} {:>10} {:>10}\n",
                      "rank", "layers", "q heads", "KV heads", "hidden rows", "MLP rows", "words",
                      "weights", "workspace", "KV/token");
  for (const RankReport& rank : report.ranks) {
    text += fmt::format("  {:>4} {:>9} {:>9} {:>9} {:>12} {:>12} {:>14} {:>10} {:>10} {:>10}\n",
                        rank.place.rank(), RangeText(rank.layers), RangeText(rank.heads.q),
                        RangeText(rank.heads.kv), RangeText(rank.hidden_rows),
                        RangeText(rank.mlp_rows), RangeText(rank.words),
                        BytesText(rank.memory.weight_bytes), BytesText(rank.memory.workspace_bytes),
                        BytesText(rank.memory.kv_bytes_per_block / report.options.block_size));
  }
}

json::Value RanksJson(const InspectReport& report) {
  const auto range = [](const RowRange& rows) {
    return json::Value(json::Value::Array{json::Value(rows.begin), json::Value(rows.end)});
  };
  json::Value::Array ranks;
  for (const RankReport& rank : report.ranks) {
    json::Value entry{json::Value::Object{}};
    entry.Set("rank", int64_t{rank.place.rank()});
    entry.Set("stage", int64_t{rank.place.stage});
    entry.Set("layers", range(rank.layers));
    entry.Set("q_heads", range(rank.heads.q));
    entry.Set("kv_heads", range(rank.heads.kv));
    entry.Set("hidden_rows", range(rank.hidden_rows));
    entry.Set("mlp_rows", range(rank.mlp_rows));
    entry.Set("words", range(rank.words));
    entry.Set("weight_bytes", rank.memory.weight_bytes);
    entry.Set("workspace_bytes", rank.memory.workspace_bytes);
    entry.Set("kv_bytes_per_token", rank.memory.kv_bytes_per_block / report.options.block_size);
    ranks.push_back(std::move(entry));
  }
  return ranks;
}

}  // namespace

Result<InspectReport> InspectModel(const std::filesystem::path& folder, int tensor_size,
                                   int num_stages) {
  InspectReport report;
  report.folder = folder;
  const auto file = ReadModelConfig(folder);
  if (!file) {
    // If the file is missing, this error describes the content of the folder.
    RETURN_IF_ERROR(LoadModelConfig(folder));
    return tl::unexpected<Error>(file.error());
  }
  const json::Value& raw = *file;
  report.architecture = StringOf(raw, "architectures");
  report.model_type = StringOf(raw, "model_type");
  ASSIGN_OR_RETURN(report.quantization, DescribeQuantization(folder, raw));
  const auto shape = ParseModelShape(raw);
  if (shape) {
    report.config = *shape;
    report.architecture = report.config->architecture;
  }
  report.has_tokenizer = !TokenizerFile(folder).empty();
  report.has_chat_template = HasChatTemplate(folder);
  report.has_generation_config = Exists(folder / "generation_config.json");

  auto checkpoint = Checkpoint::OpenIncomplete(folder);
  // A folder without weights is still described, because --load-format dummy can run it.
  if (!checkpoint && checkpoint.error().code != ErrorCode::kNotFound)
    return tl::unexpected<Error>(std::move(checkpoint).error());
  if (checkpoint) DescribeTensors(*checkpoint, report);
  if (!shape) {
    report.missing_operators = UnknownOperators(raw, checkpoint ? &*checkpoint : nullptr);
    report.is_unknown =
        shape.error().param == "architectures" || shape.error().param == "model_type";
  }
  // This also checks the quantization scheme, which ParseModelShape does not read.
  auto loadable = LoadModelConfig(folder);
  if (loadable) {
    report.config = *loadable;
    report.scheme = loadable->scheme->Name();
    report.method = loadable->scheme->Method();
    report.fp8_kv_cache = loadable->scheme->WantsFp8KvCache();
  }
  if (!loadable) {
    report.refusal = loadable.error().message;
  } else if (const auto planned = PlanMemory(checkpoint ? &*checkpoint : nullptr, report);
             !planned) {
    report.refusal = planned.error().message;
  } else if (!checkpoint) {
    report.refusal = checkpoint.error().message;
  }
  if (report.memory && tensor_size * num_stages > 1)
    RETURN_IF_ERROR(DescribeRanks(tensor_size, num_stages, report));
  return report;
}

std::string FormatText(const InspectReport& report) {
  std::string text;
  Line(text, "folder", report.folder.string());
  Line(text, "architecture", fmt::format("{} ({})", report.architecture, report.model_type));
  Line(text, "can be served", report.refusal ? "no: " + *report.refusal : "yes");
  for (const std::string& needs : report.missing_operators)
    Line(text, &needs == report.missing_operators.data() ? "it needs" : "", needs);
  if (report.is_unknown && report.missing_operators.empty()) {
    Line(text, "it needs",
         "a separate file in src/models/families: config.json and tensors need no operator that is "
         "missing");
  }
  Line(text, "quantization", report.quantization.empty() ? "none" : report.quantization);
  if (!report.method.empty()) {
    Line(text, "scheme",
         fmt::format("{}{} (--quantization {})", report.scheme,
                     report.fp8_kv_cache ? ", FP8 KV cache" : "", report.method));
  }
  Line(text, "parameters", CountText(report.parameters));
  if (report.config) AppendConfig(*report.config, text);
  Line(text, "tokenizer",
       report.has_tokenizer ? TokenizerFile(report.folder) : "no tokenizer.json");
  Line(text, "chat template", report.has_chat_template ? "yes" : "no");
  text += fmt::format("\nTensors: {} in {} file{}\n", BytesText(report.tensor_bytes),
                      report.files.size(), report.files.size() == 1 ? "" : "s");
  for (const std::string& missing : report.missing_files)
    text += fmt::format("  missing: {}\n", missing);
  for (const TensorGroup& group : report.groups) {
    text += fmt::format("  {:<10}{:>6} tensors {:>14} elements {:>12}\n", group.type, group.count,
                        group.elements, BytesText(group.bytes));
  }
  if (!report.memory) return text;
  text += "\nMemory\n";
  text += fmt::format("  {:<18}{:>12}\n", "weights", BytesText(report.memory->weight_bytes));
  text +=
      fmt::format("  {:<18}{:>12}  ({} tokens and {} sequences in a step, context {})\n",
                  "workspace", BytesText(report.memory->workspace_bytes), report.options.max_rows,
                  report.options.max_slices, report.options.max_context);
  text +=
      fmt::format("  {:<18}{:>12}  in {}\n", "KV per token", BytesText(report.kv_bytes_per_token),
                  ElementTypeName(report.options.kv_type));
  text += fmt::format("  {:<18}{:>12}  of {} tokens\n", "KV per block",
                      BytesText(report.memory->kv_bytes_per_block), report.options.block_size);
  if (!report.ranks.empty()) AppendRanks(report, text);
  return text;
}

json::Value ToJson(const InspectReport& report) {
  json::Value value{json::Value::Object{}};
  value.Set("folder", report.folder.string());
  value.Set("architecture", report.architecture);
  value.Set("model_type", report.model_type);
  value.Set("supported", !report.refusal.has_value());
  value.Set("refusal", report.refusal ? json::Value(*report.refusal) : json::Value());
  value.Set("missing_operators",
            json::Value::Array(report.missing_operators.begin(), report.missing_operators.end()));
  value.Set("quantization",
            report.quantization.empty() ? json::Value() : json::Value(report.quantization));
  value.Set("scheme", report.scheme.empty() ? json::Value() : json::Value(report.scheme));
  value.Set("quantization_option",
            report.method.empty() ? json::Value() : json::Value(report.method));
  value.Set("fp8_kv_cache", report.fp8_kv_cache);
  value.Set("parameters", report.parameters);
  value.Set("config", report.config ? ConfigJson(*report.config) : json::Value());
  value.Set("has_tokenizer", report.has_tokenizer);
  value.Set("has_chat_template", report.has_chat_template);
  value.Set("has_generation_config", report.has_generation_config);
  json::Value::Array files(report.files.begin(), report.files.end());
  value.Set("files", std::move(files));
  value.Set("missing_files",
            json::Value::Array(report.missing_files.begin(), report.missing_files.end()));
  value.Set("tensor_bytes", report.tensor_bytes);
  json::Value::Array groups;
  for (const TensorGroup& group : report.groups) {
    json::Value entry{json::Value::Object{}};
    entry.Set("type", group.type);
    entry.Set("tensors", group.count);
    entry.Set("elements", group.elements);
    entry.Set("bytes", group.bytes);
    groups.push_back(std::move(entry));
  }
  value.Set("tensors", std::move(groups));
  json::Value memory;
  if (report.memory) {
    memory = json::Value(json::Value::Object{});
    memory.Set("weight_bytes", report.memory->weight_bytes);
    memory.Set("workspace_bytes", report.memory->workspace_bytes);
    memory.Set("kv_bytes_per_token", report.kv_bytes_per_token);
    memory.Set("kv_bytes_per_block", report.memory->kv_bytes_per_block);
    memory.Set("block_size", int64_t{report.options.block_size});
  }
  value.Set("memory", std::move(memory));
  if (!report.ranks.empty()) value.Set("ranks", RanksJson(report));
  return value;
}

}  // namespace sluice
