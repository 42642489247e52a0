#include "models/weights.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/mixer_parameters.h"

namespace sluice {
namespace {

int64_t SumRows(const std::vector<ParameterPart>& parts) {
  int64_t rows = 0;
  for (const ParameterPart& part : parts) rows += part.held_rows().size();
  return rows;
}

// Selects the rows of this rank: out of a number of rows, out of the query heads, or out of the KV
// heads.
class PartCutter {
 public:
  explicit PartCutter(const RankPlace& place) : place_(place) {}

  ParameterPart Rows(std::string name, int64_t rows) const {
    return Make(std::move(name), rows, CutRows(rows, place_.tensor_rank, place_.tensor_size));
  }
  ParameterPart Queries(std::string name, const AttentionSpec& spec) const {
    return Heads(std::move(name), spec.q_width(), HeadsOf(spec).q, spec.head_dim);
  }
  // For a module that has, for each head, the rows of q followed by the rows of the gate. Returns
  // the rows of all gates, then the rows of all q.
  std::vector<ParameterPart> GatesAndQueries(const std::string& name,
                                             const AttentionSpec& spec) const {
    std::vector<ParameterPart> parts;
    const RowRange heads = HeadsOf(spec).q;
    for (const int64_t half : {1, 0}) {
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        const int64_t first = (2 * head + half) * spec.head_dim;
        parts.push_back({name, 2 * spec.q_width(), RowRange{first, first + spec.head_dim}});
      }
    }
    return parts;
  }
  ParameterPart Keys(std::string name, const AttentionSpec& spec) const {
    return Heads(std::move(name), spec.kv_width(), HeadsOf(spec).kv, spec.head_dim);
  }
  ParameterPart Values(std::string name, const AttentionSpec& spec) const {
    return Heads(std::move(name), spec.given_v_width(), HeadsOf(spec).kv, spec.given_value_dim());
  }
  RowRange KeyHeads(const AttentionSpec& spec) const { return HeadsOf(spec).kv; }
  // Returns this rank's part of a vector or matrix with one row per query head.
  ParameterPart EachQuery(std::string name, const AttentionSpec& spec) const {
    return HeadsOf(std::move(name), spec, 1);
  }
  // Returns this rank's part of a matrix with `rows` rows per query head.
  ParameterPart HeadsOf(std::string name, const AttentionSpec& spec, int64_t rows) const {
    return Heads(std::move(name), spec.num_heads * rows, HeadsOf(spec).q, rows);
  }
  RowRange QueryHeads(const AttentionSpec& spec) const { return HeadsOf(spec).q; }
  // Returns this rank's parts of a module that contains q, k and v.
  std::vector<ParameterPart> QueriesKeysValues(const std::string& name,
                                               const AttentionSpec& spec) const {
    if (spec.qkv_by_kv_head) return ByKvHead(name, spec);
    if (spec.qkv_parts > 0) return InParts(name, spec);
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
  // For two modules of `rows` rows each: returns parts that form a matrix in which rows of gate and
  // up alternate. Rows 2 i and 2 i + 1 have the same index in their modules.
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
  // For AttentionSpec::qkv_by_kv_head: returns the rows of q for all heads of this rank, then of k,
  // then of v.
  std::vector<ParameterPart> ByKvHead(const std::string& name, const AttentionSpec& spec) const {
    const HeadCut heads = HeadsOf(spec);
    const int64_t group = spec.num_heads / spec.num_kv_heads;
    std::vector<ParameterPart> parts;
    const auto add = [&](int64_t kv_head, int64_t within) {
      const int64_t first = (kv_head * (group + 2) + within) * spec.head_dim;
      parts.push_back({name, spec.qkv_width(), RowRange{first, first + spec.head_dim}});
    };
    for (int64_t head = heads.q.begin; head < heads.q.end; ++head) add(head / group, head % group);
    for (const int64_t within : {group, group + 1}) {
      for (int64_t head = heads.kv.begin; head < heads.kv.end; ++head) add(head, within);
    }
    return parts;
  }
  // For AttentionSpec::qkv_parts: returns the rows of q, then of k, then of v, for this rank's
  // heads.
  std::vector<ParameterPart> InParts(const std::string& name, const AttentionSpec& spec) const {
    const HeadCut heads = HeadsOf(spec);
    const int64_t of_part = spec.num_heads / spec.qkv_parts;
    constexpr int64_t kQuery = 0, kValue = 1, kKey = 2;
    std::vector<ParameterPart> parts;
    for (const int64_t kind : {kQuery, kKey, kValue}) {
      const RowRange& held = kind == kQuery ? heads.q : heads.kv;
      for (int64_t head = held.begin; head < held.end; ++head) {
        const int64_t place = (head / of_part * 3 + kind) * of_part + head % of_part;
        const int64_t first = place * spec.head_dim;
        parts.push_back({name, spec.qkv_width(), RowRange{first, first + spec.head_dim}});
      }
    }
    return parts;
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

// Adds a linear layer that may have a bias, "<module>.bias".
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

// Adds a norm over whole rows, of the decoder's kind. `bias`: only for layer norms.
void AddRowNorm(ParameterList& list, const std::string& module, const DecoderSpec& decoder,
                float offset, std::vector<float>& weight, std::vector<float>& bias) {
  const int64_t size = decoder.hidden_size;
  if (decoder.norm.has_weights)
    AddNorm(list, module, size, offset, weight);
  else
    weight.assign(static_cast<size_t>(size), 1.0f);
  if (decoder.norm.kind != NormSpec::Kind::kLayer) return;
  if (decoder.norm.has_biases) {
    list.vectors.push_back({VectorParameter::Kind::kBias, {{module + ".bias", size}}, &bias});
  } else {
    bias.assign(static_cast<size_t>(size), 0.0f);
  }
}

// Adds a vector that is stored in its own tensor.
void AddVector(ParameterList& list, const std::string& tensor, int64_t size,
               std::vector<float>& target) {
  list.vectors.push_back({VectorParameter::Kind::kBias, {{tensor, size}}, &target});
}

// Adds the norms around a sublayer of `layer`, if it has any.
void AddLayerNorms(ParameterList& list, const std::string& layer, const NormModules& modules,
                   const DecoderSpec& spec, NormWeights& weights) {
  if (!modules.before.empty()) {
    AddRowNorm(list, fmt::format("{}.{}", layer, modules.before), spec, spec.norm_weight_offset,
               weights.before, weights.before_bias);
  }
  if (!modules.after.empty()) {
    AddNorm(list, fmt::format("{}.{}", layer, modules.after), spec.hidden_size,
            spec.norm_weight_offset, weights.after);
  }
}

std::string LayerModule(const DrafterSpec* drafter, int64_t layer) {
  if (drafter != nullptr) return drafter->layers[static_cast<size_t>(layer)];
  return fmt::format("model.layers.{}", layer);
}

// Adds the matrices of each head of this rank. They are stored in a module that computes keys and
// values of all heads. For each head, it has the rows of the keys, followed by the rows of the
// values.
void AddUpProjections(ParameterList& list, const std::string& module, const AttentionSpec& spec,
                      const RowRange& heads, AttentionWeights& weights) {
  const LatentSpec& latent = *spec.latent;
  const int64_t of_head = latent.nope_dim + latent.value_dim;
  weights.key_up.matrices.resize(static_cast<size_t>(heads.size()));
  weights.value_up.matrices.resize(static_cast<size_t>(heads.size()));
  const auto add = [&](const RowRange& rows, bool transposed, kernels::PackedMatrix& target) {
    list.matrices.push_back({.parts = {{module, transposed ? latent.kv_rank : rows.size()}},
                             .cols = transposed ? rows.size() : latent.kv_rank,
                             .target = &target,
                             .taken = TakenRows{.module_rows = spec.num_heads * of_head,
                                                .module_cols = latent.kv_rank,
                                                .rows = rows,
                                                .transposed = transposed}});
  };
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    const auto index = static_cast<size_t>(head - heads.begin);
    const int64_t first = head * of_head, middle = first + latent.nope_dim;
    add({first, middle}, /*transposed=*/true, weights.key_up.matrices[index]);
    add({middle, first + of_head}, /*transposed=*/false, weights.value_up.matrices[index]);
  }
}

// Names as in transformers' DeepseekV32Indexer. Every rank has the whole indexer.
void AddIndexer(ParameterList& list, const std::string& prefix, const LatentSpec& latent,
                int64_t hidden_size, AttentionWeights& weights) {
  const IndexerSpec& indexer = *latent.indexer;
  const int64_t width = int64_t{indexer.num_heads} * indexer.head_dim;
  AddLinear(list, {{prefix + ".wq_b", width}}, latent.q_rank, /*has_bias=*/false, weights.index_q);
  AddLinear(list, {{prefix + ".wk", indexer.head_dim}}, hidden_size, /*has_bias=*/false,
            weights.index_k);
  AddLinear(list, {{prefix + ".weights_proj", indexer.num_heads}}, hidden_size, /*has_bias=*/false,
            weights.index_weights);
  AddNorm(list, prefix + ".k_norm", indexer.head_dim, 0, weights.index_norm);
  AddVector(list, prefix + ".k_norm.bias", indexer.head_dim, weights.index_norm_bias);
}

// One rank has the whole model.
void AddBlockIndexer(ParameterList& list, const std::string& prefix, const BlockIndexerSpec& spec,
                     const DecoderSpec& decoder, AttentionWeights& weights) {
  const std::string name = fmt::format("{}.{}", prefix, spec.prefix);
  AddLinear(list, {{name + "q_proj", int64_t{spec.num_heads} * spec.head_dim}}, decoder.hidden_size,
            /*has_bias=*/false, weights.index_q);
  AddLinear(list, {{name + "k_proj", spec.head_dim}}, decoder.hidden_size, /*has_bias=*/false,
            weights.index_k);
  AddNorm(list, name + "q_norm", spec.head_dim, decoder.norm_weight_offset, weights.index_q_norm);
  AddNorm(list, name + "k_norm", spec.head_dim, decoder.norm_weight_offset, weights.index_norm);
}

// Adds a vector that is stored as a matrix [rows, width].
void AddTable(ParameterList& list, const std::string& tensor, int64_t rows, int64_t width,
              std::vector<float>& target) {
  AddVector(list, tensor, rows * width, target);
  list.vectors.back().width = width;
}

// Names as published with DeepSeek V4.
void AddCompressor(ParameterList& list, const std::string& prefix, const CompressedSpec& spec,
                   int64_t dim, int64_t hidden_size, AttentionWeights::Compressor& weights) {
  const int64_t width = spec.projections() * dim;
  AddLinear(list, {{prefix + ".wkv", width}, {prefix + ".wgate", width}}, hidden_size,
            /*has_bias=*/false, weights.rows);
  AddTable(list, prefix + ".ape", spec.rate, width, weights.bias);
  AddNorm(list, prefix + ".norm", dim, 0, weights.norm);
}

// Adds the matrix of each group of heads. They are stored in a module that has the rows of all
// groups.
void AddOutputGroups(ParameterList& list, const std::string& module, const AttentionSpec& spec,
                     ExpertWeights& weights) {
  const CompressedSpec& compressed = *spec.latent->compressed;
  const int64_t rank = compressed.output_rank, groups = compressed.output_groups;
  weights.matrices.resize(static_cast<size_t>(groups));
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t cols = spec.q_width() / groups;
    list.matrices.push_back(
        {.parts = {{module, rank}},
         .cols = cols,
         .target = &weights.matrices[static_cast<size_t>(group)],
         .taken = TakenRows{.module_rows = groups * rank,
                            .module_cols = cols,
                            .rows = RowRange{group * rank, (group + 1) * rank}}});
  }
}

// Names as published with DeepSeek V4.
void AddCompressedAttention(ParameterList& list, const std::string& prefix,
                            const AttentionSpec& spec, const DecoderSpec& decoder,
                            AttentionWeights& weights) {
  const LatentSpec& latent = *spec.latent;
  const CompressedSpec& compressed = *latent.compressed;
  const int64_t hidden = decoder.hidden_size;
  AddLinear(list, {{prefix + ".wq_a", latent.q_rank}, {prefix + ".wkv", spec.head_dim}}, hidden,
            /*has_bias=*/false, weights.qkv);
  AddNorm(list, prefix + ".q_norm", latent.q_rank, 0, weights.q_norm);
  AddNorm(list, prefix + ".norm", spec.head_dim, 0, weights.k_norm);
  AddLinear(list, {{prefix + ".wq_b", spec.q_width()}}, latent.q_rank, /*has_bias=*/false,
            weights.q_b);
  weights.q_ones.assign(static_cast<size_t>(spec.head_dim), 1.0f);
  AddOutputGroups(list, prefix + ".wo_a", spec, weights.output_groups);
  AddLinear(list, {{prefix + ".wo_b", hidden}}, spec.output_width(), /*has_bias=*/false,
            weights.output);
  AddVector(list, fmt::format("{}.{}", prefix, spec.sinks_tensor), spec.num_heads, weights.sinks);
  list.kv_scales.push_back({.attention = prefix, .target = &weights.kv_scales});
  if (compressed.rate == 0) return;
  AddCompressor(list, prefix + ".compressor", compressed, spec.head_dim, hidden, weights.entries);
  if (!latent.indexer) return;
  const IndexerSpec& indexer = *latent.indexer;
  AddCompressor(list, prefix + ".indexer.compressor", compressed, indexer.head_dim, hidden,
                weights.index_entries);
  AddLinear(list, {{prefix + ".indexer.wq_b", int64_t{indexer.num_heads} * indexer.head_dim}},
            latent.q_rank, /*has_bias=*/false, weights.index_q);
  AddLinear(list, {{prefix + ".indexer.weights_proj", indexer.num_heads}}, hidden,
            /*has_bias=*/false, weights.index_weights);
}

void AddStreams(ParameterList& list, const std::string& prefix, int64_t num_weights,
                int64_t num_scales, const DecoderSpec& spec, StreamWeights& weights) {
  AddTable(list, prefix + "_fn", num_weights, spec.streams->count * spec.hidden_size,
           weights.matrix);
  AddVector(list, prefix + "_base", num_weights, weights.base);
  AddVector(list, prefix + "_scale", num_scales, weights.scale);
}

// Names as in transformers' DeepseekV3Attention.
void AddLatentAttention(ParameterList& list, const std::string& prefix, const AttentionSpec& spec,
                        const DecoderSpec& decoder, const PartCutter& cut,
                        AttentionWeights& weights) {
  const LatentSpec& latent = *spec.latent;
  if (latent.compressed) return AddCompressedAttention(list, prefix, spec, decoder, weights);
  std::vector<ParameterPart> first;
  if (latent.q_rank > 0) {
    first.push_back({prefix + ".q_a_proj", latent.q_rank});
    AddNorm(list, prefix + ".q_a_layernorm", latent.q_rank, 0, weights.q_norm);
    AddLinear(list, {cut.HeadsOf(prefix + ".q_b_proj", spec, latent.qk_dim())}, latent.q_rank,
              /*has_bias=*/false, weights.q_b);
  } else {
    first.push_back(cut.HeadsOf(prefix + ".q_proj", spec, latent.qk_dim()));
  }
  first.push_back({prefix + ".kv_a_proj_with_mqa", spec.head_dim});
  AddLinear(list, first, decoder.hidden_size, spec.qkv_bias, weights.qkv);
  AddNorm(list, prefix + ".kv_a_layernorm", latent.kv_rank, 0, weights.k_norm);
  AddUpProjections(list, prefix + ".kv_b_proj", spec, cut.QueryHeads(spec), weights);
  if (spec.has_gate_module()) {
    AddLinear(list, {cut.HeadsOf(fmt::format("{}.{}", prefix, spec.gate_projection), spec, 1)},
              decoder.hidden_size, /*has_bias=*/false, weights.gate);
  }
  AddLinear(list,
            {cut.Rows(fmt::format("{}.{}", prefix, spec.output_projection), decoder.hidden_size)},
            spec.output_width(), spec.output_bias, weights.output);
  list.kv_scales.push_back({.attention = prefix, .target = &weights.kv_scales});
  if (latent.indexer && !latent.indexer->is_shared)
    AddIndexer(list, prefix + ".indexer", latent, decoder.hidden_size, weights);
}

// Adds layer norms of heads. If each head has its own norm, adds those of the `held` heads:
// numbered modules, or rows of one tensor.
void AddHeadNorms(ParameterList& list, const std::string& module, const AttentionSpec& spec,
                  int64_t heads, const RowRange& held, std::vector<float>& weight,
                  std::vector<float>& bias) {
  constexpr std::string_view kNumbered = ".norms";
  const bool is_numbered = module.ends_with(kNumbered);
  const auto add = [&](const char* tensor, VectorParameter::Kind kind, std::vector<float>& target) {
    VectorParameter vector{.kind = kind, .parts = {}, .target = &target};
    const int64_t dim = spec.head_dim;
    if (!spec.qk_norm_of_heads) {
      vector.parts = {{fmt::format("{}.{}", module, tensor), dim}};
    } else if (is_numbered) {
      for (int64_t head = held.begin; head < held.end; ++head)
        vector.parts.push_back({fmt::format("{}.{}.{}", module, head, tensor), dim});
    } else {
      vector.parts = {{fmt::format("{}.{}", module, tensor), heads * dim,
                       RowRange{held.begin * dim, held.end * dim}}};
      vector.width = dim;
    }
    list.vectors.push_back(std::move(vector));
  };
  add("weight", VectorParameter::Kind::kNorm, weight);
  if (spec.qk_norm_biases) add("bias", VectorParameter::Kind::kBias, bias);
}

// `input_width`: width of the rows from which q, k and v are computed.
void AddAttention(ParameterList& list, const std::string& prefix, const AttentionSpec& spec,
                  const DecoderSpec& decoder, int64_t input_width, const PartCutter& cut,
                  AttentionWeights& weights) {
  if (spec.latent) return AddLatentAttention(list, prefix, spec, decoder, cut, weights);
  const int64_t hidden_size = decoder.hidden_size;
  const float offset = decoder.norm_weight_offset;
  if (spec.qkv_projection.empty()) {
    std::vector<ParameterPart> parts = {cut.Queries(prefix + ".q_proj", spec)};
    if (spec.gate == AttentionGate::kInQueries)
      parts = cut.GatesAndQueries(prefix + ".q_proj", spec);
    if (spec.has_own_kv()) parts.push_back(cut.Keys(prefix + ".k_proj", spec));
    if (spec.has_own_kv() && !spec.values_are_keys)
      parts.push_back(cut.Values(prefix + ".v_proj", spec));
    AddLinear(list, parts, input_width, spec.qkv_bias, weights.qkv);
  } else {
    AddLinear(list, cut.QueriesKeysValues(fmt::format("{}.{}", prefix, spec.qkv_projection), spec),
              input_width, spec.qkv_bias, weights.qkv);
  }
  const std::string q_norm = fmt::format("{}.{}", prefix, spec.q_norm);
  const std::string k_norm = fmt::format("{}.{}", prefix, spec.k_norm);
  if (spec.qk_norm == QkNorm::kBeforeRope || spec.qk_norm == QkNorm::kAfterRope) {
    AddNorm(list, q_norm, spec.head_dim, offset, weights.q_norm);
    if (spec.has_own_kv()) AddNorm(list, k_norm, spec.head_dim, offset, weights.k_norm);
  } else if (spec.qk_norm == QkNorm::kWholeWidth) {
    AddNorm(list, q_norm, spec.q_width(), offset, weights.q_norm);
    AddNorm(list, k_norm, spec.kv_width(), offset, weights.k_norm);
  } else if (spec.qk_norm == QkNorm::kLayerBeforeRope) {
    AddHeadNorms(list, q_norm, spec, spec.num_heads, cut.QueryHeads(spec), weights.q_norm,
                 weights.q_norm_bias);
    AddHeadNorms(list, k_norm, spec, spec.num_kv_heads, cut.KeyHeads(spec), weights.k_norm,
                 weights.k_norm_bias);
  } else if (spec.qk_norm == QkNorm::kAfterRopeUnweighted) {
    weights.q_norm.assign(static_cast<size_t>(spec.head_dim), 1.0f);
    weights.k_norm = weights.q_norm;
  }
  if (spec.norms_values) weights.v_norm.assign(static_cast<size_t>(spec.head_dim), 1.0f);
  if (spec.has_gate_module()) {
    const std::string gate = fmt::format("{}.{}", prefix, spec.gate_projection);
    AddLinear(list,
              {spec.gate == AttentionGate::kEachHead ? cut.EachQuery(gate, spec)
                                                     : cut.Queries(gate, spec)},
              hidden_size, /*has_bias=*/false, weights.gate);
    if (!spec.gate_bias.empty()) {
      list.vectors.push_back({VectorParameter::Kind::kBias,
                              {cut.EachQuery(fmt::format("{}.{}", prefix, spec.gate_bias), spec)},
                              &weights.gate_bias});
    }
  }
  AddLinear(list, {cut.Rows(fmt::format("{}.{}", prefix, spec.output_projection), hidden_size)},
            spec.output_width(), spec.output_bias, weights.output);
  if (!spec.output_norm.empty()) {
    AddNorm(list, fmt::format("{}.{}", prefix, spec.output_norm), spec.output_width(), offset,
            weights.output_norm);
  }
  if (spec.sinks) {
    list.vectors.push_back({VectorParameter::Kind::kBias,
                            {cut.EachQuery(prefix + "." + spec.sinks_tensor, spec)},
                            &weights.sinks});
  }
  if (spec.block_indexer) AddBlockIndexer(list, prefix, *spec.block_indexer, decoder, weights);
  // The scales of the keys and values that the layer reads. They may belong to another layer.
  list.kv_scales.push_back(
      {.attention = spec.has_own_kv()
                        ? prefix
                        : fmt::format("{}.{}", LayerModule(nullptr, spec.kv_layer), spec.module),
       .target = &weights.kv_scales});
  // Some programs store k and v tensors that such a layer does not use.
  if (!spec.has_own_kv()) {
    for (const char* module : {"k_proj", "v_proj", "k_norm", "v_norm"})
      list.unread.push_back(fmt::format("{}.{}.", prefix, module));
  }
}

void AddMlp(ParameterList& list, const std::string& layer, const MlpSpec& spec, int64_t hidden_size,
            const PartCutter& cut, MlpWeights& weights) {
  // The MLP's modules may belong directly to the layer.
  const std::string prefix = spec.module.empty() ? layer : fmt::format("{}.{}", layer, spec.module);
  std::vector<ParameterPart> gate_up;
  for (const std::string& projection : {spec.gate_projection, spec.up_projection}) {
    if (!projection.empty())
      gate_up.push_back(cut.Rows(fmt::format("{}.{}", prefix, projection), spec.intermediate_size));
  }
  if (!spec.gate_up_projection.empty())
    gate_up = cut.Halves(fmt::format("{}.{}", prefix, spec.gate_up_projection),
                         2 * spec.intermediate_size);
  AddLinear(list, gate_up, hidden_size, spec.has_bias, weights.gate_up);
  AddLinear(list, {cut.Rows(fmt::format("{}.{}", prefix, spec.down_projection), hidden_size)},
            spec.intermediate_size, spec.has_bias, weights.down);
  if (!spec.inner_norm.empty()) {
    AddNorm(list, fmt::format("{}.{}", prefix, spec.inner_norm), spec.intermediate_size,
            /*offset=*/0, weights.inner_norm);
  }
  if (spec.activation == Activation::kXielu) {
    VectorParameter numbers{
        .kind = VectorParameter::Kind::kNorm, .parts = {}, .target = &weights.activation};
    for (const char* name : {"alpha_p", "alpha_n", "beta", "eps"})
      numbers.parts.push_back({fmt::format("{}.act_fn.{}", prefix, name), 1});
    list.vectors.push_back(std::move(numbers));
  }
  if (spec.output_gate.empty()) return;
  AddLinear(list, {{fmt::format("{}.{}", layer, spec.output_gate), 1}}, hidden_size,
            /*has_bias=*/false, weights.output_gate);
  list.matrices.back().plain_on_device = true;
}

// Adds one linear layer of all experts: one module per expert and projection, or one tensor `fused`
// for all.
void AddExperts(ParameterList& list, const std::string& prefix, const MoeSpec& spec,
                const std::vector<ParameterPart>& projections, const std::string& fused,
                int64_t cols, const MoeWeights& moe, ExpertWeights& weights) {
  weights.matrices.resize(static_cast<size_t>(spec.num_experts));
  weights.inputs.resize(static_cast<size_t>(spec.num_experts));
  for (int64_t expert = 0; expert < spec.num_experts; ++expert) {
    MatrixParameter matrix{
        .parts = projections,
        .cols = cols,
        .target = &weights.matrices[static_cast<size_t>(expert)],
        .inputs = &weights.inputs[static_cast<size_t>(expert)],
        .fused = FusedExpert{.module = fmt::format("{}.{}", prefix, fused),
                             .expert = expert,
                             .num_experts = spec.num_experts,
                             .transposed =
                                 spec.fused_flat ? &weights == &moe.down : spec.fused_transposed,
                             .either = spec.fused_either,
                             .flat = spec.fused_flat},
        .experts = &weights};
    for (ParameterPart& part : matrix.parts) {
      part.name = fmt::format("{}.{}.{}", prefix, expert, part.name);
      if (!part.fused.empty()) part.fused = fmt::format("{}.{}", prefix, part.fused);
    }
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

void AddMoe(ParameterList& list, const std::string& layer, const MoeSpec& spec,
            const DecoderSpec& decoder, const PartCutter& cut, MoeWeights& weights) {
  const int64_t hidden_size = decoder.hidden_size;
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
    list.vectors.back().is_optional = spec.may_lack_choice_bias;
  }
  if (!spec.token_experts.empty()) {
    AddTable(list, fmt::format("{}.{}", layer, spec.token_experts), decoder.vocab_size, spec.top_k,
             weights.token_experts);
    list.vectors.back().num_indices = spec.num_experts;
  }
  const int64_t outer = spec.outer_width(hidden_size);
  if (spec.latent) {
    AddLinear(list, {{fmt::format("{}.{}", layer, spec.latent->down), outer}}, hidden_size,
              spec.latent->has_bias, weights.latent_down);
    AddLinear(list, {cut.Rows(fmt::format("{}.{}", layer, spec.latent->up), hidden_size)}, outer,
              spec.latent->has_bias, weights.latent_up);
  }
  const std::string prefix = fmt::format("{}.{}", layer, spec.experts_module);
  std::vector<ParameterPart> gate_up = {cut.Rows(spec.up_projection, spec.intermediate_size)};
  gate_up.front().fused = spec.fused_up;
  if (spec.is_gated()) {
    gate_up.insert(gate_up.begin(), cut.Rows(spec.gate_projection, spec.intermediate_size));
    gate_up.front().fused = spec.fused_gate;
  }
  if (spec.activation == Activation::kClampedSwiglu)
    gate_up = cut.Alternating(spec.gate_projection, spec.up_projection, spec.intermediate_size);
  AddExperts(list, prefix, spec, gate_up, spec.fused_gate_up, outer, weights, weights.gate_up);
  AddExperts(list, prefix, spec, {cut.Rows(spec.down_projection, outer)}, spec.fused_down,
             spec.intermediate_size, weights, weights.down);
}

// Adds the table and the projection of a LayerEmbeddingSpec, which all layers share.
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

// Adds one layer's parameters of a LayerEmbeddingSpec.
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

// For DecoderSpec::has_transposed_tensors.
void TransposeTensors(ParameterList& list) {
  for (MatrixParameter& matrix : list.matrices) {
    if (matrix.linear == nullptr) continue;
    matrix.shape = {matrix.cols, matrix.parts.front().rows};
    matrix.is_transposed = true;
  }
}

// Adds the parameters of a drafting head (DrafterSpec) that are used before its layers.
void AddDrafter(ParameterList& list, const DecoderSpec& spec, const DrafterSpec& drafter,
                DrafterWeights& weights) {
  const bool is_eagle3 = drafter.kind == DrafterSpec::Kind::kEagle3;
  AddLinear(list, {{drafter.projection, spec.hidden_size}},
            is_eagle3 || drafter.drafts_blocks() ? drafter.target_width() : 2 * spec.hidden_size,
            drafter.projection_bias, weights.projection);
  for (const auto& [module, target] : {std::pair(drafter.token_norm, &weights.token_norm),
                                       std::pair(drafter.hidden_norm, &weights.hidden_norm)}) {
    if (!module.empty()) AddNorm(list, module, spec.hidden_size, spec.norm_weight_offset, *target);
  }
  list.is_part = drafter.kind == DrafterSpec::Kind::kMtp;
  if (is_eagle3) list.unread.insert(list.unread.end(), {"d2t", "t2d"});
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
                             const RankPlace& place, const DrafterSpec* drafter) {
  ParameterList list;
  const PartCutter cut(place);
  const RowRange layers = LayersOf(spec, place);
  weights.layers.resize(static_cast<size_t>(layers.size()));
  if (drafter != nullptr) AddDrafter(list, spec, *drafter, weights.drafter);
  const std::string embedding = drafter != nullptr ? drafter->embedding : "model.embed_tokens";
  if (place.is_first_stage() && !embedding.empty()) {
    list.matrices.push_back({.parts = {cut.Rows(embedding, spec.vocab_size)},
                             .cols = spec.hidden_size,
                             .target = &weights.embedding,
                             .plain_on_device = true});
  }
  if (spec.layer_embeddings.width > 0 && place.is_first_stage())
    AddLayerEmbeddings(list, spec, cut, weights);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    const std::string prefix = LayerModule(drafter, i);
    const bool is_joined =
        i == 0 && drafter != nullptr && drafter->kind == DrafterSpec::Kind::kEagle3;
    LayerWeights& layer = weights.layers[static_cast<size_t>(i - layers.begin)];
    const LayerSpec& layer_spec = spec.layers[static_cast<size_t>(i)];
    AddLayerNorms(list, prefix, layer_spec.attention_norms, spec, layer.attention_norms);
    if (layer_spec.attention.exists())
      AddAttention(list, fmt::format("{}.{}", prefix, layer_spec.attention.module),
                   layer_spec.attention, spec, is_joined ? 2 * spec.hidden_size : spec.hidden_size,
                   cut, layer.attention);
    if (layer_spec.mixer) {
      AddMixer(list, fmt::format("{}.{}", prefix, layer_spec.mixer->module), *layer_spec.mixer,
               spec.hidden_size, place, layer.mixer);
    }
    AddLayerNorms(list, prefix, layer_spec.mlp_norms, spec, layer.mlp_norms);
    if (layer_spec.mlp.intermediate_size > 0)
      AddMlp(list, prefix, layer_spec.mlp, spec.hidden_size, cut, layer.mlp);
    if (layer_spec.moe) AddMoe(list, prefix, *layer_spec.moe, spec, cut, layer.moe);
    if (spec.streams) {
      const int64_t count = spec.streams->num_weights();
      AddStreams(list, fmt::format("{}.{}", prefix, spec.streams->attention), count, 3, spec,
                 layer.attention_streams);
      AddStreams(list, fmt::format("{}.{}", prefix, spec.streams->mlp), count, 3, spec,
                 layer.mlp_streams);
    }
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
  // Prefixes of draft layers whose names are not model.layers.N.
  list.unread.insert(list.unread.end(), {"mtp.", "model.mtp_", "model.mtp."});
  list.unread.insert(list.unread.end(), spec.unread_modules.begin(), spec.unread_modules.end());
  if (spec.has_transposed_tensors) TransposeTensors(list);
  if (!place.is_first_stage()) return list;
  if (!spec.positions.module.empty()) {
    const int64_t rows = spec.positions.first + spec.positions.rows;
    list.vectors.push_back({.kind = VectorParameter::Kind::kBias,
                            .parts = {{spec.positions.module + ".weight", rows * spec.hidden_size}},
                            .target = &weights.positions,
                            .width = spec.hidden_size});
  }
  if (spec.norms_embedding)
    weights.embedding_norm.assign(static_cast<size_t>(spec.hidden_size), 1.0f);
  if (spec.streams)
    AddStreams(list, spec.streams->head, spec.streams->count, 1, spec, weights.final_streams);
  if (!spec.final_norm.empty())
    AddRowNorm(list, spec.final_norm, spec,
               spec.final_norm_offset.value_or(spec.norm_weight_offset), weights.final_norm,
               weights.final_norm_bias);
  const std::string head = drafter != nullptr ? drafter->head : "lm_head";
  if (spec.LoadsHead() && !head.empty()) {
    const int64_t outputs = drafter != nullptr ? drafter->num_outputs : spec.vocab_size;
    AddLinear(list, {cut.Rows(head, outputs)}, spec.hidden_size, spec.head_bias, weights.head);
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
