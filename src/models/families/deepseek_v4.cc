// DeepSeek V4: several residual streams; attention to a window and to compressed entries, each of
// which stands for several tokens; two kinds of layers with entries. In the first layers, the token
// id determines the experts.
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/rope_config.h"
#include "kernels/attention.h"
#include "kernels/residual_streams.h"
#include "models/family_fields.h"
#include "models/latent_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace deepseek_v4 {
namespace {

constexpr const char* kSparse = "compressed_sparse_attention";
constexpr const char* kHeavy = "heavily_compressed_attention";
constexpr const char* kHashedExperts = "hash_moe";
constexpr const char* kExperts = "moe";

Result<int> ReadSize(const JsonFields& fields, const char* name, int64_t most, int64_t absent) {
  ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
  return static_cast<int>(given.value_or(absent));
}

// Reads the kind of each layer: layer_types or, in published files, compress_ratios, which may also
// have ratios of draft layers.
Result<std::vector<std::string>> ReadKinds(const JsonFields& fields, const ModelConfig& config) {
  constexpr const char* kRatios = "compress_ratios";
  ASSIGN_OR_RETURN(auto types,
                   ReadLayerTypes(fields, config, {kSlidingAttention, kSparse, kHeavy}));
  if (types) return *std::move(types);
  ASSIGN_OR_RETURN(const auto ratios, fields.Integers(kRatios, 0, kMaxConfigWidth));
  const auto count = static_cast<size_t>(config.num_hidden_layers);
  std::vector<std::string> kinds;
  if (!ratios) {
    for (size_t i = 0; i < count; ++i) kinds.emplace_back(i < 2 || i % 2 == 0 ? kHeavy : kSparse);
    return kinds;
  }
  constexpr int64_t kSparseRatio = 4, kHeavyRatio = 128;
  if (ratios->size() < count) {
    return fields.Bad(kRatios, fmt::format("a list of num_hidden_layers {} numbers", count),
                      *fields.Given(kRatios));
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t ratio = (*ratios)[i];
    if (ratio != 0 && ratio != kSparseRatio && ratio != kHeavyRatio)
      return fields.Bad(kRatios, "0, 4 or 128 for each layer", json::Value(ratio));
    kinds.emplace_back(ratio == 0 ? kSlidingAttention : ratio == kSparseRatio ? kSparse : kHeavy);
  }
  return kinds;
}

// Reads the number of tokens per entry from compress_rates, or from a field of older files.
Result<int> ReadRate(const JsonFields& fields, const char* kind, const char* older,
                     int64_t absent) {
  ASSIGN_OR_RETURN(const json::Value* rates, fields.Object("compress_rates"));
  if (rates != nullptr) {
    ASSIGN_OR_RETURN(const auto given,
                     JsonFields(*rates, "compress_rates.").Integer(kind, 1, kMaxConfigWidth));
    absent = given.value_or(absent);
  }
  return ReadSize(fields, older, kMaxConfigWidth, absent);
}

// Returns the size of the rotated part of a head.
Result<int> ReadRopeDim(const JsonFields& fields, const ModelConfig& config) {
  constexpr const char *kPart = "partial_rotary_factor", *kDim = "qk_rope_head_dim";
  ASSIGN_OR_RETURN(const auto part, fields.Number(kPart, 0, 1));
  ASSIGN_OR_RETURN(const auto dim, fields.Integer(kDim, 1, config.head_dim));
  constexpr double kDefaultPart = 0.125;
  const double head_dim = static_cast<double>(config.head_dim);
  const int64_t rotated = part ? static_cast<int64_t>(head_dim * *part)
                               : dim.value_or(static_cast<int64_t>(head_dim * kDefaultPart));
  if (rotated >= 2 && rotated % 2 == 0 && rotated < config.head_dim)
    return static_cast<int>(rotated);
  return fields.Bad(part ? kPart : kDim,
                    fmt::format("an even part of head_dim {} to be rotated", config.head_dim),
                    json::Value(rotated));
}

// Sets the RoPE tables: the first is for layers without compressed entries, the second for the
// other layers. rope_parameters has a block for each table, or is the block for the second table.
Status ReadRopes(const JsonFields& fields, int rope_dim, ModelConfig& config) {
  const char* name = fields.Given("rope_scaling") != nullptr ? "rope_scaling" : "rope_parameters";
  ASSIGN_OR_RETURN(const json::Value* all, fields.Object(name));
  const json::Value none{json::Value::Object{}};
  const json::Value around(
      json::Value::Object{{"max_position_embeddings", config.max_position_embeddings}});
  ASSIGN_OR_RETURN(const auto theta, ReadNumberOrText(fields, "rope_theta", 1, 1e12));
  ASSIGN_OR_RETURN(const auto entries_theta,
                   ReadNumberOrText(fields, "compress_rope_theta", 1, 1e12));
  RopeConfig main{.theta = theta.value_or(10000)};
  const json::Value* block = all == nullptr ? &none : all;
  std::string block_name = name;
  const json::Value* nested = block->Find("compress");
  const json::Value* plain = block->Find("main");
  const bool is_nested =
      nested != nullptr && nested->is_object() && plain != nullptr && plain->is_object();
  if (is_nested) {
    const std::string main_name = fmt::format("{}.main", name);
    ASSIGN_OR_RETURN(main, ParseRopeBlock(around, *plain, main_name, main.theta));
    if (main.scaling) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}.rope_type '{}' is not supported; supported is default", main_name,
                              RopeKindName(main.scaling->kind)),
                  main_name + ".rope_type");
    }
    block = nested;
    block_name = fmt::format("{}.compress", name);
  }
  ASSIGN_OR_RETURN(RopeConfig entries,
                   ParseRopeBlock(around, *block, block_name, entries_theta.value_or(160000)));
  if (!is_nested) entries.theta = entries_theta.value_or(160000);
  if (entries.scaling) {
    ASSIGN_OR_RETURN(const auto factor,
                     JsonFields(*block, block_name + ".").Number("attention_factor", 0, 1e6));
    const RopeKind kind = entries.scaling->kind;
    if (factor.value_or(1) != 1 || kind == RopeKind::kDynamic || kind == RopeKind::kLongRope) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: rope_type '{}' with attention_factor {} is not supported; "
                              "supported are default, linear, llama3 and yarn with factor 1",
                              block_name, RopeKindName(kind), factor.value_or(1)),
                  block_name);
    }
  }
  config.rope = main;
  config.rotary_dim = rope_dim;
  config.spec.rope_tables = {RopeTableOf(main, rope_dim), RopeTableOf(entries, rope_dim)};
  return {};
}

Status ReadAttention(const JsonFields& fields, ModelConfig& config) {
  if (config.num_key_value_heads != 1) {
    return fields.Bad("num_key_value_heads", "1, as all heads share keys",
                      json::Value(config.num_key_value_heads));
  }
  RETURN_IF_ERROR(RefuseField(fields, "attention_bias", "biases of attention"));
  ASSIGN_OR_RETURN(const std::vector<std::string> kinds, ReadKinds(fields, config));
  LatentSpec latent{.norm_eps = static_cast<float>(config.rms_norm_eps)};
  ASSIGN_OR_RETURN(latent.rope_dim, ReadRopeDim(fields, config));
  RETURN_IF_ERROR(ReadRopes(fields, latent.rope_dim, config));
  latent.kv_rank = latent.nope_dim = static_cast<int>(config.head_dim) - latent.rope_dim;
  latent.value_dim = static_cast<int>(config.head_dim);
  ASSIGN_OR_RETURN(latent.q_rank, ReadSize(fields, "q_lora_rank", kMaxConfigWidth, 1024));
  CompressedSpec compressed;
  ASSIGN_OR_RETURN(compressed.window, ReadSize(fields, "sliding_window", kMaxConfigWidth, 128));
  ASSIGN_OR_RETURN(compressed.output_groups, ReadSize(fields, "o_groups", 4096, 8));
  ASSIGN_OR_RETURN(compressed.output_rank, ReadSize(fields, "o_lora_rank", kMaxConfigWidth, 1024));
  if (config.num_attention_heads % compressed.output_groups != 0) {
    return fields.Bad(
        "o_groups", fmt::format("a divisor of num_attention_heads {}", config.num_attention_heads),
        json::Value(int64_t{compressed.output_groups}));
  }
  IndexerSpec indexer{.rope_style = kernels::RopeStyle::kInterleaved};
  ASSIGN_OR_RETURN(indexer.num_heads, ReadSize(fields, "index_n_heads", 4096, 64));
  ASSIGN_OR_RETURN(indexer.head_dim, ReadSize(fields, "index_head_dim", kernels::kMaxHeadDim, 128));
  ASSIGN_OR_RETURN(indexer.top_k, ReadSize(fields, "index_topk", int64_t{1} << 20, 512));
  if (indexer.head_dim < latent.rope_dim || indexer.head_dim % 2 != 0) {
    return fields.Bad(
        "index_head_dim",
        fmt::format("an even number of at least {}, the rotated part of a head", latent.rope_dim),
        json::Value(int64_t{indexer.head_dim}));
  }
  ASSIGN_OR_RETURN(const int sparse_rate, ReadRate(fields, kSparse, "compress_rate_csa", 4));
  ASSIGN_OR_RETURN(const int heavy_rate, ReadRate(fields, kHeavy, "compress_rate_hca", 128));
  for (const std::string& kind : kinds) {
    if (kind == kSlidingAttention) continue;
    const int rate = kind == kSparse ? sparse_rate : heavy_rate;
    compressed.least_rate =
        compressed.least_rate == 0 ? rate : std::min(compressed.least_rate, rate);
    if (kind == kSparse) compressed.index_dim = indexer.head_dim;
  }
  if (compressed.index_dim > 0 && compressed.least_rate != sparse_rate) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("compress_rates: {} has {} tokens per entry and {} {}; the latter must "
                            "have no fewer",
                            kSparse, sparse_rate, kHeavy, heavy_rate),
                "compress_rates");
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.module = "attn";
    attention.head_dim = static_cast<int>(config.head_dim);
    attention.rotary_dim = latent.rope_dim;
    attention.rope_style = kernels::RopeStyle::kInterleaved;
    attention.sinks = true;
    attention.sinks_tensor = "attn_sink";
    attention.latent = latent;
    attention.latent->compressed = compressed;
    if (kinds[i] == kSlidingAttention) {
      attention.span.window = compressed.window;
      continue;
    }
    const bool is_sparse = kinds[i] == kSparse;
    attention.rope_table = 1;
    attention.latent->compressed->rate = is_sparse ? sparse_rate : heavy_rate;
    attention.latent->compressed->overlaps = is_sparse;
    if (is_sparse) attention.latent->indexer = indexer;
  }
  return {};
}

Status ReadExperts(const JsonFields& fields, ModelConfig& config) {
  MoeSpec moe = {.router_module = "ffn.gate",
                 .experts_module = "ffn.experts",
                 .gate_projection = "w1",
                 .up_projection = "w3",
                 .down_projection = "w2",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSqrtSoftplus,
                 .normalize = true};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 256, .top_k = 6, .intermediate_size = 2048}, moe));
  RETURN_IF_ERROR(CheckMethod(fields, "scoring_func", {"sqrtsoftplus", "sigmoid"}));
  RETURN_IF_ERROR(CheckMethod(fields, "topk_method", {"noaux_tc"}));
  ASSIGN_OR_RETURN(const auto score, fields.String("scoring_func"));
  if (score == "sigmoid") moe.score = kernels::RouterScore::kSigmoid;
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  if (!normalize.value_or(true)) {
    return Fail(ErrorCode::kUnsupported,
                "norm_topk_prob false is not supported: weights of experts add up to 1",
                "norm_topk_prob");
  }
  ASSIGN_OR_RETURN(const auto scale, fields.Number("routed_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(1.5));
  ASSIGN_OR_RETURN(const auto limit, fields.Number("swiglu_limit", 0, 1e6));
  moe.limit = static_cast<float>(limit.value_or(10));
  moe.limits_input = true;
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("n_shared_experts", 0, kMaxConfigExperts));
  if (shared.value_or(1) != 1) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("n_shared_experts {} is not supported; supported is 1", *shared),
                "n_shared_experts");
  }
  ASSIGN_OR_RETURN(const auto hashed, fields.Integer("num_hash_layers", 0, kMaxConfigLayers));
  constexpr const char* kTypes = "mlp_layer_types";
  ASSIGN_OR_RETURN(const auto types, fields.Strings(kTypes));
  if (types && std::ssize(*types) != config.num_hidden_layers) {
    return fields.Bad(kTypes,
                      fmt::format("a list of num_hidden_layers {} names", config.num_hidden_layers),
                      *fields.Given(kTypes));
  }
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    bool is_hashed = static_cast<int64_t>(i) < hashed.value_or(3);
    if (types) {
      const std::string& type = (*types)[i];
      if (type != kHashedExperts && type != kExperts)
        return fields.Bad(kTypes, "names of which each is hash_moe or moe", json::Value(type));
      is_hashed = type == kHashedExperts;
    }
    layer.attention_norms.before = "attn_norm";
    layer.mlp_norms.before = "ffn_norm";
    layer.mlp.module = "ffn.shared_experts";
    layer.mlp.gate_projection = "w1";
    layer.mlp.up_projection = "w3";
    layer.mlp.down_projection = "w2";
    layer.mlp.intermediate_size = moe.intermediate_size;
    layer.mlp.has_bias = false;
    layer.mlp.limit = moe.limit;
    layer.mlp.limits_input = true;
    layer.moe = moe;
    if (is_hashed)
      layer.moe->token_experts = "ffn.gate.tid2eid";
    else
      layer.moe->choice_bias = "ffn.gate.bias";
  }
  return {};
}

// Source: transformers' DeepseekV4Config and modeling_deepseek_v4.py.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadAttention(fields, config));
  RETURN_IF_ERROR(ReadExperts(fields, config));
  StreamsSpec streams;
  ASSIGN_OR_RETURN(streams.count, ReadSize(fields, "hc_mult", kernels::kMostStreams, 4));
  ASSIGN_OR_RETURN(streams.iterations, ReadSize(fields, "hc_sinkhorn_iters", 1000, 20));
  ASSIGN_OR_RETURN(const auto eps, fields.Number("hc_eps", 0, 1));
  streams.eps = static_cast<float>(eps.value_or(1e-6));
  config.spec.streams = streams;
  return {};
}

constexpr FieldAlias kAliases[] = {{"moe_intermediate_size", "intermediate_size"}};
constexpr ConfigDefaults kDefaults = {.vocab_size = 129280,
                                      .hidden_size = 4096,
                                      .intermediate_size = 2048,
                                      .num_hidden_layers = 43,
                                      .num_attention_heads = 64,
                                      .kv_heads = 1,
                                      .head_dim = 512,
                                      .max_position_embeddings = 1048576,
                                      .rope_theta = 10000,
                                      .partial_rotary_factor = 0.125,
                                      .bos_token_id = 0,
                                      .eos_token_id = 1,
                                      .positions_are_scaled = true,
                                      .aliases = kAliases};

}  // namespace
}  // namespace deepseek_v4

const ModelFamily kDeepseekV4 = {
    "DeepseekV4ForCausalLM",
    "deepseek_v4",
    deepseek_v4::kDefaults,
    deepseek_v4::Read,
    {.models = "DeepSeek V4 Flash, V4 Pro",
     .operators = "four residual streams; attention to a window, and to entries that summarize 4 "
                  "or 128 tokens; an indexer selects the entries of 4 tokens; separate output "
                  "projections for groups of heads; sinks; experts with a sqrt(softplus) router, a "
                  "selection bias and scaled routing weights; in some layers the token id "
                  "determines the experts; a shared expert",
     .golden = "tiny-deepseek-v4, tiny-deepseek-v4-fp8",
     .error = 1.4e-06}};

}  // namespace sluice
