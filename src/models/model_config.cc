#include "models/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/json_fields.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign_format.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/scheme.h"
#include "models/config_overrides.h"
#include "models/encoder/encoder_spec.h"
#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace {

// Bounds that keep every product of two dimensions far inside 64 bits; published models are well
// below them.
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

tl::unexpected<Error> Unsupported(std::string message, std::string field) {
  return Fail(ErrorCode::kUnsupported, std::move(message), std::move(field));
}

// The generating architecture that `name` is a variant of, which differs in its head alone.
std::string GeneratingName(std::string_view name) {
  for (const std::string_view suffix : {"ForSequenceClassification", "Model"})
    if (name.ends_with(suffix))
      return std::string(name.substr(0, name.size() - suffix.size())) + "ForCausalLM";
  return std::string(name);
}

Result<const ModelFamily*> FindFamily(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto names, fields.Strings("architectures"));
  ASSIGN_OR_RETURN(const auto given_type, fields.String("model_type"));
  const std::string type = given_type.value_or("");
  const bool by_name = names && !names->empty();
  if (!by_name && type.empty()) return fields.Missing("architectures");
  for (const ModelFamily* family : ModelFamilies()) {
    if (by_name ? family->architecture != GeneratingName(names->front())
                : family->model_type != type)
      continue;
    if (!type.empty() && type != family->model_type) {
      return Unsupported(
          fmt::format(
              "architecture {} with model_type '{}' is not supported, expected model_type '{}'",
              family->architecture, ShortName(type), family->model_type),
          "model_type");
    }
    return family;
  }
  return Unsupported(fmt::format("architecture {} is not supported; supported are {}",
                                 ShortName(by_name ? names->front() : type),
                                 fmt::join(SupportedArchitectures(), ", ")),
                     by_name ? "architectures" : "model_type");
}

// As config.json names it.
std::string ArchitectureOf(const JsonFields& fields, const ModelFamily& family) {
  const auto names = fields.Strings("architectures");
  return names && *names && !(*names)->empty() ? (*names)->front()
                                               : std::string(family.architecture);
}

Result<Activation> ReadActivation(const JsonFields& fields, const ModelFamily& family) {
  Activation activation = family.defaults.activation;
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    ASSIGN_OR_RETURN(const auto name, fields.String(key));
    if (!name) continue;
    if (*name == "silu" || *name == "swish") {
      activation = Activation::kSilu;
    } else if (*name == "gelu_pytorch_tanh") {
      activation = Activation::kGeluTanh;
    } else {
      return Unsupported(
          fmt::format("{} '{}' is not supported; supported are silu and gelu_pytorch_tanh", key,
                      ShortName(*name)),
          key);
    }
  }
  return activation;
}

// A dimension that the family's defaults may give.
Result<int64_t> ReadDimension(const JsonFields& fields, std::string_view name, int64_t most,
                              int64_t default_value) {
  if (default_value == 0) return fields.RequiredInteger(name, 1, most);
  ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
  return given.value_or(default_value);
}

Status ReadDimensions(const JsonFields& fields, const ConfigDefaults& defaults,
                      ModelConfig& config) {
  ASSIGN_OR_RETURN(config.vocab_size,
                   ReadDimension(fields, "vocab_size", kMaxVocabulary, defaults.vocab_size));
  ASSIGN_OR_RETURN(config.hidden_size, fields.RequiredInteger("hidden_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(config.intermediate_size,
                   fields.RequiredInteger("intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(config.num_hidden_layers,
                   fields.RequiredInteger("num_hidden_layers", 1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(
      config.num_attention_heads,
      ReadDimension(fields, "num_attention_heads", kMaxHeads, defaults.num_attention_heads));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   ReadDimension(fields, "max_position_embeddings", kMaxPositions,
                                 defaults.max_position_embeddings));
  ASSIGN_OR_RETURN(const auto kv_heads, fields.Integer("num_key_value_heads", 1, kMaxHeads));
  config.num_key_value_heads =
      kv_heads.value_or(defaults.kv_heads != 0 ? defaults.kv_heads : config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return fields.Bad(
        "num_key_value_heads",
        fmt::format("a divisor of num_attention_heads {}", config.num_attention_heads),
        json::Value(config.num_key_value_heads));
  }
  ASSIGN_OR_RETURN(const auto head_dim, fields.Integer("head_dim", 1, kMaxConfigWidth));
  if (head_dim) {
    config.head_dim = *head_dim;
  } else if (defaults.head_dim != 0) {
    config.head_dim = defaults.head_dim;
  } else if (config.hidden_size % config.num_attention_heads != 0) {
    return fields.Bad(
        "hidden_size",
        fmt::format("a multiple of num_attention_heads {} where head_dim is not given",
                    config.num_attention_heads),
        json::Value(config.hidden_size));
  } else {
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  return CheckHeadWidth(config.head_dim, "head_dim");
}

// How many elements of a head rope rotates.
Result<int64_t> ReadRotaryDim(const JsonFields& fields, const ConfigDefaults& defaults,
                              const ModelConfig& config) {
  const std::optional<double> given = config.rope.partial_rotary_factor;
  if (!defaults.partial_rotary_factor) {
    if (given.value_or(1) == 1) return config.head_dim;
    return Unsupported(fmt::format("partial_rotary_factor {} is not supported by {}, only 1",
                                   *given, config.architecture),
                       "partial_rotary_factor");
  }
  const double factor = given.value_or(*defaults.partial_rotary_factor);
  const auto rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * factor);
  if (rotary_dim < 2 || rotary_dim % 2 != 0) {
    return fields.Bad("partial_rotary_factor",
                      fmt::format("a part that is an even number of head_dim {}", config.head_dim),
                      json::Value(factor));
  }
  return rotary_dim;
}

// A list of factors has one for each frequency.
Status CheckLongRope(const ModelConfig& config) {
  if (!config.rope.scaling || config.rope.scaling->kind != RopeKind::kLongRope) return {};
  const auto count = static_cast<int64_t>(config.rope.scaling->short_factors.size());
  if (count == config.rotary_dim / 2) return {};
  return Fail(
      ErrorCode::kInvalidData,
      fmt::format("rope_scaling.short_factor must have {} numbers, half of the elements of a "
                  "head that are rotated, found {}",
                  config.rotary_dim / 2, count),
      "rope_scaling.short_factor");
}

// Some writers name the norm, which is RMS norm in every family.
Status CheckNorm(const JsonFields& fields) {
  for (const char* key :
       {"norm_type", "normalization_function", "normalization_type", "layer_norm_type"}) {
    ASSIGN_OR_RETURN(const auto name, fields.String(key));
    if (!name || AsciiLower(*name) == "rmsnorm" || AsciiLower(*name) == "rms_norm") continue;
    return Unsupported(
        fmt::format("{} '{}' is not supported; supported is rmsnorm", key, ShortName(*name)), key);
  }
  return {};
}

// Some embedding models were made of decoders by letting tokens see those behind them.
Status RefuseBothWays(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto is_causal, fields.Bool("is_causal"));
  if (is_causal.value_or(true)) return {};
  return Unsupported(
      "is_causal false is not supported by decoders, whose tokens see earlier ones only",
      "is_causal");
}

// transformers ties a nested model by the outer flag, which it always writes, where the files hold
// no head; published configurations have that of the text part alone.
Status ReadTie(const JsonFields& outer, const JsonFields& fields, const ConfigDefaults& defaults,
               ModelConfig& config) {
  constexpr const char* kField = "tie_word_embeddings";
  ASSIGN_OR_RETURN(const auto of_text, fields.Bool(kField));
  ASSIGN_OR_RETURN(const auto of_all, outer.Bool(kField));
  config.tie_is_contradicted = of_text && of_all && *of_text != *of_all;
  config.tie_word_embeddings = of_all.value_or(of_text.value_or(defaults.tie_word_embeddings));
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

// YaRN multiplies the rotated q and k by a factor, and so their products by its square. A norm
// behind the rotation takes it away again. Where a part of a head is not rotated the factor must
// stand in the rotation.
void ApplyAttentionFactor(ModelConfig& config) {
  const double factor = config.rope.scaling ? config.rope.scaling->attention_factor : 1;
  if (factor == 1) return;
  if (config.rotary_dim != config.head_dim) {
    config.spec.rope_amplitude = static_cast<float>(factor);
    return;
  }
  for (LayerSpec& layer : config.spec.layers) {
    AttentionSpec& attention = layer.attention;
    if (attention.rope && attention.rope_table == 0 &&
        attention.qk_norm != QkNorm::kAfterRopeUnweighted) {
      attention.scale = static_cast<float>(attention.softmax_scale() * factor * factor);
    }
  }
}

}  // namespace

DecoderSpec DescribePlainDecoder(const ModelConfig& config) {
  DecoderSpec spec;
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.tied_head = config.tie_word_embeddings;
  spec.norm_eps = static_cast<float>(config.rms_norm_eps);
  spec.rope_tables = {RopeTableOf(config.rope, config.rotary_dim)};
  spec.long_rope_table = LongRopeTableOf(config.rope);
  if (!spec.long_rope_table.empty())
    spec.short_context = config.rope.scaling->original_max_position_embeddings;
  LayerSpec layer;
  layer.attention.num_heads = static_cast<int>(config.num_attention_heads);
  layer.attention.num_kv_heads = static_cast<int>(config.num_key_value_heads);
  layer.attention.head_dim = static_cast<int>(config.head_dim);
  layer.attention.rotary_dim = static_cast<int>(config.rotary_dim);
  layer.attention.qkv_bias = config.attention_bias;
  layer.attention.output_bias = config.attention_bias;
  layer.mlp.module = "mlp";
  layer.mlp.intermediate_size = config.intermediate_size;
  layer.mlp.has_bias = config.mlp_bias;
  layer.mlp.activation = config.activation;
  spec.layers.assign(static_cast<size_t>(config.num_hidden_layers), layer);
  return spec;
}

Result<ModelConfig> ParseModelShape(const json::Value& value) {
  if (!value.is_object()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("must be a JSON object, found {}", ShortText(value)));
  }
  const JsonFields outer(value, "");
  if (const auto names = outer.Strings("architectures");
      names && *names && !(*names)->empty() && IsEncoder((*names)->front())) {
    return ParseEncoderShape(value);
  }
  ASSIGN_OR_RETURN(const ModelFamily* family, FindFamily(outer));
  const ConfigDefaults& defaults = family->defaults;
  const json::Value* decoder = &value;
  if (defaults.is_nested) {
    ASSIGN_OR_RETURN(decoder, outer.Object("text_config"));
    if (decoder == nullptr) return outer.Missing("text_config");
  }
  const JsonFields fields(*decoder, defaults.is_nested ? "text_config." : "");
  ModelConfig config;
  config.architecture = ArchitectureOf(outer, *family);
  config.model_type = family->model_type;
  ASSIGN_OR_RETURN(config.activation, ReadActivation(fields, *family));
  RETURN_IF_ERROR(ReadDimensions(fields, defaults, config));
  ASSIGN_OR_RETURN(const auto eps, fields.Number("rms_norm_eps", 0, 1));
  config.rms_norm_eps = eps.value_or(defaults.rms_norm_eps);
  // Some scalings start from the positions, which the family's defaults may have given.
  json::Value positioned;
  if (fields.Given("max_position_embeddings") == nullptr) {
    positioned = *decoder;
    positioned.Set("max_position_embeddings", config.max_position_embeddings);
  }
  ASSIGN_OR_RETURN(config.rope, ParseRopeConfig(positioned.is_null() ? *decoder : positioned,
                                                defaults.rope_theta));
  ASSIGN_OR_RETURN(config.rotary_dim, ReadRotaryDim(fields, defaults, config));
  RETURN_IF_ERROR(CheckLongRope(config));
  const auto read_flag = [&](const char* name, bool& flag) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Bool(name));
    flag = given.value_or(flag);
    return {};
  };
  RETURN_IF_ERROR(CheckNorm(fields));
  RETURN_IF_ERROR(RefuseBothWays(fields));
  RETURN_IF_ERROR(ReadTie(outer, fields, defaults, config));
  config.attention_bias = defaults.attention_bias;
  RETURN_IF_ERROR(read_flag("attention_bias", config.attention_bias));
  RETURN_IF_ERROR(read_flag("mlp_bias", config.mlp_bias));
  config.spec = DescribePlainDecoder(config);
  RETURN_IF_ERROR(family->read(fields, config));
  ApplyAttentionFactor(config);
  if (!defaults.positions_are_scaled)
    config.max_position_embeddings = ScaledPositions(config.rope, config.max_position_embeddings);
  ASSIGN_OR_RETURN(config.dtype, ReadType(HasType(fields) ? fields : outer));
  ASSIGN_OR_RETURN(config.bos_token_id,
                   ReadBosTokenId(fields.Given("bos_token_id") != nullptr ? fields : outer));
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

namespace {

// Where config.json contradicts itself the files know whether there is a head.
void SettleTie(const std::filesystem::path& folder, ModelConfig& config) {
  if (!config.tie_is_contradicted) return;
  const auto checkpoint = Checkpoint::Open(folder);
  if (!checkpoint) return;  // told where weights are loaded
  config.tie_word_embeddings = checkpoint->Find("lm_head.weight") == nullptr;
  config.spec.tied_head = config.tie_word_embeddings;
}

}  // namespace

Result<ModelConfig> LoadModelConfig(const std::filesystem::path& folder,
                                    const json::Value& overrides,
                                    const LoadQuantization& quantization) {
  const std::filesystem::path path = folder / "config.json";
  auto value = ReadJsonObject(path);
  if (!value) {
    Error error = std::move(value).error();
    if (error.code == ErrorCode::kNotFound) {
      RETURN_IF_ERROR(RefuseForeignFormat(folder));
      error.message = fmt::format(
          "{} has no config.json: it is not the folder of a model in Hugging Face's layout",
          folder.string());
    }
    return tl::unexpected<Error>(std::move(error));
  }
  std::string source = path.string();
  if (!overrides.is_null()) {
    ASSIGN_OR_RETURN(value, OverrideConfig(*std::move(value), overrides));
    source += " as --hf-overrides, --rope-scaling and --rope-theta change it";
  }
  auto config = ParseModelShape(*value);
  if (!config) return tl::unexpected<Error>(std::move(config).error().In(source));
  SettleTie(folder, *config);
  ASSIGN_OR_RETURN(config->scheme, LoadScheme(folder, *value));
  if (quantization.empty()) return config;
  ASSIGN_OR_RETURN(config->scheme, QuantizeAtLoad(std::move(config->scheme), quantization,
                                                  config->tie_word_embeddings));
  if (IsEncoder(config->architecture)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("--quantization {}: weights of {} are not rounded while loading; "
                            "supported are decoders. Leave the option out",
                            quantization.weights, config->architecture),
                "quantization");
  }
  return config;
}

}  // namespace sluice
