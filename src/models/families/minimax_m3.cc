// MiniMax M3, the text part: norm weights w stand for 1 + w, also in per-head norms of q and k;
// RoPE on a part of each head; in most layers attention to blocks of positions, which an indexer
// chooses for each KV head. The first layers have an MLP, the others experts, chosen by sigmoid
// scores plus a bias, and a shared expert.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "models/family_fields.h"
#include "models/latent_fields.h"
#include "models/registry.h"

namespace sluice {
namespace minimax_m3 {
namespace {

constexpr const char* kChosenBlocks = "minimax_m3_sparse";
constexpr int64_t kMostBlock = int64_t{1} << 20;

Status Unsupported(const std::string& field, const std::string& message) {
  return Fail(ErrorCode::kUnsupported, fmt::format("{} {}", field, message), field);
}

// Reads a list of 0 and 1 for each layer; nullopt if absent.
Result<std::optional<std::vector<bool>>> ReadFlags(const JsonFields& fields, const char* name,
                                                   const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto list, fields.Integers(name, 0, 1));
  if (!list) return std::nullopt;
  if (std::ssize(*list) != config.num_hidden_layers) {
    return fields.Bad(
        name, fmt::format("a list of num_hidden_layers {} numbers", config.num_hidden_layers),
        *fields.Given(name));
  }
  return std::vector<bool>(list->begin(), list->end());
}

// A size of the indexer, which published files have in sparse_attention_config. There it takes
// precedence, as in transformers.
struct SizeField {
  const char* name;
  const char* published;
  int64_t absent;
};

Result<int> ReadSize(const JsonFields& fields, const JsonFields& sparse, const SizeField& size,
                     int64_t most) {
  ASSIGN_OR_RETURN(const auto own, fields.Integer(size.name, 1, most));
  ASSIGN_OR_RETURN(const auto published, sparse.Integer(size.published, 1, most));
  return static_cast<int>(published.value_or(own.value_or(size.absent)));
}

Status CheckIndexer(const JsonFields& fields, const ModelConfig& config,
                    const BlockIndexerSpec& indexer) {
  const auto bad = [&](const char* name, const std::string& expected, int found) {
    return fields.Bad(name, expected, json::Value(int64_t{found}));
  };
  if (indexer.num_heads != config.num_key_value_heads) {
    return bad("index_n_heads",
               fmt::format("num_key_value_heads {}: one choice for each head of keys",
                           config.num_key_value_heads),
               indexer.num_heads);
  }
  if (indexer.head_dim < config.rotary_dim || indexer.head_dim % 2 != 0) {
    return bad("index_head_dim",
               fmt::format("an even number of at least {}, which rope rotates", config.rotary_dim),
               indexer.head_dim);
  }
  if (indexer.block % kernels::kBlockUnit != 0) {
    return bad("index_block_size", fmt::format("a multiple of {}", kernels::kBlockUnit),
               indexer.block);
  }
  if (indexer.local > indexer.top_k) {
    return bad("index_local_blocks", fmt::format("at most index_topk_blocks {}", indexer.top_k),
               indexer.local);
  }
  return {};
}

// Refuses variants of the indexer that transformers does not compute either.
Status CheckPublishedIndexer(const JsonFields& sparse, const std::vector<bool>& chooses,
                             const ModelConfig& config) {
  RETURN_IF_ERROR(CheckMethod(sparse, "sparse_score_type", {"max"}));
  RETURN_IF_ERROR(RefuseField(sparse, "sparse_init_block", "first blocks that are always chosen"));
  ASSIGN_OR_RETURN(const auto is_used, sparse.Bool("use_sparse_attention"));
  if (!is_used.value_or(true))
    return Unsupported("use_sparse_attention", "false is not supported; leave out the object");
  ASSIGN_OR_RETURN(const auto disabled, ReadFlags(sparse, "sparse_disable_index_value", config));
  for (size_t i = 0; disabled && i < chooses.size(); ++i) {
    if (!chooses[i] || (*disabled)[i]) continue;
    return Unsupported("sparse_disable_index_value",
                       fmt::format("0 in layer {} is not supported: values of an indexer", i));
  }
  return {};
}

// Reads which layers attend to chosen blocks, and their indexers.
Status ReadIndexers(const JsonFields& fields, const std::string& prefix, ModelConfig& config) {
  ASSIGN_OR_RETURN(const json::Value* given, fields.Object("sparse_attention_config"));
  const json::Value none{json::Value::Object{}};
  const JsonFields sparse(given == nullptr ? none : *given, "sparse_attention_config.");
  BlockIndexerSpec indexer{.prefix = prefix};
  ASSIGN_OR_RETURN(indexer.num_heads,
                   ReadSize(fields, sparse, {"index_n_heads", "sparse_num_index_heads", 4}, 4096));
  ASSIGN_OR_RETURN(
      indexer.head_dim,
      ReadSize(fields, sparse, {"index_head_dim", "sparse_index_dim", 128}, kernels::kMaxHeadDim));
  ASSIGN_OR_RETURN(
      indexer.block,
      ReadSize(fields, sparse, {"index_block_size", "sparse_block_size", 128}, kMostBlock));
  ASSIGN_OR_RETURN(
      indexer.top_k,
      ReadSize(fields, sparse, {"index_topk_blocks", "sparse_topk_blocks", 16}, kMostBlock));
  ASSIGN_OR_RETURN(
      indexer.local,
      ReadSize(fields, sparse, {"index_local_blocks", "sparse_local_block", 1}, kMostBlock));
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kChosenBlocks}));
  ASSIGN_OR_RETURN(const auto flags, ReadFlags(sparse, "sparse_attention_freq", config));
  std::vector<bool> chooses(config.spec.layers.size());
  if (flags) chooses = *flags;
  for (size_t i = 0; types && i < chooses.size(); ++i) chooses[i] = (*types)[i] == kChosenBlocks;
  RETURN_IF_ERROR(CheckPublishedIndexer(sparse, chooses, config));
  for (size_t i = 0; i < chooses.size(); ++i) {
    if (!chooses[i]) continue;
    RETURN_IF_ERROR(CheckIndexer(fields, config, indexer));
    config.spec.layers[i].attention.block_indexer = indexer;
  }
  return {};
}

Result<std::vector<bool>> ReadSparse(const JsonFields& fields, const ModelConfig& config) {
  if (fields.Given("mlp_layer_types") != nullptr) return ReadMlpLayerTypes(fields, config, 0);
  ASSIGN_OR_RETURN(const auto flags, ReadFlags(fields, "moe_layer_freq", config));
  return flags.value_or(std::vector<bool>(config.spec.layers.size(), true));
}

// Published files name what this family always has.
Status CheckConstants(const JsonFields& fields, const ModelConfig& config) {
  if (config.activation != Activation::kSilu)
    return Unsupported("hidden_act", "is not supported; supported are silu and swigluoai");
  for (const char* name : {"use_gemma_norm", "use_qk_norm", "use_routing_bias"}) {
    ASSIGN_OR_RETURN(const auto given, fields.Bool(name));
    if (!given.value_or(true))
      return Unsupported(name, "false is not supported; supported is true");
  }
  RETURN_IF_ERROR(CheckMethod(fields, "qk_norm_type", {"per_head"}));
  RETURN_IF_ERROR(CheckMethod(fields, "scoring_func", {"sigmoid"}));
  RETURN_IF_ERROR(RefuseField(fields, "attention_output_gate", "gates after attention"));
  if (config.attention_bias) return Unsupported("attention_bias", "true is not supported");
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("n_shared_experts", 0, kMaxConfigExperts));
  if (shared.value_or(1) != 1) {
    return Unsupported("n_shared_experts",
                       fmt::format("{} is not supported; supported is 1", *shared));
  }
  // transformers reads partial_rotary_factor alone, other programs rotary_dim.
  ASSIGN_OR_RETURN(const auto rotated, fields.Integer("rotary_dim", 1, kMaxConfigWidth));
  if (rotated && *rotated != config.rotary_dim) {
    return fields.Bad(
        "rotary_dim",
        fmt::format("{}, the part of head_dim {} that partial_rotary_factor (1 if absent) gives",
                    config.rotary_dim, config.head_dim),
        json::Value(*rotated));
  }
  return {};
}

// Names of modules after the layer's name. Published files and those that transformers writes for
// the whole model have the same; for the text part alone, it writes those of its modules.
struct Names {
  std::string experts, index_prefix;
  bool is_fused = false;  // whether gate and up of an MLP are one module
};

// Source: transformers' MiniMaxM3VLTextConfig and modeling_minimax_m3_vl.py.
Status ReadWith(const Names& names, const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(CheckConstants(fields, config));
  RETURN_IF_ERROR(ReadIndexers(fields, names.index_prefix, config));
  MoeSpec moe = {
      .router_module = names.experts + ".gate",
      .experts_module = names.experts + ".experts",
      .gate_projection = "w1",
      .up_projection = "w3",
      .down_projection = "w2",
      .intermediate_size = config.intermediate_size,
      .limits_input = true,
      .score = kernels::RouterScore::kSigmoid,
      .choice_bias = names.experts + (names.is_fused ? ".gate" : "") + ".e_score_correction_bias",
      .normalize = true};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 128, .top_k = 4}, moe));
  ASSIGN_OR_RETURN(const auto scale, fields.Number("routed_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(2));
  ASSIGN_OR_RETURN(const auto alpha, fields.Number("swiglu_alpha", 1e-6, 1e6));
  ASSIGN_OR_RETURN(const auto limit, fields.Number("swiglu_limit", 1e-6, 1e6));
  moe.limit = static_cast<float>(limit.value_or(7));
  moe.gain = static_cast<float>(alpha.value_or(1.702));
  moe.up_offset = 1;
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("dense_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadSparse(fields, config));
  config.spec.norm_weight_offset = 1;
  for (size_t i = 0; i < sparse.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp = {.module = "mlp",
                 .gate_up_projection = names.is_fused ? "gate_up_proj" : "",
                 .intermediate_size = dense.value_or(12288),
                 .limit = moe.limit,
                 .limits_input = true,
                 .gain = moe.gain,
                 .up_offset = moe.up_offset};
    if (!sparse[i]) continue;
    layer.mlp.module = names.experts + ".shared_experts";
    layer.mlp.intermediate_size = shared.value_or(3072);
    layer.moe = moe;
  }
  // The indexer's products read the inputs of q, k and v, which are F32 in models with experts.
  if (config.spec.NumMoeLayers() == 0) {
    return Unsupported("mlp_layer_types",
                       "without a sparse layer is not supported: the model needs experts");
  }
  return {};
}

Status Read(const JsonFields& fields, ModelConfig& config) {
  return ReadWith({.experts = "block_sparse_moe", .index_prefix = "index_"}, fields, config);
}
Status ReadText(const JsonFields& fields, ModelConfig& config) {
  return ReadWith({.experts = "mlp", .index_prefix = "indexer.", .is_fused = true}, fields, config);
}

constexpr ConfigDefaults DefaultsOf(bool is_nested) {
  return {.vocab_size = 200064,
          .hidden_size = 6144,
          .intermediate_size = 3072,
          .num_hidden_layers = 60,
          .num_attention_heads = 64,
          .kv_heads = 4,
          .head_dim = 128,
          .max_position_embeddings = 524288,
          .rope_theta = 5e6,
          .partial_rotary_factor = 1,
          .bos_token_id = 200034,
          .eos_token_id = 200020,
          .own_activation = "swigluoai",
          .is_nested = is_nested};
}

}  // namespace
}  // namespace minimax_m3

const ModelFamily kMiniMaxM3 = {
    "MiniMaxM3SparseForConditionalGeneration",
    "minimax_m3_vl",
    minimax_m3::DefaultsOf(/*is_nested=*/true),
    minimax_m3::Read,
    {.models = "MiniMax M3",
     .operators =
         "the text part: norms with 1 + w, and of heads; rope on a part of a head; attention to "
         "blocks of positions that an indexer chooses; experts chosen by sigmoids with a selection "
         "bias, with scaled weights; a shared expert; clamped activations",
     .golden = "tiny-minimax-m3",
     .error = 2e-06}};

const ModelFamily kMiniMaxM3Text = {"MiniMaxM3VLForCausalLM",
                                    "minimax_m3_vl_text",
                                    minimax_m3::DefaultsOf(/*is_nested=*/false),
                                    minimax_m3::ReadText,
                                    {.models = "the text part, saved alone",
                                     .operators = "like MiniMaxM3SparseForConditionalGeneration",
                                     .golden = "tiny-minimax-m3-text",
                                     .error = 2.8e-06}};

}  // namespace sluice
