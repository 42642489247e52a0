#include "checkpoint/model_config.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "base/json_fields.h"
#include "checkpoint/rope_config.h"
#include "checkpoint/scheme.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{8} << 20;
// Bounds that keep every product of two dimensions far inside 64 bits; published models are well
// below them.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

// What an architecture takes for granted.
struct Architecture {
  std::string_view name;
  std::string_view model_type;
  int64_t default_head_dim;  // 0: hidden_size / num_attention_heads
  int64_t default_kv_heads;  // 0: num_attention_heads
  double default_eps;
  Status (*read_layers)(const JsonFields& fields, ModelConfig& config);
  bool is_nested = false;  // the decoder's fields stand in text_config
};

// In alphabetical order.
constexpr std::array kArchitectures = {
    Architecture{"Llama4ForCausalLM", "llama4_text", 128, 8, 1e-5, ReadLlama4Layers},
    Architecture{"Llama4ForConditionalGeneration", "llama4", 128, 8, 1e-5, ReadLlama4Layers, true},
    Architecture{"LlamaForCausalLM", "llama", 0, 0, 1e-6, ReadFullAttention},
    Architecture{"MistralForCausalLM", "mistral", 0, 8, 1e-6, ReadMistralAttention},
    Architecture{"Qwen2ForCausalLM", "qwen2", 0, 32, 1e-6, ReadSlidingAttention},
    Architecture{"Qwen3ForCausalLM", "qwen3", 128, 0, 1e-6, ReadSlidingAttention},
    Architecture{"Qwen3MoeForCausalLM", "qwen3_moe", 0, 4, 1e-6, ReadQwen3MoeLayers},
};

tl::unexpected<Error> Unsupported(std::string message, std::string field) {
  return Fail(ErrorCode::kUnsupported, std::move(message), std::move(field));
}

Result<const Architecture*> FindArchitecture(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto names, fields.Strings("architectures"));
  ASSIGN_OR_RETURN(const auto given_type, fields.String("model_type"));
  const std::string type = given_type.value_or("");
  const bool by_name = names && !names->empty();
  if (!by_name && type.empty()) return fields.Missing("architectures");
  for (const Architecture& architecture : kArchitectures) {
    if (by_name ? architecture.name != names->front() : architecture.model_type != type) continue;
    if (!type.empty() && type != architecture.model_type) {
      return Unsupported(
          fmt::format(
              "architecture {} with model_type '{}' is not supported, expected model_type '{}'",
              architecture.name, ShortName(type), architecture.model_type),
          "model_type");
    }
    return &architecture;
  }
  return Unsupported(fmt::format("architecture {} is not supported; supported are {}",
                                 ShortName(by_name ? names->front() : type),
                                 fmt::join(KnownArchitectures(), ", ")),
                     by_name ? "architectures" : "model_type");
}

// Settings that would change what the model computes and that are not implemented.
Status CheckRefused(const JsonFields& fields) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    ASSIGN_OR_RETURN(const auto activation, fields.String(key));
    if (activation && *activation != "silu" && *activation != "swish") {
      return Unsupported(
          fmt::format("{} '{}' is not supported; supported is silu", key, ShortName(*activation)),
          key);
    }
  }
  ASSIGN_OR_RETURN(const auto partial, fields.Number("partial_rotary_factor", 0, 1));
  if (partial.value_or(1) != 1) {
    return Unsupported(fmt::format("partial_rotary_factor {} is not supported, only 1", *partial),
                       "partial_rotary_factor");
  }
  return {};
}

Status ReadDimensions(const JsonFields& fields, const Architecture& architecture,
                      ModelConfig& config) {
  ASSIGN_OR_RETURN(config.vocab_size, fields.RequiredInteger("vocab_size", 1, kMaxVocabulary));
  ASSIGN_OR_RETURN(config.hidden_size, fields.RequiredInteger("hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.intermediate_size,
                   fields.RequiredInteger("intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.num_hidden_layers,
                   fields.RequiredInteger("num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.num_attention_heads,
                   fields.RequiredInteger("num_attention_heads", 1, kMaxHeads));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   fields.RequiredInteger("max_position_embeddings", 1, kMaxPositions));
  ASSIGN_OR_RETURN(const auto kv_heads, fields.Integer("num_key_value_heads", 1, kMaxHeads));
  config.num_key_value_heads =
      kv_heads.value_or(architecture.default_kv_heads != 0 ? architecture.default_kv_heads
                                                           : config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return fields.Bad(
        "num_key_value_heads",
        fmt::format("a divisor of num_attention_heads {}", config.num_attention_heads),
        json::Value(config.num_key_value_heads));
  }
  ASSIGN_OR_RETURN(const auto head_dim, fields.Integer("head_dim", 1, kMaxWidth));
  if (head_dim) {
    config.head_dim = *head_dim;
  } else if (architecture.default_head_dim != 0) {
    config.head_dim = architecture.default_head_dim;
  } else if (config.hidden_size % config.num_attention_heads != 0) {
    return fields.Bad(
        "hidden_size",
        fmt::format("a multiple of num_attention_heads {} where head_dim is not given",
                    config.num_attention_heads),
        json::Value(config.hidden_size));
  } else {
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  // What the attention kernels can do.
  if (config.head_dim < 32 || config.head_dim > 256 || config.head_dim % 8 != 0) {
    return Unsupported(
        fmt::format("head_dim {} is not supported; supported are multiples of 8 from 32 to 256",
                    config.head_dim),
        "head_dim");
  }
  return {};
}

bool HasType(const JsonFields& fields) {
  return fields.Given("dtype") != nullptr || fields.Given("torch_dtype") != nullptr;
}

Result<ElementType> ReadType(const JsonFields& fields) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    ASSIGN_OR_RETURN(auto name, fields.String(key));
    if (!name) continue;
    constexpr std::string_view kPrefix = "torch.";
    if (name->starts_with(kPrefix)) name->erase(0, kPrefix.size());
    if (*name == "bfloat16") return ElementType::kBF16;
    if (*name == "float16") return ElementType::kF16;
    if (*name == "float32") return ElementType::kF32;
    return Unsupported(
        fmt::format("{} '{}' is not supported; supported are bfloat16, float16 and float32", key,
                    ShortName(*name)),
        key);
  }
  return ElementType::kF32;  // The default of transformers.
}

Status CheckTokenIds(const ModelConfig& config) {
  const auto check = [&](std::string_view field, int32_t id) -> Status {
    if (id < config.vocab_size) return {};
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{} {} is outside of the vocabulary of {}", field, id, config.vocab_size),
        std::string(field));
  };
  if (config.bos_token_id) RETURN_IF_ERROR(check("bos_token_id", *config.bos_token_id));
  for (const int32_t id : config.eos_token_ids) RETURN_IF_ERROR(check("eos_token_id", id));
  return {};
}

// bos_token_id is one id; some files give a list of one, some null.
Result<std::optional<int32_t>> ReadBos(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, fields.TokenIds("bos_token_id"));
  if (ids.empty()) return std::nullopt;
  return ids.front();
}

}  // namespace

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

Result<ModelConfig> ParseModelShape(const json::Value& value) {
  if (!value.is_object()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("must be a JSON object, found {}", ShortText(value)));
  }
  const JsonFields outer(value, "");
  ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(outer));
  const json::Value* decoder = &value;
  if (architecture->is_nested) {
    ASSIGN_OR_RETURN(decoder, outer.Object("text_config"));
    if (decoder == nullptr) return outer.Missing("text_config");
  }
  const JsonFields fields(*decoder, architecture->is_nested ? "text_config." : "");
  RETURN_IF_ERROR(CheckRefused(fields));
  ModelConfig config;
  config.architecture = architecture->name;
  config.model_type = architecture->model_type;
  RETURN_IF_ERROR(ReadDimensions(fields, *architecture, config));
  RETURN_IF_ERROR(architecture->read_layers(fields, config));
  ASSIGN_OR_RETURN(const auto eps, fields.Number("rms_norm_eps", 0, 1));
  config.rms_norm_eps = eps.value_or(architecture->default_eps);
  ASSIGN_OR_RETURN(const RopeConfig rope, ParseRopeConfig(*decoder));
  config.rope_theta = rope.theta;
  config.rope_scaling = rope.scaling;
  const auto read_flag = [&](const char* name, bool& flag) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Bool(name));
    flag = given.value_or(false);
    return {};
  };
  RETURN_IF_ERROR(read_flag("tie_word_embeddings", config.tie_word_embeddings));
  RETURN_IF_ERROR(read_flag("attention_bias", config.attention_bias));
  RETURN_IF_ERROR(read_flag("mlp_bias", config.mlp_bias));
  ASSIGN_OR_RETURN(config.dtype, ReadType(HasType(fields) ? fields : outer));
  ASSIGN_OR_RETURN(config.bos_token_id,
                   ReadBos(fields.Given("bos_token_id") != nullptr ? fields : outer));
  ASSIGN_OR_RETURN(
      config.eos_token_ids,
      (fields.Given("eos_token_id") != nullptr ? fields : outer).TokenIds("eos_token_id"));
  RETURN_IF_ERROR(CheckTokenIds(config));
  config.raw = value;
  config.scheme = PlainScheme(config.dtype);
  return config;
}

Result<ModelConfig> ParseModelConfig(const json::Value& value) {
  ASSIGN_OR_RETURN(ModelConfig config, ParseModelShape(value));
  ASSIGN_OR_RETURN(config.scheme, ParseScheme(value));
  return config;
}

Result<json::Value> ReadJsonObject(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  auto value = json::Parse(text);
  if (!value) {
    Error error = std::move(value).error().In(path.string());
    error.code = ErrorCode::kInvalidData;
    error.param = path.filename().string();
    return tl::unexpected<Error>(std::move(error));
  }
  if (!value->is_object()) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: must be a JSON object, found {}", path.string(), ShortText(*value)),
        path.filename().string());
  }
  return *std::move(value);
}

Result<ModelConfig> LoadModelConfig(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  auto value = ReadJsonObject(path);
  if (!value) {
    Error error = std::move(value).error();
    if (error.code == ErrorCode::kNotFound) {
      error.message = fmt::format(
          "{} has no config.json: it is not the folder of a model in Hugging Face's layout",
          folder.string());
    }
    return tl::unexpected<Error>(std::move(error));
  }
  auto config = ParseModelShape(*value);
  if (!config) return tl::unexpected<Error>(std::move(config).error().In(path.string()));
  ASSIGN_OR_RETURN(config->scheme, LoadScheme(folder, *value));
  return config;
}

Result<GenerationConfig> ParseGenerationConfig(const json::Value& value) {
  if (!value.is_object()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("must be a JSON object, found {}", ShortText(value)));
  }
  constexpr int64_t kMaxCount = int64_t{1} << 31;
  const JsonFields fields(value, "");
  GenerationConfig config;
  ASSIGN_OR_RETURN(config.bos_token_id, ReadBos(fields));
  ASSIGN_OR_RETURN(config.eos_token_ids, fields.TokenIds("eos_token_id"));
  ASSIGN_OR_RETURN(config.temperature, fields.Number("temperature", 0, 1e6));
  ASSIGN_OR_RETURN(config.top_p, fields.Number("top_p", 0, 1));
  ASSIGN_OR_RETURN(config.min_p, fields.Number("min_p", 0, 1));
  ASSIGN_OR_RETURN(config.repetition_penalty, fields.Number("repetition_penalty", 1e-6, 1e6));
  ASSIGN_OR_RETURN(config.top_k, fields.Integer("top_k", -1, kMaxCount));
  ASSIGN_OR_RETURN(config.max_new_tokens, fields.Integer("max_new_tokens", 1, kMaxCount));
  return config;
}

Result<GenerationConfig> LoadGenerationConfig(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  auto value = ReadJsonObject(path);
  if (!value) {
    if (value.error().code == ErrorCode::kNotFound) return GenerationConfig{};
    return tl::unexpected<Error>(std::move(value).error());
  }
  auto config = ParseGenerationConfig(*value);
  if (!config) return tl::unexpected<Error>(std::move(config).error().In(path.string()));
  return config;
}

}  // namespace sluice
