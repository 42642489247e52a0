// Nemotron-H, Nemotron Nano v2 and 3: each layer has a single sublayer. It is Mamba-2, attention
// without RoPE, or an MLP or experts. MLPs and experts have squared ReLU and no gate.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"
#include "models/state_space_fields.h"

namespace sluice {
namespace nemotron_h {
namespace {

enum class Block { kMamba, kAttention, kMlp, kMoe };

tl::unexpected<Error> UnknownBlock(const char* field, std::string_view name) {
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} '{}' is not supported; supported are mamba, attention, mlp and moe",
                          field, ShortName(name)),
              field);
}

// Reads layers_block_type, or the older hybrid_override_pattern: "M-M*ME".
Result<std::vector<Block>> ReadBlocks(const JsonFields& fields) {
  std::vector<Block> blocks;
  constexpr const char* kNames = "layers_block_type";
  constexpr const char* kPattern = "hybrid_override_pattern";
  ASSIGN_OR_RETURN(const auto pattern, fields.String(kPattern));
  ASSIGN_OR_RETURN(const auto names, fields.Strings(kNames));
  if (pattern) {
    for (const char letter : *pattern) {
      switch (letter) {
        case 'M': blocks.push_back(Block::kMamba); break;
        case '*': blocks.push_back(Block::kAttention); break;
        case '-': blocks.push_back(Block::kMlp); break;
        case 'E': blocks.push_back(Block::kMoe); break;
        default: return UnknownBlock(kPattern, std::string_view(&letter, 1));
      }
    }
  } else if (names) {
    for (const std::string& name : *names) {
      if (name == "mamba" || name == kLinearAttention) {
        blocks.push_back(Block::kMamba);
      } else if (name == "attention" || name == kFullAttention) {
        blocks.push_back(Block::kAttention);
      } else if (name == "mlp") {
        blocks.push_back(Block::kMlp);
      } else if (name == "moe") {
        blocks.push_back(Block::kMoe);
      } else {
        return UnknownBlock(kNames, name);
      }
    }
  } else {
    return fields.Missing(kNames);
  }
  if (blocks.empty() || static_cast<int64_t>(blocks.size()) > kMaxConfigLayers)
    return fields.Bad(pattern ? kPattern : kNames, "1 to 4096 layers",
                      json::Value(static_cast<int64_t>(blocks.size())));
  return blocks;
}

// Steps are not limited to time_step_min. transformers limits them in prefill, but not in cached
// steps; the code that the models were published with does not limit them. Source: transformers'
// NemotronHMamba2Mixer.
Result<MixerSpec> ReadMixer(const JsonFields& fields, const ModelConfig& config) {
  const auto integer = [&](const char* name, const char* other, int64_t absent) -> Result<int64_t> {
    ASSIGN_OR_RETURN(const auto renamed, fields.Integer(other, 1, 65536));
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, 65536));
    return renamed.value_or(given.value_or(absent));
  };
  ASSIGN_OR_RETURN(const int64_t heads, integer("mamba_num_heads", "mamba_num_heads", 128));
  ASSIGN_OR_RETURN(const int64_t head_dim, integer("mamba_head_dim", "mamba_head_dim", 64));
  ASSIGN_OR_RETURN(const int64_t groups, integer("n_groups", "mamba_n_groups", 8));
  ASSIGN_OR_RETURN(const int64_t state, integer("ssm_state_size", "ssm_state_size", 128));
  ASSIGN_OR_RETURN(const int64_t taps, integer("conv_kernel", "mamba_d_conv", 4));
  ASSIGN_OR_RETURN(const auto conv_bias, fields.Bool("use_conv_bias"));
  ASSIGN_OR_RETURN(const auto bias, fields.Bool("use_bias"));
  ASSIGN_OR_RETURN(const auto activation, fields.String("mamba_hidden_act"));
  if (activation.value_or("silu") != "silu") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("mamba_hidden_act '{}' is not supported; supported is silu",
                            ShortName(*activation)),
                "mamba_hidden_act");
  }
  MixerSpec mixer = StateSpaceMixer("mixer",
                                    {.taps = taps,
                                     .heads = heads,
                                     .groups = groups,
                                     .head_dim = head_dim,
                                     .state = state,
                                     .conv_bias = conv_bias,
                                     .bias = bias},
                                    config.rms_norm_eps);
  RETURN_IF_ERROR(CheckMixer(
      fields, {.width = "conv_kernel", .heads = "mamba_num_heads", .key_heads = "n_groups"},
      mixer));
  return mixer;
}

// Source: transformers' NemotronHMoE and NemotronHTopkRouter.
Result<MoeSpec> ReadExperts(const JsonFields& fields, bool has_bias) {
  ASSIGN_OR_RETURN(const auto latent, fields.Integer("moe_latent_size", 1, kMaxConfigWidth));
  MoeSpec moe = {.router_module = "mixer.gate",
                 .experts_module = "mixer.experts",
                 .gate_projection = "",
                 .fused_gate_up = "up_proj",
                 .activation = Activation::kRelu2,
                 .choice_bias = "mixer.gate.e_score_correction_bias"};
  if (latent) {
    moe.latent = {.width = *latent,
                  .down = "mixer.fc1_latent_proj",
                  .up = "mixer.fc2_latent_proj",
                  .has_bias = has_bias};
  }
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 8, .top_k = 2}, moe));
  RETURN_IF_ERROR(ReadSigmoidRouter(fields, {.width = 7688}, moe));
  return moe;
}

Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<Block> blocks, ReadBlocks(fields));
  ASSIGN_OR_RETURN(const MixerSpec mixer, ReadMixer(fields, config));
  ASSIGN_OR_RETURN(const MoeSpec moe, ReadExperts(fields, config.mlp_bias));
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("moe_shared_expert_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto activation, fields.String("mlp_hidden_act"));
  if (activation.value_or("relu2") != "relu2") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("mlp_hidden_act '{}' is not supported; supported is relu2",
                            ShortName(*activation)),
                "mlp_hidden_act");
  }
  LayerSpec plain = config.spec.layers.front();
  plain.attention_norms.before = plain.mlp_norms.before = "";
  plain.attention.module = plain.mlp.module = "mixer";
  plain.attention.rope = false;
  plain.attention.qkv_bias = plain.attention.output_bias = false;  // attention_bias is ignored
  plain.mlp.gate_projection = "";
  plain.mlp.activation = Activation::kRelu2;
  config.num_hidden_layers = static_cast<int64_t>(blocks.size());
  config.spec.layers.clear();
  for (const Block block : blocks) {
    LayerSpec& layer = config.spec.layers.emplace_back(plain);
    if (block != Block::kAttention) layer.attention.num_heads = layer.attention.num_kv_heads = 0;
    if (block == Block::kMamba) layer.mixer = mixer;
    (layer.mixes() ? layer.attention_norms : layer.mlp_norms).before = "norm";
    if (block == Block::kMoe) {
      layer.mlp.module = "mixer.shared_experts";
      layer.mlp.intermediate_size = shared.value_or(7688);
      layer.moe = moe;
    } else if (block != Block::kMlp) {
      layer.mlp.intermediate_size = 0;
    }
  }
  return ReplaceAttention(std::vector<bool>(blocks.size()), mixer, config);
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 131072,
                                      .hidden_size = 4096,
                                      .intermediate_size = 21504,
                                      .num_hidden_layers = 52,
                                      .num_attention_heads = 32,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .max_position_embeddings = 4096,
                                      .rms_norm_eps = 1e-5,
                                      .norm_eps_field = "layer_norm_epsilon",
                                      .bos_token_id = 1,
                                      .eos_token_id = 2};

}  // namespace
}  // namespace nemotron_h

const ModelFamily kNemotronH = {
    "NemotronHForCausalLM",
    "nemotron_h",
    nemotron_h::kDefaults,
    nemotron_h::Read,
    {.models = "Nemotron-H 4B to 56B, Nemotron Nano 9B v2, 12B v2, Nemotron 3 Nano 30B-A3B, Super "
               "120B-A12B",
     .operators =
         "each layer has one sublayer: Mamba-2, attention without rope, an MLP with squared ReLU "
         "and no gate, or experts with such MLPs, which may have narrower inputs",
     .golden = "tiny-nemotron-h, tiny-nemotron-h-moe, tiny-nemotron-h-latent",
     .error = 4.6e-06}};

}  // namespace sluice
