#include "models/weights.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sluice {
namespace {

int64_t SumRows(const std::vector<ParameterPart>& parts) {
  int64_t rows = 0;
  for (const ParameterPart& part : parts) rows += part.held_rows().size();
  return rows;
}

// What a rank holds of `rows` rows, of all heads and of those of keys and values.
class PartCutter {
 public:
  explicit PartCutter(const RankPlace& place) : place_(place) {}

  ParameterPart Rows(std::string name, int64_t rows) const {
    return Make(std::move(name), rows, CutRows(rows, place_.tensor_rank, place_.tensor_size));
  }
  ParameterPart Queries(std::string name, const AttentionSpec& spec) const {
    return Heads(std::move(name), spec.q_width(), HeadsOf(spec).q, spec.head_dim);
  }
  ParameterPart Keys(std::string name, const AttentionSpec& spec) const {
    return Heads(std::move(name), spec.kv_width(), HeadsOf(spec).kv, spec.head_dim);
  }
  // A number for each query head.
  ParameterPart EachQuery(std::string name, const AttentionSpec& spec) const {
    return Heads(std::move(name), spec.num_heads, HeadsOf(spec).q, 1);
  }
  // Of one module that holds q, k and v, and of one that holds gate and up, whose rows are `rows`.
  std::vector<ParameterPart> QueriesKeysValues(const std::string& name,
                                               const AttentionSpec& spec) const {
    if (place_.tensor_size == 1) return {{name, spec.qkv_width()}};
    const HeadCut heads = HeadsOf(spec);
    const auto within = [&](const RowRange& held, int64_t first) {
      return ParameterPart{
          name, spec.qkv_width(),
          RowRange{first + held.begin * spec.head_dim, first + held.end * spec.head_dim}};
    };
    return {within(heads.q, 0), within(heads.kv, spec.q_width()),
            within(heads.kv, spec.q_width() + spec.kv_width())};
  }
  std::vector<ParameterPart> Halves(const std::string& name, int64_t rows) const {
    if (place_.tensor_size == 1) return {{name, rows}};
    const int64_t half = rows / 2;
    const RowRange held = CutRows(half, place_.tensor_rank, place_.tensor_size);
    return {{name, rows, held}, {name, rows, RowRange{half + held.begin, half + held.end}}};
  }
  // Of two modules of `rows` rows each, one below the other, between which the rows of gate and up
  // alternate: those of the same numbers of both.
  std::vector<ParameterPart> Alternating(std::string first, std::string second,
                                         int64_t rows) const {
    const RowRange held = CutRows(rows, place_.tensor_rank, place_.tensor_size);
    const auto within = [&](int64_t begin) {
      return RowRange{std::clamp(2 * held.begin - begin, int64_t{0}, rows),
                      std::clamp(2 * held.end - begin, int64_t{0}, rows)};
    };
    return {Make(std::move(first), rows, within(0)), Make(std::move(second), rows, within(rows))};
  }

 private:
  HeadCut HeadsOf(const AttentionSpec& spec) const {
    return CutHeads(spec, place_.tensor_rank, place_.tensor_size);
  }
  static ParameterPart Heads(std::string name, int64_t rows, const RowRange& heads,
                             int64_t head_dim) {
    return Make(std::move(name), rows, {heads.begin * head_dim, heads.end * head_dim});
  }
  static ParameterPart Make(std::string name, int64_t rows, const RowRange& held) {
    if (held.size() == rows) return {std::move(name), rows};
    return {std::move(name), rows, held};
  }

  RankPlace place_;
};

// A linear layer that may have a bias, "<module>.bias".
void AddLinear(ParameterList& list, const std::vector<ParameterPart>& modules, int64_t cols,
               bool has_bias, LinearWeights& weights) {
  list.matrices.push_back({.parts = modules,
                           .cols = cols,
                           .target = &weights.matrix,
                           .inputs = &weights.inputs,
                           .linear = &weights});
  if (!has_bias) return;
  VectorParameter vector{
      .kind = VectorParameter::Kind::kBias, .parts = modules, .target = &weights.bias};
  for (ParameterPart& part : vector.parts) part.name += ".bias";
  list.vectors.push_back(std::move(vector));
}

void AddNorm(ParameterList& list, const std::string& module, int64_t size, float offset,
             std::vector<float>& target) {
  list.vectors.push_back(
      {VectorParameter::Kind::kNorm, {{module + ".weight", size}}, &target, offset});
}

// A vector that is a tensor of its own.
void AddVector(ParameterList& list, const std::string& tensor, int64_t size,
               std::vector<float>& target) {
  list.vectors.push_back({VectorParameter::Kind::kBias, {{tensor, size}}, &target});
}

// The norm before or after a sub-layer of `layer`, where there is one.
void AddLayerNorm(ParameterList& list, const std::string& layer, const std::string& module,
                  const DecoderSpec& spec, std::vector<float>& target) {
  if (module.empty()) return;
  AddNorm(list, fmt::format("{}.{}", layer, module), spec.hidden_size, spec.norm_weight_offset,
          target);
}

std::string AttentionName(int64_t layer) {
  return fmt::format("model.layers.{}.self_attn", layer);
}

void AddAttention(ParameterList& list, const std::string& prefix, const AttentionSpec& spec,
                  const DecoderSpec& decoder, const PartCutter& cut, AttentionWeights& weights) {
  const int64_t hidden_size = decoder.hidden_size;
  const float offset = decoder.norm_weight_offset;
  if (spec.qkv_projection.empty()) {
    std::vector<ParameterPart> parts = {cut.Queries(prefix + ".q_proj", spec)};
    if (spec.has_own_kv()) parts.push_back(cut.Keys(prefix + ".k_proj", spec));
    if (spec.has_own_kv() && !spec.values_are_keys)
      parts.push_back(cut.Keys(prefix + ".v_proj", spec));
    AddLinear(list, parts, hidden_size, spec.qkv_bias, weights.qkv);
  } else {
    AddLinear(list, cut.QueriesKeysValues(fmt::format("{}.{}", prefix, spec.qkv_projection), spec),
              hidden_size, spec.qkv_bias, weights.qkv);
  }
  if (spec.qk_norm == QkNorm::kBeforeRope) {
    AddNorm(list, prefix + ".q_norm", spec.head_dim, offset, weights.q_norm);
    if (spec.has_own_kv()) AddNorm(list, prefix + ".k_norm", spec.head_dim, offset, weights.k_norm);
  } else if (spec.qk_norm == QkNorm::kWholeWidth) {
    AddNorm(list, prefix + ".q_norm", spec.q_width(), offset, weights.q_norm);
    AddNorm(list, prefix + ".k_norm", spec.kv_width(), offset, weights.k_norm);
  } else if (spec.qk_norm == QkNorm::kAfterRopeUnweighted) {
    weights.q_norm.assign(static_cast<size_t>(spec.head_dim), 1.0f);
    weights.k_norm = weights.q_norm;
  }
  if (spec.norms_values) weights.v_norm.assign(static_cast<size_t>(spec.head_dim), 1.0f);
  AddLinear(list, {cut.Rows(prefix + ".o_proj", hidden_size)}, spec.q_width(), spec.output_bias,
            weights.output);
  if (spec.sinks) {
    list.vectors.push_back(
        {VectorParameter::Kind::kBias, {cut.EachQuery(prefix + ".sinks", spec)}, &weights.sinks});
  }
  // Of the keys and values that the layer reads, which may be another's.
  list.kv_scales.push_back({.attention = spec.has_own_kv() ? prefix : AttentionName(spec.kv_layer),
                            .target = &weights.kv_scales});
  // Some writers keep what such a layer would have of its own.
  if (!spec.has_own_kv()) {
    for (const char* module : {"k_proj", "v_proj", "k_norm", "v_norm"})
      list.unread.push_back(fmt::format("{}.{}.", prefix, module));
  }
}

void AddMlp(ParameterList& list, const std::string& layer, const MlpSpec& spec, int64_t hidden_size,
            const PartCutter& cut, MlpWeights& weights) {
  const std::string prefix = fmt::format("{}.{}", layer, spec.module);
  std::vector<ParameterPart> gate_up = {cut.Rows(prefix + ".gate_proj", spec.intermediate_size),
                                        cut.Rows(prefix + ".up_proj", spec.intermediate_size)};
  if (!spec.gate_up_projection.empty())
    gate_up = cut.Halves(fmt::format("{}.{}", prefix, spec.gate_up_projection),
                         2 * spec.intermediate_size);
  AddLinear(list, gate_up, hidden_size, spec.has_bias, weights.gate_up);
  AddLinear(list, {cut.Rows(fmt::format("{}.{}", prefix, spec.down_projection), hidden_size)},
            spec.intermediate_size, spec.has_bias, weights.down);
  if (spec.output_gate.empty()) return;
  AddLinear(list, {{fmt::format("{}.{}", layer, spec.output_gate), 1}}, hidden_size,
            /*has_bias=*/false, weights.output_gate);
  list.matrices.back().plain_on_device = true;
}

// One linear layer of all experts: a module for each of them and each of `projections`, or one
// tensor `fused` for all.
void AddExperts(ParameterList& list, const std::string& prefix, const MoeSpec& spec,
                const std::vector<ParameterPart>& projections, const char* fused, int64_t cols,
                ExpertWeights& weights) {
  weights.matrices.resize(static_cast<size_t>(spec.num_experts));
  weights.inputs.resize(static_cast<size_t>(spec.num_experts));
  for (int64_t expert = 0; expert < spec.num_experts; ++expert) {
    MatrixParameter matrix{.parts = projections,
                           .cols = cols,
                           .target = &weights.matrices[static_cast<size_t>(expert)],
                           .inputs = &weights.inputs[static_cast<size_t>(expert)],
                           .fused = FusedExpert{.module = fmt::format("{}.{}", prefix, fused),
                                                .expert = expert,
                                                .num_experts = spec.num_experts,
                                                .transposed = spec.fused_transposed},
                           .experts = &weights};
    for (ParameterPart& part : matrix.parts)
      part.name = fmt::format("{}.{}.{}", prefix, expert, part.name);
    list.matrices.push_back(std::move(matrix));
  }
  if (!spec.has_bias) return;
  const int64_t rows = list.matrices.back().stored_rows();
  const std::string bias = fmt::format("{}.{}_bias", prefix, fused);
  AddVector(list, bias, spec.num_experts * rows, weights.bias);
  VectorParameter& vector = list.vectors.back();
  vector.width = rows;
  if (list.matrices.back().rows() == rows) return;
  vector.parts.clear();
  for (int64_t first = 0; first < spec.num_experts * rows;) {
    for (const ParameterPart& part : projections) {
      const RowRange held = part.held_rows();
      vector.parts.push_back(
          {bias, spec.num_experts * rows, RowRange{first + held.begin, first + held.end}});
      first += part.rows;
    }
  }
}

void AddMoe(ParameterList& list, const std::string& layer, const MoeSpec& spec, int64_t hidden_size,
            const PartCutter& cut, MoeWeights& weights) {
  const std::string router = fmt::format("{}.{}", layer, spec.router_module);
  AddLinear(list, {{spec.own_norms ? router + ".proj" : router, spec.num_experts}}, hidden_size,
            spec.router_bias, weights.router);
  list.matrices.back().plain_on_device = true;
  if (spec.own_norms) {
    list.vectors.push_back({.kind = VectorParameter::Kind::kNorm,
                            .parts = {{router + ".scale", hidden_size}},
                            .target = &weights.router_norm,
                            .factor = 1 / std::sqrt(static_cast<float>(hidden_size))});
    list.vectors.push_back({.kind = VectorParameter::Kind::kNorm,
                            .parts = {{router + ".per_expert_scale", spec.num_experts}},
                            .target = &weights.expert_factors});
    const auto add_norm = [&](const std::string& module, std::vector<float>& target) {
      AddNorm(list, fmt::format("{}.{}", layer, module), hidden_size, /*offset=*/0, target);
    };
    add_norm(spec.own_norms->mlp_after, weights.mlp_after);
    add_norm(spec.own_norms->experts_before, weights.experts_before);
    add_norm(spec.own_norms->experts_after, weights.experts_after);
  }
  if (!spec.choice_bias.empty()) {
    AddVector(list, fmt::format("{}.{}", layer, spec.choice_bias), spec.num_experts,
              weights.choice_bias);
  }
  const std::string prefix = fmt::format("{}.{}", layer, spec.experts_module);
  std::vector<ParameterPart> gate_up = {cut.Rows(spec.gate_projection, spec.intermediate_size),
                                        cut.Rows(spec.up_projection, spec.intermediate_size)};
  if (spec.activation == Activation::kClampedSwiglu)
    gate_up = cut.Alternating(spec.gate_projection, spec.up_projection, spec.intermediate_size);
  AddExperts(list, prefix, spec, gate_up, "gate_up_proj", hidden_size, weights.gate_up);
  AddExperts(list, prefix, spec, {cut.Rows(spec.down_projection, hidden_size)}, "down_proj",
             spec.intermediate_size, weights.down);
}

// LayerEmbeddingSpec: the table and the projection of all layers.
void AddLayerEmbeddings(ParameterList& list, const DecoderSpec& spec, const PartCutter& cut,
                        DecoderWeights& weights) {
  const LayerEmbeddingSpec& embeddings = spec.layer_embeddings;
  const int64_t all = embeddings.width * static_cast<int64_t>(spec.layers.size());
  list.matrices.push_back(
      {.parts = {cut.Rows("model.embed_tokens_per_layer", embeddings.vocab_size)},
       .cols = all,
       .target = &weights.layer_embeddings,
       .plain_on_device = true});
  AddLinear(list, {cut.Rows("model.per_layer_model_projection", all)}, spec.hidden_size,
            /*has_bias=*/false, weights.layer_projection);
  AddNorm(list, "model.per_layer_projection_norm", embeddings.width, spec.norm_weight_offset,
          weights.layer_norm);
}

// The same of one layer.
void AddLayerEmbedding(ParameterList& list, const std::string& layer, const DecoderSpec& spec,
                       const PartCutter& cut, LayerEmbeddingWeights& weights) {
  const int64_t width = spec.layer_embeddings.width;
  AddLinear(list, {cut.Rows(layer + ".per_layer_input_gate", width)}, spec.hidden_size,
            /*has_bias=*/false, weights.gate);
  AddLinear(list, {cut.Rows(layer + ".per_layer_projection", spec.hidden_size)}, width,
            /*has_bias=*/false, weights.projection);
  AddNorm(list, layer + ".post_per_layer_input_norm", spec.hidden_size, spec.norm_weight_offset,
          weights.norm);
}

}  // namespace

int64_t MatrixParameter::rows() const {
  return SumRows(parts);
}
int64_t MatrixParameter::stored_rows() const {
  int64_t rows = 0;
  for (const ParameterPart& part : parts) rows += part.rows;
  return rows;
}
int64_t VectorParameter::rows() const {
  return SumRows(parts);
}

ParameterList ListParameters(const DecoderSpec& spec, DecoderWeights& weights,
                             const RankPlace& place) {
  ParameterList list;
  const PartCutter cut(place);
  const RowRange layers = LayersOf(spec, place);
  weights.layers.resize(static_cast<size_t>(layers.size()));
  if (place.is_first_stage()) {
    list.matrices.push_back({.parts = {cut.Rows("model.embed_tokens", spec.vocab_size)},
                             .cols = spec.hidden_size,
                             .target = &weights.embedding,
                             .plain_on_device = true});
  }
  if (spec.layer_embeddings.width > 0 && place.is_first_stage())
    AddLayerEmbeddings(list, spec, cut, weights);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    const std::string prefix = fmt::format("model.layers.{}", i);
    LayerWeights& layer = weights.layers[static_cast<size_t>(i - layers.begin)];
    const LayerSpec& layer_spec = spec.layers[static_cast<size_t>(i)];
    AddLayerNorm(list, prefix, layer_spec.attention_norms.before, spec,
                 layer.attention_norms.before);
    AddAttention(list, AttentionName(i), layer_spec.attention, spec, cut, layer.attention);
    AddLayerNorm(list, prefix, layer_spec.attention_norms.after, spec, layer.attention_norms.after);
    AddLayerNorm(list, prefix, layer_spec.mlp_norms.before, spec, layer.mlp_norms.before);
    if (layer_spec.mlp.intermediate_size > 0)
      AddMlp(list, prefix, layer_spec.mlp, spec.hidden_size, cut, layer.mlp);
    if (layer_spec.moe) AddMoe(list, prefix, *layer_spec.moe, spec.hidden_size, cut, layer.moe);
    AddLayerNorm(list, prefix, layer_spec.mlp_norms.after, spec, layer.mlp_norms.after);
    if (spec.layer_embeddings.width > 0)
      AddLayerEmbedding(list, prefix, spec, cut, layer.embedding);
    if (!layer_spec.residual_factor.empty()) {
      list.vectors.push_back(
          {.kind = VectorParameter::Kind::kNorm,
           .parts = {{fmt::format("{}.{}", prefix, layer_spec.residual_factor), 1}},
           .target = &layer.residual_factor});
    }
  }
  for (int64_t i = 0; i < spec.num_draft_layers; ++i) {
    list.unread.push_back(
        fmt::format("model.layers.{}.", static_cast<int64_t>(spec.layers.size()) + i));
  }
  if (!place.is_first_stage()) return list;
  AddNorm(list, "model.norm", spec.hidden_size, spec.norm_weight_offset, weights.final_norm);
  if (spec.LoadsHead()) {
    AddLinear(list, {cut.Rows("lm_head", spec.vocab_size)}, spec.hidden_size, /*has_bias=*/false,
              weights.head);
  }
  if (spec.head.kind == HeadSpec::Kind::kScores && spec.head.tokens.empty()) {
    list.vectors.push_back({.kind = VectorParameter::Kind::kBias,
                            .parts = {{"score.weight", spec.head.num_scores * spec.hidden_size}},
                            .target = &weights.scores,
                            .width = spec.hidden_size});
  }
  return list;
}

}  // namespace sluice
