#include "models/encoder/encoder_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/encoder/encoder_parameters.h"
#include "models/encoder/modern_bert.h"
#include "models/matrix_source.h"

namespace sluice {
namespace {

void AddVector(ParameterList& list, std::vector<ParameterPart> parts, int64_t cols,
               std::vector<float>& target) {
  if (cols > 0) {
    for (ParameterPart& part : parts) part.rows *= cols;
  }
  list.vectors.push_back({.kind = VectorParameter::Kind::kBias,
                          .parts = std::move(parts),
                          .target = &target,
                          .width = cols});
}

// Adds a layer with BERT's and RoBERTa's names.
void AddBertLayer(ParameterList& list, const EncoderSpec& spec, const std::string& name,
                  EncoderLayerWeights& layer) {
  const int64_t hidden = spec.hidden_size;
  const std::string self = name + "attention.self.";
  AddEncoderLinear(list,
                   {{self + "query", hidden}, {self + "key", hidden}, {self + "value", hidden}},
                   hidden, layer.qkv);
  AddEncoderLinear(list, {{name + "attention.output.dense", hidden}}, hidden, layer.output);
  AddEncoderNorm(list, name + "attention.output.LayerNorm", hidden, layer.attention_norm);
  AddEncoderLinear(list, {{name + "intermediate.dense", spec.intermediate_size}}, hidden, layer.up);
  AddEncoderLinear(list, {{name + "output.dense", hidden}}, spec.intermediate_size, layer.down);
  AddEncoderNorm(list, name + "output.LayerNorm", hidden, layer.mlp_norm);
}

// Adds a layer with Nomic's names, without biases; fc12 is the gate.
void AddNomicLayer(ParameterList& list, const EncoderSpec& spec, const std::string& name,
                   EncoderLayerWeights& layer) {
  const int64_t hidden = spec.hidden_size, inner = spec.intermediate_size;
  AddEncoderLinear(list, {{name + "attn.Wqkv", 3 * hidden}}, hidden, layer.qkv, false);
  AddEncoderLinear(list, {{name + "attn.out_proj", hidden}}, hidden, layer.output, false);
  AddEncoderNorm(list, name + "norm1", hidden, layer.attention_norm);
  AddEncoderLinear(list, {{name + "mlp.fc12", inner}, {name + "mlp.fc11", inner}}, hidden, layer.up,
                   false);
  AddEncoderLinear(list, {{name + "mlp.fc2", hidden}}, inner, layer.down, false);
  AddEncoderNorm(list, name + "norm2", hidden, layer.mlp_norm);
}

// Adds a layer with GTE's names; the gate is the second half of the rows of up_gate_proj, which is
// the only module without a bias.
void AddGteLayer(ParameterList& list, const EncoderSpec& spec, const std::string& name,
                 EncoderLayerWeights& layer) {
  const int64_t hidden = spec.hidden_size, inner = spec.intermediate_size;
  AddEncoderLinear(list, {{name + "attention.qkv_proj", 3 * hidden}}, hidden, layer.qkv);
  AddEncoderLinear(list, {{name + "attention.o_proj", hidden}}, hidden, layer.output);
  AddEncoderNorm(list, name + "attn_ln", hidden, layer.attention_norm);
  const std::string both = name + "mlp.up_gate_proj";
  AddEncoderLinear(
      list, {{both, 2 * inner, RowRange{inner, 2 * inner}}, {both, 2 * inner, RowRange{0, inner}}},
      hidden, layer.up, false);
  AddEncoderLinear(list, {{name + "mlp.down_proj", hidden}}, inner, layer.down);
  AddEncoderNorm(list, name + "mlp_ln", hidden, layer.mlp_norm);
}

// Returns whether a tensor is not needed: a buffer, the training head, or the pooler of an
// embedding model.
bool IsSuperfluous(std::string_view name) {
  // Prefixes of unneeded tensors in ModernBERT.
  if (name.starts_with("head.") || name.starts_with("decoder.")) return true;
  constexpr std::string_view kParts[] = {"position_ids", "pooler.dense.", "cls.", "lm_head.",
                                         "classifier."};
  return std::ranges::any_of(
      kParts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// Returns the error message for the tensor of a part; "" if it is valid.
std::string ProblemOf(const Checkpoint& checkpoint, const ParameterPart& part, int64_t width) {
  std::vector<int64_t> shape = {part.rows};
  if (width > 0) shape = {part.rows / width, width};
  const StoredTensor* tensor = checkpoint.Find(part.name);
  if (tensor == nullptr)
    return fmt::format("tensor '{}' of shape {} is missing", part.name, ShapeText(shape));
  if (tensor->info->shape != shape) {
    return fmt::format("tensor '{}' has shape {}, expected {} from config.json", part.name,
                       ShapeText(tensor->info->shape), ShapeText(shape));
  }
  const ElementType type = tensor->info->type;
  if (type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16)
    return "";
  return fmt::format("tensor '{}' has type {}, expected F32, F16 or BF16", part.name,
                     ElementTypeName(type));
}

}  // namespace

void AddEncoderLinear(ParameterList& list, const std::vector<ParameterPart>& modules, int64_t cols,
                      LinearWeights& weights, bool has_bias) {
  list.matrices.push_back(
      {.parts = modules, .cols = cols, .target = &weights.matrix, .inputs = &weights.inputs});
  if (!has_bias) return;
  std::vector<ParameterPart> biases = modules;
  for (ParameterPart& part : biases) part.name += ".bias";
  AddVector(list, std::move(biases), 0, weights.bias);
}

void AddEncoderNorm(ParameterList& list, const std::string& module, int64_t size,
                    LayerNormWeights& weights, bool has_bias) {
  list.vectors.push_back(
      {VectorParameter::Kind::kNorm, {{module + ".weight", size}}, &weights.weight});
  if (has_bias) AddVector(list, {{module + ".bias", size}}, 0, weights.bias);
}

void AddEncoderDense(ParameterList& list, const std::string& module, int64_t rows, int64_t cols,
                     std::vector<float>& weight, std::vector<float>& bias, bool has_bias) {
  AddVector(list, {{module + ".weight", rows}}, cols, weight);
  if (has_bias) AddVector(list, {{module + ".bias", rows}}, 0, bias);
}

ParameterList ListEncoderParameters(const EncoderSpec& spec, int64_t num_scores,
                                    const std::string& prefix, EncoderWeights& weights) {
  if (spec.family == EncoderSpec::Family::kModern)
    return ListModernBertParameters(spec, num_scores, prefix, weights);
  ParameterList list;
  const int64_t hidden = spec.hidden_size;
  weights.layers.resize(static_cast<size_t>(spec.num_layers));
  const std::string embeddings = prefix + "embeddings.";
  list.matrices.push_back({.parts = {{embeddings + "word_embeddings", spec.vocab_size}},
                           .cols = hidden,
                           .target = &weights.words,
                           .plain_on_device = true});
  if (spec.rope_frequencies.empty()) {
    AddVector(list, {{embeddings + "position_embeddings.weight", spec.num_positions}}, hidden,
              weights.positions);
  }
  if (spec.num_types > 0) {
    AddVector(list, {{embeddings + "token_type_embeddings.weight", spec.num_types}}, hidden,
              weights.types);
  }
  const bool is_nomic = spec.family == EncoderSpec::Family::kNomic;
  AddEncoderNorm(list, is_nomic ? prefix + "emb_ln" : embeddings + "LayerNorm", hidden,
                 weights.embedding_norm);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    EncoderLayerWeights& layer = weights.layers[i];
    const std::string name = fmt::format("{}encoder.layer{}.{}.", prefix, is_nomic ? "s" : "", i);
    switch (spec.family) {
      case EncoderSpec::Family::kBert:
      case EncoderSpec::Family::kRoberta: AddBertLayer(list, spec, name, layer); break;
      case EncoderSpec::Family::kNomic: AddNomicLayer(list, spec, name, layer); break;
      case EncoderSpec::Family::kGte: AddGteLayer(list, spec, name, layer); break;
      case EncoderSpec::Family::kModern: break;  // handled above
    }
  }
  if (num_scores == 0) return list;
  ClassifierWeights& classifier = weights.classifier;
  const bool is_roberta = spec.family == EncoderSpec::Family::kRoberta;
  AddEncoderDense(list, is_roberta ? "classifier.dense" : prefix + "pooler.dense", hidden, hidden,
                  classifier.dense, classifier.dense_bias);
  AddEncoderDense(list, is_roberta ? "classifier.out_proj" : "classifier", num_scores, hidden,
                  classifier.out, classifier.out_bias);
  return list;
}

std::string EncoderPrefix(const Checkpoint& checkpoint) {
  for (const char* prefix : {"bert.", "roberta.", "new.", "gte.", "nomic_bert."}) {
    const std::string name = std::string(prefix) + "embeddings.word_embeddings.weight";
    if (checkpoint.Find(name) != nullptr) return prefix;
  }
  return checkpoint.Find("model.embeddings.tok_embeddings.weight") != nullptr ? "model." : "";
}

void FillEncoderBiases(const EncoderSpec& spec, EncoderWeights& weights) {
  const auto fill = [](LayerNormWeights& norm) {
    if (norm.bias.empty()) norm.bias.resize(norm.weight.size());
  };
  fill(weights.embedding_norm);
  for (EncoderLayerWeights& layer : weights.layers) {
    fill(layer.attention_norm);
    fill(layer.mlp_norm);
  }
  fill(weights.final_norm);
  ClassifierWeights& classifier = weights.classifier;
  fill(classifier.norm);
  if (classifier.dense_bias.empty() && !classifier.dense.empty())
    classifier.dense_bias.resize(static_cast<size_t>(spec.hidden_size));
}

Status CheckEncoderParameters(const ParameterList& list, const Checkpoint& checkpoint,
                              const QuantizationScheme& scheme) {
  std::vector<std::string> problems;
  std::set<std::string, std::less<>> used;
  for (const MatrixParameter& matrix : list.matrices) {
    const auto source = FindMatrix(matrix, checkpoint, scheme, ElementType::kBF16);
    if (!source) problems.push_back(source.error().message);
    for (const ParameterPart& part : matrix.parts) used.insert(part.name + ".weight");
  }
  for (const VectorParameter& vector : list.vectors) {
    for (const ParameterPart& part : vector.parts) {
      used.insert(part.name);
      std::string problem = ProblemOf(checkpoint, part, vector.width);
      if (!problem.empty()) problems.push_back(std::move(problem));
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (used.contains(name) || IsSuperfluous(name)) continue;
    problems.push_back(fmt::format("tensor '{}' belongs to no part of this architecture", name));
  }
  if (problems.empty()) return {};
  constexpr size_t kShown = 8;
  const size_t count = problems.size();
  problems.resize(std::min(count, kShown));
  return Fail(
      ErrorCode::kInvalidData,
      fmt::format("{}: the tensors do not fit config.json: {}{}", checkpoint.folder().string(),
                  fmt::join(problems, "; "),
                  count > kShown ? fmt::format("; and {} more problems", count - kShown) : ""));
}

}  // namespace sluice
