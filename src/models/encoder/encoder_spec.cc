#include "models/encoder/encoder_spec.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "checkpoint/scheme.h"
#include "kernels/rope.h"
#include "models/encoder/modern_bert.h"

namespace sluice {
namespace {

constexpr int64_t kMaxEncoderWidth = 1 << 20;
constexpr std::string_view kBert[] = {"BertModel", "BertForSequenceClassification"};
constexpr std::string_view kRoberta[] = {"RobertaModel", "RobertaForSequenceClassification",
                                         "XLMRobertaModel", "XLMRobertaForSequenceClassification"};
constexpr std::string_view kNomic[] = {"NomicBertModel", "NomicBertForSequenceClassification"};
// The names in published files, in transformers and in vLLM.
constexpr std::string_view kGte[] = {"NewModel",    "NewForSequenceClassification",
                                     "GteModel",    "GteForSequenceClassification",
                                     "GteNewModel", "GteNewForSequenceClassification"};

bool IsAmong(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::string> EncoderArchitecture(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto names, fields.Strings("architectures"));
  if (!names || names->empty()) return fields.Missing("architectures");
  return names->front();
}

// Returns the family of an architecture; nullopt if it is not an encoder.
std::optional<EncoderSpec::Family> FamilyOf(std::string_view architecture) {
  if (IsAmong(kBert, architecture)) return EncoderSpec::Family::kBert;
  if (IsAmong(kRoberta, architecture)) return EncoderSpec::Family::kRoberta;
  if (IsAmong(kNomic, architecture)) return EncoderSpec::Family::kNomic;
  if (IsAmong(kGte, architecture)) return EncoderSpec::Family::kGte;
  if (IsModernBert(architecture)) return EncoderSpec::Family::kModern;
  return std::nullopt;
}

// Refuses settings that change the computation but are not implemented.
Status CheckEncoderSettings(const JsonFields& fields, EncoderSpec::Family family) {
  const bool is_rotary =
      family == EncoderSpec::Family::kNomic || family == EncoderSpec::Family::kGte;
  ASSIGN_OR_RETURN(const auto positions, fields.String("position_embedding_type"));
  const bool is_known =
      is_rotary ? positions == "rope" || positions == "rotary" : positions == "absolute";
  if (positions && !is_known) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("position_embedding_type '{}' is not supported here, only {}",
                            ShortName(*positions), is_rotary ? "rope" : "absolute"),
                "position_embedding_type");
  }
  ASSIGN_OR_RETURN(const auto is_decoder, fields.Bool("is_decoder"));
  if (is_decoder.value_or(false)) {
    return Fail(ErrorCode::kUnsupported,
                "is_decoder true is not supported: encoders see all tokens", "is_decoder");
  }
  ASSIGN_OR_RETURN(const auto norm, fields.String("layer_norm_type"));
  if (norm && *norm != "layer_norm") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("layer_norm_type '{}' is not supported here, only layer_norm",
                            ShortName(*norm)),
                "layer_norm_type");
  }
  // Flags of the rotary families, with the only value of each that is supported.
  constexpr std::pair<const char*, bool> kFlags[] = {{"qkv_proj_bias", false},
                                                     {"mlp_fc1_bias", false},
                                                     {"mlp_fc2_bias", false},
                                                     {"prenorm", false},
                                                     {"use_rms_norm", false},
                                                     {"parallel_block", false},
                                                     {"rotary_emb_interleaved", false},
                                                     {"causal", false},
                                                     {"logn_attention_scale", false},
                                                     {"logn_attention_clip1", false},
                                                     {"pack_qkv", true}};
  for (const auto& [name, value] : kFlags) {
    if (!is_rotary) break;
    ASSIGN_OR_RETURN(const auto given, fields.Bool(name));
    if (!given || *given == value) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} {} is not supported, only {}", name, *given, value), name);
  }
  for (const char* name : {"moe_every_n_layers", "num_experts"}) {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 0, 1 << 16));
    if (!is_rotary || given.value_or(0) == 0) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} {} is not supported: encoders of experts are not implemented", name,
                            *given),
                name);
  }
  if (is_rotary && fields.Given("rotary_emb_scale_base") != nullptr) {
    return Fail(ErrorCode::kUnsupported, "rotary_emb_scale_base is not supported",
                "rotary_emb_scale_base");
  }
  return {};
}

// Returns the dimension that is stored under any of these names, or `absent`. If `absent` is 0, the
// field is required.
Result<int64_t> Dimension(const JsonFields& fields, std::initializer_list<const char*> names,
                          int64_t most, int64_t absent) {
  for (const char* name : names) {
    if (fields.Given(name) != nullptr) return fields.RequiredInteger(name, 1, most);
  }
  if (absent == 0) return fields.Missing(*names.begin());
  return absent;
}

// Defaults of transformers' configuration classes. Published models of Nomic and GTE use their own
// classes.
struct EncoderDefaults {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0,
          num_positions = 0;
};

EncoderDefaults EncoderDefaultsOf(EncoderSpec::Family family, std::string_view architecture) {
  constexpr int64_t kBertVocabulary = 30522, kRobertaVocabulary = 50265;
  switch (family) {
    case EncoderSpec::Family::kBert: return {kBertVocabulary, 768, 3072, 12, 12, 512};
    case EncoderSpec::Family::kRoberta:
      return {architecture.starts_with("XLM") ? kBertVocabulary : kRobertaVocabulary,
              768,
              3072,
              12,
              12,
              512};
    case EncoderSpec::Family::kNomic:
    case EncoderSpec::Family::kGte:
    case EncoderSpec::Family::kModern: break;  // handled by ReadModernBert
  }
  return {};
}

Result<EncoderSpec::Activation> EncoderActivation(const JsonFields& fields,
                                                  EncoderSpec::Family family) {
  const char* const key =
      fields.Given("hidden_act") != nullptr || family != EncoderSpec::Family::kNomic
          ? "hidden_act"
          : "activation_function";
  ASSIGN_OR_RETURN(const auto name, fields.String(key));
  switch (family) {
    case EncoderSpec::Family::kNomic:
      if (!name || name == "silu" || name == "swiglu") return EncoderSpec::Activation::kGatedSilu;
      break;
    case EncoderSpec::Family::kGte:
      if (!name || name == "gelu") return EncoderSpec::Activation::kGatedGelu;
      break;
    case EncoderSpec::Family::kBert:
    case EncoderSpec::Family::kRoberta:
    case EncoderSpec::Family::kModern:  // handled by ReadModernBert
      if (!name || name == "gelu") return EncoderSpec::Activation::kGelu;
      if (name == "relu") return EncoderSpec::Activation::kRelu;
      break;
  }
  const char* const supported = family == EncoderSpec::Family::kNomic ? "silu (swiglu)"
                                : family == EncoderSpec::Family::kGte ? "gelu"
                                                                      : "gelu and relu";
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} '{}' is not supported in this encoder; supported: {}", key,
                          ShortName(*name), supported),
              key);
}

// Returns the rotary frequencies. With GTE's `ntk` scaling, the base is multiplied by the factor,
// and all frequencies are divided by factor^(2 / head_dim). Source: the published modeling.py of
// GTE's models, and vLLM's ntk_scaling_rope.py.
Result<std::vector<float>> EncoderFrequencies(const JsonFields& fields, EncoderSpec::Family family,
                                              int64_t head_dim) {
  ASSIGN_OR_RETURN(const json::Value* parameters, fields.Object("rope_parameters"));
  ASSIGN_OR_RETURN(const json::Value* scaling, fields.Object("rope_scaling"));
  const json::Value empty{json::Value::Object{}};
  const JsonFields rope(parameters != nullptr ? *parameters
                        : scaling != nullptr  ? *scaling
                                              : empty,
                        parameters != nullptr ? "rope_parameters." : "rope_scaling.");
  double theta = family == EncoderSpec::Family::kNomic ? 1000 : 160000;
  for (const JsonFields* object : {&fields, &rope}) {
    for (const char* name : {"rotary_emb_base", "rope_theta"}) {
      ASSIGN_OR_RETURN(const auto given, object->Number(name, 1, 1e12));
      theta = given.value_or(theta);
    }
  }
  for (const char* name : {"rotary_emb_fraction", "partial_rotary_factor"}) {
    ASSIGN_OR_RETURN(const auto fraction, fields.Number(name, 0, 1));
    if (fraction.value_or(1) == 1) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} {} is not supported, only 1", name, *fraction), name);
  }
  ASSIGN_OR_RETURN(auto type, rope.String("rope_type"));
  if (!type) {
    ASSIGN_OR_RETURN(type, rope.String("type"));
  }
  double divisor = 1;
  if (type == "ntk" && family == EncoderSpec::Family::kGte) {
    ASSIGN_OR_RETURN(const auto factor, rope.Number("factor", 1, 1e6));
    if (rope.Given("mixed_b") != nullptr) {
      return Fail(ErrorCode::kUnsupported, "mixed_b of rope_scaling 'ntk' is not supported",
                  "rope_scaling");
    }
    theta *= factor.value_or(1);
    divisor = std::pow(factor.value_or(1), 2.0 / static_cast<double>(head_dim));
  } else if (type && *type != "default") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("rope type '{}' is not supported in this encoder; supported: {}",
                            ShortName(*type),
                            family == EncoderSpec::Family::kGte ? "default and ntk" : "default"),
                "rope_scaling");
  }
  std::vector<float> frequencies =
      kernels::RopeFrequencies(static_cast<int>(head_dim), theta, std::nullopt);
  for (float& frequency : frequencies)
    frequency = static_cast<float>(static_cast<double>(frequency) / divisor);
  return frequencies;
}

Result<ElementType> EncoderDtype(const JsonFields& fields) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    ASSIGN_OR_RETURN(const auto name, fields.String(key));
    if (!name) continue;
    if (*name == "bfloat16") return ElementType::kBF16;
    if (*name == "float16") return ElementType::kF16;
    if (*name == "float32") return ElementType::kF32;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} '{}' is not supported; supported are bfloat16, float16 and float32",
                            key, ShortName(*name)),
                key);
  }
  return ElementType::kF32;
}

}  // namespace

Status CheckEncoderHeads(const EncoderSpec& spec) {
  const int64_t head_dim = spec.head_dim();
  if (spec.hidden_size % spec.num_heads != 0 || head_dim < 2 || head_dim > 256 ||
      head_dim % 2 != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} heads of a hidden_size of {} are not supported; heads are even "
                            "numbers from 2 to 256",
                            spec.num_heads, spec.hidden_size),
                "num_attention_heads");
  }
  return {};
}

bool IsEncoder(std::string_view architecture) {
  return FamilyOf(architecture).has_value();
}

Result<EncoderSpec> ReadEncoderSpec(const json::Value& config) {
  const JsonFields fields(config, "");
  EncoderSpec spec;
  ASSIGN_OR_RETURN(const std::string architecture, EncoderArchitecture(fields));
  spec.family = FamilyOf(architecture).value_or(EncoderSpec::Family::kBert);
  if (spec.family == EncoderSpec::Family::kModern) return ReadModernBert(fields);
  const bool is_rotary =
      spec.family == EncoderSpec::Family::kNomic || spec.family == EncoderSpec::Family::kGte;
  RETURN_IF_ERROR(CheckEncoderSettings(fields, spec.family));
  const EncoderDefaults absent = EncoderDefaultsOf(spec.family, architecture);
  ASSIGN_OR_RETURN(spec.vocab_size,
                   Dimension(fields, {"vocab_size"}, int64_t{1} << 24, absent.vocab_size));
  // The alternative names are those in Nomic's published files.
  ASSIGN_OR_RETURN(spec.hidden_size, Dimension(fields, {"hidden_size", "n_embd"}, kMaxEncoderWidth,
                                               absent.hidden_size));
  ASSIGN_OR_RETURN(spec.intermediate_size, Dimension(fields, {"intermediate_size", "n_inner"},
                                                     kMaxEncoderWidth, absent.intermediate_size));
  ASSIGN_OR_RETURN(spec.num_layers,
                   Dimension(fields, {"num_hidden_layers", "n_layer"}, 4096, absent.num_layers));
  ASSIGN_OR_RETURN(spec.num_heads,
                   Dimension(fields, {"num_attention_heads", "n_head"}, 4096, absent.num_heads));
  // Nomic's longer n_positions would need frequencies that depend on the text's length.
  ASSIGN_OR_RETURN(
      spec.num_positions,
      Dimension(fields, {"max_trained_positions", "max_position_embeddings", "n_positions"},
                kMaxEncoderWidth, absent.num_positions));
  ASSIGN_OR_RETURN(const auto types, fields.Integer("type_vocab_size", is_rotary ? 0 : 1, 64));
  spec.num_types = types.value_or(2);
  for (const char* name : {"layer_norm_eps", "layer_norm_epsilon"}) {
    ASSIGN_OR_RETURN(const auto eps, fields.Number(name, 0, 1));
    if (eps) spec.norm_eps = static_cast<float>(*eps);
  }
  ASSIGN_OR_RETURN(const auto padding, fields.Integer("pad_token_id", 0, kMaxEncoderWidth));
  // RoBERTa's positions start after the position of the padding token.
  if (spec.family == EncoderSpec::Family::kRoberta) spec.first_position = padding.value_or(1) + 1;
  if (spec.first_position >= spec.num_positions) {
    return fields.Bad("max_position_embeddings", fmt::format("more than {}", spec.first_position),
                      json::Value(spec.num_positions));
  }
  ASSIGN_OR_RETURN(spec.activation, EncoderActivation(fields, spec.family));
  RETURN_IF_ERROR(CheckEncoderHeads(spec));
  if (is_rotary) {
    ASSIGN_OR_RETURN(spec.rope_frequencies,
                     EncoderFrequencies(fields, spec.family, spec.head_dim()));
  }
  return spec;
}

Result<ModelConfig> ParseEncoderShape(const json::Value& value) {
  ASSIGN_OR_RETURN(const EncoderSpec spec, ReadEncoderSpec(value));
  const JsonFields fields(value, "");
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, EncoderArchitecture(fields));
  ASSIGN_OR_RETURN(const auto type, fields.String("model_type"));
  config.model_type = type.value_or("");
  config.vocab_size = config.spec.vocab_size = spec.vocab_size;
  config.hidden_size = config.spec.hidden_size = spec.hidden_size;
  config.intermediate_size = spec.intermediate_size;
  config.num_hidden_layers = spec.num_layers;
  config.num_attention_heads = config.num_key_value_heads = spec.num_heads;
  config.head_dim = spec.head_dim();
  config.max_position_embeddings = spec.num_positions - spec.first_position;
  config.spec.head.kind = HeadSpec::Kind::kNone;
  ASSIGN_OR_RETURN(config.dtype, EncoderDtype(fields));
  config.raw = value;
  config.scheme = PlainScheme(config.dtype);
  return config;
}

}  // namespace sluice
