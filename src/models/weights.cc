#include "models/weights.h"

#include <fmt/format.h>

namespace sluice {
namespace {

int64_t SumRows(const std::vector<ParameterPart>& parts) {
  int64_t rows = 0;
  for (const ParameterPart& part : parts) rows += part.rows;
  return rows;
}

// A linear layer that may have a bias, "<module>.bias".
void AddLinear(ParameterList& list, const std::vector<ParameterPart>& modules, int64_t cols,
               bool has_bias, LinearWeights& weights) {
  list.matrices.push_back(
      {.parts = modules, .cols = cols, .target = &weights.matrix, .inputs = &weights.inputs});
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

// The norm before or after a sub-layer of `layer`, where there is one.
void AddLayerNorm(ParameterList& list, const std::string& layer, const std::string& module,
                  const DecoderSpec& spec, std::vector<float>& target) {
  if (module.empty()) return;
  AddNorm(list, fmt::format("{}.{}", layer, module), spec.hidden_size, spec.norm_weight_offset,
          target);
}

void AddAttention(ParameterList& list, const std::string& prefix, const AttentionSpec& spec,
                  const DecoderSpec& decoder, AttentionWeights& weights) {
  const int64_t hidden_size = decoder.hidden_size;
  const float offset = decoder.norm_weight_offset;
  AddLinear(list,
            {{prefix + ".q_proj", spec.q_width()},
             {prefix + ".k_proj", spec.kv_width()},
             {prefix + ".v_proj", spec.kv_width()}},
            hidden_size, spec.qkv_bias, weights.qkv);
  if (spec.qk_norm == QkNorm::kBeforeRope) {
    AddNorm(list, prefix + ".q_norm", spec.head_dim, offset, weights.q_norm);
    AddNorm(list, prefix + ".k_norm", spec.head_dim, offset, weights.k_norm);
  } else if (spec.qk_norm == QkNorm::kWholeWidth) {
    AddNorm(list, prefix + ".q_norm", spec.q_width(), offset, weights.q_norm);
    AddNorm(list, prefix + ".k_norm", spec.kv_width(), offset, weights.k_norm);
  } else if (spec.qk_norm == QkNorm::kAfterRopeUnweighted) {
    weights.q_norm.assign(static_cast<size_t>(spec.head_dim), 1.0f);
    weights.k_norm = weights.q_norm;
  }
  AddLinear(list, {{prefix + ".o_proj", hidden_size}}, spec.q_width(), spec.output_bias,
            weights.output);
  list.kv_scales.push_back({.attention = prefix, .target = &weights.kv_scales});
}

void AddMlp(ParameterList& list, const std::string& prefix, const MlpSpec& spec,
            int64_t hidden_size, MlpWeights& weights) {
  AddLinear(list,
            {{prefix + ".gate_proj", spec.intermediate_size},
             {prefix + ".up_proj", spec.intermediate_size}},
            hidden_size, spec.has_bias, weights.gate_up);
  AddLinear(list, {{prefix + ".down_proj", hidden_size}}, spec.intermediate_size, spec.has_bias,
            weights.down);
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
                                                .transposed = spec.fused_transposed}};
    for (ParameterPart& part : matrix.parts)
      part.name = fmt::format("{}.{}.{}", prefix, expert, part.name);
    list.matrices.push_back(std::move(matrix));
  }
}

void AddMoe(ParameterList& list, const std::string& layer, const MoeSpec& spec, int64_t hidden_size,
            MoeWeights& weights) {
  AddLinear(list, {{fmt::format("{}.{}", layer, spec.router_module), spec.num_experts}},
            hidden_size, /*has_bias=*/false, weights.router);
  list.matrices.back().plain_on_device = true;
  const std::string prefix = fmt::format("{}.{}", layer, spec.experts_module);
  AddExperts(list, prefix, spec,
             {{"gate_proj", spec.intermediate_size}, {"up_proj", spec.intermediate_size}},
             "gate_up_proj", hidden_size, weights.gate_up);
  AddExperts(list, prefix, spec, {{"down_proj", hidden_size}}, "down_proj", spec.intermediate_size,
             weights.down);
}

}  // namespace

int64_t MatrixParameter::rows() const {
  return SumRows(parts);
}
int64_t VectorParameter::rows() const {
  return SumRows(parts);
}

ParameterList ListParameters(const DecoderSpec& spec, DecoderWeights& weights) {
  ParameterList list;
  weights.layers.resize(spec.layers.size());
  list.matrices.push_back({.parts = {{"model.embed_tokens", spec.vocab_size}},
                           .cols = spec.hidden_size,
                           .target = &weights.embedding,
                           .plain_on_device = true});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string prefix = fmt::format("model.layers.{}", i);
    LayerWeights& layer = weights.layers[i];
    const LayerSpec& layer_spec = spec.layers[i];
    AddLayerNorm(list, prefix, layer_spec.attention_norms.before, spec,
                 layer.attention_norms.before);
    AddAttention(list, prefix + ".self_attn", layer_spec.attention, spec, layer.attention);
    AddLayerNorm(list, prefix, layer_spec.attention_norms.after, spec, layer.attention_norms.after);
    AddLayerNorm(list, prefix, layer_spec.mlp_norms.before, spec, layer.mlp_norms.before);
    if (layer_spec.mlp.intermediate_size > 0) {
      AddMlp(list, fmt::format("{}.{}", prefix, layer_spec.mlp.module), layer_spec.mlp,
             spec.hidden_size, layer.mlp);
    }
    if (layer_spec.moe) AddMoe(list, prefix, *layer_spec.moe, spec.hidden_size, layer.moe);
    AddLayerNorm(list, prefix, layer_spec.mlp_norms.after, spec, layer.mlp_norms.after);
  }
  AddNorm(list, "model.norm", spec.hidden_size, spec.norm_weight_offset, weights.final_norm);
  if (!spec.tied_head) {
    AddLinear(list, {{"lm_head", spec.vocab_size}}, spec.hidden_size, /*has_bias=*/false,
              weights.head);
  }
  return list;
}

}  // namespace sluice
