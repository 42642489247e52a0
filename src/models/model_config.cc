#include "models/model_config.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/json_fields.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign_format.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/mistral_format.h"
#include "checkpoint/scheme.h"
#include "models/config_overrides.h"
#include "models/encoder/encoder_spec.h"
#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace {

// Bounds that keep every product of two dimensions far below 2^64; dimensions of published models
// are far smaller.
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

tl::unexpected<Error> Unsupported(std::string message, std::string field) {
  return Fail(ErrorCode::kUnsupported, std::move(message), std::move(field));
}

// Returns the causal-LM architecture ("...ForCausalLM") of the same model with another head; `name`
// itself if its suffix is unknown.
std::string GeneratingName(std::string_view name) {
  // GPT-2's suffix for causal-LM architectures.
  if (name.ends_with("LMHeadModel")) return std::string(name);
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
  // Old config files contain "LLaMAForCausalLM".
  const std::string wanted = by_name ? AsciiLower(GeneratingName(names->front())) : "";
  // The family that this architecture name belongs to by default; other families with the name are
  // chosen by model_type.
  const ModelFamily* main = nullptr;
  for (const ModelFamily* family : ModelFamilies()) {
    const bool is_published = AsciiLower(family->published_architecture) == wanted;
    const bool has_name = AsciiLower(family->architecture) == wanted || is_published;
    const bool is_type =
        type == family->model_type || (!family->second_type.empty() && type == family->second_type);
    if (by_name ? !has_name : !is_type) continue;
    if (is_type) return family;
    if (main == nullptr || family->published_architecture.empty() || is_published) main = family;
  }
  if (main != nullptr && type.empty()) return main;
  if (main != nullptr) {
    return Unsupported(
        fmt::format(
            "architecture {} with model_type '{}' is not supported, expected model_type '{}'",
            main->architecture, ShortName(type), main->model_type),
        "model_type");
  }
  return Unsupported(fmt::format("architecture {} is not supported; supported are {}",
                                 ShortName(by_name ? names->front() : type),
                                 fmt::join(SupportedArchitectures(), ", ")),
                     by_name ? "architectures" : "model_type");
}

// Returns the architecture name in config.json, or else the family's.
std::string ArchitectureOf(const JsonFields& fields, const ModelFamily& family) {
  const auto names = fields.Strings("architectures");
  return names && *names && !(*names)->empty() ? (*names)->front()
                                               : std::string(family.architecture);
}

// Names in transformers' activations.py. The variants of tanh GELU differ only in rounding.
constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_python", Activation::kGelu},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_python_tanh", Activation::kGeluTanh},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kRelu2}};

Result<Activation> ReadActivation(const JsonFields& fields, const ModelFamily& family) {
  Activation activation = family.defaults.activation;
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    ASSIGN_OR_RETURN(const auto name, fields.String(key));
    if (!name) continue;
    // Only families with xIELU have its parameters.
    if (*name == "xielu" && activation == Activation::kXielu) continue;
    if (!family.defaults.own_activation.empty() && *name == family.defaults.own_activation)
      continue;
    const auto known = std::find_if(std::begin(kActivations), std::end(kActivations),
                                    [&](const auto& entry) { return entry.first == *name; });
    if (known == std::end(kActivations)) {
      return Unsupported(
          fmt::format("{} '{}' is not supported; supported are {}", key, ShortName(*name),
                      fmt::join(std::views::keys(kActivations), ", ")),
          key);
    }
    activation = known->second;
  }
  return activation;
}

Status ReadDimensions(const JsonFields& fields, const ConfigDefaults& defaults,
                      ModelConfig& config) {
  const auto read = [&](std::string_view name, int64_t most, int64_t absent,
                        int64_t& dimension) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
    dimension = given.value_or(absent);
    return {};
  };
  RETURN_IF_ERROR(read("vocab_size", kMaxVocabulary, defaults.vocab_size, config.vocab_size));
  RETURN_IF_ERROR(read("hidden_size", kMaxConfigWidth, defaults.hidden_size, config.hidden_size));
  RETURN_IF_ERROR(read("intermediate_size", kMaxConfigWidth, defaults.intermediate_size,
                       config.intermediate_size));
  RETURN_IF_ERROR(read("num_hidden_layers", kMaxConfigLayers, defaults.num_hidden_layers,
                       config.num_hidden_layers));
  RETURN_IF_ERROR(read("num_attention_heads", kMaxHeads, defaults.num_attention_heads,
                       config.num_attention_heads));
  RETURN_IF_ERROR(read("max_position_embeddings", kMaxPositions, defaults.max_position_embeddings,
                       config.max_position_embeddings));
  // A null means as many KV heads as query heads, not the default.
  const bool has_default = defaults.kv_heads != 0 && !fields.Has("num_key_value_heads");
  RETURN_IF_ERROR(read("num_key_value_heads", kMaxHeads,
                       has_default ? defaults.kv_heads : config.num_attention_heads,
                       config.num_key_value_heads));
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return fields.Bad(
        "num_key_value_heads",
        fmt::format("a divisor of num_attention_heads {}", config.num_attention_heads),
        json::Value(config.num_key_value_heads));
  }
  if (defaults.rope_head_dim != 0) {
    RETURN_IF_ERROR(
        read("qk_rope_head_dim", kMaxConfigWidth, defaults.rope_head_dim, config.head_dim));
    return CheckHeadWidth(config.head_dim, "qk_rope_head_dim");
  }
  RETURN_IF_ERROR(read(
      "head_dim", kMaxConfigWidth,
      defaults.head_dim != 0 ? defaults.head_dim : config.hidden_size / config.num_attention_heads,
      config.head_dim));
  return CheckHeadWidth(config.head_dim, "head_dim");
}

// Returns how many numbers of a head are rotated.
Result<int64_t> ReadRotaryDim(const JsonFields& fields, const ConfigDefaults& defaults,
                              ModelConfig& config) {
  if (defaults.rope_head_dim != 0) return config.head_dim;
  std::optional<double> given = config.rope.partial_rotary_factor;
  if (defaults.takes_rotary_dim && !given) {
    ASSIGN_OR_RETURN(const auto rotated, fields.Integer("rotary_dim", 2, config.head_dim));
    const int64_t width = rotated.value_or(defaults.default_rotary_dim);
    if (width > 0) given = static_cast<double>(width) / static_cast<double>(config.head_dim);
  }
  if (!defaults.partial_rotary_factor) {
    // As in transformers, these families rotate whole heads unless RoPE is scaled.
    if (given.value_or(1) == 1 || !config.rope.scaling) {
      config.rope.partial_rotary_factor.reset();
      return config.head_dim;
    }
    return Unsupported(
        fmt::format("partial_rotary_factor {} with rope_type {} is not supported by {}, only 1",
                    *given, RopeKindName(config.rope.scaling->kind), config.architecture),
        "partial_rotary_factor");
  }
  const double factor = given.value_or(*defaults.partial_rotary_factor);
  const auto rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * factor);
  const bool is_odd = rotary_dim % 2 != 0;
  if (rotary_dim < 1 || rotary_dim > config.head_dim || (is_odd && config.rope.scaling)) {
    return fields.Bad(
        "partial_rotary_factor",
        fmt::format("a part of head_dim {}{}", config.head_dim,
                    config.rope.scaling ? " that is an even number, as rope is scaled" : ""),
        json::Value(factor));
  }
  config.rope.partial_rotary_factor = factor;
  return rotary_dim + (is_odd ? 1 : 0);
}

// Returns the divisor of the exponents of RoPE's frequencies. As in transformers, if the rotated
// part of a head has an odd size, one more element is rotated, so that every frequency has two
// elements.
int64_t RopeWidth(const ModelConfig& config) {
  const auto part = static_cast<int64_t>(static_cast<double>(config.head_dim) *
                                         config.rope.partial_rotary_factor.value_or(1));
  return part + 1 == config.rotary_dim ? part : config.rotary_dim;
}

Status CheckRopeAlpha(const RopeConfig& rope, const ConfigDefaults& defaults) {
  if (!rope.scaling || !rope.scaling->alpha || defaults.takes_rope_alpha) return {};
  return Unsupported(
      "rope_scaling.alpha is not supported for this type of model, only rope_scaling.factor",
      "rope_scaling.alpha");
}

// Checks that each list of factors has one factor per frequency.
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

// Some files name the kind of norm; each family supports a single one.
Status CheckNorm(const JsonFields& fields, const ConfigDefaults& defaults) {
  const std::string expected = defaults.has_layer_norms ? "layernorm" : "rmsnorm";
  for (const char* key :
       {"norm_type", "normalization_function", "normalization_type", "layer_norm_type"}) {
    ASSIGN_OR_RETURN(const auto name, fields.String(key));
    if (!name) continue;
    std::string given = AsciiLower(*name);
    std::erase(given, '_');
    if (given == expected) continue;
    return Unsupported(
        fmt::format("{} '{}' is not supported; supported is {}", key, ShortName(*name), expected),
        key);
  }
  return {};
}

// Refuses decoders whose tokens also attend to later tokens, as in some embedding models.
Status RefuseBothWays(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto is_causal, fields.Bool("is_causal"));
  if (is_causal.value_or(true)) return {};
  return Unsupported(
      "is_causal false is not supported by decoders, whose tokens attend only to earlier ones",
      "is_causal");
}

// Reads whether embeddings are tied. The outer flag takes precedence: transformers always writes
// it, and uses it if the files have no head. Published configurations may have only the flag of the
// text part.
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
  return ElementType::kF32;  // transformers' default
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

// YaRN multiplies the rotated q and k by a factor, so scores are multiplied by its square. A norm
// after the rotation cancels the factor. If only a part of each head is rotated, the rotation
// itself must apply the factor.
void ApplyAttentionFactor(ModelConfig& config) {
  const double factor = config.rope.scaling ? config.rope.scaling->attention_factor : 1;
  if (factor == 1) return;
  if (config.rotary_dim != config.head_dim || config.spec.layers.front().attention.latent) {
    config.spec.rope_amplitude = static_cast<float>(factor);
    return;
  }
  for (LayerSpec& layer : config.spec.layers) {
    AttentionSpec& attention = layer.attention;
    if (attention.rope && attention.rope_table == 0 &&
        attention.qk_norm != QkNorm::kAfterRopeUnweighted &&
        attention.qk_norm != QkNorm::kAfterRope) {
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
  DescribeRope(config.rope, RopeWidth(config), spec);
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

namespace {

Result<const ConfigDefaults*> DefaultsFor(const ModelFamily& family, const json::Value& decoder) {
  if (family.text_defaults == nullptr) return &family.defaults;
  ASSIGN_OR_RETURN(const auto type, JsonFields(decoder, "text_config.").String("model_type"));
  return &family.text_defaults(type.value_or(""));
}

// Returns the family of the decoder: `family` itself, or the one that text_config names.
Result<const ModelFamily*> DecoderFamily(const ModelFamily& family, const json::Value& decoder) {
  if (family.text_types.empty()) return &family;
  ASSIGN_OR_RETURN(const auto given, JsonFields(decoder, "text_config.").String("model_type"));
  const std::string_view type = given ? std::string_view(*given) : family.text_types.front();
  const bool is_known = std::ranges::find(family.text_types, type) != family.text_types.end();
  for (const ModelFamily* one : ModelFamilies()) {
    if (is_known && one->model_type == type && !one->defaults.is_nested) return one;
  }
  return Unsupported(
      fmt::format("text_config.model_type '{}' is not supported by {}; supported are {}",
                  ShortName(std::string(type)), family.architecture,
                  fmt::join(family.text_types, ", ")),
      "text_config.model_type");
}

// Returns `decoder` with alternative field names resolved. Adds the defaults that RoPE scalings
// need but that families read only later.
Result<json::Value> WithRopeDefaults(json::Value decoder, const ConfigDefaults& defaults) {
  for (const FieldAlias& alias : defaults.aliases) {
    const json::Value* value = decoder.Find(alias.other);
    if (value == nullptr || decoder.Find(alias.own) != nullptr) continue;
    json::Value copy = *value;
    decoder.Set(std::string(alias.own), std::move(copy));
  }
  const JsonFields given(decoder, "");
  const bool has_positions = given.Given("max_position_embeddings") != nullptr;
  const bool has_original = given.Given("original_max_position_embeddings") != nullptr ||
                            defaults.original_max_position_embeddings == 0;
  const bool has_rope = defaults.rope_parameters.empty() ||
                        given.Given("rope_parameters") != nullptr ||
                        given.Given("rope_scaling") != nullptr;
  if (!has_positions) decoder.Set("max_position_embeddings", defaults.max_position_embeddings);
  if (!has_original)
    decoder.Set("original_max_position_embeddings", defaults.original_max_position_embeddings);
  if (!has_rope) {
    ASSIGN_OR_RETURN(json::Value rope, json::Parse(defaults.rope_parameters));
    decoder.Set("rope_parameters", std::move(rope));
  }
  return decoder;
}

// Absent fields have their defaults; null means no token.
Status ReadTokenIds(const JsonFields& fields, const JsonFields& outer,
                    const ConfigDefaults& defaults, ModelConfig& config) {
  const auto place = [&](const char* name) -> const JsonFields& {
    return fields.Given(name) != nullptr ? fields : outer;
  };
  // A default outside of the vocabulary does not apply: it was made for another vocabulary.
  const auto is_default = [&](const char* name, std::optional<int32_t> id) {
    return id && *id < config.vocab_size && !fields.Has(name) && !outer.Has(name);
  };
  ASSIGN_OR_RETURN(config.bos_token_id, ReadBosTokenId(place("bos_token_id")));
  if (is_default("bos_token_id", defaults.bos_token_id))
    config.bos_token_id = defaults.bos_token_id;
  ASSIGN_OR_RETURN(config.eos_token_ids, place("eos_token_id").TokenIds("eos_token_id"));
  if (is_default("eos_token_id", defaults.eos_token_id))
    config.eos_token_ids = {*defaults.eos_token_id};
  return {};
}

}  // namespace

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
  const json::Value* given = &value;
  if (family->defaults.is_nested) {
    ASSIGN_OR_RETURN(given, outer.Object("text_config"));
    if (given == nullptr && !family->defaults.may_be_flat) return outer.Missing("text_config");
    if (given == nullptr) given = &value;
  }
  ASSIGN_OR_RETURN(const ModelFamily* of_decoder, DecoderFamily(*family, *given));
  ASSIGN_OR_RETURN(const ConfigDefaults* own_defaults, DefaultsFor(*of_decoder, *given));
  ConfigDefaults defaults = *own_defaults;
  if (of_decoder != family) {
    defaults.is_nested = true;
    defaults.tie_word_embeddings |= family->defaults.tie_word_embeddings;
  }
  ASSIGN_OR_RETURN(const json::Value decoder, WithRopeDefaults(*given, defaults));
  const JsonFields fields(decoder, defaults.is_nested ? "text_config." : "");
  ModelConfig config;
  config.raw = value;
  config.architecture = ArchitectureOf(outer, *family);
  config.model_type = family->model_type;
  ASSIGN_OR_RETURN(config.activation, ReadActivation(fields, *of_decoder));
  RETURN_IF_ERROR(ReadDimensions(fields, defaults, config));
  ASSIGN_OR_RETURN(const auto eps, fields.Number(defaults.norm_eps_field, 0, 1));
  config.rms_norm_eps = eps.value_or(defaults.rms_norm_eps);
  ASSIGN_OR_RETURN(config.rope, ParseRopeConfig(decoder, defaults.rope_theta));
  RETURN_IF_ERROR(CheckRopeAlpha(config.rope, defaults));
  ASSIGN_OR_RETURN(config.rotary_dim, ReadRotaryDim(fields, defaults, config));
  RETURN_IF_ERROR(CheckLongRope(config));
  const auto read_flag = [&](const char* name, bool& flag) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Bool(name));
    flag = given.value_or(flag);
    return {};
  };
  RETURN_IF_ERROR(CheckNorm(fields, defaults));
  RETURN_IF_ERROR(RefuseBothWays(fields));
  RETURN_IF_ERROR(ReadTie(outer, fields, defaults, config));
  config.attention_bias = defaults.attention_bias;
  config.mlp_bias = defaults.mlp_bias;
  RETURN_IF_ERROR(read_flag("attention_bias", config.attention_bias));
  RETURN_IF_ERROR(read_flag("mlp_bias", config.mlp_bias));
  config.spec = DescribePlainDecoder(config);
  if (defaults.has_layer_norms) config.spec.norm.kind = NormSpec::Kind::kLayer;
  RETURN_IF_ERROR(of_decoder->read(fields, config));
  ApplyAttentionFactor(config);
  if (!defaults.positions_are_scaled)
    config.max_position_embeddings = ScaledPositions(config.rope, config.max_position_embeddings);
  ASSIGN_OR_RETURN(config.dtype, ReadType(HasType(fields) ? fields : outer));
  RETURN_IF_ERROR(ReadTokenIds(fields, outer, defaults, config));
  RETURN_IF_ERROR(CheckTokenIds(config));
  config.scheme = PlainScheme(config.dtype);
  return config;
}

std::string PositionsText(const ModelConfig& config) {
  constexpr const char* kField = "max_position_embeddings";
  const int64_t positions = config.max_position_embeddings;
  const json::Value* text = config.raw.Find("text_config");
  const json::Value& decoder = text != nullptr && text->is_object() ? *text : config.raw;
  const json::Value* given = decoder.Find(kField);
  if (given != nullptr && *given == json::Value(positions))
    return fmt::format("{} ({}) in the model's config.json", kField, positions);
  if (config.rope.scaling && config.rope.scaling->kind != RopeKind::kLlama3 &&
      config.rope.scaling->kind != RopeKind::kLongRope) {
    const RopeScaling& scaling = *config.rope.scaling;
    const bool from_original = scaling.kind == RopeKind::kYarn;
    return fmt::format(
        "the {} positions that the rope scaling of the model's config.json gives: "
        "{} factor {} x {} {}",
        positions, RopeKindName(scaling.kind), scaling.factor,
        from_original ? "original_max_position_embeddings" : kField,
        scaling.original_max_position_embeddings);
  }
  if (given == nullptr || given->is_null())
    return fmt::format("the default of {} ({}), which is absent in the model's config.json", kField,
                       positions);
  return fmt::format("the {} usable positions ({} {} in the model's config.json)", positions,
                     kField, ShortText(*given));
}

Result<ModelConfig> ParseModelConfig(const json::Value& value) {
  ASSIGN_OR_RETURN(ModelConfig config, ParseModelShape(value));
  ASSIGN_OR_RETURN(config.scheme, ParseScheme(value));
  return config;
}

namespace {

// If config.json contradicts itself, the files decide: if they contain no head, embeddings are
// tied.
void SettleTie(const std::filesystem::path& folder, ModelConfig& config) {
  if (!config.tie_is_contradicted) return;
  const auto checkpoint = Checkpoint::Open(folder);
  if (!checkpoint) return;  // loading the weights reports the error
  config.tie_word_embeddings = checkpoint->Find("lm_head.weight") == nullptr;
  config.spec.tied_head = config.tie_word_embeddings;
}

}  // namespace

Result<ModelConfig> LoadModelConfig(const std::filesystem::path& folder,
                                    const json::Value& overrides,
                                    const LoadQuantization& quantization) {
  const bool is_mistral = IsMistralFormat(folder);
  const std::filesystem::path path = folder / (is_mistral ? kMistralParams : "config.json");
  auto value = ReadModelConfig(folder);
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
                            "supported are decoders. Omit the option",
                            quantization.weights, config->architecture),
                "quantization");
  }
  return config;
}

}  // namespace sluice
