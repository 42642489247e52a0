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
               bool has_bias, kernels::PackedMatrix& matrix, std::vector<float>& bias) {
  list.matrices.push_back({.parts = modules, .cols = cols, .target = &matrix});
  if (!has_bias) return;
  VectorParameter vector{.kind = VectorParameter::Kind::kBias, .parts = modules, .target = &bias};
  for (ParameterPart& part : vector.parts) part.name += ".bias";
  list.vectors.push_back(std::move(vector));
}

void AddNorm(ParameterList& list, const std::string& module, int64_t size,
             std::vector<float>& target) {
  list.vectors.push_back({VectorParameter::Kind::kNorm, {{module + ".weight", size}}, &target});
}

void AddAttention(ParameterList& list, const std::string& prefix, const AttentionSpec& spec,
                  int64_t hidden_size, AttentionWeights& weights) {
  AddLinear(list,
            {{prefix + ".q_proj", spec.q_width()},
             {prefix + ".k_proj", spec.kv_width()},
             {prefix + ".v_proj", spec.kv_width()}},
            hidden_size, spec.has_bias, weights.qkv, weights.qkv_bias);
  if (spec.qk_norm) {
    AddNorm(list, prefix + ".q_norm", spec.head_dim, weights.q_norm);
    AddNorm(list, prefix + ".k_norm", spec.head_dim, weights.k_norm);
  }
  AddLinear(list, {{prefix + ".o_proj", hidden_size}}, spec.q_width(), spec.has_bias,
            weights.output, weights.output_bias);
}

void AddMlp(ParameterList& list, const std::string& prefix, const MlpSpec& spec,
            int64_t hidden_size, MlpWeights& weights) {
  AddLinear(list,
            {{prefix + ".gate_proj", spec.intermediate_size},
             {prefix + ".up_proj", spec.intermediate_size}},
            hidden_size, spec.has_bias, weights.gate_up, weights.gate_up_bias);
  AddLinear(list, {{prefix + ".down_proj", hidden_size}}, spec.intermediate_size, spec.has_bias,
            weights.down, weights.down_bias);
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
                           .target = &weights.embedding});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string prefix = fmt::format("model.layers.{}", i);
    LayerWeights& layer = weights.layers[i];
    AddNorm(list, prefix + ".input_layernorm", spec.hidden_size, layer.attention_norm);
    AddAttention(list, prefix + ".self_attn", spec.layers[i].attention, spec.hidden_size,
                 layer.attention);
    AddNorm(list, prefix + ".post_attention_layernorm", spec.hidden_size, layer.mlp_norm);
    AddMlp(list, prefix + ".mlp", spec.layers[i].mlp, spec.hidden_size, layer.mlp);
  }
  AddNorm(list, "model.norm", spec.hidden_size, weights.final_norm);
  if (!spec.tied_head)
    list.matrices.push_back({.parts = {{"lm_head", spec.vocab_size}},
                             .cols = spec.hidden_size,
                             .target = &weights.head});
  return list;
}

}  // namespace sluice
