#include "models/encoder/modern_bert.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/rope.h"
#include "models/encoder/encoder_parameters.h"

namespace sluice {
namespace {

constexpr std::string_view kArchitectures[] = {"ModernBertModel", "ModernBertForMaskedLM",
                                               "ModernBertForSequenceClassification"};
constexpr int64_t kMaxWidth = 1 << 20;

// Reads the RoPE frequencies of one kind of layer, from `rope_parameters` or the older `theta_key`.
Result<std::vector<float>> ReadRope(const JsonFields& fields, const char* kind,
                                    const char* theta_key, double default_theta, int64_t head_dim) {
  ASSIGN_OR_RETURN(const auto older, fields.Number(theta_key, 1, 1e12));
  double theta = older.value_or(default_theta);
  ASSIGN_OR_RETURN(const json::Value* kinds, fields.Object("rope_parameters"));
  ASSIGN_OR_RETURN(const json::Value* scaling, fields.Object("rope_scaling"));
  const json::Value* block = scaling;
  std::string name = "rope_scaling.";
  if (kinds != nullptr) {
    ASSIGN_OR_RETURN(block, JsonFields(*kinds, "rope_parameters.").Object(kind));
    name = fmt::format("rope_parameters.{}.", kind);
  }
  if (block != nullptr) {
    const JsonFields rope(*block, name);
    ASSIGN_OR_RETURN(const auto type, rope.String("rope_type"));
    if (type.value_or("default") != "default") {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}rope_type '{}' is not supported in this encoder, only default",
                              name, ShortName(*type)),
                  name + "rope_type");
    }
    ASSIGN_OR_RETURN(const auto given, rope.Number("rope_theta", 1, 1e12));
    theta = given.value_or(theta);
  }
  return kernels::RopeFrequencies(static_cast<int>(head_dim), theta, std::nullopt);
}

// Returns whether each layer has a window.
Result<std::vector<bool>> ReadWindows(const JsonFields& fields, int64_t num_layers) {
  constexpr int64_t kDefaultPeriod = 3;
  ASSIGN_OR_RETURN(const auto types, fields.Strings("layer_types"));
  ASSIGN_OR_RETURN(const auto period, fields.Integer("global_attn_every_n_layers", 1, 4096));
  std::vector<bool> windows;
  for (int64_t i = 0; i < num_layers; ++i)
    windows.push_back(i % period.value_or(kDefaultPeriod) != 0);
  if (!types) return windows;
  if (std::ssize(*types) != num_layers) {
    return fields.Bad("layer_types", fmt::format("{} names", num_layers),
                      json::Value(std::ssize(*types)));
  }
  for (size_t i = 0; i < types->size(); ++i) {
    windows[i] = (*types)[i] == "sliding_attention";
    if (windows[i] || (*types)[i] == "full_attention") continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("layer_types has '{}'; supported are full_attention and "
                            "sliding_attention",
                            ShortName((*types)[i])),
                "layer_types");
  }
  return windows;
}

Status CheckActivations(const JsonFields& fields) {
  for (const char* key : {"hidden_activation", "classifier_activation"}) {
    ASSIGN_OR_RETURN(const auto name, fields.String(key));
    if (name.value_or("gelu") == "gelu") continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} '{}' is not supported in this encoder; supported: gelu", key,
                            ShortName(*name)),
                key);
  }
  return {};
}

Result<bool> PoolsMean(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto name, fields.String("classifier_pooling"));
  if (!name || *name == "cls" || *name == "mean") return name == "mean";
  return Fail(ErrorCode::kUnsupported,
              fmt::format("classifier_pooling '{}' is not supported; supported: cls and mean",
                          ShortName(*name)),
              "classifier_pooling");
}

}  // namespace

bool IsModernBert(std::string_view architecture) {
  return std::ranges::find(kArchitectures, architecture) != std::end(kArchitectures);
}

Result<EncoderSpec> ReadModernBert(const JsonFields& fields) {
  constexpr int64_t kDefaultWindow = 128;
  EncoderSpec spec;
  spec.family = EncoderSpec::Family::kModern;
  spec.activation = EncoderSpec::Activation::kGatedGelu;
  spec.norms_before = true;
  // Defaults are those of transformers' ModernBertConfig.
  const auto read = [&](const char* name, int64_t most, int64_t absent,
                        int64_t& dimension) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
    dimension = given.value_or(absent);
    return {};
  };
  RETURN_IF_ERROR(read("vocab_size", int64_t{1} << 24, 50368, spec.vocab_size));
  RETURN_IF_ERROR(read("hidden_size", kMaxWidth, 768, spec.hidden_size));
  RETURN_IF_ERROR(read("intermediate_size", kMaxWidth, 1152, spec.intermediate_size));
  RETURN_IF_ERROR(read("num_hidden_layers", 4096, 22, spec.num_layers));
  RETURN_IF_ERROR(read("num_attention_heads", 4096, 12, spec.num_heads));
  RETURN_IF_ERROR(read("max_position_embeddings", kMaxWidth, 8192, spec.num_positions));
  RETURN_IF_ERROR(CheckEncoderHeads(spec));
  RETURN_IF_ERROR(CheckActivations(fields));
  ASSIGN_OR_RETURN(const auto eps, fields.Number("norm_eps", 0, 1));
  spec.norm_eps = static_cast<float>(eps.value_or(1e-5));
  constexpr std::pair<const char*, bool EncoderSpec::Biases::*> kBiases[] = {
      {"attention_bias", &EncoderSpec::Biases::attention},
      {"mlp_bias", &EncoderSpec::Biases::mlp},
      {"norm_bias", &EncoderSpec::Biases::norms},
      {"classifier_bias", &EncoderSpec::Biases::classifier}};
  for (const auto& [name, flag] : kBiases) {
    ASSIGN_OR_RETURN(const auto given, fields.Bool(name));
    spec.biases.*flag = given.value_or(false);
  }
  ASSIGN_OR_RETURN(spec.has_window, ReadWindows(fields, spec.num_layers));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("local_attention", 2, kMaxWidth));
  spec.reach = static_cast<int32_t>(window.value_or(kDefaultWindow) / 2);
  const int64_t head_dim = spec.head_dim();
  ASSIGN_OR_RETURN(spec.rope_frequencies,
                   ReadRope(fields, "full_attention", "global_rope_theta", 160000, head_dim));
  ASSIGN_OR_RETURN(spec.window_frequencies,
                   ReadRope(fields, "sliding_attention", "local_rope_theta", 10000, head_dim));
  ASSIGN_OR_RETURN(spec.classifies_mean, PoolsMean(fields));
  return spec;
}

ParameterList ListModernBertParameters(const EncoderSpec& spec, int64_t num_scores,
                                       const std::string& prefix, EncoderWeights& weights) {
  ParameterList list;
  const int64_t hidden = spec.hidden_size, inner = spec.intermediate_size;
  const EncoderSpec::Biases& biases = spec.biases;
  const auto add_norm = [&](const std::string& module, LayerNormWeights& norm) {
    AddEncoderNorm(list, module, hidden, norm, biases.norms);
  };
  weights.layers.resize(static_cast<size_t>(spec.num_layers));
  list.matrices.push_back({.parts = {{prefix + "embeddings.tok_embeddings", spec.vocab_size}},
                           .cols = hidden,
                           .target = &weights.words,
                           .plain_on_device = true});
  add_norm(prefix + "embeddings.norm", weights.embedding_norm);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    EncoderLayerWeights& layer = weights.layers[i];
    // Canonical names, which are the same for files with and without a head.
    const std::string name = fmt::format("model.layers.{}.", i);
    // The first layer's input is already normalized by the embedding.
    if (i > 0) add_norm(name + "attn_norm", layer.attention_norm);
    AddEncoderLinear(list, {{name + "attn.Wqkv", 3 * hidden}}, hidden, layer.qkv, biases.attention);
    AddEncoderLinear(list, {{name + "attn.Wo", hidden}}, hidden, layer.output, biases.attention);
    add_norm(name + "mlp_norm", layer.mlp_norm);
    // The first half of the rows is the gate.
    AddEncoderLinear(list, {{name + "mlp.Wi", 2 * inner}}, hidden, layer.up, biases.mlp);
    AddEncoderLinear(list, {{name + "mlp.Wo", hidden}}, inner, layer.down, biases.mlp);
  }
  add_norm(prefix + "final_norm", weights.final_norm);
  if (num_scores == 0) return list;
  ClassifierWeights& classifier = weights.classifier;
  AddEncoderDense(list, "head.dense", hidden, hidden, classifier.dense, classifier.dense_bias,
                  biases.classifier);
  add_norm("head.norm", classifier.norm);
  AddEncoderDense(list, "classifier", num_scores, hidden, classifier.out, classifier.out_bias);
  return list;
}

}  // namespace sluice
