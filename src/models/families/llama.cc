// Llama 1 to 3.x: grouped-query attention, half-rotation RoPE with or without the llama3 scaling,
// SwiGLU.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace llama {
namespace {

Status Read(const JsonFields& fields, ModelConfig& config) {
  return ReadFullAttention(fields, config);
}

// Source: transformers' HeliumAttention.
Status ReadHelium(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.rope_style = kernels::RopeStyle::kInterleaved;
    layer.attention.output_bias = false;
  }
  return ReadFullAttention(fields, config);
}

// Reads CWM, which has windows in most layers. Source: transformers' CwmConfig.
Status ReadCwm(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 8192;
  constexpr size_t kPattern = 4;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    if (types ? (*types)[i] == kSlidingAttention : i % kPattern != 0)
      layer.attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
  }
  return {};
}

// Reads Exaone, which has other module names. Source: transformers' conversion of "exaone".
Status ReadExaone(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.before = "ln_1";
    layer.mlp_norms.before = "ln_2";
    layer.attention.module = "attn.attention";
    layer.attention.output_projection = "out_proj";
    layer.mlp.gate_projection = "c_fc_0";
    layer.mlp.up_projection = "c_fc_1";
    layer.mlp.down_projection = "c_proj";
  }
  return ReadFullAttention(fields, config);
}

// Reads Arcee, which has an MLP without a gate. Source: transformers' ArceeMLP.
Status ReadArcee(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) layer.mlp.gate_projection = "";
  return ReadFullAttention(fields, config);
}

// Reads BitNet, which has norms inside sublayers, before their last products. Source:
// transformers' BitNetAttention and BitNetMLP.
Status ReadBitNet(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.output_norm = "attn_sub_norm";
    layer.mlp.inner_norm = "ffn_sub_norm";
    layer.mlp.has_bias = false;
  }
  return ReadFullAttention(fields, config);
}

// Reads Aria, which has experts in two transposed tensors, and shared experts. Source:
// transformers' AriaTextConfig, AriaTextTopKRouter and AriaExperts.
Status ReadAria(const JsonFields& fields, ModelConfig& config) {
  MoeSpec moe = {.router_module = "mlp.router",
                 .experts_module = "mlp.experts",
                 .fused_gate_up = "fc1.weight",
                 .fused_down = "fc2.weight",
                 .fused_transposed = true,
                 .score = kernels::RouterScore::kSoftmax,
                 .normalize = true};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 8, .top_k = 2, .top_k_field = "moe_topk"}, moe));
  moe.intermediate_size = config.intermediate_size;
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("moe_num_shared_experts", 0, kMaxConfigExperts));
  for (LayerSpec& layer : config.spec.layers) {
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = config.intermediate_size * shared.value_or(2);
    layer.moe = moe;
  }
  return ReadFullAttention(fields, config);
}

// Source: transformers' LlamaConfig.
constexpr ConfigDefaults kDefaults = {.vocab_size = 32000,
                                      .hidden_size = 4096,
                                      .intermediate_size = 11008,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .max_position_embeddings = 2048,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2};

constexpr FieldAlias kInternLm3Aliases[] = {{"qkv_bias", "attention_bias"}, {"bias", "mlp_bias"}};
constexpr ConfigDefaults kInternLm3Defaults = {.vocab_size = 128512,
                                               .hidden_size = 4096,
                                               .intermediate_size = 10240,
                                               .num_hidden_layers = 48,
                                               .num_attention_heads = 32,
                                               .kv_heads = 2,
                                               .head_dim = 128,
                                               .max_position_embeddings = 32768,
                                               .rms_norm_eps = 1e-5,
                                               .bos_token_id = 1,
                                               .eos_token_id = 2,
                                               .aliases = kInternLm3Aliases};
constexpr ConfigDefaults kHeliumDefaults = {.vocab_size = 48000,
                                            .hidden_size = 2560,
                                            .intermediate_size = 7040,
                                            .num_hidden_layers = 24,
                                            .num_attention_heads = 20,
                                            .kv_heads = 20,
                                            .head_dim = 128,
                                            .max_position_embeddings = 4096,
                                            .rms_norm_eps = 1e-8,
                                            .rope_theta = 100000,
                                            .bos_token_id = 1,
                                            .eos_token_id = 2};
constexpr ConfigDefaults kCwmDefaults = {
    .vocab_size = 128256,
    .hidden_size = 6144,
    .intermediate_size = 21504,
    .num_hidden_layers = 64,
    .num_attention_heads = 48,
    .kv_heads = 8,
    .head_dim = 128,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-5,
    .rope_theta = 1e6,
    .rope_parameters = R"({"rope_theta": 1000000.0, "factor": 16.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"})",
    .bos_token_id = 128000};
constexpr ConfigDefaults kIQuestDefaults = {.vocab_size = 76800,
                                            .hidden_size = 5120,
                                            .intermediate_size = 27648,
                                            .num_hidden_layers = 80,
                                            .num_attention_heads = 40,
                                            .kv_heads = 8,
                                            .head_dim = 128,
                                            .max_position_embeddings = 131072,
                                            .rms_norm_eps = 1e-5,
                                            .bos_token_id = 1,
                                            .eos_token_id = 2};
constexpr ConfigDefaults kBitNetDefaults = {.vocab_size = 128256,
                                            .hidden_size = 2560,
                                            .intermediate_size = 6912,
                                            .num_hidden_layers = 30,
                                            .num_attention_heads = 20,
                                            .kv_heads = 5,
                                            .max_position_embeddings = 2048,
                                            .rms_norm_eps = 1e-5,
                                            .rope_theta = 500000,
                                            .bos_token_id = 128000,
                                            .eos_token_id = 128001,
                                            .activation = Activation::kRelu2};
constexpr FieldAlias kAriaAliases[] = {{"moe_num_experts", "num_experts"}};
constexpr ConfigDefaults kAriaDefaults = {.vocab_size = 32000,
                                          .hidden_size = 4096,
                                          .intermediate_size = 4096,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .max_position_embeddings = 2048,
                                          .bos_token_id = 1,
                                          .eos_token_id = 2,
                                          .aliases = kAriaAliases};
constexpr FieldAlias kExaoneAliases[] = {{"num_layers", "num_hidden_layers"},
                                         {"layer_norm_epsilon", "rms_norm_eps"},
                                         {"activation_function", "hidden_act"}};
constexpr ConfigDefaults kExaoneDefaults = {.vocab_size = 102400,
                                            .hidden_size = 4096,
                                            .intermediate_size = 14336,
                                            .num_hidden_layers = 32,
                                            .num_attention_heads = 32,
                                            .kv_heads = 8,
                                            .max_position_embeddings = 4096,
                                            .rms_norm_eps = 1e-5,
                                            .rope_theta = 500000,
                                            .bos_token_id = 1,
                                            .eos_token_id = 361,
                                            .aliases = kExaoneAliases};
constexpr ConfigDefaults kArceeDefaults = {.vocab_size = 32000,
                                           .hidden_size = 2560,
                                           .intermediate_size = 18432,
                                           .num_hidden_layers = 32,
                                           .num_attention_heads = 32,
                                           .max_position_embeddings = 4096,
                                           .rms_norm_eps = 1e-5,
                                           .bos_token_id = 128000,
                                           .eos_token_id = 128001,
                                           .activation = Activation::kRelu2};

}  // namespace
}  // namespace llama

const ModelFamily kLlama = {
    "LlamaForCausalLM",
    "llama",
    llama::kDefaults,
    llama::Read,
    {.models = "Llama 1 to 3.3, 1B to 405B, and other models of this architecture",
     .operators = "scaled rope; biases of attention and MLP",
     .golden = "llama-bf16, llama-tied-bf16-sharded, tiny-llama-bias, tiny-llama-wide, "
               "tiny-llama-narrow",
     .error = 4.8e-06}};

const ModelFamily kInternLm3 = {"LlamaForCausalLM",
                                "internlm3",
                                llama::kInternLm3Defaults,
                                llama::Read,
                                {.models = "InternLM 3 8B",
                                 .operators = "dynamic NTK rope: beyond the original positions, "
                                              "the base is the one for the maximum context",
                                 .golden = "tiny-internlm3",
                                 .error = 5.2e-07},
                                nullptr,
                                "",
                                "InternLM3ForCausalLM"};
const ModelFamily kArcee = {"ArceeForCausalLM",
                            "arcee",
                            llama::kArceeDefaults,
                            llama::ReadArcee,
                            {.models = "AFM 4.5B",
                             .operators = "an MLP without a gate, squared ReLU",
                             .golden = "tiny-arcee",
                             .error = 6.1e-07}};

const ModelFamily kHelium = {"HeliumForCausalLM",
                             "helium",
                             llama::kHeliumDefaults,
                             llama::ReadHelium,
                             {.models = "Helium 1 2B",
                              .operators = "interleaved rope",
                              .golden = "tiny-helium",
                              .error = 8.2e-07}};
const ModelFamily kCwm = {"CwmForCausalLM",
                          "cwm",
                          llama::kCwmDefaults,
                          llama::ReadCwm,
                          {.models = "CWM 32B",
                           .operators = "windows in three of four layers",
                           .golden = "tiny-cwm",
                           .error = 8.7e-07}};
const ModelFamily kIQuestCoder = {"LlamaForCausalLM",
                                  "iquestcoder",
                                  llama::kIQuestDefaults,
                                  llama::Read,
                                  {.models = "IQuest-Coder 7B, 14B, 40B",
                                   .operators = "none",
                                   .golden = "tiny-iquestcoder",
                                   .error = 4.9e-07},
                                  nullptr,
                                  "",
                                  "IQuestCoderForCausalLM"};
const ModelFamily kExaone = {"LlamaForCausalLM",
                             "exaone",
                             llama::kExaoneDefaults,
                             llama::ReadExaone,
                             {.models = "EXAONE 3.0, 3.5, Deep: 2.4B, 7.8B, 32B",
                              .operators = "none",
                              .golden = "tiny-exaone",
                              .error = 1e-06},
                             nullptr,
                             "",
                             "ExaoneForCausalLM"};

const ModelFamily kBitNet = {"BitNetForCausalLM",
                             "bitnet",
                             llama::kBitNetDefaults,
                             llama::ReadBitNet,
                             {.models = "BitNet b1.58 2B, with unpacked weights",
                              .operators = "norms inside sublayers; squared ReLU",
                              .golden = "tiny-bitnet",
                              .error = 1.4e-06}};
const ModelFamily kAriaText = {
    "AriaTextForCausalLM",
    "aria_text",
    llama::kAriaDefaults,
    llama::ReadAria,
    {.models = "the text part of Aria, saved separately",
     .operators = "experts with a softmax router and normalized routing weights; shared experts",
     .golden = "tiny-aria",
     .error = 1.1e-06}};

}  // namespace sluice
