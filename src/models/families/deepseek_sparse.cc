// DeepSeek V3.2 and GLM-5: like DeepSeek V3, with indexers that choose the positions to which each
// token attends. In GLM-5, the indexers' RoPE also rotates adjacent pairs, and a layer may reuse
// the choice of the previous layer.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "models/family_fields.h"
#include "models/latent_fields.h"
#include "models/registry.h"

namespace sluice {
namespace deepseek_sparse {
namespace {

struct IndexerDefaults {
  int64_t num_heads = 0;
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
};

Status ReadIndexer(const JsonFields& fields, const IndexerDefaults& defaults, ModelConfig& config) {
  const auto read = [&](const char* name, int64_t most, int64_t absent, int& size) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
    size = static_cast<int>(given.value_or(absent));
    return {};
  };
  IndexerSpec indexer{.rope_style = defaults.rope_style};
  RETURN_IF_ERROR(read("index_n_heads", 4096, defaults.num_heads, indexer.num_heads));
  RETURN_IF_ERROR(read("index_head_dim", kernels::kMaxKeyDim, 128, indexer.head_dim));
  RETURN_IF_ERROR(read("index_topk", int64_t{1} << 20, 2048, indexer.top_k));
  const LatentSpec& latent = *config.spec.layers.front().attention.latent;
  if (indexer.head_dim < latent.rope_dim || indexer.head_dim % 2 != 0) {
    return fields.Bad(
        "index_head_dim",
        fmt::format("an even number of at least qk_rope_head_dim {}", latent.rope_dim),
        json::Value(int64_t{indexer.head_dim}));
  }
  if (latent.q_rank == 0) {
    return Fail(ErrorCode::kUnsupported,
                "q_lora_rank null is not supported with an indexer, whose queries are computed "
                "from that vector",
                "q_lora_rank");
  }
  if (config.spec.NumMoeLayers() == 0) {
    return Fail(ErrorCode::kUnsupported,
                "an indexer in a model without experts is not supported: mlp_layer_types must "
                "have a sparse layer",
                "mlp_layer_types");
  }
  ASSIGN_OR_RETURN(const auto types, fields.Strings("layer_types"));
  for (const std::string& type : types.value_or(std::vector<std::string>())) {
    if (type == "indexed_attention") continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("layer_types '{}' is not supported; supported is indexed_attention",
                            ShortName(type)),
                "layer_types");
  }
  for (LayerSpec& layer : config.spec.layers) layer.attention.latent->indexer = indexer;
  return {};
}

// Source: transformers' DeepseekV32Config and modeling_deepseek_v32.py.
Status ReadV32(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(fields,
                                      {.q_rank = 1536,
                                       .kv_rank = 512,
                                       .nope_dim = 128,
                                       .value_dim = 128,
                                       .reads_interleaved = false},
                                      config));
  RETURN_IF_ERROR(ReadSigmoidExperts(fields,
                                     {.num_experts = 256,
                                      .top_k = 8,
                                      .intermediate_size = 2048,
                                      .weight_scale = 2.5,
                                      .groups = 8,
                                      .kept_groups = 4,
                                      .dense = 3},
                                     config));
  return ReadIndexer(fields, {.num_heads = 64}, config);
}

// Reads which layers reuse the choice of the previous layer: from indexer_types, or else from a
// pattern of letters; without either, every index_topk_freq-th layer makes its own choice. Source:
// transformers' GlmMoeDsaConfig.
Status ReadSharedIndexers(const JsonFields& fields, ModelConfig& config) {
  constexpr const char* kTypes = "indexer_types";
  constexpr const char* kPattern = "index_topk_pattern";
  ASSIGN_OR_RETURN(const auto types, fields.Strings(kTypes));
  const json::Value* const pattern = fields.Given(kPattern);
  ASSIGN_OR_RETURN(const auto frequency, fields.Integer("index_topk_freq", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto offset,
                   fields.Integer("index_skip_topk_offset", 0, kMaxConfigLayers));
  std::vector<std::string> kinds = types.value_or(std::vector<std::string>());
  const char* field = kTypes;
  if (!types && pattern != nullptr) {
    field = kPattern;
    if (pattern->is_string()) {
      for (const char letter : pattern->as_string())
        kinds.push_back(letter == 'F' ? "full" : letter == 'S' ? "shared" : std::string(1, letter));
    } else {
      ASSIGN_OR_RETURN(const auto names, fields.Strings(kPattern));
      kinds = names.value_or(std::vector<std::string>());
    }
  }
  const int64_t each = std::max<int64_t>(frequency.value_or(1), 1);
  for (int64_t i = 0; i < config.num_hidden_layers && !types && pattern == nullptr; ++i) {
    kinds.push_back(std::max<int64_t>(i - offset.value_or(2) + 1, 0) % each == 0 ? "full"
                                                                                 : "shared");
  }
  if (std::ssize(kinds) != config.num_hidden_layers || kinds.front() != "full") {
    return fields.Bad(field,
                      fmt::format("a list of num_hidden_layers {} names that begins with full",
                                  config.num_hidden_layers),
                      *fields.Given(field));
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] != "full" && kinds[i] != "shared")
      return fields.Bad(field, "a list in which each entry is full or shared",
                        json::Value(kinds[i]));
    config.spec.layers[i].attention.latent->indexer->is_shared = kinds[i] == "shared";
  }
  return {};
}

// Source: transformers' GlmMoeDsaConfig and modeling_glm_moe_dsa.py.
Status ReadGlmDsa(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(fields,
                                      {.q_rank = 2048,
                                       .kv_rank = 512,
                                       .nope_dim = 192,
                                       .value_dim = 256,
                                       .reads_interleaved = false},
                                      config));
  RETURN_IF_ERROR(ReadSigmoidExperts(
      fields,
      {.num_experts = 256, .top_k = 8, .intermediate_size = 2048, .weight_scale = 2.5, .dense = 3},
      config));
  RETURN_IF_ERROR(ReadIndexer(
      fields, {.num_heads = 32, .rope_style = kernels::RopeStyle::kInterleaved}, config));
  return ReadSharedIndexers(fields, config);
}

constexpr ConfigDefaults kV32Defaults = {.vocab_size = 129280,
                                         .hidden_size = 7168,
                                         .intermediate_size = 18432,
                                         .num_hidden_layers = 61,
                                         .num_attention_heads = 128,
                                         .kv_heads = 128,
                                         .max_position_embeddings = 163840,
                                         .bos_token_id = 0,
                                         .eos_token_id = 1,
                                         .rope_head_dim = 64};
constexpr ConfigDefaults kGlmDsaDefaults = {.vocab_size = 154880,
                                            .hidden_size = 6144,
                                            .intermediate_size = 12288,
                                            .num_hidden_layers = 78,
                                            .num_attention_heads = 64,
                                            .kv_heads = 64,
                                            .max_position_embeddings = 202752,
                                            .rms_norm_eps = 1e-5,
                                            .bos_token_id = 0,
                                            .eos_token_id = 1,
                                            .rope_head_dim = 64};

}  // namespace
}  // namespace deepseek_sparse

const ModelFamily kDeepseekV32 = {
    "DeepseekV32ForCausalLM",
    "deepseek_v32",
    deepseek_sparse::kV32Defaults,
    deepseek_sparse::ReadV32,
    {.models = "DeepSeek V3.2",
     .operators = "like DeepSeek V3, with attention only to positions that an indexer selects; 128 "
                  "more numbers per token in a layer's cache",
     .golden = "tiny-deepseek-v32",
     .error = 8.4e-07}};
const ModelFamily kGlmMoeDsa = {
    "GlmMoeDsaForCausalLM",
    "glm_moe_dsa",
    deepseek_sparse::kGlmDsaDefaults,
    deepseek_sparse::ReadGlmDsa,
    {.models = "GLM-5, 5.1, 5.2",
     .operators = "like DeepSeek V3.2, in which several layers may share an indexer",
     .golden = "tiny-glm-dsa",
     .error = 9.7e-07}};

}  // namespace sluice
