#include "models/encoder/encoder_spec.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "checkpoint/scheme.h"

namespace sluice {
namespace {

constexpr int64_t kMaxEncoderWidth = 1 << 20;
constexpr std::string_view kBert[] = {"BertModel", "BertForSequenceClassification"};
constexpr std::string_view kRoberta[] = {"RobertaModel", "RobertaForSequenceClassification",
                                         "XLMRobertaModel", "XLMRobertaForSequenceClassification"};

bool IsAmong(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::string> EncoderArchitecture(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto names, fields.Strings("architectures"));
  if (!names || names->empty()) return fields.Missing("architectures");
  return names->front();
}

// Settings that would change what the model computes and that are not implemented.
Status CheckEncoderSettings(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto positions, fields.String("position_embedding_type"));
  if (positions && *positions != "absolute") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("position_embedding_type '{}' is not supported, only absolute",
                            ShortName(*positions)),
                "position_embedding_type");
  }
  ASSIGN_OR_RETURN(const auto is_decoder, fields.Bool("is_decoder"));
  if (is_decoder.value_or(false)) {
    return Fail(ErrorCode::kUnsupported,
                "is_decoder true is not supported: encoders see all tokens", "is_decoder");
  }
  return {};
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

bool IsEncoder(std::string_view architecture) {
  return IsAmong(kBert, architecture) || IsAmong(kRoberta, architecture);
}

Result<EncoderSpec> ReadEncoderSpec(const json::Value& config) {
  const JsonFields fields(config, "");
  RETURN_IF_ERROR(CheckEncoderSettings(fields));
  EncoderSpec spec;
  ASSIGN_OR_RETURN(const std::string architecture, EncoderArchitecture(fields));
  spec.is_roberta = IsAmong(kRoberta, architecture);
  const auto read = [&](const char* name, int64_t most, int64_t& target) -> Status {
    ASSIGN_OR_RETURN(target, fields.RequiredInteger(name, 1, most));
    return {};
  };
  RETURN_IF_ERROR(read("vocab_size", int64_t{1} << 24, spec.vocab_size));
  RETURN_IF_ERROR(read("hidden_size", kMaxEncoderWidth, spec.hidden_size));
  RETURN_IF_ERROR(read("intermediate_size", kMaxEncoderWidth, spec.intermediate_size));
  RETURN_IF_ERROR(read("num_hidden_layers", 4096, spec.num_layers));
  RETURN_IF_ERROR(read("num_attention_heads", 4096, spec.num_heads));
  RETURN_IF_ERROR(read("max_position_embeddings", kMaxEncoderWidth, spec.num_positions));
  ASSIGN_OR_RETURN(const auto types, fields.Integer("type_vocab_size", 1, 64));
  spec.num_types = types.value_or(2);
  ASSIGN_OR_RETURN(const auto eps, fields.Number("layer_norm_eps", 0, 1));
  spec.norm_eps = static_cast<float>(eps.value_or(1e-12));
  ASSIGN_OR_RETURN(const auto padding, fields.Integer("pad_token_id", 0, kMaxEncoderWidth));
  // RoBERTa counts positions from behind that of padding.
  if (spec.is_roberta) spec.first_position = padding.value_or(1) + 1;
  if (spec.first_position >= spec.num_positions) {
    return fields.Bad("max_position_embeddings", fmt::format("more than {}", spec.first_position),
                      json::Value(spec.num_positions));
  }
  ASSIGN_OR_RETURN(const auto activation, fields.String("hidden_act"));
  spec.is_relu = activation == "relu";
  if (activation && *activation != "gelu" && !spec.is_relu) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("hidden_act '{}' is not supported in an encoder; supported are gelu and "
                    "relu",
                    ShortName(*activation)),
        "hidden_act");
  }
  const int64_t head_dim = spec.head_dim();
  if (spec.hidden_size % spec.num_heads != 0 || head_dim < 32 || head_dim > 256 ||
      head_dim % 8 != 0) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} heads of a hidden_size of {} are not supported; heads are multiples "
                    "of 8 from 32 to 256",
                    spec.num_heads, spec.hidden_size),
        "num_attention_heads");
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
